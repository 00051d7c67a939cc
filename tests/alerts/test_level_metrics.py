"""What the probes have measured, as a Prometheus takes it: classic and native histograms, bounded series."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from alerts.exposition import Exposition, OfCluster
from alerts.level_metrics import LevelMetrics
from alerts.metrics import Metrics
from alerts.native_histograms import asked_for
from alerts.partition_metrics import Series
from alerts.probe_metrics import ProbeMetrics
from probes.levels import Levels
from probes.workloads.probe import Counters
from tests.alerts.findings import NOON
from tests.alerts.servers import eventually, get, prometheus
from tests.alerts.test_metrics import SUMMARY, Scraped

LATENCIES = [0.003, 0.003, 0.004, 0.1, 0.25, 1.5, 200.0]


def levels() -> Levels:
    made = Levels()
    for broker in ("1", "2", "10"):
        made.took("produce", LATENCIES, ("t", broker))
        made.tried("produce", 10, 3, 1000.0, ("t", broker))
    made.took("rebalance", 3.0)
    return made


@contextmanager
def served(measured: Levels, brokers: int = 16) -> Iterator[Exposition]:
    registry = CollectorRegistry()
    registry.register(LevelMetrics(lambda: measured, lambda: "c", brokers=brokers))
    exposition = Exposition(OfCluster(registry, lambda: "c"))
    try:
        yield exposition
    finally:
        exposition.close()


def test_latencies_failures_and_the_last_success_by_topic_and_broker() -> None:
    with served(levels()) as exposition:
        scraped = Scraped(exposition.url)
    place = {"cluster": "c", "topic": "t", "broker": "1"}
    name = "offsetwatch_produce_latency_seconds"
    assert scraped(f"{name}_bucket", le="0.00390625", **place) == 2
    assert scraped(f"{name}_bucket", le="0.25", **place) == 5
    assert scraped(f"{name}_bucket", le="64.0", **place) == 6
    assert scraped(f"{name}_bucket", le="+Inf", **place) == 7
    assert scraped(f"{name}_count", **place) == 7
    assert scraped(f"{name}_sum", **place) == pytest.approx(sum(LATENCIES))
    assert scraped("offsetwatch_produce_records_total", **place) == 10
    assert scraped("offsetwatch_produce_record_failures_total", **place) == 3
    assert scraped("offsetwatch_last_success_timestamp_seconds", cluster="c", operation="produce") == 1000
    assert scraped("offsetwatch_rebalance_duration_seconds_count", cluster="c") == 1


def test_brokers_beyond_the_limit_are_told_together_and_those_that_have_series_keep_them() -> None:
    measured = levels()
    with served(measured, brokers=2) as exposition:
        for late in (0, 1):
            counts = {
                dict(labels)["broker"]: value
                for (name, labels), value in Scraped(exposition.url).samples.items()
                if name == "offsetwatch_produce_records_total"
            }
            assert counts == {"1": 10, "2": 10, "other": 10 + late * 5}
            measured.tried("produce", 5, 0, 1.0, ("t", "0"))  # one that would be the first of them
    with served(measured, brokers=0) as exposition:
        assert Scraped(exposition.url)(
            "offsetwatch_produce_latency_seconds_count", cluster="c", topic="t", broker="other"
        ) == 3 * len(LATENCIES)


def ask(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    answer = json.loads(get(f"{url}/api/v1/query?query={urllib.parse.quote(query)}") or "{}")
    found = answer.get("data", {}).get("result", ())
    return [(one["metric"], float(one["value"][1])) for one in found if "value" in one]


@pytest.mark.parametrize("native", [False, True])
def test_a_real_prometheus_takes_either_histogram(tmp_path: Path, native: bool) -> None:
    """The same quantile from both; the native one is finer than the borders of the classic one."""
    measured = Levels()
    measured.took("produce", [0.100] * 1000, ("t", "1"))
    name = "offsetwatch_produce_latency_seconds"
    with served(measured) as exposition:
        target = exposition.url.removeprefix("http://").removesuffix("/metrics")
        features = ("--enable-feature=native-histograms",) if native else ()
        with prometheus(tmp_path, target, features=features) as url:
            what = name if native else f"{name}_bucket"
            ((_, median),) = eventually(lambda: ask(url, f"histogram_quantile(0.5, {what})"), "quantile")
            if native:
                assert ask(url, f"histogram_count({name})")[0][1] == 1000
                assert ask(url, f"histogram_sum({name})")[0][1] == pytest.approx(100)
                assert 0.0917 < median < 0.1091, "a bucket of a twelfth"
            else:
                assert 0.0625 < median < 0.125
                assert ask(url, f"{name}_count")[0][1] == 1000
    with served(Levels()) as exposition:
        request = urllib.request.Request(exposition.url, headers={"Accept": "text/plain"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("accept", "protobuf"),
    [
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain", True),
        ("application/openmetrics-text;version=1.0.0,application/vnd.google.protobuf;q=0.3,text/plain", False),
        ("", False),
    ],
)
def test_who_gets_protobuf(accept: str, protobuf: bool) -> None:
    assert asked_for(accept) is protobuf


@pytest.mark.parametrize(("series", "least", "most"), [("none", 0, 4_000), ("essential", 6_000, 10_000)])
def test_a_thousand_partitions_stay_under_ten_thousand_series(series: Series, least: int, most: int) -> None:
    """Five topics of 200 partitions on 40 brokers, the whole fleet with a reader for each of 16 of them; the monitor
    and the probes together."""
    metrics = Metrics(build={"version": "1"}, clock=NOON.timestamp, partition_series=series)
    topics = [
        f"offsetwatch-{name}" for name in ("records", "transactions", "transform-in", "transform-out", "registers")
    ]
    metrics.partitions(SUMMARY | {"topic": topic, "partition": number} for topic in topics for number in range(200))
    measured = Levels()
    for operation, places in (("produce", topics), ("end-to-end", topics[:1]), ("consume", topics[:1])):
        for topic in places:
            for broker in range(40):
                measured.took(operation, 0.1, (topic, str(broker)))
                measured.tried(operation, 1, 0, 1.0, (topic, str(broker)))
    for operation in ("transaction-commit", "offset-commit", "metadata", "rebalance"):
        measured.took(operation, 0.1)
        measured.tried(operation, 1, 0, 1.0)
    probes = [Counters(f"probe-{number}", "reader") for number in range(38)]
    metrics.registry.register(ProbeMetrics(lambda: probes, cluster=lambda: "c"))
    metrics.registry.register(LevelMetrics(lambda: measured, lambda: "c", brokers=16))
    exposition = Exposition(OfCluster(metrics.registry, lambda: metrics.cluster))
    try:
        with urllib.request.urlopen(exposition.url, timeout=20) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    finally:
        exposition.close()
    of_partitions = sum('partition="' in line for line in lines)
    assert of_partitions == least
    assert len(lines) < most, re.sub(r"\{.*", "", lines[0])
    print(f"{series}: {len(lines)} series, {of_partitions} of partitions")
