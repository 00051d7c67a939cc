"""The job on Hadoop's YARN, by the commands that a site would use: the monitor as the driver (client mode), and a
monitor that YARN starts on one of its own machines (cluster mode). Executors and drivers are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import monitor.submit
from tests.streaming_jobs.clusters.standalone import HOME, end
from tests.streaming_jobs.clusters.test_standalone import CONF, DEADLINE, Driver, configured, reached, until_planned
from tests.streaming_jobs.clusters.yarn import Yarn
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import written

pytestmark = [pytest.mark.spark, pytest.mark.evening, pytest.mark.timeout(1500)]


HERE = ("spark.driver.host", "spark.driver.bindAddress")
"""Of a driver on this machine; those that YARN starts are where they are."""


@pytest.fixture(scope="module")
def yarn(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with Yarn(tmp_path_factory.mktemp("yarn") / "cluster") as running:
        yield running


def conf(folder: Path) -> dict[str, str]:
    """What a site may have set: Spark's jars are on all machines already."""
    return CONF | {
        "spark.pyspark.python": sys.executable,
        "spark.executor.instances": "2",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.jars": f"local:{HOME}/jars/*",
        "spark.yarn.stagingDir": str(folder / "staging"),
        "spark.yarn.am.memory": "512m",
    }


def test_the_monitor_is_the_driver_and_executors_that_are_killed_cost_nothing(yarn: Yarn, tmp_path: Path) -> None:
    config, file = configured(tmp_path, master="yarn", conf=conf(tmp_path))
    parts = duplicates(4, partitions=4)
    command = [sys.executable, "-m", "monitor.cli", "monitor", "--config", str(file)]
    commit(config.history_path, parts[0])
    driver = Driver(command, tmp_path / "driver", HADOOP_CONF_DIR=str(yarn.conf))
    try:
        driver.until(reached(config, parts[:1]))
        executors = [one for one in yarn.containers if any("CoarseGrainedExecutor" in word for word in one.cmdline())]
        assert executors
        commit(config.history_path, parts[1])
        until_planned(driver, config, 1)
        end(executors[0])
        driver.until(reached(config, parts[:2]))
        commit(config.history_path, parts[2])
        until_planned(driver, config, 2)
    finally:
        driver.kill()
    again = Driver(command, tmp_path / "driver", HADOOP_CONF_DIR=str(yarn.conf))
    try:
        commit(config.history_path, parts[3])
        again.until(reached(config, parts))
        assert again.stop() == 0
    finally:
        again.kill()
    assert len(set(written(config))) == len(written(config))


def test_it_starts_the_monitor_and_starts_it_again_where_it_dies(yarn: Yarn, tmp_path: Path) -> None:
    config, file = configured(tmp_path)
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    mine = {name: value for name, value in conf(tmp_path).items() if name not in HERE} | {
        "spark.executor.instances": "1",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.appMasterEnv.PYTHONPATH": str(CHECKOUT),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        # A driver listens where its machine's name leads to: here that is not loopback.
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.maxAppAttempts": "3",
    }
    given = [word for name, value in mine.items() for word in ("--conf", f"{name}={value}")]
    where = ["--master", "yarn", "--deploy-mode", "cluster", "--driver-memory", "512m"]
    command = [HOME / "bin" / "spark-submit", *where, *given, monitor.submit.__file__, "monitor", "--config", file]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    submitted = subprocess.run(
        [str(word) for word in command],
        env=kept | {"HADOOP_CONF_DIR": str(yarn.conf), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert submitted.returncode == 0, submitted.stderr
    until(yarn, reached(config, parts[:1]))
    masters = [one for one in yarn.containers if any("ApplicationMaster" in word for word in one.cmdline())]
    (driver,) = [one for one in masters if "java" in one.name()]
    end(driver)
    commit(config.history_path, parts[1])
    until(yarn, reached(config, parts))
    assert len(set(written(config))) == len(written(config))


def until(yarn: Yarn, met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not met():
        assert time.monotonic() < deadline, yarn.said()
        time.sleep(0.5)
