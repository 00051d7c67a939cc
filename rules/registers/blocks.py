"""What the operations on a register's ids are folded into: clusters, and blocks of clusters that replaced one another.

See `rules.registers.linearizability` for what they mean and why so little of each operation must be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

NEVER: Final = 2**62


class Op(NamedTuple):
    """One operation. `at` and `done` are log time in microseconds. `start` and `end` are by the clock of `boot`, in ns;
    `end` is NEVER where the outcome is unknown. Without a boot, nothing is concluded from its times."""

    at: int
    done: int
    process: int
    op: int
    boot: str
    start: int
    end: int
    action: str
    type: str
    id: int | None
    expected: int | None
    observed: int | None


class Contradiction(NamedTuple):
    """Operations that no order fits, the one that showed it first, and why, in a sentence. `at`: the log time from
    which the evidence was complete."""

    reason: str
    ops: tuple[Op, ...]
    sentence: str
    at: int


@dataclass(slots=True)
class Cluster:
    """The operations on one id. `first`: which completed first, by boot; `last`: which was invoked last."""

    id: int
    write: Op | None
    first: dict[str, Op] = field(default_factory=dict)
    last: dict[str, Op] = field(default_factory=dict)


@dataclass(slots=True)
class Block:
    """Clusters that replaced one another, in that order: those that are not forgotten. `first` and `last` are over all.
    `initial`: it begins with the register's first id, so that it precedes all others."""

    clusters: list[Cluster]
    initial: bool = False
    first: dict[str, Op] = field(default_factory=dict)
    last: dict[str, Op] = field(default_factory=dict)


class Gone(NamedTuple):
    """An id that cannot be read any more: who wrote it, and by what operation it is known to be replaced (None: the
    write failed)."""

    id: int
    write: Op | None
    by: Op | None


class Shown(NamedTuple):
    """What an operation shows of the ids it touched: their writes should be there by log time `until`; if they are
    forgotten (`proven`), it contradicts what forgot them."""

    until: int
    proven: bool


class Waiting(NamedTuple):
    """An operation on an id whose write is not known yet."""

    id: int
    op: Op
    shown: Shown


def fold(first: dict[str, Op], last: dict[str, Op], op: Op) -> None:
    """Count an operation into the extremes of its cluster or block."""
    boot = op.boot
    if not boot:
        return
    known = last.get(boot)
    if known is None or op.start > known.start:
        last[boot] = op
    if op.end < NEVER:
        known = first.get(boot)
        if known is None or op.end < known.end:
            first[boot] = op


def precedes(a: Block, b: Block, joining: Op | None = None, to: Block | None = None) -> tuple[Op, ...] | None:
    """Why `a` comes before `b`: an operation of a that completed before one of b was invoked; () if a is the initial
    block; None if nothing says so. `joining` counts as a member of `to`."""
    for boot, done in a.first.items():
        begun = b.last.get(boot)
        if begun is not None and done.end < begun.start:
            return (done, begun)
    if joining is not None:
        if to is a:
            begun = b.last.get(joining.boot)
            if begun is not None and joining.end < begun.start:
                return (joining, begun)
        else:
            done_first = a.first.get(joining.boot)
            if done_first is not None and done_first.end < joining.start:
                return (done_first, joining)
    return () if a.initial else None


def because(reason: str, ops: tuple[Op, ...], sentence: str, at: int = -1) -> Contradiction:
    """A contradiction whose evidence was complete at log time `at`, or when the last of the operations was."""
    return Contradiction(reason, ops, sentence, max(at, *(op.done if op.end < NEVER else op.at for op in ops)))


def distinct(*ops: Op | None) -> tuple[Op, ...]:
    """Those that are there, each once, in the order given."""
    return tuple(dict.fromkeys(op for op in ops if op is not None))


def earliest(known: dict[str, Op], more: dict[str, Op]) -> None:
    """Keep in `known`, by boot, what completed first."""
    for boot, op in more.items():
        if boot not in known or op.end < known[boot].end:
            known[boot] = op
