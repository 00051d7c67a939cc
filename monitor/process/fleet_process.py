"""A fleet of probes in a process of its own, used like the `Fleet` itself.

The parent asks and is told through a pipe. Signals are the parent's business, as with the processes of single probes
(`probes.running.probe_process`): a child stops in order when it is told to, or when its parent has gone. What it did
last can still be asked for when it has ended.
"""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final, Protocol

from monitor.config.config import Config
from monitor.errors import UserError, known_errors
from monitor.process.memory import giving_back
from monitor.process.program_log import configure, say
from monitor.process.reach import open_fleet
from monitor.process.watchdog import watched
from probes.log.errors import FolderTaken
from probes.running.fleet import Fleet, FleetStatus
from probes.running.small_process import small_from_the_start, stay_small

log = logging.getLogger("offsetwatch.fleet")

REPORTED: Final = 1.0
"""Seconds between two reports of a child."""
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts to start."""
SAID_AGAIN: Final = 600.0
"""Seconds after which the same reason is told again."""
NOT_BEGUN: Final = FleetStatus(run="", layout=None, probes=(), committer=None)
PREDECESSOR: Final = 15.0
"""Seconds in which the probes of a parent that was killed stop in order and leave the journals."""
_STOPPING_START: Final = 10.0
"""Seconds that a start which is under way has left when it is no longer wanted."""
_KILLED_AFTER: Final = 1.0
"""Seconds after the end of what it says in which the process itself has to end."""

Say = Callable[[str], None]


class Duties(Protocol):
    """What a child does beside its fleet, asked by its parent. Made in the child, without arguments."""

    def do(self, fleet: Fleet, what: str, value: Any) -> None:
        """Do what the parent asks."""
        ...

    def told(self) -> Any:
        """What is reported of it, beside the fleet's status."""
        ...

    def end(self) -> None:
        """The fleet is about to stop."""
        ...


@dataclass(frozen=True, slots=True)
class Errand:
    """What a child needs to know. `config` is that of one cluster. `file`: for what it says about itself. `patient`:
    what keeps it from starting is said, and tried again; else its parent is told, and it ends. `aloud`: it speaks to
    the user itself, and not through its parent. `interval`: seconds between two reports."""

    config: Config
    file: Path
    debug: bool = False
    as_json: bool = False
    patient: bool = False
    aloud: bool = True
    interval: float = REPORTED
    duties: type[Duties] | None = None


class FleetProcess:
    """One such process. `say` is given what it says to its user, unless it speaks for itself."""

    def __init__(self, errand: Errand, say: Say) -> None:
        self._say = say
        self._status = NOT_BEGUN
        self._told: Any = None
        self._failed: str | None = None
        self._begun = threading.Event()
        self._sending = threading.Lock()
        self.heard = time.monotonic()
        """When it said something last, by the monotonic clock."""
        context = mp.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        # Not a daemon: it may have processes of its own, one for each probe.
        self._process = context.Process(target=_child, args=(errand, self._theirs), name="offsetwatch-probes")
        self._listener = threading.Thread(target=self._listen, name="probes", daemon=True)

    def start(self) -> None:
        """Start the process; its fleet begins meanwhile. Raises OSError where there can be none."""
        with small_from_the_start():
            self._process.start()
        self._theirs.close()
        self.heard = time.monotonic()
        self._listener.start()

    def await_begun(self, seconds: float | None = None) -> bool:
        """Wait until its probes are at work. Raises UserError where they cannot begin."""
        begun = self._begun.wait(seconds)
        if self._failed is not None:
            raise UserError(self._failed)
        return begun

    def status(self) -> FleetStatus:
        """As it was at the last report."""
        return self._status

    @property
    def told(self) -> Any:
        """What its duties reported last."""
        return self._told

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def ended_by(self) -> str:
        """How it has ended, in words: a client library that crashes leaves nothing else behind."""
        code = self._process.exitcode or 0
        if code >= 0:
            return f"has ended with exit code {code}" if code else "has ended"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def ask(self, what: str, value: Any = None) -> None:
        """Ask for one of its duties, or to `stop`. Where it has gone, `running` says so."""
        with self._sending, suppress(OSError):
            self._pipe.send((what, value))

    def stop(self, within: float) -> None:
        """End the probes in order, then the process; after so many seconds it is killed. May be called twice."""
        if self._process.pid is not None:
            self.ask("stop")
            self.end(within)

    def end(self, within: float = _KILLED_AFTER) -> None:
        """It has ended, or has to within so many seconds."""
        self._process.join(within)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._listener.join(5.0)
        self._pipe.close()

    def _listen(self) -> None:
        while True:
            try:
                what, value = self._pipe.recv()
            except (EOFError, OSError):
                if not self._begun.is_set():
                    self._failed = self._failed or "the probes' process ended before they were at work"
                    self._begun.set()
                return
            self.heard = time.monotonic()
            if what == "status":
                self._status, self._told = value
                self._begun.set()
            elif what == "says":
                self._say(value)
            elif what == "failed":
                self._failed = value
                self._begun.set()


# In the child


def _child(errand: Errand, pipe: Pipe) -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    stay_small()
    configure(
        debug=errand.debug,
        file=errand.file,
        quiet=not errand.aloud,
        as_json=errand.as_json,
        cluster=errand.config.name,
    )
    logging.captureWarnings(True)  # a client library's, on the user's screen, would be in nobody's language
    with watched(), giving_back():
        _Child(errand, pipe).run()
    # Not by the interpreter's end: the probe log may be in the middle of being compacted (`monitor.process.ending`).
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(0)


class _Child:
    """A fleet, tried until it starts, and what it does beside."""

    def __init__(self, errand: Errand, pipe: Pipe) -> None:
        self._errand, self._pipe = errand, pipe
        self._duties = errand.duties() if errand.duties is not None else None
        self._stop = threading.Event()
        self._telling = threading.Lock()
        self._fleet: Fleet | None = None
        """Once it has started."""
        self._starting = False
        """Does it begin to work in the cluster?"""

    def run(self) -> None:
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        worker = threading.Thread(target=self._work, name="start", daemon=True)
        worker.start()
        while not self._stop.wait(self._errand.interval):
            self._report()
            if self._fleet is not None and self._fleet.failure is not None:
                break  # it has been said, and nothing that they go on doing would be known
        if self._starting:
            worker.join(_STOPPING_START)
        if self._fleet is None:
            # A client that waits for its cluster waits for longer than anybody here.
            sys.stderr.flush()
            os._exit(0)
        if self._duties is not None:
            self._duties.end()
        self._fleet.stop()
        self._report()

    def _tell(self, what: str, value: Any) -> None:
        with self._telling, suppress(EOFError, OSError):  # the other end may have gone
            self._pipe.send((what, value))

    def _report(self) -> None:
        if self._fleet is None:
            self._tell("alive", None)
        else:
            told = self._duties.told() if self._duties is not None else None
            self._tell("status", (self._fleet.status(), told))

    def _say(self, line: str) -> None:
        if self._errand.aloud:
            say(line)
        else:
            self._tell("says", line)

    def _listen(self) -> None:
        """Until the parent says stop, or has gone."""
        with suppress(EOFError, OSError):  # the other end may have gone
            while True:
                what, value = self._pipe.recv()
                if what == "stop":
                    break
                if self._fleet is not None and self._duties is not None:
                    self._duties.do(self._fleet, what, value)
        self._stop.set()

    def _work(self) -> None:
        pause, told, at, begun = FIRST_PAUSE, "", 0.0, time.monotonic()
        while not self._stop.is_set():
            try:
                self._fleet = self._started()
            except Exception as error:
                if not isinstance(error, known_errors()):
                    log.error("the probes cannot start", exc_info=error)
                why = " ".join(str(error).split()) or type(error).__name__
                if isinstance(error, FolderTaken) and time.monotonic() - begun < PREDECESSOR:
                    self._stop.wait(pause / 4)
                    continue
                if not self._errand.patient:
                    self._tell("failed", why)
                    self._stop.set()
                    return
                about = why.partition(": no broker answers ")[0]  # how it does not answer changes each time
                if about != told or time.monotonic() - at > SAID_AGAIN:
                    told, at = about, time.monotonic()
                    self._say(f"its probes cannot start, and are tried again: {why}")
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if self._errand.patient:
                status = self._fleet.status()
                self._say(f"{len(status.probes)} probes of run {status.run} are at work")
            self._report()
            return

    def _started(self) -> Fleet:
        fleet = open_fleet(self._errand.config, self._say)
        self._starting = True
        try:
            fleet.start()
        except BaseException:
            fleet.stop()
            raise
        finally:
            self._starting = False
        return fleet
