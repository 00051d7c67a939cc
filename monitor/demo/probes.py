"""The demonstration's probes, in a process of their own as beside any monitor, so that the checks do not wait for them.

Beside the fleet that process runs the producers that a story asks for, and keeps their transactions open
(`monitor.drill.actors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from monitor.config.config import Config
from monitor.drill.actors.actors import Held, Hold
from monitor.drill.drills.leaderless import Places, two_producers
from monitor.errors import UserError
from monitor.process.fleet_process import Errand, FleetProcess
from probes.running.fleet import Fleet, FleetStatus

_REPORT_INTERVAL: Final = 0.25
_STARTS_WITHIN: Final = 120.0
_ENDS_WITHIN: Final = 90.0


class HeldTransactions:
    """In the probes' process: the producers of `monitor.drill.drills.leaderless`, and what they hold."""

    def __init__(self) -> None:
        self._hold = Hold()

    def do(self, fleet: Fleet, what: str, value: Any) -> None:
        """Add the producers, let their next transactions stay open, or let them end."""
        if what == "add":
            for spec in two_producers(self._hold, *value):
                fleet.add(spec)
        elif what == "hold":
            self._hold.set.set()
        elif what == "release":
            self._hold.set.clear()

    def told(self) -> tuple[Mapping[str, Held], frozenset[str]]:
        """The last transaction that each producer held open, and which of them hold one open now."""
        return self._hold.held, self._hold.open

    def end(self) -> None:
        """They end."""
        self._hold.set.clear()


class ProbeProcess:
    """The fleet and those producers. `say` is given what they say to their user."""

    def __init__(self, config: Config, log: Path, say: Callable[[str], None]) -> None:
        """`log`: the file for what the probes say about themselves."""
        errand = Errand(config, log, aloud=False, interval=_REPORT_INTERVAL, duties=HeldTransactions)
        self._process = FleetProcess(errand, say)

    def start(self) -> None:
        """Start the process, and return when its probes are at work. Raises UserError where they cannot begin."""
        self._process.start()
        if not self._process.await_begun(_STARTS_WITHIN):
            raise UserError(f"the probes were not at work within {_STARTS_WITHIN:.0f} s")

    def status(self) -> FleetStatus:
        return self._process.status()

    @property
    def held(self) -> Mapping[str, Held]:
        """The last transaction that each of the added producers held open, by the producer's name."""
        held: Mapping[str, Held] = self._process.told[0] if self._process.told is not None else {}
        return held

    @property
    def open(self) -> frozenset[str]:
        """Which of them hold one open now."""
        opened: frozenset[str] = self._process.told[1] if self._process.told is not None else frozenset()
        return opened

    @property
    def running(self) -> bool:
        return self._process.running

    def add_producers(self, places: Places, names: tuple[str, str]) -> None:
        """Take on the two producers of `monitor.drill.drills.leaderless`."""
        self._process.ask("add", (places, names))

    def hold(self) -> None:
        """Their next transactions stay open."""
        self._process.ask("hold")

    def release(self) -> None:
        """They end."""
        self._process.ask("release")

    def stop(self) -> None:
        """End the probes in order, then the process. May be called twice, and where nothing was started."""
        self._process.stop(_ENDS_WITHIN)
