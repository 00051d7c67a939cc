"""`unfenced-zombie`: a broker granted a request of a life that was over, as it had said itself.

Of a transactional id, life after life is told a new epoch, or a new producer id; from then on whatever the earlier one
asks (another epoch, partitions or a group for a transaction, the end of one) must be refused. So must a commit of
offsets by a member that has left its group. No client library asks such things on purpose; a probe of ours does, and
logs each as a row of its own: granted is `ok`, refused is `fail`, no answer `info`.

What is granted is proof by itself, and is reported as it arrives. It is innocent where the life was not over yet when
the request was invoked (both by the clock of the process that asked), and where the epoch is not an earlier one.

State: none.
"""

from __future__ import annotations

from typing import Any, Final

from rules.arrays.columns import OK, ZOMBIE
from rules.kept.check import Check, News, Stateless

NAME: Final = "unfenced-zombie"


def arrive(own: Stateless, new: News) -> None:
    """Report the granted ones among the new rows."""
    columns = new.columns
    for row in new.where(ZOMBIE).tolist():
        told = dict(columns.table["settings"][row].as_py() or ())
        invoked = columns.table["mono_invoked"][row].as_py()
        if columns.type[row] != OK or invoked is None or not _is_over(told, invoked):
            continue
        process, op = int(columns.process[row]), int(columns.op[row])
        name, group = (columns.table[one][row].as_py() for one in ("transactional_id", "group"))
        evidence: dict[str, Any] = {
            "process": process,
            "op": op,
            "request": told["request"],
            "late_by_s": round((invoked - int(told["over"])) / 1e9, 3),
        }
        if "epoch" in told:
            evidence |= {"transactional_id": name} | {key: int(told[key]) for key in _EPOCHS}
            who = f"producer {told['producer_id']} at epoch {told['epoch']}"
            after = f"{name} had been given epoch {told['latest_epoch']}"
            if told["latest_producer_id"] != told["producer_id"]:
                after = f"{name} had been given producer {told['latest_producer_id']}"
        else:
            evidence |= {"group": group, "member": told["member"], "generation": int(told["generation"])}
            who, after = f"member {told['member']}", f"it had left {group}"
        new.report.add(
            NAME,
            (process, op),
            f"{told['request']} of {who} was granted {evidence['late_by_s']:g} s after {after}",
            at=int(columns.completed[row]),
            evidence=evidence,
        )


_EPOCHS: Final = ("producer_id", "epoch", "latest_producer_id", "latest_epoch")


def _is_over(told: dict[str, str], invoked: int) -> bool:
    """Was the life whose request this is over when it was invoked?"""
    if "over" not in told or invoked < int(told["over"]):
        return False
    if "epoch" not in told:
        return "member" in told
    return told["producer_id"] != told["latest_producer_id"] or int(told["epoch"]) < int(told["latest_epoch"])


CHECK: Final = Check(NAME, Stateless, arrive=arrive, rows=frozenset({ZOMBIE}))
