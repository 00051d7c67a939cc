"""The probes of a monitor, those of each cluster in a process of its own that is kept running.

Of several clusters one that does not answer, a login that is refused or a process that dies concerns no other: it is
told once, and tried again until it goes on. What no trying mends (a secret that is not there, a setting that is none)
is found before any of them starts. A single cluster has to answer when the monitor begins for the first time; later it
is waited for as well: who restarts the host in the middle of an outage is told of the outage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from monitor.config.config import Config
from monitor.errors import UserError
from monitor.process.fleet_process import FIRST_PAUSE, LONGEST_PAUSE, NOT_BEGUN, REPORTED, Errand, FleetProcess, Say
from monitor.process.reach import connection, destination
from probes.clock import Going
from probes.log.commits.history import History
from probes.log.commits.left_behind import append_left_behind
from probes.log.errors import ProbeLogError
from probes.running.fleet import FleetStatus

log = logging.getLogger("offsetwatch.fleet")

SILENT: Final = 300.0
"""Seconds after which a child that reports nothing is given up: its probes have their own, shorter limits."""
_BEGUN_WITHIN: Final = 600.0
"""Seconds; whatever keeps a fleet from starting gives up before, and says why."""


class KeptFleet:
    """The fleet of one cluster, in a process that is kept running."""

    def __init__(self, errand: Errand, say: Say) -> None:
        self.name = errand.config.name
        self._errand, self._say = errand, say
        self._status = NOT_BEGUN
        self._stopping = threading.Event()
        self._first: FleetProcess | None = None
        self._thread = threading.Thread(target=self._keep, name=f"fleet-{self.name}", daemon=True)
        self.pid: int | None = None
        """The child's process number; of the last one where none is running."""

    def start(self) -> None:
        """Begin, and return at once where the errand is patient; else once the probes are at work. Raises UserError
        where they cannot begin then."""
        if not self._errand.patient:
            first = self._first = FleetProcess(self._errand, self._say)
            try:
                first.start()
                self.pid = first.pid
                while not first.await_begun(REPORTED):
                    if time.monotonic() - first.heard > _BEGUN_WITHIN or self._stopping.is_set():
                        raise UserError("the probes do not begin")
            except OSError as error:
                raise UserError(f"the process of the probes cannot be started: {error.strerror}") from error
            except UserError:
                first.stop(_ENDED_WITHIN)
                raise
            self._status = first.status()
        self._thread.start()

    def stop(self) -> None:
        """End it in order. Raises nothing."""
        self.ask_to_stop()
        self.join()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    def status(self) -> FleetStatus:
        """As it was a second ago; that of the last process where none is running."""
        return self._status

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                why = self._run_one()
            except OSError as error:
                why = f"cannot be started: {error.strerror}"
            if not self._stopping.is_set():
                of = f"{self.name}: the process of its probes" if self.name else "the process of the probes"
                self._say(f"{of} {why}, and is begun again")
                pause = FIRST_PAUSE if time.monotonic() - begun > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
                self._stopping.wait(pause)

    def _run_one(self) -> str:
        """One process from its beginning to its end; returns how it ended, in words. Raises OSError where there can be
        none."""
        process, self._first = self._first, None
        if process is None:
            process = FleetProcess(replace(self._errand, patient=True), self._say)
            process.start()
            self.pid = process.pid
        asked, why, going = False, "", Going()
        while not why:
            if self._stopping.wait(0.0 if asked else REPORTED / 4):
                if not asked:
                    process.ask("stop")
                asked = True
                time.sleep(_LOOK)
            going.look()
            if not process.running:
                why = process.ended_by
            elif going.unheard(process.heard) > SILENT:
                why = "does not answer"
            if process.status().run:
                self._status = process.status()
        process.end()
        if process.status().run:
            self._status = process.status()
        return why


_LOOK: Final = 0.05
_ENDED_WITHIN: Final = 30.0


class ClusterFleets:
    """The fleets of all clusters: started and stopped like a single one."""

    def __init__(self, config: Config, say: Say, *, debug: bool = False, as_json: bool = False) -> None:
        """Raises ConfigError for what no trying would mend."""
        each = config.each()
        for one in each:
            connection(one)
        self._config, self._say = config, say
        logs = config.data / "logs"
        errands = [Errand(one, logs / f"probes-{one.name}.log", debug, as_json, patient=True) for one in each]
        self.fleets: Sequence[KeptFleet] = [KeptFleet(errand, say) for errand in errands]

    def start(self) -> None:
        """Raises the probe log's errors: nobody could log anything."""
        if not self._config.evidence.used:
            # Checks that find no probe log end after a while; here somebody is going to write to it.
            History(str(self._config.job.history_path)).id()
        names = ", ".join(fleet.name for fleet in self.fleets)
        self._say(f"the probes of {len(self.fleets)} clusters have a process each: {names}")
        for fleet in self.fleets:
            fleet.start()

    def stop(self) -> None:
        """End all of them, at the same time and each in order. Raises nothing."""
        for fleet in self.fleets:
            fleet.ask_to_stop()
        for fleet in self.fleets:
            fleet.join()


def left_behind(config: Config, say: Say) -> None:
    """Append what is left in the journals of clusters that the configuration named before, or did not name yet."""
    try:
        folders = config.former_journals()
    except OSError as error:  # told by whoever writes there
        log.info("what is left in journals is appended at another start: %s", error)
        return
    for folder in folders:
        try:
            rows = append_left_behind(folder, destination(config))
        except ProbeLogError as error:
            log.warning("what is left in %s is appended at another start: %s", folder, error)
            continue
        if rows:
            say(f"{rows} rows that were left in {folder} are in the probe log now")
