"""A broker's wall clock jumps, forwards or back. Its monotonic clock does not, as no machine's does.

By libfaketime, which stands between a program and the C library's clocks. It has to be there when the program starts,
so the first jump on a cluster restarts its brokers under it, one after the other; they then go on with the true time,
and later jumps need no restart.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.broker import Broker
from deploy.local_kafka import LocalKafka
from monitor.drill.faults.fault import FaultOfRole, now
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.roles import Role

LIBRARY: Final = "OFFSETWATCH_LIBFAKETIME"
"""The environment variable that names the library's file, where it is at no usual place."""
_PLACES: Final = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")
_FILE: Final = "libfaketime.so.1"
_SHARED: Final = Path("/dev/shm")
_IN_SYNC_WITHIN_S: Final = 60.0
_TAKEN_WITHIN_S: Final = 2.2
"""The library is told to look at the file once in more than a whole second, and not each time it is asked."""


def libfaketime() -> Path | None:
    """The library's file, None where it is not installed."""
    return next((file for file in _candidates() if file.is_file()), None)


def _candidates() -> Iterator[Path]:
    if named := os.environ.get(LIBRARY):
        yield Path(named)
    root = Path("/")
    for place in _PLACES:
        yield from sorted(root.glob(f"{place[1:]}/{_FILE}"))
    package = importlib.util.find_spec("libfaketime")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        yield from sorted(Path(folder).rglob(_FILE))


class ClockJump(FaultOfRole):
    """The broker's wall clock is `seconds` ahead (behind, if negative) from `begin` to `end`; then it jumps back.

    `began` is when it jumps: the restarts that may have to come first are over then."""

    def __init__(self, role: Role, seconds: int) -> None:
        super().__init__(role)
        self.seconds = seconds

    def describe(self) -> str:
        return f"set the clock of {self._whom} {abs(self.seconds)} s {'back' if self.seconds < 0 else 'ahead'}"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        if libfaketime() is None:
            return [
                "libfaketime is not installed: install your system's package of that name, or Offsetwatch with the"
                f" extra 'faketime' (which takes a C compiler), or name its file in {LIBRARY}"
            ]
        return []

    def _begin(self, cluster: LocalKafka) -> None:
        library = libfaketime()
        assert library is not None
        for broker in cluster.brokers:
            if "FAKETIME_TIMESTAMP_FILE" not in broker.environment:
                _offset_file(broker).write_text("+0\n")
                broker.terminate()
                broker.environment.update(_environment(library, _offset_file(broker)))
                broker.start()
                await_recovered(cluster, _IN_SYNC_WITHIN_S)
            _forget_shared_memory(broker)
        broker = self._find(cluster)
        self.began = now()
        self._set(broker, self.seconds)

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None:
            self._set(cluster.broker(self.node), 0)
        for broker in cluster.brokers:
            broker.start()  # nothing, unless one ended
            _forget_shared_memory(broker)

    @staticmethod
    def _set(broker: Broker, seconds: int) -> None:
        file = _offset_file(broker)
        written = file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.replace(file)
        time.sleep(_TAKEN_WITHIN_S)


def _offset_file(broker: Broker) -> Path:
    return broker.folder / "clock"


def _forget_shared_memory(broker: Broker) -> None:
    """Take away the names of what the library shares with a program's children, of which a broker has none: it keeps
    what it has, and a broker that does not end in order would leave them for ever."""
    for name in ("faketime_shm_{}", "sem.faketime_sem_{}"):
        (_SHARED / name.format(broker.pid)).unlink(missing_ok=True)


def _environment(library: Path, offset: Path) -> dict[str, str]:
    before = os.environ.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        # Java's waiting is by the monotonic clock, and would end at once or never if that jumped.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        # What it takes for a fix of newer C libraries makes every wait of Java end at once: a broker then only spins.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
