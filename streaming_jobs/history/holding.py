"""How long a healthy second's rows wait for those that follow: a batch costs much the same for one commit as for three.

Each commit of the probe log is looked at as it comes (`rules.triage`). Where nothing stands out, a batch is begun no
sooner than `hold` seconds after the one before; where something does, at once, and so for the next `alert` seconds, in
which the verdicts are due that wait for what is missing. The first `alert` seconds of a query count as such a time:
nothing is known then that new rows could be compared with.

What is not looked at is not held: an unreadable file, so many rows that looking would cost more than it spares, or so
many commits that the checks must be behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from streaming_jobs.history.block import Block

if TYPE_CHECKING:
    from rules.triage.triage import Triage

log = logging.getLogger(__name__)

MOST_ROWS: Final = 100_000
MOST_BYTES: Final = 4 << 20
"""Of one commit; a few of them are remembered."""
MOST_COMMITS: Final = 20
"""Of what is there at once."""


class Holding:
    """Whether what is there waits. `hold` (0: never) and `alert` in seconds; `clock` is monotonic."""

    def __init__(self, hold: float, alert: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hold, self._alert, self._clock = hold, alert, clock
        self._alert_until = clock() + alert
        self._offered_at = clock() - hold
        self._looked_through = -1
        self._triage: Triage | None = None

    def awaits(self, version: int) -> bool:
        """Has nobody looked at this commit yet, who should? It is asked at each look for the next one."""
        return self._hold > 0 and version > self._looked_through

    def look(self, version: int, blocks: Sequence[Block], waiting: int = 0) -> None:
        """Look at what a commit added; one is only looked at once. `waiting`: how many are there before it."""
        if not blocks or not self.awaits(version):
            return
        self._looked_through = version
        if waiting >= MOST_COMMITS or self._stands_out(blocks):
            self._alert_until = self._clock() + self._alert

    def _stands_out(self, blocks: Sequence[Block]) -> bool:
        from rules.triage.rows import WANTED  # once there is something to look at: a query's start need not wait for it
        from rules.triage.triage import Triage
        from streaming_jobs.history.files import tables

        if any(block.rows is None for block in blocks) or sum(block.rows or 0 for block in blocks) > MOST_ROWS:
            return True
        if sum(block.end - block.start for block in blocks) > MOST_BYTES:
            return True
        self._triage = self._triage or Triage()
        try:
            signs = [sign for rows in tables(blocks, WANTED) for sign in self._triage.signs(rows)]  # all: it remembers
        except Exception as error:  # no verdict rests on this: the checks read the rows for themselves, and tell
            log.info("commit is not held back, for it cannot be looked at: %s: %s", type(error).__name__, error)
            self._triage = None
            return True
        return bool(signs)

    def holds(self) -> bool:
        """Whether what is there waits for more; else it is offered now."""
        now = self._clock()
        if now >= self._alert_until and now - self._offered_at < self._hold:
            return True
        self._offered_at = now
        return False
