"""The lives of transactional ids: which process called init_transactions with which id, and when.

Every init is logged in every partition, so that each of them knows all lives. State: those of living processes and the
last one of each name that a living process bears, at most the newest `KEPT`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import INIT, OK, Columns
from rules.arrays.intervals import Bools
from rules.kept.state import State

KEPT: Final = 256
INITS: Final = "inits"


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


def note_inits(state: State, columns: Columns, fresh: Bools) -> None:
    """Remember the new rows' inits, in whatever order they come."""
    rows = np.flatnonzero(fresh & columns.where(INIT))
    if not len(rows):
        return
    kept = state.notes.setdefault(INITS, [])
    for row in rows.tolist():
        name = columns.table["transactional_id"][row].as_py()
        if name:
            invoked, completed = int(columns.invoked[row]), int(columns.completed[row])
            boot, mono = columns.table["boot"][row].as_py(), columns.table["mono_completed"][row].as_py()
            returned = int(columns.type[row] == OK)
            clock = [boot or "", -1 if boot is None or mono is None else mono]
            kept.append([name, int(columns.process[row]), invoked, completed, returned, *clock])
    kept.sort(key=lambda entry: entry[2])
    del kept[:-KEPT]


def inits(state: State, name: str) -> list[Init]:
    """All known calls with this transactional id, in the order of their invocations."""
    return [Init(*entry) for entry in state.notes.get(INITS, []) if entry[0] == name]


def initialised(state: State, name: str) -> list[Init]:
    """Those that returned."""
    return [one for one in inits(state, name) if one.returned]


def forget(state: State) -> None:
    """Drop what belongs to processes that are forgotten, save the last life of each name that is still borne."""
    kept = state.notes.get(INITS, [])
    if len(kept) <= KEPT // 4:
        return
    borne = {entry[0] for entry in kept if entry[1] in state.processes}
    last = {entry[0]: i for i, entry in enumerate(kept)}
    state.notes[INITS] = [
        entry
        for i, entry in enumerate(kept)
        if entry[1] in state.processes or (entry[0] in borne and last[entry[0]] == i)
    ]
