"""When a probe makes trouble on purpose: at random times, with a seed if they are to be repeatable."""

from __future__ import annotations

import random

from probes.clock import Clock
from probes.config import UnrestConfig

_SECOND = 1_000_000_000


class Unrest:
    """Says when the next event is due: a Poisson process, in monotonic time."""

    def __init__(self, config: UnrestConfig, clock: Clock, rng: random.Random) -> None:
        self._config, self._clock, self._rng = config, clock, rng
        self._next = self._draw()

    def due(self) -> bool:
        """Whether to make trouble now; at most once per event."""
        if not self._config.enabled or self._clock.monotonic_ns() < self._next:
            return False
        self._next = self._draw()
        return True

    def _draw(self) -> int:
        return self._clock.monotonic_ns() + int(self._rng.expovariate(1 / self._config.mean_interval) * _SECOND)
