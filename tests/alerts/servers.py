"""Real receivers for tests: an HTTP server that keeps what it is posted, Debian's Alertmanager, Prometheus' promtool.

What is not installed skips the test and says what to install.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "promtool": "prometheus",
    "prometheus": "prometheus",
}


def program(name: str) -> str:
    """The path of a program; skips the test where it is missing."""
    found = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {PACKAGES[name]}")
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def eventually(true: Callable[[], Any], what: str, within: float = 180.0) -> Any:
    """Wait until `true` is; the limit is there only so that a failure ends."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        found = true()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"within {within:g} s there was no {what}")


class Sink:
    """Keeps what it is posted: (path, headers, body), and in `arrived` when. `answer` is the status that it gives;
    `slow` keeps callers waiting until it is set free."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], bytes]] = []
        self.arrived: list[datetime] = []
        self._lock = threading.Lock()
        self.answer = 200
        self.slow: threading.Event | None = None
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if sink.slow is not None:
                    sink.slow.wait(600)
                with sink._lock:
                    sink.posts.append((self.path, dict(self.headers), body))
                    sink.arrived.append(datetime.now(UTC))
                self.send_response(sink.answer)
                if 300 <= sink.answer < 400:
                    self.send_header("Location", f"{sink.url}/elsewhere")
                self.end_headers()

            def log_message(self, *given: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in list(self.posts)]

    def close(self) -> None:
        if self.slow is not None:
            self.slow.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@contextmanager
def sink() -> Iterator[Sink]:
    made = Sink()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def alertmanager(folder: Path, config: str, port: int | None = None) -> Iterator[str]:
    """A real Alertmanager with this configuration, on loopback; its address."""
    binary = program("prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config)
    url = f"http://127.0.0.1:{port or free_port()}"
    with (folder / "log.txt").open("ab") as log:
        running = subprocess.Popen(
            [
                binary,
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={url.removeprefix('http://')}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: get(f"{url}/-/ready") is not None, "Alertmanager: " + (folder / "log.txt").read_text())
        yield url
    finally:
        running.terminate()
        running.wait(120)


@contextmanager
def prometheus(
    folder: Path,
    targets: str | Mapping[str, str],
    rules: Path | None = None,
    alertmanager: str | None = None,
    *,
    features: Sequence[str] = (),
) -> Iterator[str]:
    """A real Prometheus that scrapes each second, and tells an Alertmanager if there is one; its address. `targets`: a
    monitor, or targets by the names of their jobs. `features`: further arguments."""
    jobs = {"offsetwatch-monitor": targets} if isinstance(targets, str) else targets
    binary = program("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    told = [alertmanager.removeprefix("http://")] if alertmanager else []
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
        f"rule_files: {[str(rules)] if rules else []}\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: {told}}}]}}]}}\n"
        "scrape_configs:\n"
        + "".join(f"- job_name: {job}\n  static_configs: [{{targets: ['{at}']}}]\n" for job, at in jobs.items())
    )
    url = f"http://127.0.0.1:{free_port()}"
    with (folder / "log.txt").open("ab") as log:
        running = subprocess.Popen(
            [
                binary,
                *features,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: get(f"{url}/-/ready") is not None, "Prometheus: " + (folder / "log.txt").read_text())
        yield url
    finally:
        running.terminate()
        running.wait(120)


def get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return None
