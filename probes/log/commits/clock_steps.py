"""When the wall clock of a committer was set, so that marks tell of earlier times by the clock as it is now.

Journals tell the wall clock's times, and a mark row has one pair of readings of the wall clock and the monotonic one,
by which its readers take all that it says into log time. What was said before the clock was set ahead is as much later
by the clock as it is now: else whoever had an operation open then, or had just promised something, would seem to have
done so as long ago as the clock was set ahead.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

STEADY: Final = 100_000
"""Microseconds by which two readings of both clocks differ, a thread having waited in between."""
KEPT: Final = 256


class _Step(NamedTuple):
    """The clock was set ahead. What it said up to `wall` was by the clock before, which was `offset` ahead of the
    monotonic one, and was said by `mono` of that. All in microseconds."""

    wall: int
    offset: int
    mono: int


class ClockSteps:
    """The newest `KEPT` steps of one clock that never goes back, as it is read once a second."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=KEPT)
        self._wall = self._mono = -1

    def read(self, wall: int, mono: int) -> None:
        """Both clocks were read, in microseconds."""
        before = self._wall - self._mono
        ahead = wall - mono - before
        if self._mono >= 0 and ahead > STEADY:
            # It was set at some moment since it was read last. What may be by either clock counts as by the new one:
            # that is earlier, and promises less.
            self._steps.append(_Step(self._wall + min(mono - self._mono, ahead), before, mono))
        self._wall, self._mono = wall, mono

    def as_now(self, said: int) -> int:
        """What the clock would call this moment now, where it was the one of `said` then. Microseconds."""
        for step in self._steps:
            if said < step.wall:
                return min(said - step.offset, step.mono) + self._wall - self._mono
        return said
