"""What all probes have in common: a life-cycle, the world they work in, and the counters that a person looks at.

A `Probe` object is one client's life. The supervisor makes it, gives it its log, and calls

    open()      make the clients, log how they begin; raises to be tried again as a new life
    turn()      one bounded step of its work: within a few seconds it returns, or says through the log that it lives
    finish()    the fleet is stopping: bring to an end what can be (readers read up, writers flush)
    close()     close the clients; may block, and is left behind if it does

What outlives a life (where a reader stood) is in `Carried`, which the next life of the same probe gets.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient

from probes.clock import Clock
from probes.config import ProbesConfig
from probes.kafka.client import (
    Connection,
    admin_settings,
    consumer_settings,
    loggable,
    open_admin,
)
from probes.kafka.errors import ClientError, Throttled
from probes.levels import Levels
from probes.log.journals.journal import Life
from probes.log.life_log import Instant, LifeLog, random_id
from probes.records.allowance import Allowance
from probes.records.delivery import Fate
from probes.records.tag import Encoder
from probes.topology import GroupProtocol, Layout, Partition
from probes.workloads.acknowledged import Acknowledged
from probes.workloads.held_back import HeldBack
from probes.workloads.measure import Measure
from probes.workloads.unrest import Unrest
from rules.vocabulary.settings import HOSTNAME
from rules.vocabulary.slices import FORMER_CLUSTER, FORMER_TOPIC_ID, LOGIN_REFUSED, Isolation, Mode

_log: Final = logging.getLogger("offsetwatch.probe")


@dataclass(slots=True)
class Counters:
    """One probe over all its lives, for people. Records unless the name says otherwise; `throttled` in seconds.

    What a probe aborts on purpose is `aborted`, and no failure: `failed` and `transactions_failed` are what was to be
    written, and certainly was not."""

    name: str
    kind: str
    state: str = "starting"
    lives: int = 0
    sent: int = 0
    acknowledged: int = 0
    aborted: int = 0
    failed: int = 0
    indefinite: int = 0
    polled: int = 0
    irregular: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_failed: int = 0
    transactions_indefinite: int = 0
    commits: int = 0
    errors: int = 0
    throttled: float = 0.0
    last_error: str = ""
    levels: Levels = field(default_factory=Levels, compare=False)

    def count(self, fates: Iterable[Fate]) -> None:
        """What became of records."""
        for fate in fates:
            if fate.type == "ok":
                self.acknowledged += fate.records
            elif fate.type == "fail":
                self.failed += fate.records
            else:
                self.indefinite += fate.records
            if fate.error:
                self.errors += 1
                self.last_error = fate.error

    def end_life(self, transactions: int) -> None:
        """A life is over, and `transactions` were open: what has been sent and nobody has told the fate of is of
        unknown outcome."""
        self.transactions_indefinite += transactions
        self.indefinite = max(self.indefinite, self.sent - self.acknowledged - self.aborted - self.failed)

    def copy(self) -> Counters:
        """As they are now; may be called from any thread."""
        return replace(self, levels=self.levels.copy())


@dataclass(slots=True)
class Carried:
    """What one life leaves to the next, by (topic id, partition). `positions`: the next offset to read. `unread`: what
    an audit's pass is not through with, and where it ended when the pass began."""

    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    unread: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """What the probes of one host share. `run` is the id in their tags, `runs` those whose records are ours."""

    config: ProbesConfig
    connection: Connection
    clock: Clock
    run: str
    runs: frozenset[str]
    layout: Callable[[], Layout]
    places_changed: Callable[[], None] = lambda: None
    """Called by the observer when a topic's id or partitions are not those of the layout."""
    strangers: set[str] = field(default_factory=set)
    """Runs of records that are none of ours, of which nothing is to be said: a line was written (`STRANGERS_TOLD` at
    most), or they were given up in this journal folder."""
    held_back: HeldBack = field(default_factory=HeldBack)
    """What brokers held back of their answers, by a quota."""
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    """What they acknowledged of what was written."""
    hostname: str = field(default_factory=socket.gethostname)


UNANSWERED: Final = frozenset({"_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"})
REFUSED_FOR: Final = 60
"""Seconds for which a login that was refused explains that nobody answers; clients try again more often."""
LOOK_EVERY: Final = 5
"""Seconds between two looks at a login that is refused."""


class Probe(ABC):
    """One life of a probe."""

    kind: ClassVar[str]
    sends: ClassVar[bool] = False
    isolation: ClassVar[Isolation | None] = None

    def __init__(
        self, name: str, world: World, layout: Layout, counters: Counters, carried: Carried, rng: random.Random
    ) -> None:
        self.name, self.world, self.layout = name, world, layout
        self.counters, self.carried, self.rng = counters, carried, rng
        self.process = random_id()
        self.writer = random_id() if self.sends else None
        self.stopping = threading.Event()
        self.allowance = Allowance(world.clock.monotonic_ns)
        self.measure = Measure(counters.levels, world.clock, world.layout)
        self.unrest = Unrest(world.config.unrest, world.clock, rng)
        self._refusal: tuple[int, ClientError] | None = None
        self._login, self._looked_at_login = b"", 0
        self._next_seq: dict[Partition, int] = {}
        self.log: LifeLog

    @property
    def transactional_id(self) -> str | None:
        return None

    @property
    def sends_to(self) -> str | None:
        """The topic that it sends to, None where it sends nothing."""
        return None

    @property
    def reads_from(self) -> str | None:
        """The topic that it reads, and no other; None where it reads them all, or nothing."""
        return None

    @property
    def mode(self) -> Mode | None:
        return None

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """The settings of its clients, secrets included."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def turn(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def finish(self) -> None:
        """The default: nothing is left to do."""
        return

    def let_go(self) -> None:
        """Instead of `close`, where its clients are not to be closed in order. The default: whoever held them goes."""
        return

    def labels(self) -> dict[str, str]:
        """What the start row's settings say beside the client's own settings."""
        labels = {"name": self.name, HOSTNAME: self.world.hostname}
        if self.writer is not None:
            labels["writer"] = str(self.writer)
        if self.sends_to is not None:
            labels["sends_to"] = self.sends_to
        if self.reads_from is not None:
            labels["reads_from"] = self.reads_from
        return labels

    def life(self) -> Life:
        """This life's identity, for its journal."""
        return Life(
            cluster=self.layout.cluster,
            run=self.world.run,
            process=self.process,
            kind=self.kind,
            writer=self.writer,
            transactional_id=self.transactional_id,
            boot=self.world.clock.boot,
            settings=loggable(self.settings()) | self.labels(),
        )

    def log_start(self) -> None:
        """The life's first rows. Where a topic was made anew under the probes, they say so: groups commit by a topic's
        name, so that what the lives before this one did may still reach it."""
        rows = self.log.everywhere(
            "start",
            "ok",
            self.log.now(),
            kind=self.kind,
            settings=dict(self.log.life.settings),
            isolation=self.isolation,
            mode=self.mode,
        )
        for row in rows:
            if former := self.layout.former_id(row.topic):
                row.settings = {**(row.settings or {}), FORMER_TOPIC_ID: former}
            if self.layout.former_cluster:
                row.settings = {**(row.settings or {}), FORMER_CLUSTER: self.layout.former_cluster}
        self.log.append(rows)

    def log_positions(self, op: int, invoked: Instant, found: Mapping[Partition, int]) -> None:
        """Log where its consumer stands, which was asked then, in what is assigned to it."""
        each = {where: {"position_before": at, "position_after": at} for where, at in found.items()}
        how = {"isolation": self.isolation, "mode": self.mode, "assigned": True}
        rows = self.log.rows_of(each, "position", "ok", op, invoked, self.log.now(), **how)
        self.log.append(rows) if rows else self.log.idle()

    def pause(self, seconds: float) -> None:
        """Wait, saying every quarter of a second that we live; ends early when the fleet is stopping."""
        left = seconds
        while left > 0 and not self.stopping.is_set():
            step = min(left, 0.25)
            self.stopping.wait(step)
            left -= step
            self.log.alive()

    def on_error(self, error: ClientError) -> None:
        """An error of the client that belongs to no operation. Called from the client's own polls."""
        if isinstance(error, Throttled):
            self._on_throttle(error)
            return
        self.counters.errors += 1
        self.counters.last_error = str(error)
        if error.code in LOGIN_REFUSED:
            self._refusal = self.world.clock.monotonic_ns(), error

    def _on_throttle(self, told: Throttled) -> None:
        self.counters.throttled += told.seconds
        if told.broker < 0:
            return  # a connection over which the client has not learnt yet who it is
        if self.world.held_back.note(told.broker, self.name, told.seconds, self.world.clock.monotonic_ns()):
            _log.warning(
                "broker %s throttles the client of %s, by a quota (%.1f s now): probes do less than they are set to,"
                " and what waits for them is late; offsetwatch_probe_throttled_seconds_total tells how much",
                told.broker,
                self.name,
                told.seconds,
            )

    def note_login(self) -> None:
        """Its clients are about to be opened, with the login as it is now."""
        self._login = self.world.connection.login()

    def look_at_login(self) -> None:
        """Raises the client's error where its login has been refused and is another one by now: an open client goes on
        with the one that it was given, for ever, also where it is let in by some brokers only."""
        now = self.world.clock.monotonic_ns()
        if self._refusal is None or now - self._looked_at_login < LOOK_EVERY * 10**9:
            return
        self._looked_at_login = now
        try:
            changed = self.world.connection.login() != self._login
        except Exception:  # a secret that is being written
            return
        if changed:
            raise self._refusal[1]

    def why(self, error: Exception) -> Exception:
        """Why this life ended: that a call timed out is what follows where a broker refuses the client's login, of
        which the client tells beside it."""
        refusal = self.login_refused
        return refusal if refusal is not None and getattr(error, "code", None) in UNANSWERED else error

    @property
    def login_refused(self) -> ClientError | None:
        """With what its login was refused, if that was lately."""
        if self._refusal is None or self.world.clock.monotonic_ns() - self._refusal[0] > REFUSED_FOR * 10**9:
            return None
        return self._refusal[1]

    # What its clients are made of

    @property
    def client(self) -> str:
        """The client id of its clients."""
        return f"offsetwatch-{self.name}"

    def encoders(self, targets: Iterable[Partition], size: int) -> dict[Partition, Encoder]:
        """What writes its records, of `size` bytes, for each partition it sends to."""
        assert self.writer is not None
        return {
            (topic, partition): Encoder(
                run=self.world.run, writer=self.writer, topic=topic, partition=partition, size=size
            )
            for topic, partition in targets
        }

    def number(self, wanted: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """The next sequence numbers, the first and how many, for so many records to each of these partitions: reserved,
        so that no later life of the writer uses them."""
        numbers = {}
        for where, count in wanted.items():
            first = self._next_seq.get(where, 0)
            self._next_seq[where] = first + count
            self.log.reserve(where, first + count)
            numbers[where] = (first, count)
        return numbers

    def consumer_settings(
        self, group: str, *, prompt: bool = False, protocol: GroupProtocol = "classic"
    ) -> dict[str, str]:
        return consumer_settings(
            self.world.connection, client=self.client, group=group, prompt=prompt, protocol=protocol
        )

    def open_admin(self) -> AdminClient:
        """A client for the questions of a moment."""
        return open_admin(admin_settings(self.world.connection, client=f"{self.client}-admin"))

    def topic_place(self, where: Partition) -> tuple[str, int]:
        """The key under which positions are carried over lives."""
        return self.layout.topic_id(where[0]), where[1]
