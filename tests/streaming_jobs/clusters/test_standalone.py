"""The job on a Spark that is there already, by the commands that a site would use: Spark's standalone cluster, of which
a worker is killed, and then the driver. Its findings are those of one machine, and none is written twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import monitor.submit
from rules.vocabulary.slices import Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.tables.delta_tables import read_table
from tests.known import a_folder
from tests.streaming_jobs.checking import check_all
from tests.streaming_jobs.clusters.standalone import HOME, Standalone, end
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import expected, written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

DEADLINE = 600.0
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-Xss16m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
}
"""What a site may have set. The last five make it cheap."""


@pytest.fixture(scope="module")
def cluster(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone") / "spark") as running:
        yield running


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has what the workers need, and nothing of ours."""
    root = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    (packages,) = root.glob("lib/python*/site-packages")
    # Those that are installed as links to a checkout are not followed from here.
    (packages / "needed.pth").write_text(sysconfig.get_paths()["purelib"])
    python = root / "bin" / "python"
    known = subprocess.run(
        [python, "-I", "-c", "import numpy, pyarrow; import streaming_jobs"], cwd=root, check=False, capture_output=True
    )
    assert b"No module named 'streaming_jobs'" in known.stderr
    return python


class Driver:
    """A monitor in a process, and a folder, of its own."""

    def __init__(self, command: Sequence[str | Path], folder: Path, **environment: str) -> None:
        folder.mkdir(exist_ok=True)
        self._output = folder / "driver.out"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=kept | {"PYTHONPATH": str(CHECKOUT)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def until(self, met: Callable[[], bool], every: float = 0.3) -> None:
        deadline = time.monotonic() + DEADLINE
        while not met():
            assert self._process.poll() is None and time.monotonic() < deadline, self._output.read_text()
            time.sleep(every)

    def kill(self) -> None:
        """The process and its JVM, as the end of its machine would."""
        if self._process.poll() is None:
            end(psutil.Process(self._process.pid))
        self._process.wait()

    def stop(self) -> int:
        """The exit code, once the process and all that it started have ended."""
        mine = [psutil.Process(self._process.pid)]
        mine += mine[0].children(recursive=True)
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(DEADLINE)
        _, left = psutil.wait_procs(mine, DEADLINE)
        assert not left
        return code


def configured(root: Path, **spark: Any) -> tuple[JobConfig, Path]:
    file = root / "offsetwatch.toml"
    job = {"max_files": 12, "objectives.liveness": 86_400, "upkeep.enabled": False, "cycles.enabled": False}
    lines = [f'data = "{root / "data"}"', "[alerts]", "metrics = false", "[job]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in job.items()]
    lines += [f"spark.{name} = {json.dumps(value)}" for name, value in spark.items() if name != "conf"]
    lines += ["[job.spark.conf]", *(f"{name} = {json.dumps(value)}" for name, value in spark.get("conf", {}).items())]
    file.write_text("\n".join(lines))
    return JobConfig(root=root / "data"), file


def until_planned(driver: Driver, config: JobConfig, batch: int) -> None:
    """The batch is under way from here on."""
    driver.until((config.checkpoint_path / "offsets" / str(batch)).exists, every=0.01)


def reached(config: JobConfig, parts: Sequence[list[Slice]]) -> Callable[[], bool]:
    """Whether all is found that these parts of the log prove, and nothing else."""
    wanted = expected(list(parts))
    return lambda: {one for one, _, _ in written(config)} == wanted


def on_one_machine(spark: SparkSession, config: JobConfig, parts: Sequence[list[Slice]], root: Path) -> list[Any]:
    """What a local Spark finds in the same log."""
    alone = JobConfig.model_validate({"root": root, "history_wait": 0, "upkeep": {"enabled": False}})
    shutil.copytree(a_folder(config.history_path), a_folder(alone.history_path))
    check_all(alone, spark)
    return told(alone)


def told(config: JobConfig) -> list[Any]:
    """The findings, without what tells of the batch in which each was found, and when."""
    rows = read_table(config.tables_path, "findings").drop_columns(["batch", "recorded"]).to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["event"], row["at"]))


@pytest.mark.evening
def test_a_worker_and_the_driver_are_killed_and_no_finding_is_lost_or_told_twice(
    cluster: Standalone, python: Path, spark: SparkSession, tmp_path: Path
) -> None:
    config, file = configured(tmp_path, master=cluster.url, conf=CONF | {"spark.pyspark.python": str(python)})
    parts = duplicates(6, partitions=12)
    command = [sys.executable, "-m", "monitor.cli", "monitor", "--config", str(file)]

    commit(config.history_path, parts[0])
    driver = Driver(command, tmp_path / "driver")
    try:
        driver.until(reached(config, parts[:1]))
        commit(config.history_path, parts[1])
        until_planned(driver, config, 1)
        end(cluster.workers[0])
        driver.until(reached(config, parts[:2]))
        assert "Lost executor" in (config.root / "logs" / "spark.log").read_text()
        commit(config.history_path, parts[2])
        driver.until(reached(config, parts[:3]))
        commit(config.history_path, parts[3])
        until_planned(driver, config, 3)
    finally:
        driver.kill()
    assert not reached(config, parts[:4])(), "it was killed in mid-batch"

    again = Driver(command, tmp_path / "driver")
    try:
        for count, part in enumerate(parts[4:], start=5):
            commit(config.history_path, part)
            again.until(reached(config, parts[:count]))
        assert again.stop() == 0
    finally:
        again.kill()
    assert len(set(written(config))) == len(written(config))
    assert told(config) == on_one_machine(spark, config, parts, tmp_path / "alone")
    states = read_table(config.tables_path, "partition_state").to_pylist()
    assert {s["partition"]: s["polled"] for s in states} == dict.fromkeys(range(12), 6 * len(parts))


@pytest.mark.evening
def test_a_sites_own_spark_submit_is_the_driver(cluster: Standalone, python: Path, tmp_path: Path) -> None:
    config, file = configured(tmp_path)
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    conf = CONF | {"spark.pyspark.python": str(python), "spark.pyspark.driver.python": sys.executable}
    given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    jvm = ["--driver-memory", "1g"]
    command: list[str | Path] = [
        HOME / "bin" / "spark-submit",
        "--master",
        cluster.url,
        *jvm,
        *given,
        monitor.submit.__file__,
    ]
    driver = Driver([*command, "monitor", "--config", file], tmp_path / "driver", SPARK_LOCAL_IP="127.0.0.1")
    try:
        driver.until(reached(config, parts[:1]))
        commit(config.history_path, parts[1])
        driver.until(reached(config, parts))
        assert driver.stop() == 128 + signal.SIGTERM  # Java's own
    finally:
        driver.kill()
    assert len(set(written(config))) == len(written(config))
