"""What a host believes the time to be: a wall clock with skew, drift and jumps, and a monotonic clock per boot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rules.vocabulary.times import EPOCH, micros

START = EPOCH + timedelta(days=20_000)
"""The wall clock of a host without skew at true time 0."""


def true_time(us: int) -> int:
    """What a host without skew calls so many microseconds after the epoch."""
    return us - micros(START)


@dataclass(frozen=True, slots=True)
class Jump:
    """From true time `start` to `end` (microseconds) the wall clock is `by` microseconds off, then right again."""

    start: int
    end: int
    by: int


@dataclass(slots=True)
class WallClock:
    """`skew` in microseconds at true time 0, `drift` in parts per million."""

    skew: int = 0
    drift: float = 0.0
    jumps: Sequence[Jump] = ()

    def at(self, true: int) -> datetime:
        off = self.skew + round(true * self.drift / 1e6)
        off += sum(j.by for j in self.jumps if j.start <= true < j.end)
        return START + timedelta(microseconds=true + off)


@dataclass(frozen=True, slots=True)
class Boot:
    """One run of a host's kernel: its monotonic clock counts nanoseconds from `started`, with the host's drift."""

    id: str
    started: int
    drift: float = 0.0

    def mono(self, true: int) -> int:
        return round((true - self.started) * 1000 * (1 + self.drift / 1e6)) + 5_000_000_000
