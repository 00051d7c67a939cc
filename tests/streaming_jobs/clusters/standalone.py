"""Spark's own standalone cluster on loopback: a master, and workers whose executors see another folder than the
driver's. Real processes, that a test may kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from deploy.java import java_home

HOME = Path(pyspark.__file__).parent
DEADLINE = 300.0


class Standalone:
    """A master and `workers` of a core and a GiB each. A context manager: `url` is the master's."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._wanted = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Standalone:
        self._folder.mkdir(parents=True)
        try:
            master = self._start("master", "Master", "--port", "0", "--webui-port", "0")
            self.url = self._said("master", master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._wanted):
                self.add(f"worker-{number}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def add(self, name: str) -> psutil.Process:
        """Another worker, registered."""
        sizes = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self._folder / name))
        worker = self._start(name, "worker.Worker", *sizes, self.url)
        self._said(name, worker, r"(Successfully registered with master)")
        return psutil.Process(worker.pid)

    @property
    def workers(self) -> list[psutil.Process]:
        """The workers that are alive, in the order of their start."""
        return [psutil.Process(one.pid) for one in self._processes[1:] if one.poll() is None]

    def _start(self, name: str, what: str, *options: str) -> subprocess.Popen[bytes]:
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH" and not n.startswith("PYSPARK")}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
        environment |= {
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false"
        }
        environment["JAVA_HOME"] = str(java_home())
        with (self._folder / f"{name}.log").open("wb") as log:
            made = subprocess.Popen(
                [
                    HOME / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{'master.' if name == 'master' else ''}{what}",
                    "--host",
                    "127.0.0.1",
                    *options,
                ],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(made)
        return made

    def _said(self, name: str, process: subprocess.Popen[bytes], pattern: str) -> str:
        deadline = time.monotonic() + DEADLINE
        while True:
            text = (self._folder / f"{name}.log").read_text(errors="replace")
            if found := re.search(pattern, text):
                return found[1]
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)

    def _end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                end(psutil.Process(process.pid))
            process.wait()


def end(process: psutil.Process) -> None:
    """SIGKILL to a process and all that it started, whichever sessions these are in."""
    with suppress(psutil.Error):
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                one.send_signal(signal.SIGKILL)
