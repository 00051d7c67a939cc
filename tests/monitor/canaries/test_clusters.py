"""One monitor with the probes of three clusters: one with TLS and a login, one that goes away and comes back, and one
that never answers. What happens to one is told of that one by its name, disturbs no other, and no secret is written
anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from deploy.local_kafka import LocalKafka
from tests.monitor.commands import offsetwatch, silent_address, started
from tests.monitor.process.test_stop import terminated
from tests.monitor.secured import PASSWORD, USER, Secured

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

CONFIG = """
data = "data"
[alerts]
metrics_port = 0
[job]
shuffle_partitions = 2
[job.cycles]
enabled = false
[job.objectives]
liveness = 5.0
[probes.topics]
partitions = 1
replication = 1
min_in_sync = 1
[probes.writer]
with_five_in_flight = 0
rate = 20
[probes.reader]
group = 0
restless = 0
per_broker = false
[probes.transaction]
count = 1
[probes.transform]
count = 0
[probes.aborts]
count = 0
[probes.registers]
count = 0
[probes.end_to_end]
count = 0
[probes.audit]
enabled = false
[probes.unrest]
enabled = false
[clusters.orders-eu]
bootstrap = "{secured.bootstrap}"
reachable_within = 60
[clusters.orders-eu.security]
security.protocol = "SASL_SSL"
ssl.ca.location = "{secured.certificate}"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{USER}"
sasl.password = {{ file = "password" }}
[clusters.billing]
bootstrap = "{plain.bootstrap}"
reachable_within = 60
[clusters.billing.probes.topics]
prefix = "bills"
[clusters.billing.probes.transaction]
count = 0
[clusters.nowhere]
bootstrap = "{nowhere}"
reachable_within = 1
"""


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that this test may stop."""
    with LocalKafka(tmp_path_factory.mktemp("plain"), brokers=1) as kafka:
        yield kafka


class Monitor:
    """The running command, and what it tells whom."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child = started("monitor", "--probes", cwd=folder)

    @property
    def said(self) -> str:
        return (self.folder / "err.txt").read_text()

    def until(self, holds: Callable[[], object], seconds: float = 600.0) -> None:
        """Looks once a second: each look draws the page."""
        limit = time.monotonic() + seconds
        while not holds():
            assert self.child.poll() is None, f"ended with {self.child.returncode}: {self.said}"
            assert time.monotonic() < limit, self.said
            time.sleep(1.0)

    def page(self, path: str) -> str:
        url = self.said.partition("the status page is served at ")[2].split()[0]
        with urllib.request.urlopen(f"{url}{path}", timeout=300) as answer:
            return str(answer.read().decode())

    def partitions(self) -> set[tuple[str, str]]:
        """Cluster and topic of those whose evidence was checked."""
        told = json.loads(self.page("status"))["partitions"]
        return {(one["cluster_name"], one["topic"]) for one in told if one["checked_through"]}

    def acknowledged(self, cluster: str) -> float:
        """Records that the writer of this cluster has been told are there."""
        samples = [one for family in text_string_to_metric_families(self.page("metrics")) for one in family.samples]
        (id_,) = [
            one.labels["cluster"]
            for one in samples
            if one.name == "offsetwatch_cluster_info" and one.labels["name"] == cluster
        ]
        return sum(
            one.value
            for one in samples
            if one.name == "offsetwatch_probe_records_acknowledged_total" and one.labels["cluster"] == id_
        )

    def incidents(self, state: str) -> list[dict[str, Any]]:
        told = json.loads(self.page("status"))["incidents"]
        return [one for one in told if one["open"] == (state == "open")]


@pytest.fixture
def nowhere() -> Iterator[str]:
    with silent_address() as address:
        yield address


def test_several_clusters_in_one_monitor(secured: Secured, plain: LocalKafka, nowhere: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    text = CONFIG.format(secured=secured, plain=plain, nowhere=nowhere, USER=USER)
    (tmp_path / "offsetwatch.toml").write_text(text)
    monitor = Monitor(tmp_path)
    try:
        check_that_both_are_watched_while_the_third_is_tried(monitor)
        check_what_is_told_of_the_one_that_goes_away(monitor, plain)
        check_that_it_comes_back(monitor, plain)
        said = terminated(monitor.child, tmp_path, 90)
    finally:
        end(monitor.child)
    assert said.count("offsetwatch: nowhere: its probes cannot start") == 1, "once, however often it is tried"
    assert "is begun again" not in said
    check_what_commands_say(tmp_path)
    check_that_no_secret_is_anywhere(tmp_path)


def end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def check_that_both_are_watched_while_the_third_is_tried(monitor: Monitor) -> None:
    monitor.until(lambda: "the status page is served at " in monitor.said)
    wanted = {
        ("orders-eu", "offsetwatch-records"),
        ("orders-eu", "offsetwatch-transactions"),
        ("billing", "bills-records"),
        ("billing", "bills-transactions"),
    }
    monitor.until(lambda: monitor.partitions() == wanted)
    monitor.until(lambda: "nowhere: its probes cannot start, and are tried again: " in monitor.said)
    assert "clusters.nowhere.bootstrap: no broker answers at" in monitor.said
    log = DeltaTable(str(monitor.folder / "data" / "tables" / "history")).to_pyarrow_table(columns=["cluster", "run"])
    runs = {(row["cluster"], row["run"]) for row in log.to_pylist() if row["run"] != "committer"}
    assert len(runs) == len({run for _, run in runs}) == 2, "each cluster's probes are a run of their own"


def check_what_is_told_of_the_one_that_goes_away(monitor: Monitor, plain: LocalKafka) -> None:
    plain.broker(1).kill()

    def unreachable() -> list[str]:
        return [one["cluster_name"] for one in monitor.incidents("open") if one["anomaly"] == "cluster-unreachable"]

    monitor.until(lambda: unreachable() == ["billing"])
    before = monitor.acknowledged("orders-eu")
    monitor.until(lambda: monitor.acknowledged("orders-eu") > before + 40)
    # Of the one that is away no verdict may hold up those of the other.
    assert {one["cluster_name"] for one in monitor.incidents("open")} == {"billing"}
    told = offsetwatch("findings", cwd=monitor.folder).stdout
    assert "cluster-unreachable in cluster billing, critical" in " ".join(told.split())
    assert "No incident is open; everything healthy" in offsetwatch(
        "findings", "--cluster", "orders-eu", cwd=monitor.folder
    ).stdout.replace("\n", " ")
    (id_,) = {one["id"] for one in monitor.incidents("open") if one["anomaly"] == "cluster-unreachable"}
    explained = offsetwatch("explain", id_, cwd=monitor.folder).stdout
    (cluster,) = {one["cluster"] for one in monitor.incidents("open")}
    assert f"cluster billing, {cluster}\n" in explained
    assert "cluster billing" in monitor.page("")


def check_that_it_comes_back(monitor: Monitor, plain: LocalKafka) -> None:
    before = monitor.acknowledged("billing")
    plain.broker(1).launch()
    monitor.until(lambda: monitor.acknowledged("billing") > before)
    monitor.until(lambda: not monitor.incidents("open"))


def check_what_commands_say(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "out.txt").read_text().splitlines()]
    assert {line["cluster_name"] for line in lines if line["anomaly"] == "cluster-unreachable"} == {"billing"}
    listed = offsetwatch("findings", "--json", "--cluster", "billing", cwd=folder).stdout.splitlines()
    assert listed and {json.loads(line)["cluster_name"] for line in listed} == {"billing"}
    unknown = offsetwatch("findings", "--cluster", "order", cwd=folder)
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "offsetwatch: --cluster: nothing is known of a cluster order; known are: orders-eu, billing\n",
    )
    for name, words in {"said-doctor": ["--debug", "doctor"], "said-report": ["report"]}.items():
        done = offsetwatch(*words, cwd=folder)
        (folder / name).write_text(done.stdout + done.stderr)
    doctor = (folder / "said-doctor").read_text()
    assert "orders-eu" in doctor and "security.protocol sasl_ssl" in " ".join(doctor.split())
    assert "clusters.nowhere.bootstrap" in "".join(doctor.split())


def check_that_no_secret_is_anywhere(folder: Path) -> None:
    everything = [one for one in folder.rglob("*") if one.is_file() and one.name != "password"]
    names = {one.name for one in everything}
    assert {"out.txt", "err.txt", "monitor.log", "probes-orders-eu.log", "said-doctor", "report.html"} <= names
    assert any(one.suffix == ".parquet" for one in everything)
    assert [one for one in everything if PASSWORD.encode() in one.read_bytes()] == []
