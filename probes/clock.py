"""Time as the probes see it: a wall clock that never runs backwards, a monotonic clock, and the host's boot.

Order in real time is concluded from a probe log only within one boot, by the monotonic clock. Marks promise
"everything this process invoked before T is logged" by the wall clock, and are read by how far it is from the
monotonic one as they are written. So where the host's clock is set back, the wall clock here is not, and goes on as if
nothing had happened: what is told of a moment before, and of one after, is told by the same clock, until the host's
has caught up. (It once ran at half speed meanwhile. Then each second was another distance from the monotonic clock,
and those who read took what marks told for as old as the step was long.) Whoever goes on where another process ended
goes on with its clock: `follow`. Records are stamped with a time that brokers take, however far ahead this clock is:
`stamped`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from rules.vocabulary.times import from_micros, micros


class Clock(Protocol):
    """What the probes and their log ask of time. Tests give their own."""

    @property
    def boot(self) -> str:
        """Names the host's current boot: monotonic readings compare only where it is equal."""

    def now(self) -> datetime:
        """The wall clock, UTC, in whole microseconds; never less than what it said before."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment of this boot, the same for all processes of the host."""

    def both(self) -> tuple[datetime, int]:
        """One moment by both, as nearly as can be read: the monotonic reading is not the later one."""

    def follow(self, said: datetime, at: int | None) -> None:
        """Another clock `said` so at this reading of the monotonic one, or, where that is None, in an earlier boot:
        this one is not behind it."""


STEADY_NS: Final = 100_000_000
"""Two readings of one clock in two processes differ by less: neither follows the other for that."""

AT_ONCE_NS: Final = 1_000_000
"""Two clocks that are read within a millisecond are read at once."""
READINGS: Final = 16
"""As often they are read until that is so. A thread that others keep waiting between the two readings, as in a process
of many threads on a busy machine, would take one moment for two, and what marks promise would be as much too late."""

LEAD: Final = 30 * 60 * 10**6
"""Microseconds by which records may be stamped ahead of the host's clock: brokers take those of the next hour, unless
they were told otherwise (`message.timestamp.after.max.ms`)."""


class SystemClock:
    """The host's clocks. Safe to share between threads."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        boot: str | None = None,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._boot = boot or boot_id()
        self._lock = threading.Lock()
        self._said, self._said_at = self._read()

    @property
    def boot(self) -> str:
        return self._boot

    def now(self) -> datetime:
        return self.both()[0]

    def both(self) -> tuple[datetime, int]:
        with self._lock:
            wall, mono = self._read()
            least = self._said + mono - self._said_at
            # Less than that is how long this thread may have waited between the two readings, or a clock that is
            # brought right little by little.
            wall = max(wall, self._said) if wall >= least - STEADY_NS else least
            self._said, self._said_at = wall, mono
            return from_micros(wall // 1000), mono

    def _read(self) -> tuple[int, int]:
        """The host's clocks, read at once; as nearly as it could be done where a thread is kept waiting each time."""
        closest = None
        for _ in range(READINGS):
            mono, wall = self._monotonic_ns(), self._wall_ns()
            apart = self._monotonic_ns() - mono
            if closest is None or apart < closest[0]:
                closest = apart, wall, mono
            if apart <= AT_ONCE_NS:
                break
        assert closest is not None
        return closest[1], closest[2]

    def follow(self, said: datetime, at: int | None) -> None:
        with self._lock:
            mono = self._monotonic_ns()
            told = 1000 * micros(said) + (0 if at is None else max(mono - at, 0))
            if told > max(self._wall_ns(), self._said + mono - self._said_at) + STEADY_NS:
                self._said, self._said_at = told, mono

    def monotonic_ns(self) -> int:
        return self._monotonic_ns()


def stamped(said: int, host_ns: Callable[[], int] = time.time_ns) -> int:
    """The timestamp of a record that is sent at this time of the probes' clock. Microseconds."""
    return min(said, host_ns() // 1000 + LEAD)


_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_BOOT_ID = str(uuid.uuid4())


def boot_id() -> str:
    """The kernel's name for this boot; where there is none, one for this process alone, so that nothing compares."""
    try:
        return _LINUX_BOOT_ID.read_text().strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return _PROCESS_BOOT_ID


class Going:
    """How long this process has gone on without a standstill of its own: a SIGSTOP, a frozen container, a laptop that
    was closed. Who was not heard of meanwhile could not be heard. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked, self._since = clock(), 0.0

    def look(self) -> None:
        """To be called about once a second: where much more has passed, nobody here could do anything."""
        now = self._clock()
        if now - self._looked > STOOD:
            self._since = now
        self._looked = now

    def unheard(self, heard: float) -> float:
        """The seconds that count since somebody was `heard` of last, by the monotonic clock."""
        return self._clock() - max(heard, self._since)


STOOD: Final = 5.0
"""Seconds between two looks that are a standstill."""
