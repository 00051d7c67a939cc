"""What rows say of groups: commits, committed offsets that were told, who is of which group, who holds the partition.

Groups are numbers here: see `numbers_of`. A clock domain is a boot, a number of `State.boot_names`, -1 for none. Times
are microseconds: `at` and `since` are log time, `invoked` and `completed` those of the row's own clock domain, rounded
so that they only lie further apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import ASSIGN, CLOSE, COMMIT, INFO, OFFSETS, OK, REVOKE, START, SUBSCRIBE, TXN, Columns
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.checks.invoked_commits import ANY, Invoked
from rules.kept.codec import Table
from rules.settling.clocks import domains

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
    """Committed offsets that `process` was told; `offset` is -1 for none. `stable`: 0 if it reads uncommitted."""

    group: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    stable: Ints = field(default_factory=lambda: EMPTY)


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


def numbers_of(columns: Columns, rows: Ints, number: Number) -> Ints:
    """The numbers of the groups that these rows name, `ANY` where they name none."""
    names = pc.dictionary_encode(pc.fill_null(columns.table["group"].take(pa.array(rows)).combine_chunks(), ""))
    numbers = np.array([number(name) if name else ANY for name in names.dictionary.to_pylist()], np.int64)
    return np.asarray(numbers[np.asarray(names.indices.to_numpy(), np.int64)], np.int64)


def _times(columns: Columns, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """(domain, invoked, completed)"""
    names, domain, invoked, completed = domains(columns)
    invoked, completed = invoked[rows], completed[rows]
    has_boot = np.array([bool(name) for name in names])[domain[rows]]
    untimed = (invoked < 0) | (completed < 0)
    return (
        np.where(untimed, UNTIMED, columns.boot[rows]),
        np.where(untimed, columns.invoked[rows], np.where(has_boot, invoked // 1000, invoked)),
        np.where(untimed, columns.completed[rows], np.where(has_boot, -(-completed // 1000), completed)),
    )


def commits(columns: Columns, among: Bools, number: Number) -> Commits:
    """The commits among these rows that name a group and an offset."""
    rows = np.flatnonzero(among & columns.where(COMMIT, TXN) & (columns.committed >= 0))
    if not len(rows):
        return Commits()
    group = numbers_of(columns, rows, number)
    rows, group = rows[group > ANY], group[group > ANY]
    done = columns.type[rows] == OK
    kind = np.where(done, np.where(columns.f[rows] == TXN, IN_TRANSACTION, DONE), INDEFINITE)
    domain, invoked, completed = _times(columns, rows)
    return Commits(
        group, domain, completed, invoked, columns.invoked[rows], columns.completed[rows], columns.committed[rows],
        kind, columns.process[rows], np.full(len(rows), NEVER),
    )  # fmt: skip


def invoked(columns: Columns, number: Number) -> tuple[Invoked, Invoked]:
    """The offsets that groups were asked to commit, those of no named group under `ANY`; and those of them of which
    nobody knows whether they were, or when."""
    asked = columns.where(COMMIT, TXN) & (columns.committed >= 0)
    implied = columns.where(TXN) & (columns.type != OK) & (columns.committed < 0) & (columns.position_after >= 0)
    rows = np.flatnonzero(asked | implied)
    if not len(rows):
        return Invoked(), Invoked()
    group = np.where(asked[rows], numbers_of(columns, rows, number), ANY)
    offset = np.where(asked[rows], columns.committed[rows], columns.position_after[rows])
    followed = group >= 0
    unsure = followed & (columns.type[rows] == INFO)
    return Invoked(group[followed], offset[followed]), Invoked(group[unsure], offset[unsure])


def reads(columns: Columns, among: Bools, number: Number) -> Reads:
    """The committed offsets that these rows were told, where that succeeded and can be ordered."""
    has_group = columns.table["group"].is_valid().to_numpy()
    rows = np.flatnonzero(among & columns.where(OFFSETS) & (columns.type == OK) & has_group)
    if not len(rows):
        return Reads()
    group = numbers_of(columns, rows, number)
    domain, invoked_, completed = _times(columns, rows)
    found = (group > ANY) & (domain != UNTIMED)
    rows = rows[found]
    return Reads(
        group[found], domain[found], completed[found], invoked_[found], columns.invoked[rows], columns.completed[rows],
        columns.committed[rows], columns.process[rows], columns.committed_only[rows].astype(np.int64),
    )  # fmt: skip


def members(columns: Columns, among: Bools, number: Number) -> Members:
    """Which groups processes are of, as their start rows say (`group.id`), and what they did."""
    found: set[tuple[int, int, int, int]] = set()
    boot = columns.boot
    for row in np.flatnonzero(among & columns.where(START)).tolist():
        told = dict(columns.table["settings"][row].as_py() or {})
        name = told.get("group.id")
        reading = columns.table["kind"][row].as_py() == OBSERVER
        group = number(name) if name else ANY
        found.add((int(columns.process[row]), group, int(reading), int(boot[row])))
    named = among & columns.table["group"].is_valid().to_numpy()
    for function, reading in (((COMMIT, TXN), False), ((OFFSETS,), True)):
        rows = np.flatnonzero(named & columns.where(*function) & (reading | (columns.committed >= 0)))
        groups = numbers_of(columns, rows, number) if len(rows) else EMPTY
        for process, group, at in zip(*(c.tolist() for c in (columns.process[rows], groups, boot[rows])), strict=True):
            if group > ANY:
                found.add((process, group, int(reading), at))
    return Members(*np.array(sorted(found), np.int64).reshape(-1, 4).T)


def holds(columns: Columns, among: Bools, number: Number) -> Holds:
    """What subscribed members hold since when; whoever closes holds nothing more, of any group (`ANY`)."""
    told = columns.where(ASSIGN, SUBSCRIBE, REVOKE) & columns.subscribed & (columns.assigned >= 0)
    told &= columns.table["group"].is_valid().to_numpy()
    closed = columns.where(CLOSE)
    rows = np.flatnonzero(among & (told | closed))
    if not len(rows):
        return Holds()
    group = np.where(closed[rows], ANY, numbers_of(columns, rows, number))
    rows, group = rows[group >= 0], group[group >= 0]
    return Holds(group, columns.process[rows], columns.completed[rows], (columns.assigned[rows] == 1).astype(np.int64))
