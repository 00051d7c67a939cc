"""`rebalance`: a group reader was given this partition, or it was taken away; each is counted once.

State: the group readers that hold the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.arrays.columns import ASSIGN, CLOSE, REVOKE, SUBSCRIBE
from rules.arrays.intervals import indices
from rules.kept.check import Check, Passage


@dataclass(slots=True)
class Holding:
    """`processes`: the living group readers that hold the partition."""

    processes: list[int] = field(default_factory=list)


def fold(own: Holding, passage: Passage) -> None:
    """What the moves, in the order of time, say of assignments."""
    moves, f = passage.moves, passage.moves.f
    rows = indices((f == ASSIGN) | (f == SUBSCRIBE) | (f == REVOKE) | (f == CLOSE))
    if not len(rows):
        return
    holding = set(own.processes)
    for i in rows.tolist():
        process, op = int(moves.process[i]), int(moves.op[i])
        if moves.f[i] == CLOSE:
            holding.discard(process)
            continue
        told, has = int(moves.assigned[i]), process in holding
        if told < 0 or bool(told) == has:
            continue
        if moves.subscribed[i]:
            passage.report.add(
                "rebalance",
                (process, op),
                f"process {process} was given this partition" if told else f"process {process} lost this partition",
                at=int(moves.at[i]),
                evidence={"process": process, "op": op},
                context={"change": "gained" if told else "lost"},
            )
        if told and moves.subscribed[i]:
            holding.add(process)
        else:
            holding.discard(process)
    own.processes = sorted(process for process in holding if process in passage.state.processes)


CHECK: Final = Check("rebalance", Holding, fold=fold)
