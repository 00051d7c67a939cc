"""A Spark that stood still, as on a machine that was suspended, goes on afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.streaming_jobs.conftest import CHECKOUT

pytestmark = [pytest.mark.evening, pytest.mark.timeout(300)]

IMPATIENT = {
    "spark.network.timeout": "4s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerTimeoutIntervalMs": "1s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.executor.heartbeat.maxFailures": "5",
}
"""Spark's own patience, two minutes and sixty heartbeats, in seconds."""

SESSION = """
import sys
from pathlib import Path
from deploy.jars import spark_jars
from streaming_jobs.session import SessionSettings, start

session = start(SessionSettings(jars=spark_jars(), logs=Path(sys.argv[1]), driver_memory="512m", extra={extra!r}))
print(session._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
for _ in sys.stdin:
    print(session.range(10).count(), flush=True)
session.stop()
"""


def test_a_spark_that_was_suspended_keeps_its_executor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SESSION.format(extra=IMPATIENT), str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=pipe, stdout=pipe, text=True, bufsize=1) as session:
        assert session.stdin is not None and session.stdout is not None
        jvm = int(session.stdout.readline())
        for _ in range(5):  # what comes first after a pause, a heartbeat or the look at the last one, is chance
            os.kill(jvm, signal.SIGSTOP)
            time.sleep(6)
            os.kill(jvm, signal.SIGCONT)
            time.sleep(1)
        time.sleep(15)  # six heartbeats, and the end of a JVM
        session.stdin.write("\n")
        assert session.stdout.readline() == "10\n"
        session.stdin.close()
        assert session.wait(60) == 0
    log = (tmp_path / "spark.log").read_text()
    assert "Removing executor" not in log and "unable to send heartbeats" not in log
