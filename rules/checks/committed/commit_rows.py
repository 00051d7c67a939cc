"""What rows say of groups: commits, committed offsets that were told, who is of which group, who holds the partition.

Groups are numbers here. A clock domain is a boot, a number of `State.boot_names`, -1 for none. Times
are microseconds: `at` and `since` are log time, `invoked` and `completed` those of the row's own clock domain, rounded
so that they only lie further apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    COMMIT,
    INFO,
    OFFSETS,
    OK,
    REVOKE,
    START,
    SUBSCRIBE,
    TXN,
    Columns,
    named_groups,
)
from rules.arrays.intervals import EMPTY, Bools, Ints, indices, some
from rules.checks.committed.invoked_commits import ANY, Invoked, Newly
from rules.kept.codec import Table, take
from rules.settling.clocks import domains

NO_BOOT: Final = -1
UNTIMED: Final = -2
"""The clock domain of rows that name a boot and tell no time of it."""
NEVER: Final = 2**62
INDEFINITE, DONE, IN_TRANSACTION = 0, 1, 2
OBSERVER: Final = "observer"

Number = Callable[[str], int]
"""The number of a group's name, -1 where it is not followed."""


@dataclass(slots=True)
class Commits(Table):
    """Commits by `process` of a group. `kind`: acknowledged (`DONE`, or `IN_TRANSACTION`), or not. `spoiled`: since
    when a lower commit may have taken its place, `NEVER` while none may."""

    group: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    kind: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    spoiled: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Reads(Table):
    """Committed offsets that `process` was told; `offset` is -1 for none. `stable`: 0 if it reads uncommitted. `end`:
    how high the log's end had been listed by the first listing after that, NEVER while none is known."""

    group: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    stable: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Members(Table):
    """Which group a process is of (`ANY`: of none), and by which clock it goes. `reads`: 1 if it is only told what
    groups have committed."""

    process: Ints = field(default_factory=lambda: EMPTY)
    group: Ints = field(default_factory=lambda: EMPTY)
    reads: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Holds(Table):
    """Since when a subscribed member holds the partition (1), or does not (0)."""

    group: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    holds: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Joins(Table):
    """When a process first set about to become a member of its group, by the clock of its own domain."""

    process: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)


class GroupRows:
    """The rows of a step that name groups, as tables; `among` picks rows of the step. `number` gives their numbers."""

    def __init__(self, columns: Columns, number: Number) -> None:
        self._columns, self._number = columns, number
        self._rows, names, index = named_groups(columns)
        numbers = np.array([number(name) if name else ANY for name in names], np.int64)
        self._group = numbers[index]
        self._f = columns.f[self._rows]
        self._commits = ((self._f == COMMIT) | (self._f == TXN)) & (columns.committed[self._rows] >= 0)

    @property
    def unfollowed(self) -> int:
        """How many rows name a group that has no number."""
        return int(np.count_nonzero(self._group < ANY))

    def _picked(self, which: Bools, among: Bools | None) -> tuple[Ints, Ints]:
        """(rows, groups) of those named rows."""
        if among is not None:
            which = which & among[self._rows]
        return self._rows[which], self._group[which]

    def commits(self, among: Bools | None = None) -> Commits:
        """The commits that name a group and an offset."""
        columns = self._columns
        rows, group = self._picked(self._commits & (self._group > ANY), among)
        if not len(rows):
            return Commits()
        kind = np.where(columns.f[rows] == TXN, IN_TRANSACTION, DONE) * (columns.type[rows] == OK)
        domain, invoked, completed = _times(columns, rows)
        return Commits(
            group,
            domain,
            completed,
            invoked,
            columns.invoked[rows],
            columns.completed[rows],
            columns.committed[rows],
            kind,
            columns.process[rows],
            np.full(len(rows), NEVER),
        )

    def reads(self, among: Bools | None = None) -> Reads:
        """The committed offsets that were told, where that succeeded and can be ordered."""
        columns = self._columns
        told = (self._f == OFFSETS) & (columns.type[self._rows] == OK) & (self._group > ANY)
        rows, group = self._picked(told, among)
        if not len(rows):
            return Reads()
        domain, invoked, completed = _times(columns, rows)
        reads = Reads(
            group,
            domain,
            completed,
            invoked,
            columns.invoked[rows],
            columns.completed[rows],
            columns.committed[rows],
            columns.process[rows],
            columns.committed_only[rows].astype(np.int64),
            np.full(len(rows), NEVER),
        )
        return take(reads, domain != UNTIMED)

    def invoked(self) -> tuple[Newly, Invoked]:
        """The offsets that groups were asked to commit, those of no named group under `ANY`; and those of them of which
        nobody knows whether they were, or when. Of all rows."""
        columns = self._columns
        if columns.functions.isdisjoint((COMMIT, TXN)):
            return Newly(), Invoked()
        rows, group = self._picked(self._commits & (self._group >= ANY), None)
        offset = columns.committed[rows]
        nameless = columns.where(COMMIT, TXN) & (columns.committed >= 0)
        nameless[self._rows] = False
        implied = (columns.f == TXN) & (columns.type != OK) & (columns.committed < 0) & (columns.position_after >= 0)
        if implied.any() or nameless.any():
            more = indices(implied | nameless)
            place = np.where(nameless[more], columns.committed[more], columns.position_after[more])
            group, offset = np.append(group, np.full(len(more), ANY)), np.append(offset, place)
            rows = np.concatenate((rows, more))
        unsure = columns.type[rows] == INFO
        asked = Newly(group, offset, columns.invoked[rows], columns.boot[rows])
        return asked, Invoked(group[unsure], offset[unsure])

    def members(self, among: Bools) -> set[tuple[int, int, int, int]]:
        """Entries of `Members`: which groups processes are of, as their start rows say (`group.id`), and what they
        did."""
        columns, found = self._columns, set()
        for row in indices(among & columns.where(START)).tolist() if START in columns.functions else ():
            told = dict(columns.table["settings"][row].as_py() or {})
            name = told.get("group.id")
            reading = columns.table["kind"][row].as_py() == OBSERVER
            group = self._number(name) if name else ANY
            found.add((int(columns.process[row]), group, int(reading), int(columns.boot[row])))
        reading = self._f == OFFSETS
        rows, groups = self._picked((self._commits | reading) & (self._group > ANY), among)
        reads = (columns.f[rows] == OFFSETS).astype(np.int64)
        entries = (columns.process[rows], groups, reads, columns.boot[rows])
        found.update(zip(*(column.tolist() for column in entries), strict=True))
        return found

    def joins(self, among: Bools) -> Joins:
        """When processes subscribed."""
        columns = self._columns
        if SUBSCRIBE not in columns.functions:
            return Joins()
        rows, _ = self._picked((self._f == SUBSCRIBE) & (self._group > ANY), among)
        return Joins(columns.process[rows], _times(columns, rows)[1])

    def holds(self, among: Bools) -> Holds:
        """What subscribed members hold since when; whoever closes holds nothing more, of any group (`ANY`)."""
        columns = self._columns
        if columns.functions.isdisjoint((ASSIGN, SUBSCRIBE, REVOKE, CLOSE)):
            return Holds()
        moved = (self._f == ASSIGN) | (self._f == SUBSCRIBE) | (self._f == REVOKE)
        moved &= columns.subscribed[self._rows] & (columns.assigned[self._rows] >= 0) & (self._group > ANY)
        rows, group = self._picked(moved, among)
        closed = indices(among & (columns.f == CLOSE))
        rows, group = np.concatenate((rows, closed)), np.concatenate((group, np.full(len(closed), ANY)))
        held = (columns.assigned[rows] == 1).astype(np.int64)
        return Holds(group, columns.process[rows], columns.completed[rows], held, columns.boot[rows])


def _times(columns: Columns, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """(domain, invoked, completed)"""
    names, domain, invoked, completed = domains(columns)
    invoked, completed = invoked[rows], completed[rows]
    if names == [""]:
        return columns.boot[rows], invoked, completed
    untimed = (invoked < 0) | (completed < 0)
    if "" not in names and not some(untimed):
        return columns.boot[rows], invoked // 1000, -(-completed // 1000)
    has_boot = np.array([bool(name) for name in names])[domain[rows]]
    return (
        np.where(untimed, UNTIMED, columns.boot[rows]),
        np.where(untimed, columns.invoked[rows], np.where(has_boot, invoked // 1000, invoked)),
        np.where(untimed, columns.completed[rows], np.where(has_boot, -(-completed // 1000), completed)),
    )
