"""Two probe hosts and a monitor that share nothing but a Kafka cluster of evidence, which fails, as they do: what was
done is in the monitor's table once and whole, what was planted is found, and nothing else. And what commands say."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from deploy.ports import HOST, free_ports
from tests.monitor.commands import offsetwatch
from tests.monitor.hosts import FEW, Host, until
from tests.probes.log.lives import check_slices

RUNS = {"host-a": "aaaa", "host-b": "bbbb"}
PREFIX = "by-topic"
OFTEN = FEW | {
    "OFFSETWATCH_PROBES__TOPICS__PREFIX": PREFIX,
    "OFFSETWATCH_PROBES__READER__PER_BROKER": "false",
    "OFFSETWATCH_PROBES__AUDIT__ENABLED": "false",
    "OFFSETWATCH_PROBES__UNREST__ENABLED": "false",
    "OFFSETWATCH_JOB__TRIGGER": "2",
    "OFFSETWATCH_JOB__OBJECTIVES__LIVENESS": "120",
}
PLANTED = 3
AWAY = 300.0
"""Seconds that the cluster of evidence is down."""


def a_host(name: str, folder: Path, kafka: LocalKafka, evidence: LocalKafka) -> Host:
    """One that shares nothing but the cluster of evidence; a probe host where it has a run."""
    given = OFTEN | {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        "OFFSETWATCH_EVIDENCE__BOOTSTRAP": evidence.bootstrap,
        "OFFSETWATCH_PROBES__KNOWN_RUNS": json.dumps([run for other, run in RUNS.items() if other != name]),
    }
    if name in RUNS:
        given["OFFSETWATCH_PROBES__RUN"] = RUNS[name]
    return Host(folder / name, given)


def killed(host: Host) -> None:
    assert host.child is not None
    os.killpg(host.child.pid, signal.SIGKILL)
    host.child.wait()


@pytest.mark.evening
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_hosts_that_share_only_a_cluster_of_evidence(kafka: LocalKafka, tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "evidence", brokers=1) as evidence:
        hosts = [a_host(name, tmp_path, kafka, evidence) for name in RUNS]
        watching = a_host("watching", tmp_path, kafka, evidence)
        everyone = [*hosts, watching]
        try:
            for one in hosts:
                one.start("probe", "run")
            watching.start("monitor")
            until(
                lambda: {row["topic"] for row in watching.table("partition_state")} >= {f"{PREFIX}-records"}, everyone
            )
            evidence.broker(1).kill()
            sent = hosts[0].send_twice(PLANTED)
            time.sleep(AWAY)
            assert watching.duplicates() == []
            evidence.broker(1).start()
            until(lambda: len(watching.duplicates()) == PLANTED, everyone)
            for one in (hosts[1], watching, hosts[0]):
                killed(one)
                one.start("monitor" if one is watching else "probe", *([] if one is watching else ["run"]))
                time.sleep(5)
            until(lambda: all("at work" in one.said for one in hosts), everyone)
            mark = time.time()
            until(lambda: newest(watching) > mark, everyone)
            for one in hosts:
                one.stop()
            assert sum(rows_of(one) for one in hosts) > 0
            until(lambda: nothing_is_left(hosts, watching), [watching])
            watching.stop()
        finally:
            for one in everyone:
                one.kill()
        found = watching.table("findings")
        assert {json.loads(row["evidence"])["writer"] for row in watching.duplicates()} == {sent.writer}
        others = Counter((row["anomaly"], row["severity"]) for row in found if row["anomaly"] != "duplicate")
        # The one host's committer may try again as many seconds after the other's as make it late.
        told = {name for name, severity in others if severity in ("critical", "warning")}
        assert "evidence-stalled" in told <= {"evidence-stalled", "evidence-late"}, others
        log = watching.table("history")
        check_slices(log)
        assert {"committer", *RUNS.values()} == {row["run"] for row in log}
        assert watching.said.count("is not carried on, and tried again") <= 1


def newest(watching: Host) -> float:
    """When the newest row that was checked was completed, seconds since 1970."""
    return max((row["now"].timestamp() for row in watching.table("partition_state")), default=0.0)


def rows_of(host: Host) -> int:
    """The rows that its committer has appended since it started, by its last words."""
    return int(host.said.rpartition(" rows logged")[0].rpartition(", ")[2].replace(",", ""))


def nothing_is_left(hosts: list[Host], watching: Host) -> bool:
    """Whether the last append of each host is in the table."""
    from probes.log.commits.append_plan import load
    from probes.log.evidence.taken import LAST

    table = DeltaTable(str(watching.data / "tables" / "history"))
    plans = [load(one.data / "journals") for one in hosts]
    return all(plan is not None and table.transaction_version(plan.app + LAST) == plan.recorded for plan in plans)


def test_what_commands_say_of_a_cluster_of_evidence(kafka: LocalKafka, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    nobody = f"{HOST}:{port}"
    given = {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        "OFFSETWATCH_EVIDENCE__BOOTSTRAP": nobody,
        "OFFSETWATCH_EVIDENCE__REACHABLE_WITHIN": "2",
        "OFFSETWATCH_DATA": str(tmp_path / "data"),
    }
    for command in (["probe", "run"], ["monitor"]):
        told = offsetwatch(*command, cwd=tmp_path, **given)
        assert told.returncode == 2
        assert told.stderr.count("\n") <= 2, told.stderr
        assert f"OFFSETWATCH_EVIDENCE__BOOTSTRAP: evidence.bootstrap: no broker answers at {nobody}" in told.stderr
    told = offsetwatch("doctor", "--json", cwd=tmp_path, **given)
    answers = {one["about"]: one for one in map(json.loads, told.stdout.splitlines())}
    assert answers["evidence"]["state"] == "bad" and nobody in answers["evidence"]["detail"]

    told = offsetwatch("probe", "drain", cwd=tmp_path, **given)
    assert told.returncode == 2 and "wait for the monitor" in told.stderr, told.stderr

    same = given | {"OFFSETWATCH_EVIDENCE__BOOTSTRAP": f"other:9092, {kafka.bootstrap}"}
    told = offsetwatch("doctor", cwd=tmp_path, **same)
    assert "evidence.bootstrap: " in " ".join(told.stdout.split()), told.stdout


def test_the_cluster_of_evidence_under_another_name_is_known_by_its_id(kafka: LocalKafka, tmp_path: Path) -> None:
    given = {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        "OFFSETWATCH_EVIDENCE__BOOTSTRAP": kafka.bootstrap.replace(HOST, "localhost"),
        "OFFSETWATCH_DATA": str(tmp_path / "data"),
    }
    told = offsetwatch("doctor", "--json", cwd=tmp_path, **given)
    answers = [one for one in map(json.loads, told.stdout.splitlines()) if one["state"] == "bad"]
    assert [one["about"] for one in answers] == ["cluster"], answers
    assert "it is the cluster that is watched" in answers[0]["detail"]
