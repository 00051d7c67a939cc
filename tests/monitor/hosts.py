"""A small fleet on hosts of their own: each with its folder, and the command that runs there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from monitor.config.config import from_environment
from monitor.demo.provocation import SentTwice, send_twice
from monitor.process.reach import connection
from probes.kafka.client import admin_settings, open_admin
from probes.topics.probe_topics import ProbeTopics, layout_of
from tests.monitor.commands import COMMAND, offsetwatch, started
from tests.waiting import looks

FEW = {
    "OFFSETWATCH_PROBES__TOPICS__PARTITIONS": "2",
    "OFFSETWATCH_PROBES__TOPICS__REPLICATION": "1",
    "OFFSETWATCH_PROBES__TOPICS__MIN_IN_SYNC": "1",
    "OFFSETWATCH_PROBES__WRITER__RATE": "10",
    "OFFSETWATCH_PROBES__WRITER__WITH_FIVE_IN_FLIGHT": "0",
    "OFFSETWATCH_PROBES__READER__GROUP": "1",
    "OFFSETWATCH_PROBES__READER__RESTLESS": "0",
    "OFFSETWATCH_PROBES__TRANSACTION__COUNT": "1",
    "OFFSETWATCH_PROBES__TRANSFORM__COUNT": "1",
    "OFFSETWATCH_PROBES__TRANSFORM__INPUT_RATE": "5",
    "OFFSETWATCH_PROBES__ABORTS__COUNT": "1",
    "OFFSETWATCH_PROBES__REGISTERS__COUNT": "1",
    "OFFSETWATCH_PROBES__REGISTERS__RATE": "1",
    "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
    "OFFSETWATCH_ALERTS__PROBES_PORT": "0",
    "OFFSETWATCH_JOB__SHUFFLE_PARTITIONS": "2",
}
"""Probes of each kind, for hosts meet in some of them only (each has a transform of the same input), and as few of each
as do."""


class Host:
    """A machine of its own: its folder, made anew, the settings there, and the command that was started last. `ahead`:
    by how many seconds its wall clock is; this machine's clocks where nothing is said."""

    def __init__(self, folder: Path, given: Mapping[str, str], ahead: float | None = None) -> None:
        folder.mkdir()
        self.folder = folder
        self.command = COMMAND
        if ahead is not None:
            self.set_clock(ahead)
            clocks = [str(self._ahead), f"boot of {folder.name}"]
            self.command = [sys.executable, "-m", "tests.monitor.other_clock", *clocks]
        self.given = {"OFFSETWATCH_DATA": str(folder / "data"), **given}
        self.child: subprocess.Popen[str] | None = None

    @property
    def data(self) -> Path:
        return Path(self.given["OFFSETWATCH_DATA"])

    def start(self, *arguments: str) -> None:
        self.child = started(*arguments, cwd=self.folder, command=self.command, **self.given)

    def set_clock(self, ahead: float) -> None:
        """Its wall clock is set: so many seconds ahead of this machine's."""
        self._ahead.write_text(str(ahead))

    @property
    def _ahead(self) -> Path:
        return self.folder / "ahead"

    @property
    def said(self) -> str:
        return (self.folder / "err.txt").read_text()

    def stop(self) -> None:
        assert self.child is not None
        os.killpg(self.child.pid, signal.SIGTERM)
        assert self.child.wait(timeout=300) == 0, self.said
        assert "Traceback" not in self.said

    def kill(self) -> None:
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def asked(self, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        return offsetwatch(*arguments, cwd=self.folder, **(self.given | changed))

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table, none where it is not there yet."""
        try:
            return list(DeltaTable(str(self.data / "tables" / name)).to_pyarrow_table().to_pylist())
        except TableNotFoundError:
            return []

    def duplicates(self) -> list[dict[str, Any]]:
        return [row for row in self.table("findings") if row["anomaly"] == "duplicate"]

    def send_twice(self, records: int) -> SentTwice:
        """A producer without idempotence on this host sends records, and the same again."""
        config = from_environment({k: v for k, v in self.given.items() if k.startswith("OFFSETWATCH_")})
        assert config.probes.run is not None
        to = connection(config)
        admin = open_admin(admin_settings(to, client="plant"))
        topics = ProbeTopics(admin, config.probes.topics, lambda line: None, config.probes.topic_names)
        layout = layout_of(topics.view(), topics.names)
        where = max(layout.partitions(config.probes.topics.records))
        return send_twice(
            to,
            config.journals,
            run=config.probes.run,
            layout=layout,
            where=where,
            records=records,
        )


def until(holds: Callable[[], object], hosts: Sequence[Host], seconds: float = 300.0) -> None:
    """Wait until it holds, while these hosts' commands run."""
    limit = time.monotonic() + seconds
    for _ in looks(0.5):
        if holds():
            return
        for host in hosts:
            assert host.child is None or host.child.poll() is None, host.said
        assert time.monotonic() < limit, "\n".join(host.said for host in hosts)
