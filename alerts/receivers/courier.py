"""One thread per receiver, which keeps telling it how things stand until it has been told.

A receiver is told states and not events: what is due is worked out anew each time, from the incidents as they are and
from what it was told before. So there is no queue that could fill up, a receiver that was dead for an hour is told what
it missed and nothing twice, and nobody waits for it: checks and other receivers go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from alerts.incidents.incident import Incident
from alerts.receivers.http import SendFailed
from alerts.receivers.memory import Memory

TICK: Final = 1.0
"""Seconds between two looks at what is due, where nothing wakes it before."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts at a receiver that does not answer."""
FAREWELL: Final = 5.0
"""Seconds that a stop waits for what is being sent."""

_log: Final = logging.getLogger("offsetwatch.alerts")


class Receiver(Protocol):
    @property
    def name(self) -> str: ...

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None: ...


Select = Callable[[Sequence[Incident]], Sequence[Incident] | None]


def all_of(incidents: Sequence[Incident]) -> Sequence[Incident]:
    """Who is the only one to tell tells everything."""
    return incidents


class Courier:
    """`standing` gives the incidents as they are at a time; `failed` is called with the receiver's name at each failed
    attempt; `select` those of the incidents that are ours to tell now, None where nothing is."""

    def __init__(
        self,
        receiver: Receiver,
        standing: Callable[[datetime], Sequence[Incident]],
        memory: Memory,
        *,
        clock: Callable[[], datetime],
        failed: Callable[[str], None],
        select: Select = all_of,
    ) -> None:
        self.receiver = receiver
        self._standing = standing
        self._memory = memory
        self._clock = clock
        self._failed = failed
        self._select = select
        self._pause = 0.0
        self._failures = 0
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tell-{receiver.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something has changed."""
        self._woken.set()

    def stop(self) -> None:
        """Tell what is due, once, and end. Waits `FAREWELL` at most: who does not answer is told after the restart."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(FAREWELL)

    def failures(self) -> int:
        """How many attempts have failed since the last one that did not."""
        return self._failures

    @property
    def told_open(self) -> list[str]:
        """The occurrences of incidents that its receiver believes to be open."""
        return self._memory.open

    def attempt(self) -> float:
        """Tell what is due; returns the seconds until the next attempt."""
        now = max(self._clock(), self._memory.newest)  # by which it is known what was told last
        try:
            incidents = self._standing(now)
            ours = self._select(incidents)
            if ours is None:
                return TICK
            self._memory.keep(one.occurrence for one in incidents)
            self.receiver.tell(ours, self._memory, now)
        except Exception as error:
            # A receiver that answers nonsense is its own trouble; the thread has to outlive whatever it does.
            self._failures += 1
            self._failed(self.receiver.name)
            said = str(error) if isinstance(error, SendFailed) else type(error).__name__
            _log.warning("%s could not be told: %s", self.receiver.name, said, extra={"said_once": f"tell-{said}"})
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            return self._pause
        if self._pause:
            _log.info("%s has been told what it missed", self.receiver.name)
            self._pause, self._failures = 0.0, 0
        return TICK

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = self.attempt()
            if self._pause:
                self._stopping.wait(pause)
            else:
                self._woken.wait(pause)
                self._woken.clear()
        if not self._pause:
            self.attempt()
