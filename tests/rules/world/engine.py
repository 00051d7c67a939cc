"""The only door to the engine: everything else of this package is ignorant of how a checker is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rules.step import HELD
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import from_micros
from tests.rules.histories import Store

Key = tuple[str, str, int, tuple[int | str, ...]]
"""(anomaly, topic id, partition, subject)."""


@dataclass(slots=True)
class Said:
    """A violation that the checker raised with one step."""

    finding: Finding
    step: int

    @property
    def key(self) -> Key:
        f = self.finding
        return f.anomaly, f.topic_id, f.partition, f.subject

    def __str__(self) -> str:
        f = self.finding
        return f"step {self.step} {f.anomaly} p{f.partition} {f.subject} at {from_micros(f.at):%H:%M:%S} {f.message}"


class Checker:
    """Feeds steps to the engine and keeps what it says. Its state passes through bytes between steps."""

    def __init__(self) -> None:
        self._store = Store()
        self.steps = 0
        self.violations: list[Said] = []
        self.conditions: list[Said] = []
        self.rechecks: list[tuple[int, str, int, int, int]] = []
        """(step, topic id, partition, start, end): where readers saw different logs (the rows tell how)."""

    def feed(self, rows: Sequence[Slice], *, held: bool = False) -> list[Finding]:
        """`held`: log time is held back, as in a rebuild, until rows come with which it is not, or none."""
        self._store.store.held = HELD if held else 0
        out = self._store.feed(list(rows)) if rows else self._store.settle()
        for f in out:
            kept = self.violations if CATALOGUE[f.anomaly].kind == "violation" else self.conditions
            kept.append(Said(f, self.steps))
        for place, r in self._store.rechecks[len(self.rechecks) :]:
            self.rechecks.append((self.steps, place.topic_id, place.partition, r.start, r.end))
        self.steps += 1
        return out


def values_of(f: Finding) -> set[tuple[int, int, int]]:
    """The values (partition, writer, seq) that a finding names, in its subject or its evidence."""
    out = set()
    subject = [s for s in f.subject if isinstance(s, int)]
    if len(subject) >= 2:
        out.add((f.partition, subject[0], subject[1]))

    def look(v: object) -> None:
        if isinstance(v, dict):
            if isinstance(v.get("writer"), int) and isinstance(v.get("seq"), int):
                p = v.get("partition", f.partition)
                for i in range(v.get("length") or v.get("values") or 1 if isinstance(v.get("values"), int) else 1):
                    out.add((p, v["writer"], v["seq"] + i))
            for inner in v.values():
                look(inner)
        elif isinstance(v, list | tuple):
            for inner in v:
                look(inner)

    look(dict(f.evidence))
    return out
