"""The fleet: all probes of one host, the committer of their log, and the upkeep of the probe topics. Wired here.

fleet = Fleet(config, Connection("host:9092"), journal_folder, clock, history="path or URL of the Delta table")
fleet.start()      # raises a ProbeError with a sentence for the user where it cannot
fleet.status()     # for a person: counters of every probe, the committer's state
fleet.stop()       # writers first, then readers, the observer last, then the committer: nothing is lost
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from probes.clock import Clock
from probes.config import ProbesConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import ClientError, ProbeError
from probes.kafka.wire.errors import CannotConnect
from probes.kafka.wire.rights import taken
from probes.log.commits import compaction
from probes.log.commits.committer import Committer, committer
from probes.log.commits.confirmations import Confirmations
from probes.log.commits.destination import Destination
from probes.log.commits.holding import Holding, StandsOut
from probes.log.commits.recovery import recover
from probes.log.commits.status import CommitterStatus
from probes.log.errors import ProbeLogError
from probes.running import brought_back
from probes.running.claiming import Claiming, settle
from probes.running.known_cluster import former_cluster, note_cluster
from probes.running.needed import lacking
from probes.running.probe_process import Errand, ProcessSupervisor
from probes.running.probe_run import former_runs, has_run, run_id
from probes.running.supervisor import Spec, Supervisor
from probes.running.under_the_run import AnotherFleet, Looker, look
from probes.topics.probe_topics import ProbeTopics
from probes.topology import Broker, Layout
from probes.workloads.audit import Audit
from probes.workloads.end_to_end import EndToEnd
from probes.workloads.observer import Observer
from probes.workloads.probe import Counters, World
from probes.workloads.reader import Reader
from probes.workloads.registers import Registers
from probes.workloads.transactional.aborts import Aborts
from probes.workloads.transactional.transactions import Transactions
from probes.workloads.transactional.transform import Transform
from probes.workloads.writer import Writer
from probes.workloads.zombies import Zombies

log = logging.getLogger("offsetwatch.fleet")

LOOK_AGAIN: Final = (8.0, 20.0)
"""Seconds after which a fleet that has begun looks once more for another one under its run: some time of these."""
UPKEEP_INTERVAL: Final = 30.0
"""Seconds between two looks at the probe topics and brokers, when nobody reports a change."""
MISSED_INTERVAL: Final = 2.0
"""The same while one of the topics is not there: who made it anew has the probes back at once."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    run: str
    layout: Layout | None
    probes: tuple[Counters, ...]
    committer: CommitterStatus | None


def specs(config: ProbesConfig, run: str, brokers: Sequence[Broker]) -> list[Spec]:
    """The probes that the configuration asks for."""
    base = f"{config.topics.prefix}-{run}"
    made: list[Spec] = []
    for i in range(config.writer.count):
        made.append(Spec(f"writer-{i + 1}", Writer, (("in_flight", 1),)))
    for i in range(config.writer.with_five_in_flight):
        made.append(Spec(f"writer-five-{i + 1}", Writer, (("in_flight", 5),)))
    for i in range(config.reader.assign):
        made.append(_reader(f"reader-{i + 1}", f"{base}-reader-{i + 1}"))
    for i in range(config.reader.group):
        made.append(_reader(f"reader-group-{i + 1}", f"{base}-group", mode="subscribe"))
    for i in range(config.reader.restless):
        made.append(_reader(f"reader-restless-{i + 1}", f"{base}-restless-{i + 1}", restless=True))
    for i in range(config.transaction.count):
        options = (
            ("timeout", config.transaction.timeouts[i % len(config.transaction.timeouts)]),
            ("stable", i % 2 == 0),
            ("group", f"{base}-transactions-{i + 1}"),
        )
        made.append(Spec(f"transactions-{i + 1}", Transactions, options))
    made += _transforms(config, base)
    for i in range(config.aborts.count):
        made.append(Spec(f"aborts-{i + 1}", Aborts, (("group", f"{base}-aborts-{i + 1}"),)))
    made += [Spec(f"registers-{i + 1}", Registers) for i in range(config.registers.count)]
    made += [Spec(f"zombies-{i + 1}", Zombies) for i in range(config.zombies.count)]
    made += [Spec(f"end-to-end-{i + 1}", EndToEnd) for i in range(config.end_to_end.count)]
    if config.reader.per_broker:
        made += [broker_spec(config, run, broker) for broker in brokers]
    groups = sorted({str(value) for spec in made for key, value in spec.options if key == "group"})
    made.append(Spec("observer", Observer, (("groups", tuple(groups)),)))
    if config.audit.enabled:
        # It commits nothing that the observer could read back.
        made.append(Spec("audit", Audit, (("group", f"{base}-audit"),)))
    return made


def _transforms(config: ProbesConfig, base: str) -> list[Spec]:
    """The members of one group, and the writer that feeds them."""
    asked = config.transform
    if not asked.count:
        return []
    feed = (("in_flight", 1), ("topic", config.topics.transform_in), ("rate", asked.input_rate))
    made = [Spec("transform-feed", Writer, feed)]
    for i in range(asked.count):
        options = (("timeout", asked.timeouts[i % len(asked.timeouts)]), ("group", f"{base}-transform"))
        made.append(Spec(f"transform-{i + 1}", Transform, options))
    return made


def broker_spec(config: ProbesConfig, run: str, broker: Broker) -> Spec:
    """The reader that bootstraps from this broker alone."""
    group = f"{config.topics.prefix}-{run}-broker-{broker.id}"
    return _reader(f"reader-broker-{broker.id}", group, bootstrap=broker.address)


def _reader(name: str, group: str, **options: object) -> Spec:
    return Spec(name, Reader, (("group", group), *options.items()))


class Fleet:
    """All probes of one host. `start` once, `stop` once; `status` from any thread."""

    def __init__(
        self,
        config: ProbesConfig,
        connection: Connection,
        journal_folder: Path,
        clock: Clock,
        *,
        history: str | Path | Destination | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`history`: the Delta table that the committer appends to, or another destination of its appends; without it
        nobody does, and the journals stay.
        `say` gets sentences for the user, each once."""
        self._config, self._clock, self._folder = config, clock, journal_folder
        self._connection = connection
        self._history, self._say = history, say or log.warning
        self.stands_out: StandsOut | None = None
        """Which rows do not wait for those that follow (`probes.hold`); without it none do. For `start`."""
        self._layout: Layout | None = None
        self._run = ""
        self._supervisor: Supervisor | None = None
        self._processes: ProcessSupervisor | None = None
        self._topics: ProbeTopics | None = None
        self._login = b""
        self.failure: ProbeError | ProbeLogError | None = None
        """Why it must not go on, where only its user can mend that: nothing that its probes do can be appended to the
        probe log, or another fleet works under its run."""
        self._committer: Committer | None = None
        self._confirmations: Confirmations | None = None
        self._claiming: Claiming | None = None
        self._committer_thread: threading.Thread | None = None
        self._committer_stop = threading.Event()
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._upkeep: threading.Thread | None = None
        self._second_look: threading.Thread | None = None
        self._brokers: set[int] = set()

    def start(self) -> None:
        """Prepare the topics and start everything.

        Raises Unreachable, ProbeError, ClientError, and the probe log's errors (a journal folder taken by another).
        AnotherFleet, a ProbeError, where another fleet is at work under this run, and FolderCopied where one has begun
        with a copy of the journal folder."""
        known = has_run(self._config, self._folder)
        self._run = run_id(self._config, self._folder)
        self._login = self._connection.login()
        admin = self._open_admin()
        self._look_at_what_brokers_take()
        self._topics = ProbeTopics(admin, self._config.topics, self._say, self._config.topic_names)
        self._layout = self._knowing_its_former(self._topics.ensure())
        if self._history is not None:
            self._open_committer(self._history)
        if known:
            self._look_and_claim()
        settle(self._folder)
        if self._history is not None:
            self._start_committer(self._history)
        else:
            recover(self._folder, self._clock)
        self._brokers = {broker.id for broker in self._layout.brokers}
        wanted = specs(self._config, self._run, self._layout.brokers)
        if self._config.supervision.host == "processes":
            self._processes = ProcessSupervisor(
                [self._errand(spec) for spec in wanted], self._look_now.set, self._clock
            )
            self._processes.start()
        else:
            self._supervisor = Supervisor(wanted, self._world(), self._folder)
            self._supervisor.start()
        self._upkeep = threading.Thread(target=self._keep_up, name="upkeep", daemon=True)
        self._upkeep.start()
        self._second_look = threading.Thread(target=self._look_again, name="second-look", daemon=True)
        self._second_look.start()

    def stop(self) -> None:
        """End everything in order: what sends, what reads, the observer, the committer. Raises nothing."""
        self._stopping.set()
        self._look_now.set()
        for supervisor in (self._supervisor, self._processes):
            if supervisor is not None:
                supervisor.stop()
        self._committer_stop.set()
        if self._committer_thread is not None:
            self._committer_thread.join(60.0)
        for thread in (self._upkeep, self._second_look):
            if thread is not None:
                thread.join(15.0)

    def stop_sending(self) -> None:
        """End the writers and the transactions; readers and observer go on."""
        for supervisor in (self._supervisor, self._processes):
            if supervisor is not None:
                supervisor.stop([0])

    def status(self) -> FleetStatus:
        supervisor = self._supervisor or self._processes
        return FleetStatus(
            run=self._run,
            layout=self._layout,
            probes=tuple(supervisor.status()) if supervisor is not None else (),
            committer=self._committer.status() if self._committer is not None else None,
        )

    def pids(self) -> dict[str, int]:
        """The process numbers of the probes that have processes of their own, by name."""
        return self._processes.pids() if self._processes is not None else {}

    def _world(self) -> World:
        return World(
            config=self._config,
            connection=self._connection,
            clock=self._clock,
            run=self._run,
            runs=frozenset({self._run, *self._config.known_runs}),
            layout=self._present,
            places_changed=self._look_now.set,
            strangers=set(former_runs(self._folder)),
        )

    def _errand(self, spec: Spec) -> Errand:
        runs = frozenset({self._run, *self._config.known_runs})
        said = self._clock.both()
        return Errand(
            spec,
            self._config,
            self._connection,
            self._run,
            runs,
            former_runs(self._folder),
            self._present(),
            self._folder,
            self._clock.boot,
            said,
        )

    def _present(self) -> Layout:
        assert self._layout is not None
        return self._layout

    def _open_committer(self, history: str | Path | Destination) -> None:
        """Hold the journal folder: whoever looks at what others do under its run has to be alone in it."""
        assert self._topics is not None and self._layout is not None
        self._confirmations = Confirmations(self._layout.cluster, self._topics.ids, self._clock)
        shown, longest = self.stands_out, self._config.hold
        holding = Holding(shown, longest) if shown is not None and longest else None
        self._committer = committer(
            self._folder, history, self._clock, confirmations=self._confirmations, holding=holding
        )
        self._committer.on_copied = self._fail
        self._committer.__enter__()

    def _start_committer(self, history: str | Path | Destination) -> None:
        self._committer_thread = threading.Thread(target=self._commit, name="committer", daemon=True)
        self._committer_thread.start()
        if isinstance(history, str | Path):
            threading.Thread(
                target=compaction.keep_compact, args=(str(history), self._stopping), name="compaction", daemon=True
            ).start()

    def _commit(self) -> None:
        assert self._committer is not None
        try:
            if self._claiming is not None:
                self._claiming.wait()
            self._committer.run(self._committer_stop)
        except ProbeLogError as error:
            self._fail(error)
        finally:
            self._committer.__exit__(None, None, None)

    def _look_at_what_brokers_take(self) -> None:
        """A client that asks for what brokers do not know waits for ever, and says nothing."""
        with contextlib.suppress(ClientError, CannotConnect):  # whoever cannot be asked now is asked by its client
            for one in lacking(self._config, taken(self._connection, "offsetwatch-topics")):
                raise ProbeError(one)

    def _fail(self, error: ProbeError | ProbeLogError) -> None:
        self.failure = error
        self._say(str(error))

    def _look_and_claim(self) -> None:
        """Nobody may be at work under the run, the journal folder be an older copy, or another one have claimed it.
        Raises AnotherFleet, ProbeError and HistoryMismatch, and lets go of the journal folder."""
        try:
            known = brought_back.known_through(self._folder, self._clock.boot)
            if self._newest_under_the_run(known) > known:
                self._give_up_the_run()
            if self._committer is not None:
                self._claiming = Claiming(self._committer, self._stopping.wait)
                self._claiming.make()
        except BaseException:
            if self._committer is not None:
                self._committer.__exit__(None, None, None)
            raise

    def _give_up_the_run(self) -> None:
        older = f"{self._folder} is an older copy of itself: records of run {self._run} were sent after what it tells"
        committer = self._committer
        if self._config.run is not None or (committer is not None and not committer.knows_what_is_appended):
            raise ProbeError(f"{older}. Move it away, so that its probes begin anew; declare its processes gone")
        before, self._run = self._run, brought_back.give_up(self._folder, self._run, self._clock)
        self._say(f"{older}. Nothing is concluded from what it lacks; run {self._run} begins instead of {before}")

    def _newest_under_the_run(self, known_through: int = 0) -> int:
        looker = Looker(self._run, self._folder, f"{self._config.topics.prefix}-{self._run}-look", known_through)
        try:
            return look(self._connection, looker, self._present(), self._stopping.is_set)
        except ClientError as error:
            log.warning("what stands under run %s cannot be looked at: %s", self._run, error)
            return 0

    def _look_again(self) -> None:
        """Another one may have begun in the same moment, and seen nobody either. Not both go on at the same time then,
        where somebody begins them anew."""
        if self._stopping.wait(random.uniform(*LOOK_AGAIN)):
            return
        try:
            self._newest_under_the_run()
        except AnotherFleet as error:
            self._fail(error)

    def _keep_up(self) -> None:
        """Look after topics and brokers, now and then and when the observer reports a change."""
        while not self._stopping.is_set():
            self._look_now.wait(self._until_next_look())
            self._look_now.clear()
            if self._stopping.is_set():
                return
            try:
                self._look()
            except ProbeError as error:
                log.warning("%s", error)
                self._come_in_anew()
                self._stopping.wait(1.0)

    def _until_next_look(self) -> float:
        assert self._topics is not None and self._layout is not None
        missing = set(self._topics.names) - {topic for topic, _ in self._layout.partitions()}
        return MISSED_INTERVAL if missing else UPKEEP_INTERVAL

    def _open_admin(self) -> AdminClient:
        return open_admin(admin_settings(self._connection, client="offsetwatch-topics"))

    def _come_in_anew(self) -> None:
        """Ask by a new client where the login is another one by now: an open one goes on with that which it was given,
        for ever."""
        assert self._topics is not None
        with contextlib.suppress(Exception):  # a secret that is being written
            if (login := self._connection.login()) != self._login:
                self._topics.ask_by(self._open_admin())
                self._login = login

    def _look(self) -> None:
        assert self._topics is not None and self._layout is not None
        note_cluster(self._folder, self._connection.bootstrap, self._layout.cluster)
        found = self._knowing_its_former(self._topics.ensure())
        if not found.same_places(self._layout):
            self._say("the partitions of the probe topics are not what they were: the probes start anew")
        if self._confirmations is not None:
            self._confirmations.followers.add(found.cluster)
        self._layout = found
        if self._processes is not None:
            self._processes.tell(found)
        if self._config.reader.per_broker:
            for broker in found.brokers:
                if broker.id not in self._brokers:
                    self._brokers.add(broker.id)
                    self.add(broker_spec(self._config, self._run, broker))

    def _knowing_its_former(self, found: Layout) -> Layout:
        """The layout with the cluster that was at these addresses before, if there was one."""
        if self._layout is not None and found.cluster == self._layout.cluster:
            return replace(found, former_cluster=self._layout.former_cluster)
        former = former_cluster(self._folder, self._connection.bootstrap, found.cluster)
        if former:
            at = self._connection.bootstrap
            log.error(
                "at %s is another cluster: its id is %s, and was %s: its records are not here",
                at,
                found.cluster,
                former,
            )
        return replace(found, former_cluster=former)

    def add(self, spec: Spec) -> None:
        """Take on one more probe, once the fleet has started. In threads its class may be any `Probe`."""
        if self._processes is not None:
            self._processes.add(self._errand(spec))
        elif self._supervisor is not None:
            self._supervisor.add(spec)
