"""`checks-behind`: rows of the probe log wait too long for the checks, which run all the same.

On a machine that has too much to do, or after an outage, every verdict is right and late: nobody would know of it but
who looks. It is timed by the machine's clock, like everything about the job itself. Both classes are pure.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final

from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.times import micros

NAME: Final = "checks-behind"

_APART: Final = 5.0
"""Seconds. Commits that came closer together than that are kept as one, so that a day of waiting is 17,280 entries."""
LONGEST_LOOK: Final = 10.0
"""Seconds between two looks that count: for longer, this process stood still, and not the checks."""
_CAUGHT_UP: Final = 0.25
"""Of the limit: below it, what was open is over."""


class Unchecked:
    """Which commits of the probe log brought rows that no batch has checked yet, and since when. Times are seconds of
    one clock, whichever."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()  # the last commit, and when the first one came
        self._through = -1

    def came(self, version: int, at: float) -> None:
        """Commits up to `version` have come, some with rows."""
        if version <= self._through:
            return
        if self._waiting and at - self._waiting[-1][1] < _APART:
            self._waiting[-1] = version, self._waiting[-1][1]
        else:
            self._waiting.append((version, at))

    def checked(self, through: int) -> None:
        """A batch has ended: all commits up to `through` are checked."""
        self._through = max(self._through, through)
        while self._waiting and self._waiting[0][0] <= self._through:
            self._waiting.popleft()

    def left(self, version: int, at: float) -> None:
        """All commits up to `version`, the newest, have waited since `at`."""
        self._waiting = deque([(version, at)])

    def since(self) -> float | None:
        """When the oldest of them came; None where all is checked."""
        return self._waiting[0][1] if self._waiting else None


class BehindWatch:
    """Opens the condition where rows have waited for `limit` seconds, and closes it where the oldest has waited for a
    quarter of that. `open_since`: when an earlier run opened it, if that was not closed."""

    def __init__(self, limit: float, open_since: datetime | None = None) -> None:
        self._limit = limit
        self._since = open_since
        self._unchecked = Unchecked()
        self._served = False
        self._looked: float | None = None
        self._time = 0.0  # that has passed for us: that in which this process stood still does not count

    def checked(self, through: int, left: int | None = None) -> None:
        """A batch has ended, with which all commits up to `through` are checked. `left`: the newest commit, where this
        is the first batch and rows came after it: what was there before us has waited since our start at least."""
        self._unchecked.checked(through)
        if not self._served and left is not None:
            self._unchecked.left(left, 0.0)
        self._served = True

    @property
    def served(self) -> bool:
        """Has a batch ended?"""
        return self._served

    @property
    def is_left_open(self) -> bool:
        """Does an earlier run's condition wait for the first batch?"""
        return self._since is not None and not self._served

    def tick(self, now: datetime, monotonic: float, came: int | None = None) -> list[Finding]:
        """What has opened or closed by now. `came`: rows have come since the last look, with commits up to this one."""
        if self._looked is not None:
            self._time += min(max(monotonic - self._looked, 0.0), LONGEST_LOOK)
        self._looked = monotonic
        if came is not None:
            self._unchecked.came(came, self._time)
        since = self._unchecked.since()
        behind = 0.0 if since is None else self._time - since
        if self._since is None and behind >= self._limit:
            self._since = now
            return [self._finding("opened", now, behind)]
        if self._since is not None and self._served and behind < self._limit * _CAUGHT_UP:
            lasted = (now - self._since).total_seconds()
            self._since = None
            return [self._finding("closed", now, lasted)]
        return []

    def _finding(self, event: Event, now: datetime, seconds: float) -> Finding:
        """Opened after so many seconds in which a row waited; closed after so many."""
        opened = event == "opened"
        return Finding(
            anomaly=NAME,
            cluster="",
            event=event,
            message=f"Rows of the probe log have waited {seconds:.0f} s for the checks: what is found is found late."
            if opened
            else f"The checks keep up again, after {seconds:.0f} s.",
            evidence={"behind_s" if opened else "lasted_s": round(seconds, 3)},
            at=micros(now),
            decidable=micros(now),
        )
