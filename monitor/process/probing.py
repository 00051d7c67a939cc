"""The probes of this host, wired to their configuration. Beside a monitor they have a process of their own for each
cluster; `probe run` is that process itself, unless it runs those of several clusters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Info

from alerts.cluster_info import ClusterInfo
from alerts.exposition import Exposition, OfCluster
from alerts.level_metrics import LevelMetrics
from alerts.merged import Merged
from alerts.probe_metrics import ProbeMetrics
from alerts.process_metrics import ProcessMetrics
from alerts.serving.server import PortTaken
from monitor.config.config import Config
from monitor.config.names import ClusterNames, only, record
from monitor.errors import USAGE_OR_ENVIRONMENT, VIOLATION, ConfigError, UserError, known_errors
from monitor.process.cluster_fleets import ClusterFleets, KeptFleet, left_behind
from monitor.process.fleet_process import Errand
from monitor.process.memory import giving_back
from monitor.process.program_log import say as to_stderr
from monitor.process.reach import connection, evidence_topic, open_fleet, reach
from monitor.process.readiness import not_ready
from monitor.process.signals import asked
from monitor.process.versions import versions
from monitor.process.watchdog import watched
from probes.clock import SystemClock
from probes.levels import Levels
from probes.log.commits.folder_clock import folder_clock
from probes.running.fleet import Fleet, FleetStatus
from probes.running.known_cluster import has_worked_at
from rules.vocabulary.slices import Run
from streaming_jobs.history.reachable import mend_folder, require_conditional_puts, require_reachable


class Running(Protocol):
    """The probes of one cluster, wherever they run."""

    def status(self) -> FleetStatus:
        """Counters of every probe; of the last moment, where they have ended."""
        ...


class ProbesOfOne(Running, Protocol):
    """The same, to be started and stopped: as a `Fleet` is, in this process or in one of their own."""

    def start(self) -> None:
        """Begin. Raises errors with a sentence for the user."""

    def stop(self) -> None:
        """End in order, with everything they did in the probe log."""


Probes = ProbesOfOne | ClusterFleets
"""The probes of one cluster, or those of several."""


def open_probes(
    config: Config, say: Callable[[str], None], cluster: str | None = None, *, debug: bool, apart: bool = False
) -> Probes:
    """The probes, not started: of `cluster`, else of all clusters; those of a single one are in this process unless
    they are to be `apart`. Raises ConfigError: a single one has to answer, unless probes `apart` have worked there
    before; and TableError where the probe log is in an object store that does not let us in, or has no conditional
    puts. A cluster of evidence has to answer, too."""
    if config.evidence.used:
        reach(config, "evidence")
    else:
        require_reachable(config.job.history_path)
        mend_folder(config.job.history_path)
        require_conditional_puts(config.job.history_path)
    threading.Thread(target=left_behind, args=(config, say), name="left-behind", daemon=True).start()
    if cluster is not None:
        return open_fleet(only(config, cluster), say)
    as_json = config.alerts.log_format == "json"
    if config.clusters:
        return ClusterFleets(config, say, debug=debug, as_json=as_json)
    if apart:
        errand = Errand(config, config.data / "logs" / "probes.log", debug, as_json)
        connection(config)  # what no trying would mend
        try:
            reach(config)
        except ConfigError as away:
            if not _has_worked(config):
                raise
            say(f"{away}; the probes have worked there before, and begin as soon as they can")
            errand = replace(errand, patient=True)
        return KeptFleet(errand, say)
    return open_fleet(config, say)


def _has_worked(config: Config) -> bool:
    """Have the probes worked in this cluster before? Then it is away, and not misspelt."""
    try:
        return has_worked_at(config.journals, config.cluster.bootstrap)
    except OSError:  # told by whoever writes there
        return False


def fleets_of(probes: Probes) -> Sequence[Running]:
    """One for each cluster."""
    return probes.fleets if isinstance(probes, ClusterFleets) else [probes]


def run(config: Config, probes: Probes, stop: threading.Event, say: Callable[[str], None] = to_stderr) -> None:
    """Run the probes until `stop` is set; then writers, readers, observer and committer end in that order. Where what
    they do can never be appended to the probe log, they end as well: the journals keep it.

    Raises the probes' and the probe log's own errors."""
    served, failure = ExitStack(), None
    try:
        serve(config, probes, say, served)
        probes.start()
        if isinstance(probes, Fleet):
            status = probes.status()
            kept = evidence_topic(config) if config.evidence.used else config.job.history_path
            say(f"{len(status.probes)} probes of run {status.run} are at work, their log is {kept}")
        with watched(), giving_back():
            while failure is None and not stop.wait(1.0):
                failure = probes.failure if isinstance(probes, Fleet) else None
        say(f"stopping{asked(stop)}: writers, readers, observer, then the last append to the probe log")
    finally:
        probes.stop()
        served.close()
    for fleet in fleets_of(probes):
        of = f"{fleet.name}: " if isinstance(fleet, KeptFleet) else ""
        say(f"{of}stopped: {summary(fleet.status())}")
    if failure is not None:
        raise failure


def register_probes(registry: CollectorRegistry, probes: Probes, brokers: int) -> None:
    """Add the probes' counters and what they have measured, as they are at each scrape. `brokers`: how many of each
    cluster have series of their own."""
    fleets = fleets_of(probes)
    registry.register(Merged([_counted(fleet) for fleet in fleets]))
    registry.register(Merged([_measured(fleet, brokers) for fleet in fleets]))


def _counted(fleet: Running) -> ProbeMetrics:
    return ProbeMetrics(lambda: fleet.status().probes, lambda: fleet.status().committer, lambda: _id(fleet))


def _measured(fleet: Running, brokers: int) -> LevelMetrics:
    return LevelMetrics(lambda: measured(fleet), lambda: _id(fleet), brokers=brokers)


def _id(fleet: Running) -> str:
    layout = fleet.status().layout
    return layout.cluster if layout is not None else ""


def cluster_of(probes: Probes) -> str:
    """The id of the cluster that the probes work in; "" before they have begun, and where there are several."""
    fleets = fleets_of(probes)
    return _id(fleets[0]) if len(fleets) == 1 else ""


def measured(fleet: Running) -> Levels:
    """What all its probes have measured together."""
    levels = Levels.empty()
    for probe in fleet.status().probes:
        levels.add(probe.levels)
    return levels


PORT_AGAIN: Final = 5.0
"""Seconds between two tries to serve metrics on a port that is taken."""


def serve(config: Config, probes: Probes, say: Callable[[str], None], ending: ExitStack) -> None:
    """Serve the metrics of probes that have a process of their own, until `ending` ends. Where the port is taken they
    run without until it is free: what they log is worth more than what they count."""
    alerts = config.alerts
    if not alerts.metrics:
        return
    registry = CollectorRegistry()
    Info("offsetwatch_build", "Versions of the program and of what it runs on.", registry=registry).info(versions())
    fleets = fleets_of(probes)
    register_probes(registry, probes, alerts.broker_series)
    registry.register(ProcessMetrics(config.written))
    registry.register(ClusterInfo(lambda: {_id(fleet) for fleet in fleets}, ClusterNames(config)))

    def idle() -> str | None:
        try:
            told = [(fleet.name if isinstance(fleet, KeptFleet) else "", fleet.status()) for fleet in fleets]
        except OSError as error:  # what waits in journals is counted there
            return f"the probes' folder cannot be read: {error.filename}: {error.strerror}"
        return not_ready(told)

    def begin() -> Exposition:
        served = OfCluster(registry, lambda: cluster_of(probes))
        exposition = Exposition(served, host=alerts.metrics_host, port=alerts.probes_port, ready=idle)
        say(f"metrics are served at {exposition.url}")
        return exposition

    try:
        ending.callback(begin().close)
    except PortTaken as error:
        say(f"{error}; the probes run without until it is free (alerts.probes_port)")
        over = threading.Event()
        waiting = threading.Thread(target=_serve_later, args=(begin, over), name="metrics", daemon=True)
        waiting.start()
        ending.callback(waiting.join)
        ending.callback(over.set)


def _serve_later(begin: Callable[[], Exposition], over: threading.Event) -> None:
    """Whoever has the port may only take some seconds to end."""
    while not over.wait(PORT_AGAIN):
        with suppress(PortTaken):
            exposition = begin()
            over.wait()
            exposition.close()


def gone(config: Config, committer: int, since: datetime | None, say: Callable[[str], None] = to_stderr) -> None:
    """Declare that the host of this committer does not come back. Raises the probe log's errors."""
    from probes.log.commits.gone import declare_gone
    from probes.log.commits.history import History

    require_reachable(config.job.history_path)
    told = declare_gone(History(str(config.job.history_path)), committer, SystemClock().now(), since)
    if told.at is not None:
        at, over = (f"{one:%Y-%m-%d %H:%M:%S}" for one in (told.at, told.over))
        say(
            f"the host of committer {committer} was declared gone already, at {at} UTC, as down by {over}: nothing more"
            " of it is waited for, and that time cannot be changed any more"
        )
    elif not told.processes:
        say(f"all processes of committer {committer} had ended: nothing of them is waited for")
    else:
        of = f"{told.processes} processes of committer {committer}"
        say(f"the log of {of} ends here: nothing more of them is waited for")


def drain_each(config: Config, cluster: str | None, *, limit: float) -> int:
    """Drain `cluster`, else one cluster after the other, each said by its name. Exit code 1 where one has lost records,
    else 2 where one could not be read to its end; raises like `drain` where there is but one."""
    if cluster is not None:
        return drain(only(config, cluster), limit=limit)
    if not config.clusters:
        return drain(config, limit=limit)
    codes = []
    for one in config.each():

        def say(line: str, name: str = one.name) -> None:
            to_stderr(f"{name}: {line}")

        try:
            codes.append(drain(one, limit=limit, say=say))
        except known_errors() as error:
            say(" ".join(str(error).split()))
            codes.append(USAGE_OR_ENVIRONMENT)
    return VIOLATION if VIOLATION in codes else max(codes)


def drain(config: Config, *, limit: float, say: Callable[[str], None] = to_stderr) -> int:
    """Read everything back with clients opened anew, and say what acknowledged records are missing: exit code 1 if any
    are lost, else 2 if any cannot be read yet, because a transaction that does not end holds them.

    `limit`: seconds after which what is missing is given up. Raises ConfigError where no cluster can be reached, and
    the probes' and the probe log's own errors, as where probes are at work on the same journals."""
    from probes.running.drain import ProbeLog
    from probes.running.drain import drain as drain_all

    if config.evidence.used:
        raise UserError(
            "draining compares what can be read with the probe log's table, which probes that log by way of "
            f"{evidence_topic(config)} do not have: wait for the monitor, and ask its findings"
        )
    require_reachable(config.job.history_path)
    record(config, reach(config).cluster)
    probe_log = ProbeLog(config.journals, str(config.job.history_path))
    done = drain_all(config.probes, connection(config), probe_log, folder_clock(config.journals), limit=limit, say=say)
    for word, runs in (("lost", done.missing), ("cannot be read", done.unreadable), ("expired", done.expired)):
        for (topic, partition), listed in sorted(runs.items()):
            for one in listed:
                at = "at an unknown offset" if one.offset is None else f"at offset {one.offset}"
                seqs = f"{one.writer}/{one.seq}" + (f" to {one.seq + one.length - 1}" if one.length > 1 else "")
                say(f"{word}: {topic}/{partition} value {seqs}, acknowledged {at}")
    for (topic, partition), listed in sorted(done.unreadable.items()):
        if (hold := done.holds.get((topic, partition))) is None:
            begin, end = done.unread[topic, partition]
            why = f"nobody told in time what stands in {topic}/{partition} from offset {begin} to {end}"
        else:
            why = (
                f"a transaction that does not end holds the last stable offset of {topic}/{partition} at "
                f"{hold.last_stable}, the log ends at {hold.end}"
            )
        say(f"{_records(listed):,} cannot be read: {why}")
    lost, unreadable, expired = (
        sum(_records(listed) for listed in runs.values()) for runs in (done.missing, done.unreadable, done.expired)
    )
    held = f"{unreadable:,} cannot be read yet, " if unreadable else ""
    say(
        f"{done.acknowledged:,} acknowledged records, {done.rounds} round{'s' * (done.rounds != 1)}: {lost:,} lost, "
        f"{held}{expired:,} expired (below the log start)"
    )
    if lost:
        return VIOLATION
    return USAGE_OR_ENVIRONMENT if unreadable else 0


def _records(runs: Sequence[Run]) -> int:
    return sum(one.length for one in runs)


def summary(status: FleetStatus) -> str:
    """What the probes did, on one line."""
    told = [f"{sum(getattr(probe, name) for probe in status.probes):,} {words}" for name, words in _TOLD]
    if status.committer is not None:
        rows, backlog = status.committer.rows, status.committer.backlog
        told.append(f"{rows:,} rows logged, {backlog} bytes of journals not logged yet")
    return ", ".join(told)


_TOLD: Final = (
    ("sent", "sent"),
    ("acknowledged", "acknowledged"),
    ("aborted", "aborted on purpose"),
    ("failed", "failed"),
    ("indefinite", "of unknown outcome"),
    ("polled", "polled"),
    ("errors", "client errors"),
)
"""Counters, and the words for them; the first is the sum of the next four, but for what was in hand at the end."""
