"""The probes of this host, wired to their configuration: connection, journals, probe log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry

from alerts.exposition import Exposition, PortTaken
from alerts.probe_metrics import ProbeMetrics
from alerts.process_metrics import ProcessMetrics
from monitor.config.config import Config
from monitor.errors import VIOLATION
from monitor.process.program_log import say as to_stderr
from monitor.process.reach import connection, reach
from probes.clock import SystemClock
from probes.running.fleet import Fleet, FleetStatus


def open_fleet(config: Config, say: Callable[[str], None]) -> Fleet:
    """The fleet, not started, for a cluster that answers. Raises ConfigError where it does not."""
    reached = reach(config)
    brokers = len(reached.brokers)
    say(f"cluster {reached.cluster} at {config.cluster.bootstrap}: {brokers} broker{'s' * (brokers != 1)}")
    to = connection(config)
    return Fleet(
        config.probes,
        to.bootstrap,
        to.security,
        config.journals,
        SystemClock(),
        history=config.job.history_path,
        say=say,
    )


def run(config: Config, stop: threading.Event, say: Callable[[str], None] = to_stderr) -> None:
    """Run the probes until `stop` is set; then writers, readers, observer and committer end in that order.

    Raises ConfigError where the cluster cannot be reached, and the probes' and the probe log's own errors."""
    fleet = open_fleet(config, say)
    served = ExitStack()
    try:
        serve(config, fleet, say, served)
        fleet.start()
        status = fleet.status()
        say(f"{len(status.probes)} probes of run {status.run} are at work, their log is {config.job.history_path}")
        stop.wait()
        say("stopping: writers, readers, observer, then the last append to the probe log")
    finally:
        fleet.stop()
        served.close()
    say(f"stopped: {summary(fleet.status())}")


def probe_metrics(fleet: Fleet) -> ProbeMetrics:
    """The fleet's counters, as they are at each scrape."""

    def cluster() -> str:
        layout = fleet.status().layout
        return layout.cluster if layout is not None else ""

    return ProbeMetrics(lambda: fleet.status().probes, lambda: fleet.status().committer, cluster)


def serve(config: Config, fleet: Fleet, say: Callable[[str], None], ending: ExitStack) -> None:
    """Serve the metrics of probes that have a process of their own, until `ending` ends. Where the port is taken they
    run without: what they log is worth more than what they count."""
    alerts = config.alerts
    if not alerts.metrics:
        return
    registry = CollectorRegistry()
    registry.register(probe_metrics(fleet))
    registry.register(ProcessMetrics())

    def not_ready() -> str | None:
        return None if fleet.status().committer is not None else "the probes have not begun"

    try:
        exposition = Exposition(registry, host=alerts.metrics_host, port=alerts.probes_port, ready=not_ready)
    except PortTaken as error:
        say(f"{error}; the probes run without (alerts.probes_port)")
        return
    ending.callback(exposition.close)
    say(f"metrics are served at {exposition.url}")


def gone(config: Config, committer: int, since: datetime | None, say: Callable[[str], None] = to_stderr) -> None:
    """Declare that the host of this committer does not come back. Raises the probe log's errors."""
    from probes.log.commits.gone import declare_gone
    from probes.log.commits.history import History

    processes = declare_gone(History(str(config.job.history_path)), committer, SystemClock().now(), since)
    say(f"the log of {processes} processes of committer {committer} ends here: nothing more of them is waited for")


def drain(config: Config, *, limit: float, say: Callable[[str], None] = to_stderr) -> int:
    """Read everything back with clients opened anew, and say what acknowledged records are missing: exit code 1 if any.

    `limit`: seconds after which what is missing is given up. Raises ConfigError where no cluster can be reached, and
    the probes' and the probe log's own errors, as where probes are at work on the same journals."""
    from probes.running.drain import drain as drain_all

    reach(config)
    to = connection(config)
    done = drain_all(
        config.probes, to.bootstrap, to.security, config.journals, SystemClock(),
        history=config.job.history_path, limit=limit, say=say,
    )  # fmt: skip
    for word, runs in (("lost", done.missing), ("expired", done.expired)):
        for (topic, partition), listed in sorted(runs.items()):
            for one in listed:
                at = "at an unknown offset" if one.offset is None else f"at offset {one.offset}"
                seqs = f"{one.writer}/{one.seq}" + (f" to {one.seq + one.length - 1}" if one.length > 1 else "")
                say(f"{word}: {topic}/{partition} value {seqs}, acknowledged {at}")
    lost, expired = (
        sum(one.length for listed in runs.values() for one in listed) for runs in (done.missing, done.expired)
    )
    say(
        f"{done.acknowledged:,} acknowledged records, {done.rounds} round{'s' * (done.rounds != 1)}: {lost:,} lost, "
        f"{expired:,} expired (below the log start)"
    )
    return VIOLATION if lost else 0


def summary(status: FleetStatus) -> str:
    """What the probes did, on one line."""
    told = [f"{sum(getattr(probe, name) for probe in status.probes):,} {words}" for name, words in _TOLD]
    if status.committer is not None:
        told.append(f"{status.committer.rows:,} rows logged, {status.committer.backlog} bytes of journals not yet")
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
