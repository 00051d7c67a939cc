"""docs/metrics.md tells what is exported, all of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.alerts.exported import Exported, exported, monitor, probes, samples

PROJECT = Path(__file__).resolve().parent.parent.parent
PAGE = (PROJECT / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(offsetwatch_\w+)`( \*)? \| (\w+) \|(.*?)\| (.+) \|$", re.MULTILINE)


def told() -> dict[str, Exported]:
    rows = {}
    for name, _, kind, labels, _ in ROW.findall(PAGE):
        assert name not in rows, f"{name} is told twice"
        rows[name] = Exported(name, kind, tuple(sorted({*re.findall(r"`(\w+)`", labels), "cluster"})))
    return rows


def test_the_page_and_what_is_exported_are_the_same() -> None:
    assert told() == exported(monitor()) | exported(probes())


def test_whatever_else_the_page_or_the_readme_names_is_there() -> None:
    known = samples(monitor()) | samples(probes()) | exported(monitor()).keys() | exported(probes()).keys()
    for page in (PAGE, (PROJECT / "README.md").read_text(), (PROJECT / "docs" / "runbook.md").read_text()):
        named = set(re.findall(r"\boffsetwatch_[a-z_]+[a-z]\b(?!\.py)", page))
        assert named <= known, named - known


def test_what_is_marked_as_essential_is_what_partitions_have_by_default() -> None:
    from alerts.metrics import Metrics
    from tests.alerts.test_metrics import SUMMARY

    metrics = Metrics(build={})
    metrics.partitions([SUMMARY])
    assert {name for name, marked, *_ in ROW.findall(PAGE) if marked} == {
        name for name in samples(metrics.registry) if name.startswith("offsetwatch_partition_")
    }


KMINION = (
    "messages_produced_in_flight",
    "messages_produced_total",
    "messages_produced_failed_total",
    "messages_received_total",
    "messages_lost_total",
    "offset_commits_total",
    "offset_commits_failed_total",
    "produce_latency_seconds",
    "roundtrip_latency_seconds",
    "offset_commit_latency_seconds",
    "messages_acked_total",
    "commits_total",
    "commit_latency_seconds",
)
XINFRA = (
    "records-produced-total",
    "records-produced-rate-partition-N",
    "produce-error-total",
    "produce-delay-ms-avg",
    "produce-delay-ms-max",
    "produce-availability-avg",
    "records-consumed-total",
    "bytes-consumed-rate",
    "consume-error-total",
    "consume-availability-avg",
    "records-duplicated-total",
    "records-lost-total",
    "records-delayed-total",
    "records-delay-ms-avg",
    "commit-offset-latency-ms-avg",
    "offsets-committed-total",
    "failed-commit-offsets-total",
    "offset-commit-service-success-total",
    "offset-commit-service-failure-total",
    "offset-commit-availability-avg",
    "topic-creation-metadata-propagation-ms-avg",
    "topic-partitions-count",
)


@pytest.mark.parametrize("metric", [*KMINION, *XINFRA])
def test_what_others_export_is_mapped_to_ours(metric: str) -> None:
    (row,) = [
        line for line in PAGE.splitlines() if line.startswith("|") and re.search(rf"`{metric}`", line.split("|")[1])
    ]
    assert "`offsetwatch_" in row.split("|")[2] or "`count(offsetwatch_" in row.split("|")[2]
