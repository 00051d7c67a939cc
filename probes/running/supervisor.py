"""Keeps probes running, each in a thread: opens a failed client anew, abandons one that is stuck, stops all in order.

Every time a probe is opened it is a new life: a new process id, a new writer id, a new journal. A life that failed is
followed by the next after a wait that doubles from failure to failure, with jitter, and starts from the beginning once
a life has lasted. A probe that shows no sign of life for too long is abandoned: its log is closed from outside, its
thread and client are left behind, and a new life begins in a new thread. So nothing a client does can wedge the fleet.

Stopping goes by ranks: those that send first, then those that read, the observer last; each within a limit.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from probes.clock import Going
from probes.kafka.calls import BEAT, bounded
from probes.kafka.errors import CLOSE_STUCK, ClientError, ClientStuck, Crash, ProbeError, translate
from probes.log.commits.backlog import Spool
from probes.log.errors import JournalUnwritable, ProbeLogError
from probes.log.journals.journal import Journal
from probes.log.life_log import Abandoned, LifeLog
from probes.running.graveyard import Graveyard
from probes.workloads.probe import Carried, Counters, Probe, World
from rules.vocabulary.slices import LOGIN_REFUSED

log = logging.getLogger("offsetwatch.probe")

RANKS: Final = {
    "writer": 0,
    "transactions": 0,
    "transform": 0,
    "aborts": 0,
    "registers": 0,
    "zombies": 0,
    "end-to-end": 0,
    "reader": 1,
    "audit": 1,
    "observer": 2,
}
"""The order in which kinds of probes stop."""
FINISH_WITHIN: Final = 15.0
"""Seconds that a probe gets to come to an end, beside the time for closing its clients."""
NO_ROOM: Final = 2.0
"""Seconds between two tries where journals cannot be written, about: they cost nobody else anything, and probes that
come back long after each other read late what the first of them sent."""
WATCH_INTERVAL: Final = 0.5
CLOSE_LINGER: Final = 45.0
"""Seconds for which a client that has not returned from closing in time is waited for in its log. Less than the time
for which the committer vouches for a closed life: nobody may hear of one that was forgotten."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One probe of the fleet: its name, its class, and what the class wants to know beside the usual."""

    name: str
    make: Callable[..., Probe]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> str:
        return str(getattr(self.make, "kind", "probe"))


class Keeper:
    """Keeps one probe running."""

    def __init__(self, spec: Spec, world: World, journals: Path, spool: Spool, stop: threading.Event) -> None:
        self.spec, self._world, self._journals, self.stop = spec, world, journals, stop
        self._spool = spool
        self._config = world.config.supervision
        self.counters = Counters(spec.name, spec.kind)
        seed = world.config.unrest.seed
        self._rng = random.Random(None if seed is None else f"{seed}/{spec.name}")
        self._carried = Carried()
        self._thread: threading.Thread | None = None
        self._attempt: _Attempt | None = None

    def start(self) -> None:
        self._launch(0.0)

    def join(self, limit: float) -> bool:
        """Whether the probe has ended, after at most `limit` seconds."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(max(limit, 0.0))
        return not thread.is_alive()

    def watch(self, going: Going) -> None:
        """Abandon the present life if it has shown no sign for too long, and begin another."""
        attempt = self._attempt
        if attempt is None or attempt.over or going.unheard(attempt.sign) < self._config.stuck_after:
            return
        log.warning("probe %s does not return; a new life begins", self.spec.name)
        self.abandon("_STUCK")
        if not self.stop.is_set():
            self._launch(self._config.backoff)

    def abandon(self, error: str) -> None:
        """Close the present life's log from outside, and let go of its thread."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandoned = True
            self.counters.errors += 1
            self.counters.last_error = f"abandoned ({error})"
            if attempt.life_log is not None:
                attempt.life_log.abandon(error)
                self.counters.end_life(attempt.life_log.transactions_left)
        # The thread left behind goes on with what it had; the next life gets a copy.
        self._carried = Carried(dict(self._carried.positions), dict(self._carried.unread))

    def _launch(self, wait: float) -> None:
        attempt = self._attempt = _Attempt()
        self._thread = threading.Thread(target=self._live, args=(attempt, wait), name=self.spec.name, daemon=True)
        self._thread.start()

    def _live(self, attempt: _Attempt, wait: float) -> None:
        failures = 0
        failed: type[Exception] | None = None
        while not self.stop.is_set() and not attempt.abandoned:
            attempt.wait(self.stop, wait)
            if self.stop.is_set():
                break
            begun = time.monotonic()
            self.counters.lives += 1
            try:
                self._one_life(attempt)
                failures = 0
            except Abandoned:
                return
            except Crash as crash:
                # In words: an exception that a log's handler keeps would keep the crashed client with it.
                log.info("probe %s: %s", self.spec.name, str(crash))
                failures = 0
            except Exception as error:
                self.counters.errors += 1
                self.counters.last_error = str(error)
                self._tell(error)
                failed = type(error)
                failures = 1 if time.monotonic() - begun > self._config.steady_after else failures + 1
                _without_frames(error)
            if attempt.abandoned:
                return
            self.counters.state = "waiting"
            wait = self._wait_after(failures, failed)
        attempt.over = True
        self.counters.state = "stopped"

    def _tell(self, error: Exception) -> None:
        """Why a life ended, in our words; the client's own are for the log file. What ends all probes again and again,
        a full disk or a cluster that is away, whoever prints it tells once in a while."""
        name = self.spec.name
        if isinstance(error, (ClientError, ClientStuck)):
            log.info("probe %s: %s", name, str(error))
            log.warning(
                "probe %s begins a new life: its client ended by %s",
                name,
                error.code,
                extra={"said_once": f"a life ended by {error.code}"},
            )
            return
        expected = isinstance(error, (ProbeError, ProbeLogError))
        full = isinstance(error, JournalUnwritable)
        same = {"said_once": type(error).__name__, "spell": 10 * NO_ROOM} if full else None
        log.warning("probe %s: %s", name, str(error), exc_info=None if expected else error, extra=same)

    def _wait_after(self, failures: int, failed: type[Exception] | None = None) -> float:
        if not failures:
            return 0.0
        limit = self._config.backoff_limit
        if failed is not None and issubclass(failed, JournalUnwritable):
            limit = min(limit, NO_ROOM)
        return float(min(self._config.backoff * 2 ** (failures - 1), limit) * self._rng.uniform(0.5, 1.5))

    def _one_life(self, attempt: _Attempt) -> None:
        self._spool.check()
        layout = self._world.layout()
        probe = self.spec.make(
            self.spec.name, self._world, layout, self.counters, self._carried, self._rng, **dict(self.spec.options)
        )
        life = probe.life()
        life_log = LifeLog(Journal.create(self._journals, life), life, layout, self._world.clock)
        probe.log = attempt.life_log = life_log
        life_log.beat, life_log.heard = attempt.beat, self._world.acknowledged.note
        error: str | None = "_APPLICATION"
        try:
            self.counters.state = "opening"
            probe.log_start()
            probe.note_login()
            probe.open()
            self.counters.state = "running"
            while not self.stop.is_set() and self._world.layout().same_places(layout):
                probe.turn()
                probe.look_at_login()
                self._spool.check()
            self.counters.state = "closing"
            probe.stopping.set()
            if self.stop.is_set():
                # Where topics were made anew there is nothing to finish: what it knows is of those that are gone.
                probe.finish()
            error = None
        except Abandoned:
            raise
        except Exception as failure:
            reason = probe.why(failure)
            error = getattr(reason, "code", None) or translate(reason).code
            raise reason from (failure if reason is not failure else failure.__cause__)
        finally:
            if not attempt.abandoned:
                try:
                    self._close(probe, life_log, error)
                finally:
                    self.counters.end_life(life_log.transactions_left)
                attempt.life_log = None

    def _close(self, probe: Probe, life_log: LifeLog, error: str | None) -> None:
        """Close the clients, except after a deliberate crash, and the log. One whose login is refused cannot leave its
        group in order: closing it might not return, and it would go on with that login for ever."""
        begun = life_log.begin()
        if error == Crash.code or error in LOGIN_REFUSED:
            probe.let_go()
        else:
            try:
                bounded(probe.close, self._config.close_within, life_log.alive, f"close-{probe.name}")
            except ClientStuck as stuck:
                log.warning("probe %s: closing its client does not return", self.spec.name)
                try:
                    life_log.close_stuck(CLOSE_STUCK, begun)
                except ProbeLogError:
                    life_log.let_go()  # the thread that closes would keep it for as long as it takes
                    raise
                args = (probe, life_log, stuck.returned)
                threading.Thread(target=self._linger, args=args, name=f"closing-{self.spec.name}", daemon=True).start()
                return
            except Abandoned:
                return
            except Exception as failure:
                error = error or translate(failure).code
        _graveyard.take(probe)
        life_log.end("ok" if error is None else "info", error, invoked=begun)

    def _linger(self, probe: Probe, life_log: LifeLog, returned: threading.Event) -> None:
        """Wait for a client that does not return from closing, and say in its log if it does; another life goes on.
        The clients that would have been closed after it are let go then, at the latest."""
        life_log.beat = lambda: None
        limit = time.monotonic() + CLOSE_LINGER
        try:
            while not returned.wait(BEAT) and not self.stop.is_set() and time.monotonic() < limit:
                life_log.alive()
            if returned.is_set():
                life_log.end("ok")
                return
            log.warning("probe %s: closing an earlier client has still not returned", self.spec.name)
            life_log.leave()
        except (ProbeError, ProbeLogError) as problem:
            log.warning("probe %s: the log of a client that does not close ends: %s", self.spec.name, problem)
            life_log.let_go()
        finally:
            _graveyard.take(probe)


class _Attempt:
    """One thread's go at keeping a probe running."""

    def __init__(self) -> None:
        self.sign = time.monotonic()
        self.life_log: LifeLog | None = None
        self.abandoned = False
        self.over = False

    def beat(self) -> None:
        self.sign = time.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0 and not stop.is_set():
            self.beat()
            stop.wait(min(left, 1.0))
        self.beat()


_graveyard: Final = Graveyard()


def _without_frames(error: BaseException | None) -> None:
    """An error keeps the frames that it came through, and these keep the probe with its clients."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


class Supervisor:
    """Keeps a set of probes running. `start`, then `stop`; both from one thread."""

    def __init__(self, specs: Sequence[Spec], world: World, journals: Path) -> None:
        self._world, self._journals = world, journals
        most = world.config.journal_max_gb
        self._spool = Spool(journals, None if most is None else round(most * 1e9))
        self._config = world.config.supervision
        self._stops = {rank: threading.Event() for rank in sorted(set(RANKS.values()))}
        self.keepers = [self._keeper(spec) for spec in specs]
        self._over = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        for keeper in self.keepers:
            keeper.start()
        self._watchdog.start()

    def add(self, spec: Spec) -> None:
        """Take on one more probe."""
        keeper = self._keeper(spec)
        self.keepers.append(keeper)
        keeper.start()

    def stop(self, ranks: Sequence[int] | None = None) -> None:
        """End the probes of these ranks, of all if none is named, one rank after the other, each within its limit."""
        for rank, event in self._stops.items():
            if ranks is not None and rank not in ranks:
                continue
            event.set()
            limit = time.monotonic() + FINISH_WITHIN + self._config.close_within
            for keeper in self.keepers:
                if keeper.stop is event and not keeper.join(limit - time.monotonic()):
                    log.warning("probe %s does not end", keeper.spec.name)
                    keeper.abandon("_STUCK")
        if all(event.is_set() for event in self._stops.values()):
            self._over.set()

    def status(self) -> list[Counters]:
        """A copy of every probe's counters."""
        return [keeper.counters.copy() for keeper in self.keepers]

    def _keeper(self, spec: Spec) -> Keeper:
        return Keeper(spec, self._world, self._journals, self._spool, self._stops[RANKS.get(spec.kind, 1)])

    def _watch(self) -> None:
        going = Going()
        while not self._over.wait(WATCH_INTERVAL):
            going.look()
            for keeper in self.keepers:
                keeper.watch(going)
