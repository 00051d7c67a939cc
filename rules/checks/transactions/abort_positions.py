"""`abort-position`: where a consumer stands after its transaction was aborted.

`advance` (where its polls had ended), `rewind` (where the transaction began), `rewind-further` (before that), `other`;
the context says whether a rebalance fell into it. Kafka's clients do not agree on it, and none is wrong.
"""

from __future__ import annotations

from typing import Final

from rules.arrays.columns import POSITION
from rules.arrays.intervals import indices
from rules.kept.check import Check, News, Stateless


def arrive(own: Stateless, new: News) -> None:
    """Where the new rows say that consumers stand."""
    columns = new.columns
    for row in indices(new.fresh & columns.where(POSITION) & (columns.txn >= 0)).tolist():
        before, after = int(columns.position_before[row]), int(columns.position_after[row])
        reached = columns.table["reached"][row].as_py()
        if min(before, after) < 0 or reached is None:
            continue
        if after == reached:
            found = "advance"
        elif after == before:
            found = "rewind"
        else:
            found = "rewind-further" if after < before else "other"
        process, txn = int(columns.process[row]), int(columns.txn[row])
        new.report.add(
            "abort-position",
            (process, txn),
            f"after its transaction was aborted, process {process} stands at {after} ({found})",
            at=int(columns.completed[row]),
            evidence={
                "process": process,
                "txn": txn,
                "class": found,
                "before": before,
                "reached": reached,
                "after": after,
            },
            context={"class": found, "rebalanced": "true" if columns.rebalanced[row] else "false"},
        )


CHECK: Final = Check("abort-position", Stateless, arrive=arrive, rows=frozenset({POSITION}))
