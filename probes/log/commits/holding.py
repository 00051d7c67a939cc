"""How long a healthy second's rows wait in their journals for those that follow.

An append costs much the same for one second's rows as for those of five: a data file, a commit, a plan, each synced,
and a file more to compact. Where nothing stands out in the rows (`StandsOut`), the committer appends no sooner than
`longest` seconds after the append before; where something does, at once, and so for the next `ALERT` seconds, in which
the verdicts are due that wait for what is missing. The first `ALERT` seconds count as such a time: nothing is known
then that new rows could be compared with.

What waits has been read, copied (`probes.log.journals.copies`), and its topics confirmed; it is planned when it is
appended. So a killed process loses nothing of it, and the loss of the host no more than of what is appended at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from probes.log.commits.planning import Group
from probes.log.rows import table

log = logging.getLogger("offsetwatch.committer")

StandsOut = Callable[[pa.Table], bool]
"""Whether rows of the probe log want a verdict at once. It is shown each row once, in the order of the turns."""

ALERT: Final = 30.0
"""Seconds: as long as the checks hold nothing back then, with the objectives as they are (`job.hold`)."""
MOST_BYTES: Final = 1 << 20
"""Of journals: more than that does not wait. A canary's second is 15 kB."""
_HALF_A_TURN: Final = 0.5
"""Seconds. Turns are a second apart, and one that comes early by a moment is not passed over."""


class Holding:
    """Whether what a committer has read waits. `longest` in seconds; `clock` is monotonic."""

    def __init__(
        self,
        stands_out: StandsOut,
        longest: float,
        alert: float = ALERT,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stands_out, self._longest, self._alert, self._clock = stands_out, longest, alert, clock
        self._alert_until = clock() + alert
        self._appended_at = clock() - longest

    def waits(self, fresh: Sequence[Group], size: int) -> bool:
        """Whether it waits for the next turn. `fresh`: what nobody has been shown yet; `size`: the bytes of journals
        that were read in all."""
        now = self._clock()
        if self._shows(fresh):
            self._alert_until = now + self._alert
        due = now >= self._appended_at + self._longest - _HALF_A_TURN
        return not due and now >= self._alert_until and size <= MOST_BYTES

    def appended(self) -> None:
        """All that was read is in the table."""
        self._appended_at = self._clock()

    def _shows(self, fresh: Sequence[Group]) -> bool:
        try:
            return self._stands_out(table(fresh))
        except Exception as error:  # no verdict rests on this: the checks read the rows for themselves, and tell
            log.info("what was read is not held back, for it cannot be looked at: %s: %s", type(error).__name__, error)
            return True
