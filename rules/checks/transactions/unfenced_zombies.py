"""`unfenced-zombie`: a broker granted a request of a life that was over, as it had said itself.

Of a transactional id, life after life is told a new epoch, or a new producer id; from then on whatever the earlier one
asks (another epoch, partitions or a group for a transaction, the end of one) must be refused. So must a commit of
offsets by a member that has left its group, and by one that lives as of a generation before the one that it was given
last. No client library asks such things on purpose; a probe of ours does, and logs each as a row of its own: granted is
`ok`, refused is `fail`, no answer `info`.

What is granted is proof by itself, and is reported as it arrives. It is innocent where the life was not over yet when
the request was invoked (both by the clock of the process that asked), and where the epoch or the generation is not an
earlier one. Of groups by the consumer protocol nothing is asked: since KIP-1251 a member may commit as of an earlier
epoch what it has held since.

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
        late_by_s = round((invoked - int(told["over"])) / 1e9, 3)
        who, after, named = _named(told, *(columns.table[one][row].as_py() for one in ("transactional_id", "group")))
        new.report.add(
            NAME,
            (process, op),
            f"{told['request']} of {who} was granted {late_by_s:g} s after {after}",
            at=int(columns.completed[row]),
            evidence={"process": process, "op": op, "request": told["request"], "late_by_s": late_by_s, **named},
        )


def _named(told: dict[str, str], name: str | None, group: str | None) -> tuple[str, str, dict[str, Any]]:
    """Who asked, since when its life was over, and both as evidence."""
    if "epoch" in told:
        after = f"{name} had been given epoch {told['latest_epoch']}"
        if told["latest_producer_id"] != told["producer_id"]:
            after = f"{name} had been given producer {told['latest_producer_id']}"
        epochs = {key: int(told[key]) for key in _EPOCHS}
        return f"producer {told['producer_id']} at epoch {told['epoch']}", after, {"transactional_id": name, **epochs}
    member, generation = told["member"], int(told["generation"])
    named = {"group": group, "member": member, "generation": generation}
    if "latest_generation" not in told:
        return f"member {member}", f"it had left {group}", named
    latest = int(told["latest_generation"])
    after = f"it had been given generation {latest} of {group}"
    return f"member {member} at generation {generation}", after, named | {"latest_generation": latest}


_EPOCHS: Final = ("producer_id", "epoch", "latest_producer_id", "latest_epoch")


def _is_over(told: dict[str, str], invoked: int) -> bool:
    """Was the life whose request this is over when it was invoked?"""
    if "over" not in told or invoked < int(told["over"]):
        return False
    if "epoch" not in told:
        latest = told.get("latest_generation")
        return "member" in told and (latest is None or int(told["generation"]) < int(latest))
    return told["producer_id"] != told["latest_producer_id"] or int(told["epoch"]) < int(told["latest_epoch"])


CHECK: Final = Check(NAME, Stateless, arrive=arrive, rows=frozenset({ZOMBIE}))
