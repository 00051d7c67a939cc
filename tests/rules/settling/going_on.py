"""A history that goes on second by second, and marks that hold processes at what they have open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, number

W = number("w")


def second(finding: Finding) -> int:
    return round((finding.at - micros(START)) / 1e6)


def lost(store: Store) -> list[tuple[int | str, ...]]:
    return [f.subject for f in store.findings if f.anomaly == "lost-write"]


def fed(rows: Sequence[Slice], size: int = 7) -> Store:
    store = Store()
    for at in range(0, len(rows), size):
        store.feed(rows[at : at + size])
    return store


def going_on(h: History, seconds: int, *, first: int, lose: Sequence[int] = (), mark: Any = None) -> None:
    """A record a second, from offset and seq `first` on, which r polls at once; not those of `lose`."""
    for i in range(first, first + seconds):
        h.send("w", i, at=i)
        if i not in lose:
            h.poll("r", [("w", i, 1, i)])
        h.observe(end=i + 1)
        (mark or h.mark)(1.0)


def marking(h: History, open_since: dict[str, float]) -> Any:
    """Marks by one committer, which hold these processes at their open operation."""

    def mark(after: float) -> None:
        h.time += after
        now = h.at(h.time)
        marks = [
            Mark(number(p), h._slices[number(p), 0], h.at(open_since[p]) if p in open_since else now)
            for p in h.processes
        ]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)

    return mark
