"""The lives of transactional ids: which process called init_transactions with which id, and when.

Every init is logged in every partition, so that each of them knows all lives. State: those of living processes, the
last one of each name that a living process bears, and those that a transaction which waits for its verdict may have
been fenced by, or begun with; at most the newest `KEPT`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rules.arrays.columns import INIT, OK
from rules.kept.check import Check, News, Passage
from rules.kept.state import NEVER, State

KEPT: Final = 1_024
FEW: Final = 64
"""Fewer are not looked through."""
NAME: Final = "transactional-ids"


class Init(NamedTuple):
    """One call of init_transactions; `returned`: 1 if it returned without an error, at `mono` ns of `boot`'s monotonic
    clock (-1 where the row has none)."""

    name: str
    process: int
    invoked: int
    completed: int
    returned: int
    boot: str
    mono: int


@dataclass(slots=True)
class Lives:
    """`inits`: each call as `Init` has it, in the order of their invocations, at most `KEPT`."""

    inits: list[list[Any]] = field(default_factory=list)


def arrive(own: Lives, new: News) -> None:
    """Remember the new rows' inits, in whatever order they come."""
    rows = new.where(INIT)
    if not len(rows):
        return
    columns = new.columns
    for row in rows.tolist():
        name = columns.table["transactional_id"][row].as_py()
        if name:
            invoked, completed = int(columns.invoked[row]), int(columns.completed[row])
            boot, mono = columns.table["boot"][row].as_py(), columns.table["mono_completed"][row].as_py()
            returned = int(columns.type[row] == OK)
            clock = [boot or "", -1 if boot is None or mono is None else mono]
            own.inits.append([name, int(columns.process[row]), invoked, completed, returned, *clock])
    own.inits.sort(key=lambda entry: entry[2])
    own.inits = new.report.newest(own.inits, KEPT, "lives of transactional ids")


def inits(state: State, name: str) -> list[Init]:
    """All known calls with this transactional id, in the order of their invocations."""
    known = state.checks.get(NAME)
    return [] if known is None else [Init(*entry) for entry in known.inits if entry[0] == name]


def initialised(state: State, name: str) -> list[Init]:
    """Those that returned."""
    return [one for one in inits(state, name) if one.returned]


def ids_of(state: State) -> set[tuple[str, int]]:
    """Each transactional id with the processes that called init_transactions with it."""
    known = state.checks.get(NAME)
    return set() if known is None else {(entry[0], entry[1]) for entry in known.inits}


def under_another_id(state: State, name: str) -> set[int]:
    """The processes that called init_transactions with another id."""
    return {process for other, process in ids_of(state) if other != name}


def forget(own: Lives, passage: Passage) -> None:
    """Drop what belongs to processes that are forgotten, save the last life of each name that is still borne, and what
    may still be asked for."""
    if passage.finished or len(own.inits) <= FEW:
        return
    living = passage.state.processes
    borne = {entry[0] for entry in own.inits if entry[1] in living}
    last = {entry[0]: i for i, entry in enumerate(own.inits)}
    since = _needed_since(own, passage.lives())
    own.inits = [
        entry
        for i, entry in enumerate(own.inits)
        if entry[1] in living or (entry[0] in borne and last[entry[0]] == i) or entry[2] >= since.get(entry[0], NEVER)
    ]


def _needed_since(own: Lives, waiting: dict[tuple[str, int], int]) -> dict[str, int]:
    """By transactional id, since when lives may be asked for by transactions that wait: `waiting` tells when the first
    of each process was invoked. They ask for the life that they belong to, and for those after it."""
    began: dict[tuple[str, int], int] = {}
    for name, process, invoked, *_ in own.inits:  # in the order of their invocations
        if invoked <= waiting.get((name, process), -1):
            began[name, process] = invoked
    since: dict[str, int] = {}
    for life, first in waiting.items():
        since[life[0]] = min(began.get(life, first), since.get(life[0], NEVER))
    return since


CHECK: Final = Check(NAME, Lives, arrive=arrive, fold=forget, rows=frozenset({INIT}), rests=True)
"""It finds nothing itself; those that do ask `inits` and `initialised`."""
