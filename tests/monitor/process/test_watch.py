"""What a monitor knows when it starts, and how it refuses to."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from alerts.dispatch import Dispatcher
from alerts.event import events as finding_events
from alerts.incidents.judged import kind_of
from alerts.metrics import Metrics
from monitor.config.config import Config
from monitor.process.machine_clock import MachineClock
from monitor.process.watch import Watch, begin, later_than, of_recent_incidents, recorded_identities
from rules.vocabulary.finding import Event
from tests.monitor.commands import offsetwatch
from tests.monitor.rows import NOON, events, finding

PAST = events(
    finding("duplicate", (7, 1), at=1),
    finding("duplicate", (7, 2), at=2),
    finding("duplicate", (7, 2), at=2),
    finding("poll-skip", (1,), at=3, context={"mode": "subscribe"}),
    finding("unseen", (), "opened", at=4),
    finding("unseen", (), "closed", at=5),
    finding("suspected", (), "opened", at=6),
)


STATES = pa.table(
    {
        "cluster": ["c", "c", "d"],
        "now": pa.array([NOON - timedelta(seconds=9), None, NOON], pa.timestamp("us", tz="UTC")),
    }
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    labels |= {"cluster": "c"} if "severity" in labels else {}
    if name == "findings_total":
        labels["kind"] = kind_of(labels["anomaly"])
    return metrics.registry.get_sample_value(f"offsetwatch_{name}", labels)


def test_counts_go_on_where_the_table_stands() -> None:
    metrics = Metrics(build={})
    begin(metrics, PAST, STATES)
    assert value(metrics, "findings_total", anomaly="duplicate", severity="critical") == 2, "one was written twice"
    assert value(metrics, "findings_total", anomaly="poll-skip", severity="allowed") == 1
    assert value(metrics, "findings_total", anomaly="unseen", severity="critical") == 1
    assert value(metrics, "conditions_open", anomaly="unseen", severity="critical") == 0
    assert value(metrics, "conditions_open", anomaly="suspected", severity="warning") == 1
    assert value(metrics, "last_finding_timestamp_seconds", severity="allowed") == NOON.timestamp() + 3.5


def test_the_age_of_the_evidence_goes_on_from_what_the_tables_know() -> None:
    metrics = Metrics(build={}, clock=lambda: NOON.timestamp() + 60)
    begin(metrics, PAST, STATES)
    assert value(metrics, "evidence_age_seconds") == 60


def test_a_batch_that_runs_again_after_a_crash_counts_once() -> None:
    """The table held the batch; the process died before or after it told anyone; the next one is given it again."""
    metrics = Metrics(build={})
    begin(metrics, PAST, STATES)
    dispatcher = Dispatcher([metrics], metrics.channel_failed, recorded_identities(PAST))
    again = finding_events(PAST.to_pylist(), NOON, 10.0)
    assert {event.replayed for event in dispatcher.dispatch(again)} == {True}
    assert value(metrics, "findings_total", anomaly="duplicate", severity="critical") == 2
    assert value(metrics, "conditions_open", anomaly="suspected", severity="warning") == 1
    new = finding_events(
        events(finding("duplicate", (7, 3)), finding("suspected", (), "closed", at=7)).to_pylist(), NOON, 10
    )
    assert {event.replayed for event in dispatcher.dispatch(new)} == {False}
    assert value(metrics, "findings_total", anomaly="duplicate", severity="critical") == 3
    assert value(metrics, "conditions_open", anomaly="suspected", severity="warning") == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = offsetwatch("monitor", cwd=tmp_path, OFFSETWATCH_ALERTS__METRICS_PORT=port)
    assert done.returncode == 2
    assert done.stderr.startswith(f"offsetwatch: metrics cannot be served on 127.0.0.1:{port}: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"TOKEN": '{ env = "NO_SUCH_VARIABLE" }'},
            "status.token: the environment variable NO_SUCH_VARIABLE is not set",
        ),
        ({"TOKEN": '{ file = "no/such" }'}, "status.token: no/such cannot be read: No such file or directory"),
        ({"TOKEN": '{ env = "SHORT" }'}, "status.token: it has 6 characters, and needs 16 at least"),
        (
            {"CERTIFICATE": "no/such.pem", "KEY": "no/such.pem"},
            "status.certificate, status.key: no/such.pem, no/such.pem: No such file or directory",
        ),
        ({"KEY": "no/such.pem"}, "{file}: status: certificate and key belong together: give both, or none"),
    ],
)
def test_a_status_page_that_cannot_be_as_asked_is_named(tmp_path: Path, asked: dict[str, str], said: str) -> None:
    variables = {f"OFFSETWATCH_STATUS__{name}": value for name, value in asked.items()}
    done = offsetwatch("monitor", cwd=tmp_path, OFFSETWATCH_ALERTS__METRICS_PORT="0", SHORT="secret", **variables)
    assert done.returncode == 2
    assert done.stderr == f"offsetwatch: {said}\n".replace("{file}", "defaults")
    assert "secret" not in done.stderr


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    asked = {"OFFSETWATCH_ALERTS__LOG": "no/such/folder/log.jsonl", "OFFSETWATCH_ALERTS__METRICS": "false"}
    done = offsetwatch("monitor", cwd=tmp_path, **asked)
    assert done.returncode == 2
    assert (
        done.stderr
        == "offsetwatch: OFFSETWATCH_ALERTS__LOG: alerts.log: no/such/folder/log.jsonl: No such file or directory\n"
    )


def test_a_monitor_that_has_checked_nothing_yet_says_since_when_it_is_blind() -> None:
    before = datetime.now(UTC)
    watch = Watch(Config(), say=lambda line: None)
    told = re.fullmatch(r"starting: blind since (?:\d\d-\d\d )?(\d\d:\d\d:\d\d) UTC", watch._not_ready() or "")
    assert told is not None
    assert told[1] in {f"{at:%H:%M:%S}" for at in (before, datetime.now(UTC))}


def test_what_a_monitor_counts_comes_after_what_the_one_before_it_had_counted() -> None:
    """The machine's clock was set back in between: an end would be recorded before its beginning."""
    found = events(finding("duplicate", (7, 9)))
    last = found["recorded"].to_pylist()[0]
    clock = MachineClock(lambda: last - timedelta(seconds=90), lambda: 0.0)
    assert later_than(found, clock) == last
    assert later_than(found.slice(0, 0), MachineClock(lambda: NOON, lambda: 0.0)) == NOON


def test_what_is_open_or_ended_lately_is_known_again_after_a_restart() -> None:
    long_ago = finding("G1a", (1,), at=-8 * 86_400)
    stuck = finding("stuck-consumer", (2,), "opened", at=-8 * 86_400)
    happened: tuple[tuple[Event, int], ...] = (("opened", -8 * 86_400), ("closed", -8 * 86_400 + 5))
    ended = [finding("unseen", (3,), what, at=at) for what, at in happened]
    recent = finding("duplicate", (7, 9), at=-60)
    kept = of_recent_incidents(events(long_ago, stuck, *ended, finding("rebalance", (4,)), recent), NOON)
    assert sorted(set(kept["id"].to_pylist())) == sorted([stuck.id, recent.id])
