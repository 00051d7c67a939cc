"""For how long Spark's processes have wanted nothing of the machine.

A batch that hangs waits: Spark's JVM for a Python worker, the worker for the JVM, because a thread between them has
died of a full disk. A batch that is only slow works, or waits for its turn on a machine that has too much to do; the
kernel counts both for each thread (`/proc/PID/task/*/schedstat`: nanoseconds of running, and of being ready to run).
What a JVM does for itself is no work: it wakes twenty times a second, and on a busy machine waits for its turn each
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

WANTS: Final = 0.1
"""Of one core: a JVM with nothing to do wants less than half of it, for its own threads."""
EVERY: Final = 5.0
"""Seconds between two looks."""
FORGOTTEN: Final = 6 * EVERY
"""Where nobody looked for longer, what was seen before does not count."""
OWN: Final = (
    "VM ",
    "GC ",
    "G1 ",
    "C1 Comp",
    "C2 Comp",
    "Signal Disp",
    "Reference H",
    "Finalizer",
    "Common-Clea",
    "Sweeper",
    "Service Thr",
    "Monitor Def",
    "Notificatio",
    "dispatcher-",
    "driver-hear",
    "executor-he",
    "heartbeat-r",
    "netty-",
    "rpc-",
    "spark-liste",
    "Spark Conte",
    "context-cle",
    "shuffle-",
    "block-manag",
    "files-clien",
    "Timer-",
    "java",
)
"""How the names of a JVM's threads begin that look after itself. The kernel tells 15 bytes, and of the first thread the
program's name."""


class Idleness:
    """`processes` tells their numbers. For one thread, which looks again and again."""

    def __init__(
        self,
        processes: Callable[[], Iterable[int]],
        clock: Callable[[], float] = time.monotonic,
        proc: Path = Path("/proc"),
    ) -> None:
        self._processes, self._clock, self._proc = processes, clock, proc
        self._looked, self._since = -1.0, -1.0
        self._wanted: dict[str, int] = {}

    def seconds(self) -> float:
        """For how long so far, as seen in looks that were no further apart than `FORGOTTEN`; 0 where the kernel does
        not tell."""
        now = self._clock()
        if self._looked >= 0 and now - self._looked < EVERY:
            return now - self._since
        wanted = self._threads()
        apart = now - self._looked
        more = sum(max(0, ns - self._wanted.get(thread, 0)) for thread, ns in wanted.items()) / 1e9
        if not wanted or self._looked < 0 or apart > FORGOTTEN or more > WANTS * apart:
            self._since = now
        self._looked, self._wanted = now, wanted
        return now - self._since

    def _threads(self) -> dict[str, int]:
        """What each of their threads that work has wanted since it began, in nanoseconds."""
        found: dict[str, int] = {}
        for process in self._processes():
            for told in self._proc.glob(f"{process}/task/*/schedstat"):
                with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                    if (told.parent / "comm").read_text().startswith(OWN):
                        continue
                    ran, waited = told.read_text().split()[:2]
                    found[told.parent.name] = int(ran) + int(waited)
        return found
