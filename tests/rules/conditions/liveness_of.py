"""What the tests of conditions have in common: histories second by second, and what became of a condition."""

from __future__ import annotations

import random
from typing import Final, Protocol

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Slice, to_table
from rules.vocabulary.times import micros
from tests.rules.histories import SEARCHES, START, History, Store, singly

SHORT: Final = 80
"""A history of so many rows costs nothing row by row; one of an hour's marks costs seconds."""
LONG: Final = 200
"""One of more rows than that comes in steps of twice as many."""


class Rows(Protocol):
    """A history of any making."""

    rows: list[Slice]


def row_by_row(h: Rows, most: int = 0) -> Store:
    """Each row in a step of its own, the state through its bytes in between. Of a long history one to six rows a step,
    or to twelve, or to as many as is said, which may part any two, unless `make search` looks further."""
    store = Store()
    if len(h.rows) <= SHORT or SEARCHES:
        for row in singly(h.rows):
            store.feed(row)
        return store
    rng, table, at = random.Random(len(h.rows)), to_table(h.rows), 0
    most = most or (6 if table.num_rows <= LONG else 12)
    while at < table.num_rows:
        rows = rng.randint(1, most)
        store.feed(table.slice(at, rows))
        at += rows
    return store


def at_once(h: Rows) -> Store:
    """All rows in one step."""
    store = Store()
    store.feed(h.rows)
    return store


def away(h: History, cut: int) -> Store:
    """The first rows one by one, then all the rest in one step, as a monitor does that was away for a while."""
    table, store = to_table(h.rows), Store()
    for i in range(cut):
        store.feed(table.slice(i, 1))
    store.feed(table.slice(cut))
    return store


def away_after_seconds(h: History) -> Store:
    """It was there for the first four seconds of the first committer's log time."""
    marks = [i for i, row in enumerate(h.rows) if row.f == "mark"]
    marks = [i for i in marks if h.rows[i].process == h.rows[marks[0]].process]
    return away(h, marks[min(4, len(marks) - 1)])


def away_in_the_midst(h: History) -> Store:
    """It went away when half of what is no mark and no listing had happened."""
    told = [i for i, row in enumerate(h.rows) if row.f not in ("mark", "offsets")] or [len(h.rows) // 2]
    return away(h, told[len(told) // 2])


def back(h: History, rows: int = 12) -> Store:
    """All but the last rows in one step, then one by one: a monitor that catches up, and goes on."""
    table, store = to_table(h.rows), Store()
    cut = max(table.num_rows - rows, 1)
    store.feed(table.slice(0, cut))
    for i in range(cut, table.num_rows):
        store.feed(table.slice(i, 1))
    return store


def shuffled(h: History, seed: int, parts: int = 7) -> Store:
    """The rows in any order at all, in a few steps."""
    rows: list[Slice] = list(h.rows)
    random.Random(seed).shuffle(rows)
    store = Store()
    for part in range(parts):
        if rows[part::parts]:
            store.feed(rows[part::parts])
    return store


def delayed(h: History, seed: int, by: float = 20.0) -> Store:
    """Each row up to `by` seconds later than it was written, a second's rows in one step."""
    rng = random.Random(seed)
    rows = sorted(((micros(row.completed) / 1e6 + rng.random() * by, i) for i, row in enumerate(h.rows)))
    store, step, second = Store(), list[Slice](), 0
    for when, i in rows:
        if int(when) != second and step:
            store.feed(step)
            step = []
        second = int(when)
        step.append(h.rows[i])
    store.feed(step)
    return store


def events(store: Store, name: str) -> list[tuple[str, tuple[int | str, ...], int]]:
    """(event, subject, second of log time) of a condition."""
    return [(f.event, f.subject, round((f.at - micros(START)) / 1e6)) for f in in_time(store) if f.anomaly == name]


def in_time(store: Store) -> list[Finding]:
    return sorted(store.findings, key=lambda f: (f.at, f.event == "closed"))


def kinds(store: Store) -> set[str]:
    return {f.anomaly for f in store.findings}
