"""Two probe hosts and a monitor that share nothing but a bucket, and a way to it that fails: what was done is told once
and whole, what was planted is found, and nothing else. And what each command says where the bucket cannot be used."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from monitor.commands.doctor import history
from monitor.config.config import from_environment
from monitor.demo.provocation import SentTwice
from tests.monitor.commands import offsetwatch
from tests.monitor.hosts import FEW, Host, until
from tests.object_store import SECRET, Proxy, environment, proxy_to, store

RUNS = {"host-a": "aaaa", "host-b": "bbbb"}
PREFIX = "bucket-only"
OFTEN = FEW | {
    "OFFSETWATCH_PROBES__TOPICS__PREFIX": PREFIX,
    "OFFSETWATCH_PROBES__WRITER__RATE": "20",
    "OFFSETWATCH_PROBES__READER__PER_BROKER": "false",
    "OFFSETWATCH_PROBES__AUDIT__ENABLED": "false",
    "OFFSETWATCH_PROBES__UNREST__ENABLED": "false",
    "OFFSETWATCH_JOB__TRIGGER": "2",
    "OFFSETWATCH_JOB__OBJECTIVES__LIVENESS": "120",
    "OFFSETWATCH_JOB__CYCLES__WINDOW": "20",
    "OFFSETWATCH_JOB__UPKEEP__EVERY": "15",
    "OFFSETWATCH_JOB__UPKEEP__SMALL_FILES": "30",
}
"""As few batches as do, and a log that is compacted all the while."""
URL = "s3://bucket/canary/history"
PLANTED = 3
AWAY = 20.0
"""Seconds that the store does not answer."""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[Proxy]:
    with proxy_to(server) as made:
        yield made


def host(name: str, folder: Path, kafka: LocalKafka, port: int) -> Host:
    """One that shares nothing but the bucket; a probe host where it has a run."""
    given = (
        OFTEN
        | environment(port)
        | {
            "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
            "OFFSETWATCH_JOB__HISTORY": URL,
            "OFFSETWATCH_PROBES__KNOWN_RUNS": json.dumps([run for other, run in RUNS.items() if other != name]),
        }
    )
    if name in RUNS:
        given["OFFSETWATCH_PROBES__RUN"] = RUNS[name]
    return Host(folder / name, given)


@pytest.mark.evening
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_hosts_that_share_only_a_bucket(
    kafka: LocalKafka, server: int, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)  # this process asks the store itself
    hosts = [host(name, tmp_path, kafka, proxy.server_port) for name in RUNS]
    watching = host("watching", tmp_path, kafka, proxy.server_port)
    everyone = [*hosts, watching]
    try:
        for one in hosts:
            one.start("probe", "run")
        watching.start("monitor")
        until(lambda: {row["topic"] for row in watching.table("partition_state")} >= {f"{PREFIX}-records"}, everyone)
        proxy.unavailable = 20
        until(lambda: not proxy.unavailable, everyone)
        proxy.lost = 2
        until(lambda: not proxy.lost, everyone)
        sent = hosts[0].send_twice(PLANTED)
        proxy.away = True
        time.sleep(AWAY)
        proxy.away = False
        until(lambda: len(watching.duplicates()) == PLANTED, everyone)
        for one in hosts:
            one.stop()
        until(lambda: read_through(watching) > DeltaTable(URL).version(), [watching])
        watching.stop()
    finally:
        for one in everyone:
            one.kill()
    check_what_was_found(watching, sent)
    check_what_commands_say(watching)
    check_that_each_row_is_there_once(hosts)
    check_that_no_secret_is_anywhere(tmp_path)


def read_through(host: Host) -> int:
    """The version of the log that the checks read next."""
    commits = host.folder / "data" / "checkpoints" / "integrity" / "commits"
    done = max((int(one.name) for one in commits.iterdir() if one.name.isdecimal()), default=-1)
    offsets = (commits.parent / "offsets" / str(done)).read_text().splitlines()
    return int(json.loads(offsets[-1])["version"])


def check_what_was_found(watching: Host, sent: SentTwice) -> None:
    found = watching.table("findings")
    evidence = [json.loads(row["evidence"]) for row in watching.duplicates()]
    assert sorted(one["seq"] for one in evidence) == list(range(PLANTED))
    assert {one["writer"] for one in evidence} == {sent.writer}
    others = Counter((row["anomaly"], row["severity"]) for row in found if row["anomaly"] != "duplicate")
    # The one host's committer may try again as many seconds after the other's as make it late.
    told = {name for name, severity in others if severity in ("critical", "warning")}
    assert told <= {"evidence-late"}, others
    assert "begin again" not in watching.said


def check_that_each_row_is_there_once(hosts: list[Host]) -> None:
    log = DeltaTable(URL).to_pyarrow_table(columns=["topic_id", "partition", "process", "slice", "f", "run"])
    assert {"committer", *RUNS.values()} == set(log["run"].to_pylist())
    slices: dict[tuple[str, int, int], list[int]] = {}
    for row in log.to_pylist():
        slices.setdefault((row["topic_id"], row["partition"], row["process"]), []).append(row["slice"])
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in slices.values())
    told = sum(int(host.said.rpartition(" rows logged")[0].rpartition(", ")[2].replace(",", "")) for host in hosts)
    assert told == log.num_rows
    assert all("0 bytes of journals not logged yet" in host.said for host in hosts)
    assert pc.count_distinct(log["process"]).as_py() > 6


def check_what_commands_say(watching: Host) -> None:
    """Everything that reads the log reads it at its URL."""
    (id_, *_) = [row["id"] for row in watching.duplicates()]
    explained = watching.asked("explain", id_)
    assert "Who did what with the first of its records" in explained.stdout
    assert re.search(r"provocateur of \w+ sent", " ".join(explained.stdout.split())), explained.stdout
    assert watching.asked("explain", id_, "--picture", "who.svg").returncode == 0
    assert "duplicate" in watching.asked("findings", "--topic", f"{PREFIX}-records").stdout
    status = watching.asked("status")
    assert status.returncode == 0, status.stderr
    assert json.loads(watching.asked("status", "--json").stdout)["storage"]["probe_log"] == URL
    counted = watching.asked("sql", "select count(*) as n from history", "--json")
    assert json.loads(counted.stdout.splitlines()[0])["n"] > 0, counted.stderr
    assert watching.asked("sql", "--query", "duplicates").returncode == 0
    assert watching.asked("report", "-o", "report.html").returncode == 0
    assert "provocateur" in (watching.folder / "report.html").read_text()
    exported = watching.asked("export", "part.jsonl", "--since", "1h")
    assert exported.returncode == 0 and (watching.folder / "part.jsonl").stat().st_size > 0, exported.stderr
    judged = watching.asked("findings", "--history", URL, "--anomaly", "duplicate", "--all", "--json")
    assert id_ in {json.loads(line)["id"] for line in judged.stdout.splitlines()}, judged


def check_that_no_secret_is_anywhere(folder: Path) -> None:
    everything = [one for one in folder.rglob("*") if one.is_file()]
    assert {"err.txt", "monitor.log", "probes.log", "report.html"} <= {one.name for one in everything}
    assert [one for one in everything if SECRET.encode() in one.read_bytes()] == []


WRONG = {
    "OFFSETWATCH_JOB__HISTORY": "s3://nobody/history",
    "OFFSETWATCH_CLUSTER__BOOTSTRAP": "127.0.0.1:9",
    "OFFSETWATCH_CLUSTER__REACHABLE_WITHIN": "0.2",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["probe", "run"],
        ["probe", "drain"],
        ["probe", "gone", "7"],
        ["monitor"],
        ["explain", "abcd"],
        ["report"],
        ["sql", "select 1"],
        ["export", "out.jsonl"],
        ["findings", "--topic", "t"],
    ],
    ids=" ".join,
)
def test_a_bucket_that_is_not_there_ends_a_command_with_a_line(
    arguments: list[str], server: int, tmp_path: Path
) -> None:
    refused = offsetwatch(*arguments, cwd=tmp_path, **(environment(server) | WRONG))
    at = f"http://127.0.0.1:{server}"
    assert (refused.returncode, refused.stderr) == (
        2,
        "offsetwatch: The probe log at s3://nobody/history cannot be reached: "
        f"{at} says NoSuchBucket: The specified bucket does not exist.\n",
    )


def test_a_store_without_conditional_puts_ends_the_probes_with_a_line(proxy: Proxy, tmp_path: Path) -> None:
    proxy.overwrites = True
    given = environment(proxy.server_port) | {
        "OFFSETWATCH_JOB__HISTORY": URL,
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": "127.0.0.1:9",
        "OFFSETWATCH_CLUSTER__REACHABLE_WITHIN": "0.2",
    }
    refused = offsetwatch("probe", "run", cwd=tmp_path, **given)
    said = (
        f"The object store of {URL} puts an object although there is one of its name (If-None-Match is not heeded): "
        "hosts that share it would overwrite each other's commits. It needs conditional puts."
    )
    assert (refused.returncode, refused.stderr) == (2, f"offsetwatch: {said}\n")
    told = offsetwatch("doctor", "--json", cwd=tmp_path, **given)
    (log,) = (one for one in map(json.loads, told.stdout.splitlines()) if one["about"] == "probe log")
    assert log["state"] == "bad" and said in log["detail"]


def test_the_doctor_says_whether_the_bucket_can_be_used(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)

    def told(url: str) -> list[tuple[str, str, str]]:
        return [
            (one.about, one.state, one.detail) for one in history(from_environment({"OFFSETWATCH_JOB__HISTORY": url}))
        ]

    assert told(URL) == [("probe log", "ok", URL)]
    assert told("a/folder") == []
    ((_, state, why),) = told("s3://nobody/history")
    assert state == "bad" and "NoSuchBucket" in why
    assert why.startswith("OFFSETWATCH_JOB__HISTORY: job.history: The probe log at s3://nobody/history cannot")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"OFFSETWATCH_JOB__HISTORY": "ftp://bucket/history"},
            "OFFSETWATCH_JOB__HISTORY: job.history: a table is in a folder, or at a URL of s3, s3a, az, abfs, abfss, "
            "gs, not of 'ftp'",
        ),
        (
            {"OFFSETWATCH_JOB__HISTORY": f"s3://key:{SECRET}@bucket/history"},
            "OFFSETWATCH_JOB__HISTORY: job.history: credentials come from the environment, and do not stand in the URL",
        ),
        (
            {"OFFSETWATCH_JOB__HISTORY": f"az://container/history?sig={SECRET}"},
            "OFFSETWATCH_JOB__HISTORY: job.history: a table's URL ends with its path: no ? and no #",
        ),
        (
            {"OFFSETWATCH_DATA": "s3://bucket/data"},
            "OFFSETWATCH_DATA: data: must be a folder: only job.tables, job.history and job.checkpoint may be in an "
            "object store, not 's3://bucket/data'",
        ),
        (
            {"OFFSETWATCH_JOB__CHECKPOINT": "s3://bucket/checkpoint"},
            "OFFSETWATCH_JOB__CHECKPOINT: job.checkpoint: must be a folder, or a URL that Hadoop's file systems "
            "know: of s3a, abfs, abfss, gs, not 's3://bucket/checkpoint'",
        ),
        (
            {"OFFSETWATCH_JOB__HISTORY": URL, "OFFSETWATCH_JOB__UPKEEP__MAX_GB": "5"},
            "defaults: job: upkeep.max_gb needs a local probe log: it bounds the data folder, and history is in an "
            "object store, where upkeep.history_days bounds it",
        ),
    ],
)
def test_a_location_that_is_none_is_refused(given: dict[str, str], said: str, tmp_path: Path) -> None:
    refused = offsetwatch("findings", cwd=tmp_path, **given)
    assert (refused.returncode, refused.stderr) == (2, f"offsetwatch: {said}\n")
