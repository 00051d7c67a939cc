"""The machine's time, by which findings are counted, and people told: it never goes back.

What is in which order, and what has been told last, is known by it. Where the machine's clock is set back, by a
correction of a minute or of hours, this one goes at half its speed until that has caught up; where it is set ahead,
this one is too. A monitor that begins goes on from what is counted already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

STEADY: Final = timedelta(seconds=0.1)
"""Two readings of both clocks differ by less: a thread has waited in between."""


class MachineClock:
    """From any thread."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._said, self._said_at = wall(), monotonic()

    def __call__(self) -> datetime:
        """Now, UTC; never less than it said before."""
        with self._lock:
            wall, at = self._wall(), self._monotonic()
            passed = timedelta(seconds=at - self._said_at)
            behind = wall < self._said + passed - STEADY
            self._said = max(wall, self._said + passed / 2 if behind else self._said)
            self._said_at = at
            return self._said

    def not_before(self, counted: datetime) -> None:
        """It is later than this, which has been counted: by an earlier run, or by another machine's clock."""
        with self._lock:
            self._said = max(self._said, counted)
