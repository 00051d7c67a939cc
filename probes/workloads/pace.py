"""The pace of a probe's operations: one every so often, and no flood after an outage."""

from __future__ import annotations

from probes.clock import Clock


class Pace:
    """`interval`: seconds between two operations; the first is due when `start` is called. Of what an outage held up,
    two operations are made up for."""

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock, self._interval = clock, int(interval * 1e9)
        self._due = 0

    def start(self) -> None:
        self._due = self._clock.monotonic_ns()

    def wait(self) -> float:
        """Seconds until the next operation is due. 0.0: it is due, and counts as begun."""
        now = self._clock.monotonic_ns()
        if now < self._due:
            return (self._due - now) / 1e9
        self._due = max(self._due + self._interval, now - self._interval)
        return 0.0
