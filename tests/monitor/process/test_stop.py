"""SIGTERM to the real commands, with a real broker and real Spark: everything ends in order and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from prometheus_client.parser import text_string_to_metric_families

from deploy.local_kafka import LocalKafka
from tests.monitor.commands import PROJECT, offsetwatch, started
from tests.waiting import looks

pytestmark = pytest.mark.kafka

SMALL = {
    "OFFSETWATCH_PROBES__TOPICS__PARTITIONS": "2",
    "OFFSETWATCH_PROBES__TRANSACTION__COUNT": "1",
    "OFFSETWATCH_PROBES__READER__GROUP": "1",
    "OFFSETWATCH_PROBES__READER__RESTLESS": "0",
    "OFFSETWATCH_PROBES__UNREST__ENABLED": "false",
    "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
    "OFFSETWATCH_JOB__SHUFFLE_PARTITIONS": "2",
}


@contextmanager
def running(*arguments: str, folder: Path, kafka: LocalKafka) -> Iterator[subprocess.Popen[str]]:
    asked = SMALL | {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        "OFFSETWATCH_PROBES__TOPICS__PREFIX": f"stop-{folder.name}"[:100],
        "OFFSETWATCH_DATA": str(folder / "data"),
    }
    child = started(*arguments, cwd=folder, **asked)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def until(holds: Callable[[], object], child: subprocess.Popen[str], folder: Path, seconds: float) -> None:
    limit = time.monotonic() + seconds
    for _ in looks(0.2):
        if holds():
            return
        said = (folder / "err.txt").read_text()
        assert child.poll() is None, f"ended with {child.returncode}: {said}"
        assert time.monotonic() < limit, said


def terminated(child: subprocess.Popen[str], folder: Path, seconds: float) -> str:
    """Send SIGTERM to its process group, as systemd and `timeout` do; what it said, once it has ended with code 0."""
    os.killpg(child.pid, signal.SIGTERM)
    assert child.wait(timeout=seconds) == 0, (folder / "err.txt").read_text()
    said = (folder / "err.txt").read_text()
    assert "Traceback" not in said
    return said


def has_happened(folder: Path) -> set[str]:
    """What the log tells of so far."""
    try:
        log = DeltaTable(str(folder / "data" / "tables" / "history"))
    except TableNotFoundError:
        return set()
    return set(log.to_pyarrow_table(columns=["f"])["f"].to_pylist())


def check_that_the_log_is_whole(folder: Path) -> None:
    """Every process that began has ended in each partition, its slices have no gap, and no journal holds more."""
    log = DeltaTable(str(folder / "data" / "tables" / "history")).to_pyarrow_table(
        columns=["topic_id", "partition", "process", "slice", "f", "type", "kind", "sent"]
    )
    log = log.filter(pc.not_equal(log["f"], "mark"))
    slices: dict[tuple[str, int, int], list[int]] = {}
    ended = set()
    for row in log.to_pylist():
        key = (row["topic_id"], row["partition"], row["process"])
        slices.setdefault(key, []).append(row["slice"])
        if row["f"] == "close":
            ended.add(key)
    assert ended == set(slices)
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in slices.values())
    assert {"writer", "reader", "transactions", "observer"} <= set(log["kind"].to_pylist())
    for journal in (folder / "data" / "journals" / "lives").iterdir():
        assert (journal / "over").exists(), journal


def check_that_the_checks_outlive_their_jvm(
    child: subprocess.Popen[str], folder: Path, scraped: Callable[[], dict[str, float]]
) -> None:
    """Its JVM is killed, as for want of memory: that is said once, and the checks go on in another."""
    before = scraped()["offsetwatch_batches_total"]
    listed = subprocess.run(["pgrep", "-P", str(child.pid), "java"], capture_output=True, text=True, check=True)
    os.kill(int(listed.stdout), signal.SIGKILL)
    until(lambda: "the checks go on, after " in (folder / "err.txt").read_text(), child, folder, 480)
    until(lambda: scraped()["offsetwatch_batches_total"] > before + 1, child, folder, 240)
    said = (folder / "err.txt").read_text()
    assert "Traceback" not in said
    assert said.count("offsetwatch: the checks have stopped and begin again until they go on: ") == 1
    assert "Spark's Java process has gone\n" in said
    rows = DeltaTable(str(folder / "data" / "tables" / "findings")).to_pyarrow_table(columns=["anomaly", "event"])
    told = [row["event"] for row in rows.to_pylist() if row["anomaly"] == "checks-stalled"]
    assert sorted(told) == ["closed", "opened"]


def check_what_its_page_says(folder: Path, scraped: dict[str, float]) -> None:
    """Its status page shows what the checks hold: every partition, how fast, and a verdict that is fresh."""
    found = re.search(r"the status page is served at (\S+)", (folder / "err.txt").read_text())
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}status", timeout=120) as response:
        told = json.load(response)
    states = DeltaTable(str(folder / "data" / "tables" / "partition_state")).to_pyarrow_table(columns=["topic"])
    assert len(told["partitions"]) == len(states)
    assert {one["topic"] for one in told["partitions"]} == set(states["topic"].to_pylist())
    assert all(one["log_end"] is not None and one["state"] != "failed" for one in told["partitions"])
    assert told["checks"]["batch_seconds"] > 0
    assert told["probes"]["sent_per_second"] > 0 and told["probes"]["send_milliseconds_median"] > 0
    assert scraped["offsetwatch_batches_total"] >= 2
    assert told["not_ready"] is None
    with urllib.request.urlopen(found[1], timeout=120) as response:
        page = response.read().decode()
    assert page.count('class="cell s-') >= len(told["partitions"])
    assert "checked through" in page or "NOTHING HAS BEEN CHECKED" in page


def test_probe_run(kafka: LocalKafka, tmp_path: Path) -> None:
    with running("probe", "run", folder=tmp_path, kafka=kafka) as child:
        until(lambda: "probes of run" in (tmp_path / "err.txt").read_text(), child, tmp_path, 240)
        until(lambda: has_happened(tmp_path) >= {"send", "poll", "txn", "offsets"}, child, tmp_path, 240)
        said = terminated(child, tmp_path, 300)
    told = re.search(r"stopped: ([\d,]+) sent, ([\d,]+) acknowledged, .*, ([\d,]+) polled, ", said)
    assert told is not None, said
    sent, acknowledged, polled = (int(number.replace(",", "")) for number in told.groups())
    assert 0 < acknowledged <= sent and polled > 0
    assert "stopping (SIGTERM): writers" in said
    assert "0 bytes of journals not logged yet" in said
    check_that_the_log_is_whole(tmp_path)
    check_that_they_end_where_their_log_is_gone(kafka, tmp_path)


def check_that_they_end_where_their_log_is_gone(kafka: LocalKafka, folder: Path) -> None:
    """Somebody has deleted the probe log: nothing of these journals can ever be appended to another one."""
    shutil.rmtree(folder / "data" / "tables" / "history")
    with running("probe", "run", folder=folder, kafka=kafka) as child:
        assert child.wait(timeout=300) == 2, (folder / "err.txt").read_text()
    said = (folder / "err.txt").read_text()
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("offsetwatch: ") and "belongs to another probe log" in said.splitlines()[-1]
    assert list((folder / "data" / "journals" / "lives").iterdir()), "nothing is thrown away"


def test_a_stop_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """What hangs is left behind, in the time that was given and with one line, and a child ends with it."""
    program = (
        "import multiprocessing, time\n"
        "from monitor.process.signals import stop_on_signal\n"
        "with stop_on_signal(within=0.5) as stop:\n"
        "    child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))\n"
        "    child.start()\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT
    ) as hung:
        assert hung.stdout is not None and hung.stderr is not None
        child = int(hung.stdout.readline())
        hung.send_signal(signal.SIGTERM)
        assert hung.wait(timeout=300) == 0
        said = hung.stderr.read()
    assert said == (
        "offsetwatch: not stopped after 0.5 s: what still runs is given up, and the next start goes on with it\n"
    )
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(child, 0)
            time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_monitor_with_probes(kafka: LocalKafka, tmp_path: Path) -> None:
    def scraped() -> dict[str, float]:
        found = re.search(r"metrics are served at (\S+)", (tmp_path / "err.txt").read_text())
        if found is None:
            return {}
        with urllib.request.urlopen(found[1], timeout=30) as response:
            families = text_string_to_metric_families(response.read().decode())
            samples: dict[str, float] = {}
            for family in families:
                for sample in family.samples:
                    samples[sample.name] = samples.get(sample.name, 0) + sample.value
            return samples

    with running("monitor", "--probes", folder=tmp_path, kafka=kafka) as child:
        until(lambda: scraped().get("offsetwatch_batches_total", 0) >= 2, child, tmp_path, 480)
        seen = scraped()
        assert seen["offsetwatch_records_checked_total"] > 0
        assert seen["offsetwatch_probe_records_acknowledged_total"] > 0
        assert seen["offsetwatch_partition_log_end_offset"] > 0
        assert 0 <= seen["offsetwatch_evidence_age_seconds"] < 600
        check_what_its_page_says(tmp_path, seen)
        second = offsetwatch("monitor", cwd=tmp_path, OFFSETWATCH_DATA=str(tmp_path / "data"))
        assert second.returncode == 2
        taken = f"offsetwatch: another monitor (process {child.pid}) is at work on {tmp_path / 'data' / 'checkpoints'}/"
        assert second.stderr.startswith(taken) and second.stderr.count("\n") == 1
        check_that_the_checks_outlive_their_jvm(child, tmp_path, scraped)
        terminated(child, tmp_path, 240)
    assert "doesn't contain" not in (tmp_path / "data" / "logs" / "spark.log").read_text()
    check_that_the_log_is_whole(tmp_path)
    (checkpoint,) = (one for one in (tmp_path / "data" / "checkpoints").iterdir() if one.is_dir())
    begun, committed = (
        sorted(int(file.name) for file in (checkpoint / kind).iterdir() if file.name.isdigit())
        for kind in ("offsets", "commits")
    )
    states = DeltaTable(str(tmp_path / "data" / "tables" / "partition_state")).to_pyarrow_table(columns=["batch"])
    assert set(states["batch"].to_pylist()) <= set(committed), "a batch that was written was not committed"
    assert begun[: len(committed)] == committed and len(begun) <= len(committed) + 1
    for line in (tmp_path / "out.txt").read_text().splitlines():
        told = json.loads(line)
        assert told["severity"] != "critical" or told["anomaly"] == "checks-stalled", line


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1200)
def test_a_stop_does_not_wait_for_a_batch_that_hangs(kafka: LocalKafka, tmp_path: Path) -> None:
    """Spark's Python workers stand still in the midst of it. What could not be ended in time is given up with a line,
    nothing of it is left running, and the next start goes on with it."""
    with running("monitor", "--probes", folder=tmp_path, kafka=kafka) as child:
        findings = tmp_path / "data" / "tables" / "partition_state"
        until(
            lambda: DeltaTable.is_deltatable(str(findings)) and DeltaTable(str(findings)).version() > 2,
            child,
            tmp_path,
            480,
        )
        every = [one for one in psutil.Process(child.pid).children(recursive=True) if one.status() != "zombie"]
        workers = [one for one in every if "streaming_jobs.worker_daemon" in " ".join(one.cmdline())]
        assert workers
        for worker in workers:
            worker.suspend()
        time.sleep(10)
        begun = time.monotonic()
        said = terminated(child, tmp_path, 300)
        print(f"ended {time.monotonic() - begun:.1f} s after SIGTERM")
    assert "not stopped after 28 s" in said
    _, alive = psutil.wait_procs(every, timeout=60)
    assert not alive
    with running("monitor", "--probes", folder=tmp_path, kafka=kafka) as child:
        before = DeltaTable(str(findings)).version()
        until(lambda: DeltaTable(str(findings)).version() > before + 1, child, tmp_path, 480)
        terminated(child, tmp_path, 240)
    check_that_the_log_is_whole(tmp_path)
