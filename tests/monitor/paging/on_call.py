"""A whole evening on call, of real programs: the monitor with its probes as a process of its own, Debian's Alertmanager
with the shipped routing, Debian's Prometheus with the shipped rules, and a phone that keeps what it is sent.

Of the shipped routing only the receivers' addresses are other ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.alerts.servers import Sink, alertmanager, free_port, get, prometheus, sink
from tests.monitor.commands import PROJECT, started

SHIPPED = PROJECT / "deploy" / "prometheus"
RUNBOOK = "https://runbook.example/offsetwatch"

CONFIG = """
data = "data"
[cluster]
bootstrap = "{bootstrap}"
[probes.topics]
prefix = "{prefix}"
partitions = 2
replication = 1
min_in_sync = 1
[probes.reader]
group = 1
restless = 0
[probes.transaction]
count = 1
[probes.transform]
count = 0
[probes.registers]
count = 0
[probes.aborts]
count = 0
[probes.unrest]
enabled = false
[alerts]
metrics_port = {port}
quiet = {quiet}
page_url = "http://127.0.0.1:{port}"
runbook_url = "{runbook}"
[alerts.alertmanager]
urls = ["{alertmanager}"]
[alerts.webhook]
urls = ["{phone}/webhook"]
"""


@dataclass
class OnCall:
    """`phone` is posted to: /page and /ticket by Alertmanager, /webhook by the monitor itself."""

    folder: Path
    prefix: str
    monitor: subprocess.Popen[str]
    page: str
    alertmanager: str
    phone: Sink

    def pages(self, path: str = "/page") -> list[tuple[datetime, Any]]:
        """What was posted there of the cluster, each with the time of its arrival. On a machine under load the checks
        may stand still for a while: that is told too, and is another matter."""
        posted = zip(list(self.phone.arrived), list(self.phone.posts), strict=False)
        told = [(at, json.loads(body)) for at, (where, _, body) in posted if where == path]
        return [(at, one) for at, one in told if (one.get("incident") or one["groupLabels"]).get("cluster")]

    def status(self) -> dict[str, Any]:
        """What the monitor's page says, as JSON."""
        told: dict[str, Any] = json.loads(get(f"{self.page}/status") or "{}")
        return told

    def findings(self, anomaly: str) -> list[dict[str, Any]]:
        """The lines of the monitor's log of findings."""
        lines = (self.folder / "out.txt").read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [one for one in told if one["anomaly"] == anomaly]

    def until(self, holds: Callable[[], Any], what: str, within: float = 600.0) -> Any:
        """Wait until it holds; the limit is there only so that a failure ends."""
        limit = time.monotonic() + within
        while not (found := holds()):
            said = (self.folder / "err.txt").read_text()
            assert self.monitor.poll() is None, f"the monitor ended with {self.monitor.returncode}: {said}"
            assert time.monotonic() < limit, f"within {within:g} s there was no {what}: {said}"
            time.sleep(0.05)
        return found

    def healthy(self) -> bool:
        """Is everything checked, every partition, and nothing open?"""
        told = self.status()
        return bool(told.get("partitions")) and told["state"] == "ok" and told["not_ready"] is None


def prefix_of(folder: Path) -> str:
    """How the names of a test's probe topics begin."""
    return f"on-call-{folder.name}"[:80]


class Seen:
    """When Alertmanager first had each alert, by its name: its API is asked ten times a second."""

    def __init__(self, alertmanager: str) -> None:
        self._url = f"{alertmanager}/api/v2/alerts"
        self.first: dict[str, datetime] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for alert in json.loads(get(self._url) or "[]"):
                self.first.setdefault(alert["labels"]["alertname"], datetime.now(UTC))

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def on_call(
    folder: Path, bootstrap: str, *, quiet: float = 900.0, hasty: bool = False, **changed: str
) -> Iterator[OnCall]:
    """Everything at work, on this cluster in topics of its own. `hasty`: Alertmanager waits a second and not longer
    before it tells of a new group: what would be over by then pages, too. `changed`: the monitor's environment."""
    prefix, port = prefix_of(folder), free_port()
    with sink() as phone:
        routes = (SHIPPED / "alertmanager.yml").read_text()
        assert "http://127.0.0.1:9099" in routes
        routes = routes.replace("http://127.0.0.1:9099", phone.url)
        if hasty:
            waits = [line for line in routes.splitlines() if "group_wait:" in line]
            assert waits
            for line in waits:
                routes = routes.replace(line, f"{line.partition('group_wait')[0]}group_wait: 1s")
        with (
            alertmanager(folder / "alertmanager", routes) as told,
            prometheus(folder / "prometheus", f"127.0.0.1:{port}", SHIPPED / "rules.yml", told),
        ):
            written = CONFIG.format(
                bootstrap=bootstrap,
                prefix=prefix,
                port=port,
                quiet=quiet,
                runbook=RUNBOOK,
                alertmanager=told,
                phone=phone.url,
            )
            (folder / "offsetwatch.toml").write_text(written)
            child = started("monitor", "--probes", cwd=folder, **changed)
            made = OnCall(folder, prefix, child, f"http://127.0.0.1:{port}", told, phone)
            try:
                yield made
                os.killpg(child.pid, signal.SIGTERM)
                assert child.wait(300) == 0, (folder / "err.txt").read_text()
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
