"""Hosts that a person has declared gone (`offsetwatch probe gone`): nothing that their processes did is waited for.

The declaration is mark rows of their own (`probes.log.commits.gone`); who writes them is no host. Each process
that they name is over, and what it did after its last mark is missing for good; rows that were counted and are not here
for `WAITED` after that are given up.

The host may come back all the same, with its journals. So it is remembered of each such process how much of its log is
here. What comes of it then is evidence like any other, each slice once, and nothing of it is missing or waited for. One
that lives after all, by the word that its own host gives after the declaration, is a process like others again.

State: the `KEPT` that were declared gone last and are followed to their ends. Rows of one before them count from
nothing: they are told as missing, for a while.
"""

from __future__ import annotations

from typing import Final

from rules.arrays.columns import MARK, Columns
from rules.arrays.intervals import indices
from rules.kept.state import Process, State
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import DECLARED_GONE

KEPT: Final = 128
WAITED: Final = 30 * SECOND
"""Log time within which rows are read after those that were written later."""


def declarations(columns: Columns) -> frozenset[int]:
    """The mark rows that declare processes gone."""
    if not columns.tells("error") or MARK not in columns.functions:
        return frozenset()
    error = columns.table["error"]
    return frozenset(row for row in indices(columns.where(MARK)).tolist() if error[row].as_py() == DECLARED_GONE)


def declare(process: Process, at: int) -> None:
    """It is declared gone, at a log time."""
    process.declared = at


def told_by_its_host(process: Process, at: int, *, lives: bool) -> bool:
    """A mark of its own host tells of a process that was declared gone: is it one like others from now on? One that is
    older than the declaration, or than the word that it is over, comes late."""
    if at <= process.declared:
        return False
    if not lives:
        process.declared = at  # that it lives was said before
        return False
    process.declared = process.closes_at = process.closed = process.lost_by = -1
    process.lost = process.unsaid = False
    return True


def leave(state: State, number: int, process: Process) -> None:
    """All that there is of it is here and followed."""
    state.departed[number] = process
    while len(state.departed) > KEPT:
        del state.departed[next(iter(state.departed))]


def lately(state: State, within: int) -> bool:
    """Was one of them declared gone within such a time?"""
    return any(state.now - process.declared <= within for process in state.departed.values())


def is_given_up(state: State, process: Process) -> bool:
    """Are rows that it counted, and that are not here, not waited for any longer?"""
    return state.now - process.declared > WAITED
