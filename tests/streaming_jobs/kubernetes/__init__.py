"""A Kubernetes cluster on loopback: etcd and the API server that Kubernetes is made of, built where Go is there, and a
node that starts pods as processes (`node.Node`). Rights are asked for (RBAC): `site` may what the docs say that a
monitor's account must, and nothing else."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil
import pytest

from tests.streaming_jobs.clusters.standalone import end
from tests.streaming_jobs.kubernetes.node import Node

SOURCE: Final = Path(__file__).resolve().parent
NAMESPACE: Final = "canary"
_PROGRAMS: Final = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
_DEADLINE: Final = 300.0
RULES: Final = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"],
    },
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create", "get", "patch"]},
]
"""What docs/deploying.md says that the account of a monitor must be allowed in its namespace."""


def built(folder: Path) -> dict[str, Path]:
    """The programs by their names. Skips where there is no Go, or where nobody has its modules."""
    go = shutil.which("go")
    if go is None or shutil.which("openssl") is None:
        pytest.skip("go or openssl is not installed")
    had = subprocess.run([go, "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False)
    if had.returncode:
        pytest.skip(f"the modules of Kubernetes cannot be had: {had.stderr.strip()[-200:]}")
    for name, package in _PROGRAMS.items():
        command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(folder / name), package]
        made = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
    return {name: folder / name for name in _PROGRAMS}


class Kubernetes:
    """A context manager. `url`: of the API server; `token`, `authority`: files by which a site is known there, and by
    which it knows the server."""

    def __init__(self, programs: dict[str, Path], folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.token = folder / "site.token"
        self.authority = folder / "certificates" / "apiserver.crt"
        self.node = Node(self.ask, folder / "node")

    def __enter__(self) -> Kubernetes:
        self._folder.mkdir(parents=True)
        try:
            self._serve()
            self._until_ready()
            self._set_up()
        except BaseException:
            self._end()
            raise
        self.node.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.__exit__()
        self._end()

    def ask(self, method: str, path: str, sent: Any = None, kind: str = "application/json") -> Any:
        """What the API server answers to its administrator; None where it has no such object."""
        headers = {"Authorization": "Bearer of-the-administrator", "Content-Type": kind}
        data = None if sent is None else json.dumps(sent).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        known = ssl.create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(request, timeout=30, context=known) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {refused.read().decode(errors='replace')}") from refused

    def said(self) -> str:
        """The ends of what everything here has written."""
        logs = [f"{log}: {log.read_text(errors='replace')[-1500:]}" for log in self._folder.glob("*.log")]
        return "\n".join([*logs, self.node.said()])

    def _serve(self) -> None:
        with ExitStack() as held:  # all at once, so that no two are one
            free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            client, peer, secure = (one.getsockname()[1] for one in free)
        kept, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._start(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={kept}",
            f"--advertise-client-urls={kept}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self.token.write_text("of-the-site")
        users = self._folder / "users.csv"
        users.write_text('of-the-administrator,admin,admin,"system:masters"\nof-the-site,site,site\n')
        key = self._folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._start(
            "kube-apiserver",
            f"--etcd-servers={kept}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={self.authority.parent}",
            f"--token-auth-file={users}",
            "--authorization-mode=RBAC",
            # Nobody makes accounts here, nor tells nodes: those are other programs' of a cluster.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--service-cluster-ip-range=10.255.0.0/24",
            "--endpoint-reconciler-type=none",
        )
        self.url = f"https://127.0.0.1:{secure}"

    def _start(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                [str(self._programs[name]), *options],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(started)

    def _until_ready(self) -> None:
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                if self.ask("GET", "/api/v1/namespaces/default") is not None:
                    return
            except (OSError, AssertionError):
                pass
            alive = all(process.poll() is None for process in self._processes)
            assert alive and time.monotonic() < deadline, self.said()
            time.sleep(0.2)

    def _set_up(self) -> None:
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        meta = {"name": "monitor"}
        group = "rbac.authorization.k8s.io"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": meta})
        self.ask("POST", f"{roles}/roles", {"metadata": meta, "rules": RULES})
        subject = {"kind": "User", "name": "site", "apiGroup": group}
        of = {"kind": "Role", "name": "monitor", "apiGroup": group}
        self.ask("POST", f"{roles}/rolebindings", {"metadata": meta, "subjects": [subject], "roleRef": of})

    def _end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                end(psutil.Process(process.pid))
            process.wait()
