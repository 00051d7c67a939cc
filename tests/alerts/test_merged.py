"""The metrics of several clusters' probes as one: each family once, each cluster's samples in it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from alerts.cluster_info import ClusterInfo
from alerts.exposition import scraped
from alerts.level_metrics import LevelMetrics
from alerts.merged import Merged
from alerts.native_histograms import encode
from probes.levels import Levels


def measured(seconds: float) -> Levels:
    levels = Levels.empty()
    levels.took("produce", seconds, ("t", "1"))
    return levels


def merged() -> CollectorRegistry:
    registry = CollectorRegistry()
    levels = {"c": measured(0.1), "d": measured(0.2)}
    registry.register(Merged([of_one(cluster, own) for cluster, own in levels.items()]))
    return registry


def of_one(cluster: str, levels: Levels) -> LevelMetrics:
    return LevelMetrics(lambda: levels, lambda: cluster, brokers=3)


def test_each_family_comes_once_with_the_samples_of_all() -> None:
    text = scraped(merged(), "")[1].decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) == len({family.name for family in families})
    sums = {
        sample.labels["cluster"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "offsetwatch_produce_latency_seconds_sum"
    }
    assert sums == {"c": 0.1, "d": 0.2}


def test_native_buckets_are_those_of_all() -> None:
    (produce,) = [one for one in merged().collect() if one.name == "offsetwatch_produce_latency_seconds"]
    assert {labels[0] for labels in produce.native} == {"c", "d"}  # type: ignore[attr-defined]
    assert encode([produce])


def test_an_id_has_the_name_that_people_know() -> None:
    registry = CollectorRegistry()
    registry.register(ClusterInfo(lambda: ["id", "", "other"], {"id": "orders-eu", "other": ""}.__getitem__))
    text = scraped(registry, "")[1].decode()
    assert 'offsetwatch_cluster_info{cluster="id",name="orders-eu"} 1.0' in text
    assert 'offsetwatch_cluster_info{cluster="other",name="other"} 1.0' in text
    assert text.count("offsetwatch_cluster_info{") == 2
