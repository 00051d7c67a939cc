"""The monitor as a driver that a standalone cluster starts on one of its own machines (`--deploy-mode cluster`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import monitor.submit
from tests.streaming_jobs.clusters.standalone import HOME, Standalone
from tests.streaming_jobs.clusters.test_standalone import CONF, DEADLINE, configured, reached
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import written

pytestmark = [pytest.mark.spark, pytest.mark.evening, pytest.mark.timeout(1500)]


def test_the_cluster_starts_the_monitor_and_starts_it_again_where_it_dies(_folders: None, tmp_path: Path) -> None:
    parts = duplicates(2)
    conf = CONF | {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.cores.max": "1",
    }
    with Standalone(tmp_path / "spark") as cluster:
        config, file = configured(tmp_path)
        commit(config.history_path, parts[0])
        given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        (any_jar,) = (HOME / "jars").glob("spark-launcher_*.jar")
        command = [
            HOME / "bin" / "spark-submit",
            "--master",
            cluster.url,
            "--deploy-mode",
            "cluster",
            "--supervise",
            "--driver-memory",
            "512m",
            *given,
            "--class",
            "org.apache.spark.deploy.PythonRunner",
            f"file://{any_jar}",
            monitor.submit.__file__,
            "",
            "monitor",
            "--config",
            file,
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        submitted = subprocess.run(
            [str(word) for word in command],
            env=kept | {"PYTHONPATH": str(CHECKOUT), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert "State of driver" in submitted.stderr and submitted.returncode == 0, submitted
        until(reached(config, parts[:1]), tmp_path)
        driver = next(one for one in drivers(cluster) if one.is_running())
        driver.send_signal(signal.SIGKILL)
        commit(config.history_path, parts[1])
        until(reached(config, parts), tmp_path)
        assert driver.pid not in {one.pid for one in drivers(cluster)}
    assert len(set(written(config))) == len(written(config))


def drivers(cluster: Standalone) -> list[psutil.Process]:
    """Those that the cluster has started, each a child of a worker."""
    every = [child for worker in cluster.workers for child in worker.children()]
    return [one for one in every if any("DriverWrapper" in word for word in _words(one))]


def _words(process: psutil.Process) -> list[str]:
    """How it was started, nothing of one that has ended meanwhile."""
    try:
        words: list[str] = process.cmdline()
        return words
    except psutil.NoSuchProcess:  # a zombie is one, too
        return []


def until(met: object, folder: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not met():  # type: ignore[operator]
        said = [out.read_text(errors="replace")[-2000:] for out in folder.glob("spark/*/driver-*/std*")]
        assert time.monotonic() < deadline, "\n".join(said)
        time.sleep(0.5)
