"""A node of a Kubernetes cluster in a test: it starts what pods ask for as processes of this machine.

A kubelet wants cgroups, a container runtime and images; what is tested is what comes of the pods, and the commands in
them are Spark's own. Of a pod's container it takes what Spark's image is given: the arguments, the environment, files
of config maps and empty folders. Each pod has an address of its own on loopback, and services are names that lead to
the pods that they select, for the JVMs that are started here.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.java import java_home
from tests.streaming_jobs.clusters.standalone import HOME, end

Ask = Callable[..., Any]
"""Method, path and what is sent: what the API server answers, None where it has no such object."""
_EVERY: Final = 0.2
_PATCH: Final = "application/strategic-merge-patch+json"


@dataclass(slots=True)
class Running:
    """A pod whose process was started. `told`: its phase, as the API server knows it."""

    name: str
    namespace: str
    address: str
    process: subprocess.Popen[bytes]
    told: str = ""


class Node:
    """Takes each pod that there is. A context manager."""

    def __init__(self, ask: Ask, folder: Path) -> None:
        self._ask = ask
        self._folder = folder
        self._pods: dict[str, Running] = {}
        self._hosts = folder / "hosts"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Node:
        self._folder.mkdir(parents=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for pod in self._pods.values():
            end(psutil.Process(pod.process.pid)) if pod.process.poll() is None else None
            pod.process.wait()

    def alive(self, part: str) -> list[psutil.Process]:
        """The processes of the pods whose names hold this, in the order of their start."""
        return [
            psutil.Process(one.process.pid)
            for one in self._pods.values()
            if part in one.name and one.process.poll() is None
        ]

    def said(self) -> str:
        """The ends of what all pods have written."""
        return "\n".join(f"{log}: {log.read_text(errors='replace')[-3000:]}" for log in self._folder.glob("*/log"))

    def _run(self) -> None:
        while not self._over.wait(_EVERY):
            try:
                self._look()
            except Exception as error:
                self.failure = error
                raise

    def _look(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._ask("GET", "/api/v1/pods")["items"]}
        self._name_services(list(pods.values()))
        for uid, pod in pods.items():
            if uid not in self._pods and "deletionTimestamp" not in pod["metadata"]:
                self._start(uid, pod)
            elif "deletionTimestamp" in pod["metadata"]:
                self._remove(uid, pod)
        for uid in self._pods.keys() & pods.keys():
            self._tell(self._pods[uid])

    def _name_services(self, pods: list[Any]) -> None:
        lines = ["127.0.0.1 localhost"]
        for service in self._ask("GET", "/api/v1/services")["items"]:
            named, wanted = service["metadata"], service["spec"].get("selector") or {}
            for pod in pods:
                known = self._pods.get(pod["metadata"]["uid"])
                if known is not None and wanted and wanted.items() <= pod["metadata"].get("labels", {}).items():
                    lines.append(f"{known.address} {named['name']}.{named['namespace']}.svc")
        text = "\n".join(lines) + "\n"
        if not self._hosts.exists() or self._hosts.read_text() != text:
            beside = self._hosts.with_suffix(".new")
            beside.write_text(text)
            beside.replace(self._hosts)

    def _start(self, uid: str, pod: Any) -> None:
        named, (container, *_) = pod["metadata"], pod["spec"]["containers"]
        folder, address = self._folder / named["name"], f"127.0.1.{len(self._pods) + 1}"
        mounts = self._mounted(pod, container, folder)
        if mounts is None:
            return
        fields = {"status.podIP": address, "metadata.name": named["name"]}
        given: dict[str, str] = {}
        for one in container.get("env", ()):
            value = one.get("value", "")
            if "valueFrom" in one:
                value = fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            given[one["name"]] = _moved(value, mounts)
        command = _command([_moved(word, mounts) for word in container["args"]], given)
        env = {"PATH": os.environ["PATH"], "JAVA_HOME": str(java_home()), "SPARK_HOME": str(HOME)}
        # A machine's own name leads elsewhere, and cluster DNS is the hosts file.
        env |= {"SPARK_LOCAL_IP": address, "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={self._hosts}"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=env | given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pods[uid] = Running(named["name"], named["namespace"], address, process)

    def _mounted(self, pod: Any, container: Any, folder: Path) -> dict[str, str] | None:
        """By the path that a container has a volume at: where it is. None while there is no such config map: Spark
        makes it after the pod."""
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        mounts: dict[str, str] = {}
        for number, mount in enumerate(container.get("volumeMounts", ())):
            where, volume = folder / f"volume-{number}", volumes[mount["name"]]
            where.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{volume['configMap']['name']}"
                if (found := self._ask("GET", path)) is None:
                    return None
                for name, text in (found.get("data") or {}).items():
                    (where / name).write_text(text)
            mounts[mount["mountPath"]] = str(where)
        return mounts

    def _tell(self, pod: Running) -> None:
        code = pod.process.poll()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        where = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        if phase == pod.told or (known := self._ask("GET", where)) is None:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        over = {"exitCode": (code or 0) % 256, "finishedAt": now, "reason": phase}
        container = {
            "name": known["spec"]["containers"][0]["name"],
            "image": "",
            "imageID": "",
            "ready": code is None,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}} if code is None else {"terminated": over},
        }
        status = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": "Ready", "status": str(code is None)}],
            "containerStatuses": [container],
        }
        self._ask("PATCH", f"{where}/status", {"status": status}, _PATCH)
        pod.told = phase

    def _remove(self, uid: str, pod: Any) -> None:
        running = self._pods.get(uid)
        if running is not None and running.process.poll() is None:
            with suppress(psutil.Error):
                end(psutil.Process(running.process.pid))
            running.process.wait()
        where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._ask("DELETE", where, {"gracePeriodSeconds": 0})


def _moved(text: str, mounts: dict[str, str]) -> str:
    for path, where in mounts.items():
        text = text.replace(path, where)
    return text


def _command(arguments: list[str], env: dict[str, str]) -> list[str]:
    """What the entry point of Spark's image makes of a pod's arguments."""
    kind, *more = arguments
    if kind == "driver":
        bound = f"spark.driver.bindAddress={env['SPARK_DRIVER_BIND_ADDRESS']}"
        return [str(HOME / "bin" / "spark-submit"), "--conf", bound, "--deploy-mode", "client", *more]
    assert kind == "executor", arguments
    options = sorted((name for name in env if name.startswith("SPARK_JAVA_OPT_")), key=lambda n: int(n.split("_")[-1]))
    memory, conf = env["SPARK_EXECUTOR_MEMORY"], env.get("SPARK_CONF_DIR", str(HOME / "conf"))
    told = {
        "driver-url": "SPARK_DRIVER_URL",
        "executor-id": "SPARK_EXECUTOR_ID",
        "cores": "SPARK_EXECUTOR_CORES",
        "app-id": "SPARK_APPLICATION_ID",
        "hostname": "SPARK_EXECUTOR_POD_IP",
        "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        str(java_home() / "bin" / "java"),
        *(env[name] for name in options),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{conf}:{HOME}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(word for option, name in told.items() for word in (f"--{option}", env[name])),
    ]
