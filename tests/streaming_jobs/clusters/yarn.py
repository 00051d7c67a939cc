"""Hadoop's own YARN on loopback: a resource manager and node managers, as Hadoop brings them for small clusters. Real
processes, that a test may kill. The class path is PySpark's own Hadoop, and what it leaves out of the servers."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pytest

from deploy.errors import JarsMissing
from deploy.jars import Artefact, JarSet, pyspark_jars, resolved
from deploy.java import java
from tests.streaming_jobs.clusters.standalone import end

DEADLINE = 300.0
_BOUNCY = "1.82"
"""BouncyCastle, which the resource manager makes certificates for its proxy with."""
_SHARED = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j", "log4j")
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


def class_path() -> list[Path]:
    """What a server of YARN's is started with. Skips where the registry does not have it."""
    ours = pyspark_jars()
    version = next(ours.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    wanted = (
        Artefact("org.apache.hadoop", "hadoop-client-minicluster", version),
        Artefact("org.bouncycastle", "bcprov-jdk18on", _BOUNCY),
        Artefact("org.bouncycastle", "bcpkix-jdk18on", _BOUNCY),
    )
    about = f"Hadoop's small cluster {version} (4 jars, 66 MB)"
    try:
        servers = resolved(print, JarSet("hadoop-minicluster", about, wanted, beside_pyspark=True))
    except JarsMissing as error:
        pytest.skip(str(error))
    return [*(jar for name in _SHARED for jar in sorted(ours.glob(f"{name}*.jar"))), *servers]


class Yarn:
    """A resource manager, and `nodes` node managers of two cores and 3 GiB each. A context manager: what finds it is
    told by `conf`, the folder that a site names in `$HADOOP_CONF_DIR`."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self._folder = folder
        self._wanted = nodes
        self._jars = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._web = ""
        self.conf = folder / "conf"

    def __enter__(self) -> Yarn:
        self._jars = ":".join(map(str, class_path()))
        self.conf.mkdir(parents=True)
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        with ExitStack() as held:  # all at once, so that no two are one
            free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
            places = {
                f"yarn.resourcemanager.{n}": f"127.0.0.1:{s.getsockname()[1]}" for n, s in zip(names, free, strict=True)
            }
        self._web = places["yarn.resourcemanager.webapp.address"]
        self._places = places | {"yarn.resourcemanager.hostname": "127.0.0.1"}
        _write(self.conf, self._places)
        try:
            self._start("resource-manager", "resourcemanager.ResourceManager", self.conf)
            for number in range(self._wanted):
                self._add(f"node-{number}")
            self._until(lambda: len(self._asked("nodes")["nodes"].get("node", ())) == self._wanted)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def containers(self) -> list[psutil.Process]:
        """The JVMs that the node managers have started and that are alive: drivers, what speaks for them, executors."""
        found = []
        for name, process in self._processes.items():
            if name.startswith("node-") and process.poll() is None:
                found += [one for one in psutil.Process(process.pid).children(recursive=True) if "java" in one.name()]
        return found

    def applications(self) -> list[dict[str, Any]]:
        """Those that it was ever given, as its web service tells of them."""
        told: list[dict[str, Any]] = (self._asked("apps")["apps"] or {}).get("app", [])
        return told

    def said(self) -> str:
        """The ends of what its containers have written."""
        logs = sorted(self._folder.glob("node-*/logs/*/*/std*"))
        return "\n".join(f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _add(self, name: str) -> None:
        conf, own = self._folder / name / "conf", self._folder / name
        conf.mkdir(parents=True)
        settings = {
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.address": "127.0.0.1:0",
            "yarn.nodemanager.localizer.address": "127.0.0.1:0",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": str(own / "local"),
            "yarn.nodemanager.log-dirs": str(own / "logs"),
            "yarn.nodemanager.resource.memory-mb": "3072",
            "yarn.nodemanager.resource.cpu-vcores": "2",
            # Of a machine that others use, too: neither is about what is tested.
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
        }
        _write(conf, self._places | settings)
        self._start(name, "nodemanager.NodeManager", conf)

    def _start(self, name: str, server: str, conf: Path) -> None:
        opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util")]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [
                    java(),
                    *opens,
                    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", f"{conf}:{self._jars}", f"org.apache.hadoop.yarn.server.{server}"),
                ],
                cwd=self._folder,
                env={"HADOOP_CONF_DIR": str(conf), "HADOOP_HOME": str(self._folder), "PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _asked(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/{what}", timeout=10) as answer:
            return json.load(answer)

    def _until(self, met: Any) -> None:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                if met():
                    return
            except OSError:
                pass
            logs = "".join(log.read_text(errors="replace")[-2000:] for log in self._folder.glob("*.log"))
            alive = all(process.poll() is None for process in self._processes.values())
            assert alive and time.monotonic() < deadline, logs
            time.sleep(0.2)

    def _end(self) -> None:
        for process in reversed(self._processes.values()):
            if process.poll() is None:
                end(psutil.Process(process.pid))
            process.wait()


def _write(conf: Path, settings: dict[str, str]) -> None:
    common = {
        # A container's processes are ended with it, and a master that has died is begun again within seconds.
        "yarn.nodemanager.sleep-delay-before-sigkill.ms": "100",
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.resourcemanager.am.max-attempts": "3",
        "yarn.resourcemanager.scheduler.class": (
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
        ),
    }
    (conf / "log4j2.properties").write_text(_LOG4J)
    for name, given in (("core", {"fs.defaultFS": "file:///"}), ("yarn", common | settings)):
        lines = [
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
            for key, value in given.items()
        ]
        (conf / f"{name}-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
