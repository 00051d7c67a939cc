"""The metrics, scraped over HTTP and parsed as Prometheus would."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from alerts.exposition import Exposition, OfCluster
from alerts.incidents.judged import kind_of
from alerts.metrics import Count, Metrics, Open
from alerts.serving.server import PortTaken
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.policy import SEVERITIES
from rules.vocabulary.policy import severity as severity_of
from tests.alerts.findings import NOON, event, finding

SUMMARY: dict[str, Any] = {
    "cluster": "c",
    "topic_id": "t-id",
    "topic": "t",
    "partition": 3,
    "now": NOON,
    "log_start": 5,
    "log_end": 110,
    "checked_through": NOON - timedelta(seconds=2.5),
    "last_stable": 100,
    "frontier": 90,
    "unseen": 2,
    "window_runs": 7,
    "processes": 4,
    "state_bytes": 512,
    "readers": [
        {"process": 1, "position": 70, "mode": "assign"},
        {"process": 2, "position": 95, "mode": "assign"},
        {"process": 3, "position": 104, "mode": "subscribe"},
        {"process": 4, "position": None, "mode": "subscribe"},
    ],
}


class Scraped:
    """Samples by name and labels, and the families' help texts."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=30) as response:
            self.families = list(text_string_to_metric_families(response.read().decode()))
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def findings(self, anomaly: str, severity: str) -> float | None:
        kind = kind_of(anomaly)
        return self("offsetwatch_findings_total", cluster="c", anomaly=anomaly, severity=severity, kind=kind)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(build={"version": "1.2.3"}, clock=NOON.timestamp)


@pytest.fixture
def served(metrics: Metrics) -> Iterator[Exposition]:
    exposition = Exposition(metrics.registry)
    yield exposition
    exposition.close()


def test_findings_are_counted_from_where_the_table_stands(metrics: Metrics, served: Exposition) -> None:
    metrics.begin(
        [Count("c", "t", "duplicate", "critical", 3)],
        [Open("old", "c", "unseen", "critical")],
        {("c", "critical"): 1000.0},
    )
    before = Scraped(served.url)
    assert before.findings("duplicate", "critical") == 3
    assert before("offsetwatch_conditions_open", cluster="c", anomaly="unseen", severity="critical") == 1
    assert before("offsetwatch_last_finding_timestamp_seconds", cluster="c", severity="critical") == 1000

    metrics.deliver([event(finding()), event(finding("G1a"), "allowed"), event(finding("poll-skip"), replayed=True)])
    after = Scraped(served.url)
    assert after.findings("duplicate", "critical") == 4
    assert after.findings("G1a", "allowed") == 1
    assert after.findings("poll-skip", "critical") == 0, "begin counts those"
    assert after("offsetwatch_last_finding_timestamp_seconds", cluster="c", severity="critical") == NOON.timestamp()
    assert after("offsetwatch_duplicated_records_total", cluster="c", topic="t") == 4, "of the topic"


def test_every_anomaly_and_severity_is_there_before_the_first_finding(metrics: Metrics, served: Exposition) -> None:
    metrics.partitions([SUMMARY])
    scraped = Scraped(served.url)
    for entry in CATALOGUE.values():
        assert [scraped.findings(entry.name, one) for one in SEVERITIES] == [0, 0, 0, 0], entry.name
        if entry.kind == "condition":
            severity = severity_of(entry.name, {})
            for cluster in ("c", ""):
                labels = {"cluster": cluster, "anomaly": entry.name, "severity": severity}
                assert scraped("offsetwatch_conditions_open", **labels) == 0
    assert not [name for name, _ in scraped.samples if name.endswith("_created")], "they double the series"


def test_what_the_process_takes(served: Exposition) -> None:
    scraped = Scraped(served.url)
    cpu = scraped("offsetwatch_process_cpu_seconds_total", process="self")
    assert cpu is not None
    assert cpu > 0
    for name, least in (("resident_memory_bytes", 2**20), ("threads", 1), ("open_files", 1)):
        value = scraped(f"offsetwatch_process_{name}", process="self")
        assert value is not None
        assert value >= least


def test_the_disk_and_what_the_data_take_of_it(tmp_path: Path) -> None:
    (tmp_path / "tables" / "history").mkdir(parents=True)
    (tmp_path / "tables" / "history" / "part").write_bytes(b"x" * 5000)
    (tmp_path / "run").write_bytes(b"x" * 17)
    metrics = Metrics(build={}, written=[tmp_path, tmp_path / "not-there"])
    value = metrics.registry.get_sample_value
    assert value("offsetwatch_data_bytes") == 5017
    assert value("offsetwatch_data_part_bytes", {"part": "tables/history"}) == 5000
    assert value("offsetwatch_data_part_bytes", {"part": "run"}) == 17
    assert 0 < (value("offsetwatch_disk_free_bytes") or 0) < (value("offsetwatch_disk_size_bytes") or 0)
    (tmp_path / "tables" / "history" / "more").write_bytes(b"x" * 5000)
    assert value("offsetwatch_data_bytes") == 5017, "every file is looked at once a minute"
    assert (
        Metrics(build={}, written=[tmp_path / "not-there"]).registry.get_sample_value("offsetwatch_disk_free_bytes")
        is None
    )


def test_what_names_no_cluster_gets_the_one_that_is_watched(metrics: Metrics) -> None:
    exposition = Exposition(OfCluster(metrics.registry, lambda: metrics.cluster))
    try:
        assert Scraped(exposition.url)("offsetwatch_batches_total", cluster="") == 0, "none is known yet"
        metrics.partitions([SUMMARY])
        scraped = Scraped(exposition.url)
        assert scraped("offsetwatch_batches_total", cluster="c") == 0
        assert scraped("offsetwatch_process_threads", cluster="c", process="self")
        assert all("cluster" in dict(labels) for _, labels in scraped.samples)
        assert scraped("offsetwatch_findings_total", cluster="", anomaly="G1a", severity="info", kind="violation") == 0
        with urllib.request.urlopen(f"{exposition.url}?name[]=offsetwatch_batches_total", timeout=30) as answer:
            assert answer.read().decode().splitlines()[2:] == ['offsetwatch_batches_total{cluster="c"} 0.0']
        metrics.partitions([SUMMARY | {"cluster": "d"}])
        assert Scraped(exposition.url)("offsetwatch_batches_total", cluster="") == 0, "there is no one of two"
    finally:
        exposition.close()


def test_processor_time_of_those_that_have_ended_still_counts(served: Exposition) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    spent = threads = 0.0
    try:
        while spent < 0.05 or not threads:
            scraped = Scraped(served.url)
            spent = scraped("offsetwatch_process_cpu_seconds_total", process="worker") or 0.0
            threads = scraped("offsetwatch_process_threads", process="worker") or 0.0
    finally:
        worker.kill()
        worker.wait()
    after = Scraped(served.url)
    assert (after("offsetwatch_process_cpu_seconds_total", process="worker") or 0.0) >= spent
    # Other tests' processes, brokers' watchdogs among them, may run beside it.
    assert (after("offsetwatch_process_threads", process="worker") or 0.0) < threads


def test_live_and_ready(metrics: Metrics) -> None:
    reasons: list[str | None] = ["starting: blind since 12:00:05 UTC", None]
    exposition = Exposition(metrics.registry, ready=lambda: reasons[0])
    base = exposition.url.removesuffix("/metrics")
    try:
        assert answer(f"{base}/live") == (200, "ok\n")
        assert answer(f"{base}/ready") == (503, "starting: blind since 12:00:05 UTC\n")
        reasons.reverse()
        assert answer(f"{base}/ready") == (200, "ok\n")
        assert answer(f"{base}/secrets")[0] == 404
        assert answer(f"{base}/")[0] == 200
    finally:
        exposition.close()


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as given:
            return given.status, given.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_conditions_open_and_close(metrics: Metrics, served: Exposition) -> None:
    metrics.deliver([event(finding("unseen", n, event="opened")) for n in (1, 2)])
    unseen = {"cluster": "c", "anomaly": "unseen", "severity": "critical"}
    assert Scraped(served.url)("offsetwatch_conditions_open", **unseen) == 2
    metrics.deliver([event(finding("unseen", 1, event="closed"))])
    scraped = Scraped(served.url)
    assert scraped("offsetwatch_conditions_open", **unseen) == 1
    assert scraped.findings("unseen", "critical") == 2, "an end is no finding"
    assert scraped("offsetwatch_detection_latency_seconds_count") == 2, "an end is no detection"


def test_latency_leaves_grace_out(metrics: Metrics, served: Exposition) -> None:
    metrics.deliver(
        [event(finding(ago=1.2)), event(finding("lost-write", ago=7.5), grace=10.0), event(finding(ago=-3))]
    )
    scraped = Scraped(served.url)
    assert scraped("offsetwatch_detection_latency_seconds_bucket", le="1.0") == 1, "a clock that is ahead counts as 0"
    assert scraped("offsetwatch_detection_latency_seconds_bucket", le="1.5") == 2
    assert scraped("offsetwatch_detection_latency_seconds_bucket", le="6.0") == 2
    assert scraped("offsetwatch_detection_latency_seconds_bucket", le="10.0") == 3
    assert scraped("offsetwatch_detection_latency_seconds_sum") == pytest.approx(8.7)
    assert scraped("offsetwatch_detection_grace_seconds_count") == 1
    assert scraped("offsetwatch_detection_grace_seconds_sum") == 10


def test_partitions_and_lags() -> None:
    metrics = Metrics(build={}, clock=NOON.timestamp, partition_series="all")
    served = Exposition(metrics.registry)
    try:
        check_partitions_and_lags(metrics, served)
    finally:
        served.close()


def check_partitions_and_lags(metrics: Metrics, served: Exposition) -> None:
    metrics.partitions([SUMMARY, SUMMARY | {"partition": 4, "unseen": None, "readers": None}])
    scraped = Scraped(served.url)
    place = {"cluster": "c", "topic": "t", "partition": "3"}
    expected = {
        "log_start_offset": 5,
        "log_end_offset": 110,
        "last_stable_offset": 100,
        "settled_frontier_offset": 90,
        "unseen_records": 2,
        "window_runs": 7,
        "processes": 4,
        "state_bytes": 512,
        "log_time_seconds": NOON.timestamp(),
        "checked_behind_seconds": 2.5,
    }
    essential = Metrics(build={})
    essential.partitions([SUMMARY])
    names = {
        sample.name
        for family in essential.registry.collect()
        for sample in family.samples
        if "partition" in sample.labels
    }
    assert names == {
        f"offsetwatch_partition_{name}"
        for name in (
            "log_end_offset",
            "last_stable_offset",
            "unseen_records",
            "checked_behind_seconds",
            "readers_lag_records",
        )
    }
    assert {name: scraped(f"offsetwatch_partition_{name}", **place) for name in expected} == expected
    assert scraped("offsetwatch_partition_readers_lag_records", mode="assign", **place) == 30
    assert scraped("offsetwatch_partition_readers_lag_records", mode="subscribe", **place) == 0
    assert scraped("offsetwatch_partition_unseen_records", **(place | {"partition": "4"})) is None, "unknown is no zero"

    topic = {"cluster": "c", "topic": "t"}
    assert scraped("offsetwatch_topic_unseen_records", **topic) == 2
    assert scraped("offsetwatch_topic_unstable_records", **topic) == 10
    assert scraped("offsetwatch_topic_checked_behind_seconds", **topic) == 2.5
    assert scraped("offsetwatch_topic_readers_lag_records", mode="assign", **topic) == 30
    assert scraped("offsetwatch_lost_records_total", **topic) == 0, "there before the first"

    metrics.partitions([SUMMARY | {"topic_id": "created-anew", "log_end": 1}])
    assert Scraped(served.url)("offsetwatch_partition_log_end_offset", **place) == 1


def test_batches_and_age_of_the_evidence(metrics: Metrics, served: Exposition) -> None:
    assert Scraped(served.url)("offsetwatch_evidence_age_seconds") == 0, "since this process began: never unknown"
    metrics.checked(slices=200, records=5_000, newest=NOON - timedelta(seconds=4))
    metrics.checked(slices=100, rejected=2, records=1_000, newest=NOON - timedelta(seconds=9))
    metrics.checked(slices=0, records=0, newest=None)
    metrics.batch(seconds=0.5, input_rate=400, commits_behind=3)
    metrics.batch(seconds=2.0, input_rate=50, commits_behind=1)
    scraped = Scraped(served.url)
    assert scraped("offsetwatch_evidence_age_seconds") == 4, "an older row does not make the evidence older"
    assert scraped("offsetwatch_batches_total") == 2
    assert scraped("offsetwatch_slices_checked_total") == 300
    assert scraped("offsetwatch_slices_rejected_total") == 2
    assert scraped("offsetwatch_records_checked_total") == 6_000
    assert scraped("offsetwatch_batch_input_slices_per_second") == 50
    assert scraped("offsetwatch_probe_log_unread_commits") == 1
    assert scraped("offsetwatch_batch_duration_seconds_bucket", le="0.5") == 1
    assert scraped("offsetwatch_batch_duration_seconds_sum") == 2.5
    assert scraped("offsetwatch_build_info", version="1.2.3") == 1


def test_names_help_and_labels(metrics: Metrics, served: Exposition) -> None:
    metrics.deliver([event(finding(name, event="opened"), grace=1.0) for name in CATALOGUE])
    metrics.partitions([SUMMARY])
    metrics.channel_failed("webhook")
    units = (
        "seconds",
        "records",
        "offset",
        "bytes",
        "total",
        "info",
        "runs",
        "open",
        "processes",
        "created",
        "per_second",
        "findings",
        "batches",
        "slices_checked",
        "slices_rejected",
        "records_checked",
        "failures",
        "build",
        "cluster",
        "commits",
        "threads",
        "files",
    )
    for family in Scraped(served.url).families:
        assert family.name.startswith("offsetwatch_"), family.name
        assert family.name.endswith(units), f"{family.name} names no unit"
        assert len(family.documentation) > 10, family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {
            "anomaly",
            "severity",
            "cluster",
            "topic",
            "partition",
            "mode",
            "le",
            "channel",
            "version",
            "kind",
            "process",
            "name",
        }


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
            Exposition(Metrics(build={}).registry, port=port)
