"""The job on Kubernetes, by the commands that a site would use: the monitor as the driver (client mode), and a monitor
that is a pod itself (cluster mode). Executors and drivers are killed."""

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
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.kubernetes import NAMESPACE, Kubernetes, built
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.test_job import written

pytestmark = [pytest.mark.spark, pytest.mark.evening, pytest.mark.timeout(3600)]

HERE = ("spark.driver.host", "spark.driver.bindAddress")
"""Of a driver on this machine; one that is a pod has the pod's."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def kubernetes(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    programs = built(tmp_path_factory.mktemp("programs"))
    with Kubernetes(programs, tmp_path_factory.mktemp("kubernetes") / "cluster") as running:
        yield running


def conf(cluster: Kubernetes, known: str = "") -> dict[str, str]:
    """What a site may have set; `known`: for whom it is that the API server knows the site."""
    return CONF | {
        "spark.pyspark.python": sys.executable,
        "spark.executor.instances": "2",
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": "offsetwatch:tried",
        f"spark.kubernetes.authenticate.{known}oauthTokenFile": str(cluster.token),
        f"spark.kubernetes.authenticate.{known}caCertFile": str(cluster.authority),
    }


def test_the_monitor_is_the_driver_and_executors_that_are_killed_cost_nothing(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    config, file = configured(tmp_path, master=f"k8s://{kubernetes.url}", conf=conf(kubernetes))
    parts = duplicates(4, partitions=4)
    command = [sys.executable, "-m", "monitor.cli", "monitor", "--config", str(file)]
    commit(config.history_path, parts[0])
    driver = Driver(command, tmp_path / "driver")
    try:
        driver.until(served(kubernetes, reached(config, parts[:1])))
        executors = kubernetes.node.alive("-exec-")
        assert executors
        commit(config.history_path, parts[1])
        until_planned(driver, config, 1)
        end(executors[0])
        driver.until(served(kubernetes, reached(config, parts[:2])))
        commit(config.history_path, parts[2])
        until_planned(driver, config, 2)
    finally:
        driver.kill()
    again = Driver(command, tmp_path / "driver")
    try:
        commit(config.history_path, parts[3])
        again.until(served(kubernetes, reached(config, parts)))
        assert again.stop() == 0
    finally:
        again.kill()
    assert len(set(written(config))) == len(written(config))


def test_the_monitor_is_a_pod_and_the_next_one_goes_on_where_it_died(kubernetes: Kubernetes, tmp_path: Path) -> None:
    config, file = configured(tmp_path)
    parts = duplicates(2)
    commit(config.history_path, parts[0])
    submit(kubernetes, file)
    until(kubernetes, reached(config, parts[:1]))
    (driver,) = kubernetes.node.alive("-driver")
    end(driver)
    until(kubernetes, lambda: [pod["status"]["phase"] for pod in drivers(kubernetes)] == ["Failed"])
    commit(config.history_path, parts[1])
    submit(kubernetes, file)
    until(kubernetes, reached(config, parts))
    assert len(set(written(config))) == len(written(config))


def submit(cluster: Kubernetes, file: Path) -> None:
    mine = {name: value for name, value in conf(cluster, "submission.").items() if name not in HERE} | {
        "spark.executor.instances": "1",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.master": cluster.url,
        "spark.kubernetes.authenticate.driver.serviceAccountName": "monitor",
        "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": str(cluster.token),
        "spark.kubernetes.authenticate.driver.mounted.caCertFile": str(cluster.authority),
        "spark.kubernetes.driverEnv.PYTHONPATH": str(CHECKOUT),
    }
    given = [word for name, value in mine.items() for word in ("--conf", f"{name}={value}")]
    where = ["--master", f"k8s://{cluster.url}", "--deploy-mode", "cluster", "--driver-memory", "512m"]
    main = f"local://{monitor.submit.__file__}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    submitted = subprocess.run(
        [str(word) for word in (HOME / "bin" / "spark-submit", *where, *given, main, "monitor", "--config", file)],
        env=kept | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert submitted.returncode == 0, submitted.stderr


def drivers(cluster: Kubernetes) -> list[dict[str, dict[str, str]]]:
    """The pods that were submitted."""
    pods: list[dict[str, dict[str, str]]] = cluster.ask("GET", f"{PODS}?labelSelector=spark-role%3Ddriver")["items"]
    return pods


def served(cluster: Kubernetes, met: Callable[[], bool]) -> Callable[[], bool]:
    """The same, while the cluster works."""

    def asked() -> bool:
        assert cluster.node.failure is None, cluster.said()
        return met()

    return asked


def until(cluster: Kubernetes, met: Callable[[], bool]) -> None:
    deadline, met = time.monotonic() + DEADLINE, served(cluster, met)
    while not met():
        assert time.monotonic() < deadline, cluster.said()
        time.sleep(0.5)
