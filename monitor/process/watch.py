"""The running monitor: the integrity job, what it found so far, and the channels that are told what it finds.

    Watch(config).start() -> metrics are served, findings of the past are counted, Spark runs, batches are checked

The order of a start is that of what fails first and cheapest: another monitor on the same data, the metrics' port, the
tables, the probes if they run in this process, Java and jars, Spark, the probe log. At a stop the probes end first
(writers, readers, observer, the last append to the probe log), then the running batch is finished and committed, then
Spark ends, and the metrics last: the last scrape sees the last finding.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from alerts.dispatch import REMEMBERED, Channel, Dispatcher
from alerts.event import FindingEvent, events
from alerts.event import recorded as recorded_events
from alerts.exposition import OfCluster
from alerts.log import LogChannel
from alerts.metrics import Count, Metrics, Open
from alerts.paging import Alone, Keeping, Paging
from alerts.receivers.terminal import Terminal, for_people
from alerts.silence_metrics import SilenceMetrics
from monitor.config.config import Config
from monitor.config.names import ClusterNames
from monitor.errors import ConfigError, UserError
from monitor.incidents.findings import of_incidents
from monitor.incidents.overview import clock
from monitor.process.checking import CheckingListeners, Checks
from monitor.process.claiming import Claim
from monitor.process.intake import begin_intake
from monitor.process.keeping import InTheStore
from monitor.process.machine_clock import MachineClock
from monitor.process.memory import giving_back
from monitor.process.page import serve
from monitor.process.probing import Probes, cluster_of, register_probes
from monitor.process.signals import asked
from monitor.process.stall_note import KEPT_AS, StallNote
from monitor.process.versions import versions
from monitor.status.board import Board
from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.policy import severity
from streaming_jobs.errors import LeaseLost
from streaming_jobs.history.reachable import require_conditional_puts, require_reachable
from streaming_jobs.location import TableUrl
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current
from streaming_jobs.tables.lease import Lease

if TYPE_CHECKING:
    from streaming_jobs.cycles.search import Searched
    from streaming_jobs.integrity_job import Batch, BatchProgress

Say = Callable[[str], None]
REASONS_TOLD: Final = 16
"""Of so many reasons why rows cannot be understood a line is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who is told, beside the monitor's own channels: other channels; `events`: of each batch's new events, after the
    channels were; `progress`: of what Spark tells of a batch."""

    channels: Sequence[Channel] = ()
    events: Sequence[Callable[[list[FindingEvent], Batch], None]] = ()
    progress: Sequence[Callable[[BatchProgress], None]] = ()


class Watch:
    """One run of the monitor. `start` returns once batches are being checked, or a stop was asked for; `stop` ends it.

    With `standby` it waits until no other is at work on the same data. Errors of ours are raised by `start` and
    `wait`."""

    def __init__(
        self,
        config: Config,
        *,
        say: Say,
        fleet: Probes | None = None,
        audience: Audience | None = None,
        standby: bool = False,
    ) -> None:
        self._config = config
        self._say = say
        self._standby = standby
        self.at_work = not standby
        """Are the data this monitor's own?"""
        self._fleet = fleet
        self._audience = audience or Audience()
        self._ending = ExitStack()
        self._stopping = threading.Event()
        self._fleet_lock = threading.Lock()
        self._fleet_stopped = False
        self._checks: Checks | None = None
        self._telling = threading.Lock()  # the jobs have threads of their own; channels and metrics are told by one
        self._dispatcher: Dispatcher | None = None
        self._clock = MachineClock()
        self._began = self._clock()
        self._checked = False
        self._rejected: set[str] = set()
        self._lost: str | None = None
        self._lease: Lease | None = None
        self._preparing: threading.Thread | None = None
        self._board: Board | None = None
        self._names = ClusterNames(config)
        self.metrics = Metrics(
            build=versions(),
            partition_series=config.alerts.partition_series,
            written=config.written,
            names=self._names,
        )
        self.url: str | None = None
        """Where the status page is served, once it is; the metrics are below it."""

    def start(self) -> None:
        """Everything up to the first batch. May be called in a thread of its own, and `stop` from another."""
        alerts = self._config.alerts
        claim = self._claim()
        if not self.at_work:
            return
        if self._config.evidence.used:
            self._ending.callback(begin_intake(self._config, self._say))
        log = self._log(alerts.log)
        people = for_people(alerts.log_format, log)
        keeping = self._keeping()
        paging = Paging(
            alerts,
            keeping,
            self.metrics.channel_failed,
            also=[Terminal(log)] if people else [],
            clock=self._clock,
            names=self._names,
        )
        board = Board(paging.standing, paging.places, self._not_ready, silences=paging.silences, names=self._names)
        self.metrics.registry.register(SilenceMetrics(paging.silences))
        if alerts.metrics:
            served = OfCluster(self.metrics.registry, self._cluster)
            self.url = serve(self._config, board, served, self._say, self._ending)
        tables = self._config.job.tables_path
        recorded, states = (
            claim.asked_until_there(partial(read_table, tables, name)) for name in ("findings", "partition_state")
        )
        begin(self.metrics, recorded, states)
        now = later_than(recorded, self._clock)
        paging.begin(recorded_events(of_recent_incidents(recorded, now).to_pylist()))
        board.begin(recorded, states)
        self._board = board
        paging.start()
        self._ending.callback(paging.stop)
        written = [] if people else [LogChannel(log, counted=alerts.log_counted, names=self._names)]
        channels: list[Channel] = [self.metrics, *written, paging, board, *self._audience.channels]
        for channel in channels:
            self.metrics.know_channel(channel.name)
        for name, failures in paging.receivers.items():
            self.metrics.know_receiver(name, failures)
        self._dispatcher = Dispatcher(channels, self.metrics.channel_failed, recorded_identities(recorded))
        if self._fleet is not None:
            self._start_probes(self._fleet)
        if not self._stopping.is_set():
            if self._preparing is not None:
                self._preparing.join()
            self._checks = self._checks or Checks(self._config, self._told(), self._clock)
            self._checks.take_over(StallNote(keeping.kept(KEPT_AS)), recorded)
            self._checks.start()

    def _claim(self) -> Claim:
        """Make the data ours, so that we are `at_work`; or not, where a stop was asked for while another had them."""
        job = self._config.job
        # Before it may stand by: nobody is there to mend what is wrong when it takes over.
        require_reachable(job.tables_path, "The tables")
        require_reachable(job.history_path)
        require_conditional_puts(job.tables_path)
        prepare = self._prepare if self._standby else None
        claim = Claim(job, self._say, self._stopping, self._ending, prepare=prepare)
        self.at_work = claim(self._leave)
        self._lease = claim.lease
        return claim

    def _keeping(self) -> Keeping:
        """Where it is kept what receivers were told, and silences."""
        folder, tables = self._config.data / "alerts", self._config.job.tables_path
        if self._lease is None or not isinstance(tables, TableUrl):
            return Alone(folder)
        return InTheStore(tables, folder, self._lease)

    def _prepare(self) -> None:
        """Start Spark while another monitor is at work, so that taking over takes less."""
        self._checks = checks = Checks(self._config, self._told(), self._clock)
        self._preparing = threading.Thread(target=checks.prepare, name="prepare", daemon=True)
        self._preparing.start()

    def _leave(self, why: str) -> None:
        """Another monitor may be at work on the same tables by now: end at once."""
        self._lost = why
        if self._checks is not None:
            self._checks.abandon()

    def wait(self, seconds: float) -> bool:
        """Whether the checks have ended for good, after at most `seconds`. Raises the error by which they did."""
        ended = self._checks.wait(seconds) if self._checks is not None else self._stopping.wait(seconds)
        if self._lost is not None:
            raise LeaseLost(f"{self._lost}: this monitor ends, and the next start waits its turn.")
        return ended

    def ask_to_stop(self) -> None:
        """Begin to stop: `start` returns soon, no further batch is begun. Does not wait."""
        self._stopping.set()
        if self._checks is not None:
            self._checks.ask_to_stop()

    def stop(self) -> None:
        """End everything in order. May be called twice."""
        self._stopping.set()
        self.stop_probes()
        if self._preparing is not None:
            self._preparing.join(_START_LIMIT)
        if self._checks is not None:
            self._checks.stop()
        self._ending.close()

    def stop_probes(self) -> None:
        """End the probes, if they run in this process, with everything they did in the probe log."""
        with self._fleet_lock:
            if self._fleet is not None and not self._fleet_stopped:
                self._fleet_stopped = True
                self._fleet.stop()

    def _start_probes(self, fleet: Probes) -> None:
        with self._fleet_lock:
            if self._fleet_stopped:
                return
            fleet.start()
        register_probes(self.metrics.registry, fleet, self._config.alerts.broker_series)

    def _cluster(self) -> str:
        """The id of the cluster that is watched, as soon as anybody in this process knows it; "" of several."""
        if len(self._config.clusters) > 1:
            return ""
        return self.metrics.cluster or (cluster_of(self._fleet) if self._fleet is not None else "")

    def _not_ready(self) -> str | None:
        """Why nothing is being checked, None where something is."""
        if self._stopping.is_set():
            return "stopping"
        if self._checks is None or not self._checked:
            return f"starting: blind since {clock(self._began, self._clock(), seconds=True)} UTC"
        if self._checks.rebuilding:
            return "the checks' state is being rebuilt"
        return "the checks have stopped, and begin again" if self._checks.stalled else None

    def _told(self) -> CheckingListeners:
        return CheckingListeners(
            say=self._say,
            on_batch=self._on_batch,
            on_progress=[self._on_batch_done, *self._audience.progress],
            on_cycles=self._on_cycles,
            on_condition=self._on_condition,
        )

    def _on_condition(self, finding: Finding) -> None:
        """A condition of the checks themselves, which the findings table does not hold yet."""
        with self._telling:
            assert self._dispatcher is not None
            now = self._clock()
            rows = findings_table([(finding, severity(finding.anomaly, finding.context))]).to_pylist()
            self._dispatcher.dispatch(events(rows, now, self._config.job.objectives.grace))

    def _on_cycles(self, searched: Searched) -> None:
        with self._telling:
            assert self._dispatcher is not None
            rows = searched.findings.to_pylist()
            self._dispatcher.dispatch(events(rows, searched.counted, self._config.job.objectives.grace))

    def _on_batch(self, batch: Batch) -> None:
        with self._telling:
            self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        assert self._dispatcher is not None
        grace = self._config.job.objectives.grace
        fresh = self._dispatcher.dispatch(events(batch.findings.to_pylist(), batch.counted, grace))
        states = batch.states.to_pylist()
        self.metrics.partitions(states)
        newest = max((row["now"] for row in states if row["now"] is not None), default=None)
        records = batch.stats.sent + batch.stats.polled
        self.metrics.checked(slices=batch.stats.slices, rejected=batch.stats.rejected, records=records, newest=newest)
        self._tell_rejected(batch)
        if self._board is not None:
            self._board.checked(batch)
        for listener in self._audience.events:
            listener(fresh, batch)

    def _tell_rejected(self, batch: Batch) -> None:
        """Say once of each reason that rows could not be understood: what their processes did there waits for them."""
        reasons = Counter(batch.rejected["reason"].to_pylist()) if batch.rejected.num_rows else {}
        for reason, rows in reasons.items():
            if reason not in self._rejected and len(self._rejected) < REASONS_TOLD:
                self._rejected.add(reason)
                self._say(
                    f"{rows} {'row' if rows == 1 else 'rows'} of the probe log cannot be understood: {reason};"
                    " what waits for them is given up after ten minutes (they are in the table rejected)"
                )

    def _on_batch_done(self, progress: BatchProgress) -> None:
        self._checked = True
        if self._board is not None:
            self._board.done(progress)
        self.metrics.batch(
            seconds=progress.duration,
            input_rate=progress.input_rows_per_second,
            commits_behind=progress.lag_versions,
        )

    def _log(self, where: str) -> TextIO:
        if where in ("stdout", "stderr"):
            return sys.stdout if where == "stdout" else sys.stderr
        try:
            stream = Path(where).open("a", encoding="utf-8")  # noqa: SIM115 - closed with everything else
        except OSError as error:
            raise ConfigError(f"{self._config.named('alerts.log')}: {where}: {error.strerror}") from error
        self._ending.callback(stream.close)
        return stream


def later_than(recorded: pa.Table, clock: MachineClock) -> datetime:
    """What the clock says, which goes on from when findings were recorded last: the machine's may have been set."""
    if recorded.num_rows:
        clock.not_before(pc.max(recorded["recorded"]).as_py())
    return clock()


def begin(metrics: Metrics, recorded: pa.Table, states: pa.Table) -> None:
    """Give the metrics what the tables held before: of findings counts, open conditions and the last times, of the
    partitions the newest row that was checked."""
    counted = recorded.filter(pc.not_equal(recorded["event"], "closed"))
    # An event that two processes wrote counts once.
    once = {(row["id"], row["event"], row["at"]): row for row in counted.to_pylist()}
    counts = Counter((row["cluster"], row["topic"], row["anomaly"], row["severity"]) for row in once.values())
    last: dict[tuple[str, str], float] = {}
    for row in once.values():
        key = row["cluster"], row["severity"]
        last[key] = max(last.get(key, 0.0), row["recorded"].timestamp())
    now = current(recorded)
    opened = now.filter(pc.equal(now["state"], "open")).select(list(Open._fields)).to_pylist()
    found = [Count(*key, findings) for key, findings in counts.items()]
    clusters = pc.unique(states["cluster"]).to_pylist()
    metrics.begin(found, [Open(**row) for row in opened], last, pc.max(states["now"]).as_py(), clusters)


def of_recent_incidents(recorded: pa.Table, now: datetime) -> pa.Table:
    """The events of the findings table that incidents which are open, or ended lately, are made of."""
    judged = of_incidents(recorded)
    standing = current(judged)
    standing = standing.filter(pc.equal(standing["state"], "open"))["id"].combine_chunks()
    since = pa.scalar(now - LOOKED_BACK, judged["recorded"].type)
    late = pc.greater_equal(judged["recorded"], since)
    return judged.filter(pc.or_(late, pc.is_in(judged["id"], value_set=standing)))


def recorded_identities(recorded: pa.Table) -> list[tuple[str, Any, datetime]]:
    """The identities of the last events of the findings table: what a batch that runs again may hold."""
    newest = recorded.sort_by([("recorded", "descending")]).slice(0, REMEMBERED)
    return [(row["id"], row["event"], row["at"]) for row in newest.select(["id", "event", "at"]).to_pylist()]


def run(watch: Watch, *, say: Say, stop: threading.Event) -> None:
    """Run the monitor until `stop` is set. Raises the error by which it ended before."""
    failed: list[Exception] = []

    def start() -> None:
        try:
            watch.start()
        except Exception as error:  # handed to the caller's thread
            failed.append(error)

    starter = threading.Thread(target=start, name="start", daemon=True)
    try:
        starter.start()
        with giving_back():
            while starter.is_alive() and not stop.is_set():
                starter.join(_TICK)
            while not stop.is_set() and not failed:
                if watch.wait(_TICK) and not stop.is_set():
                    raise UserError("the integrity job ended without being asked to")
        if failed:
            raise failed[0]
        say(f"stopping{asked(stop)}" + (": the running batch is finished first" if watch.at_work else ""))
        if starter.is_alive():
            watch.ask_to_stop()
            starter.join(_START_LIMIT)
    finally:
        watch.stop()


LOOKED_BACK: Final = timedelta(days=7)
"""An incident of violations that has gone on for longer is a new one after a restart."""
_TICK: Final = 0.2
_START_LIMIT: Final = 60.0
"""Seconds. Spark's start cannot be interrupted; what is started is stopped right after."""
