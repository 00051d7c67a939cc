"""A batch that will never end, as where a thread of Spark's died of a full disk: in a minute the checks begin again."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from monitor.process.checking import STANDS_STILL
from tests.monitor.process.test_stop import running, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.evening, pytest.mark.timeout(1200)]


def workers(monitor: int) -> list[psutil.Process]:
    """The Python processes of its JVM, in which the checks run."""
    found = []
    for child in psutil.Process(monitor).children(recursive=True):
        try:
            if any("pyspark" in word or "worker_daemon" in word for word in child.cmdline()[:6]):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return [one for one in found if "java" not in one.name()]


def test_a_batch_in_which_nobody_does_anything_is_begun_again(kafka: LocalKafka, tmp_path: Path) -> None:
    said = tmp_path / "err.txt"
    history = tmp_path / "data" / "tables" / "findings"
    with running("monitor", "--probes", folder=tmp_path, kafka=kafka) as child:
        until((tmp_path / "data" / "tables" / "partition_state").exists, child, tmp_path, 480)
        time.sleep(10)
        stopped = workers(child.pid)
        assert stopped
        for worker in stopped:
            worker.send_signal(signal.SIGSTOP)
        before = time.monotonic()
        until(lambda: "the checks have stopped" in said.read_text(), child, tmp_path, 3 * STANDS_STILL)
        assert time.monotonic() - before < 2 * STANDS_STILL, "and not by the time that a batch may take"
        assert re.search(r"a batch stands still, and Spark has done nothing for \d+ s", said.read_text())
        until(lambda: "the checks go on, after " in said.read_text(), child, tmp_path, 480)
        assert not any(one.is_running() and one.status() == psutil.STATUS_STOPPED for one in stopped), "nobody is left"
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(timeout=300) == 0
    rows = [
        row for row in DeltaTable(str(history)).to_pyarrow_table().to_pylist() if row["anomaly"] == "checks-stalled"
    ]
    opened, closed = sorted(rows, key=lambda row: row["event"] != "opened")
    assert STANDS_STILL < (closed["at"] - opened["at"]).total_seconds() < 6 * STANDS_STILL, "since rows have waited"
