"""`replaced-cluster`: another cluster answers at the addresses of the one that the probes had worked in.

Its partitions are not those of the other one, whatever they are called: none of the records that were acknowledged
there is here. That is not seen in any log, since a topic of another cluster is another log: the probes know it, and
say so in the rows in which they begin (`rules.vocabulary.slices.FORMER_CLUSTER`).

State: none; what was told once is remembered by the report.
"""

from __future__ import annotations

from typing import Final

from rules.arrays.columns import START
from rules.kept.check import Check, News, Stateless
from rules.vocabulary.slices import FORMER_CLUSTER

NAME: Final = "replaced-cluster"


def arrive(own: Stateless, new: News) -> None:
    """Report what beginning processes tell."""
    columns, report = new.columns, new.report
    begun = new.where(START)
    for row in begun[columns.completed[begun].argsort(kind="stable")].tolist():  # the first of them tells since when
        former = dict(columns.table["settings"][row].as_py() or ()).get(FORMER_CLUSTER)
        now = report.place.cluster
        if former is None or former == now or not report.once(f"{NAME}:{former}"):
            continue
        report.add(
            NAME,
            (former,),
            f"the cluster at the probes' addresses had the id {former} and has {now} now: what was acknowledged there"
            " is not here",
            at=int(columns.completed[row]),
            evidence={"before": former, "now": now},
        )


CHECK: Final = Check(NAME, Stateless, arrive=arrive, rows=frozenset({START}))
