"""`offsetwatch` as on a machine of its own, whose clocks are others than this one's:

    python -m tests.monitor.other_clock FILE BOOT ARGUMENT...

FILE tells by how many seconds its wall clock is ahead, and may be written anew meanwhile: the clock is then set, as by
a person or a careless `ntpd`. BOOT names its boot, so that nobody takes its monotonic clock, which is ahead by
`MONOTONIC` seconds, for this machine's. What waits, waits by this machine's clock, and librdkafka knows no other.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

MONOTONIC = 5_000
LOOK_EVERY_NS = 100_000_000


class OtherClock:
    """The wall clock of a machine that is ahead by what a file says."""

    def __init__(self, ahead: Path) -> None:
        self._real, self._mono = time.time_ns, time.monotonic_ns
        self._ahead = ahead
        self._looked, self._by = 0, 0

    def wall_ns(self) -> int:
        if (now := self._mono()) - self._looked > LOOK_EVERY_NS:
            self._looked = now
            if told := self._ahead.read_text().strip():  # not in the moment in which it is written
                self._by = round(float(told) * 1e9)
        return self._real() + self._by

    def monotonic_ns(self) -> int:
        return self._mono() + MONOTONIC * 1_000_000_000


def main() -> None:
    ahead, boot, *arguments = sys.argv[1:]
    clock = OtherClock(Path(ahead))
    real = time.monotonic_ns
    time.time_ns, time.time = clock.wall_ns, lambda: clock.wall_ns() / 1e9
    time.monotonic_ns = clock.monotonic_ns
    import probes.clock

    time.monotonic_ns = real
    probes.clock.boot_id = lambda: boot
    sys.argv = ["offsetwatch", *arguments]
    runpy.run_module("monitor.cli", run_name="__main__")


if __name__ == "__main__":
    main()
