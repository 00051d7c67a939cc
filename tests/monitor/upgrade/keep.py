"""`python -m tests.monitor.upgrade.keep FILE` leaves a data folder, as this version's probes and monitor leave one, as
an archive: done once with each release (`tests/monitor/upgrade/kept/VERSION.tar.xz`), and never again.

It holds what an upgrade meets: findings that a monitor has told, rows that no monitor has checked yet, with a violation
among them, and the journals of probes that were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from deploy.local_kafka import LocalKafka
from monitor.config.config import from_environment
from monitor.demo.provocation import send_twice
from monitor.process.reach import connection
from probes.clock import SystemClock
from probes.kafka.client import admin_settings, open_admin
from probes.topics.probe_topics import ProbeTopics, layout_of
from tests.monitor.commands import started

RUN = "kept"
TOLD, UNTOLD = 3, 2
"""Records sent twice while the monitor was at work, and when it was not."""
SETTINGS = {
    "OFFSETWATCH_PROBES__RUN": RUN,
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
_LOGS = {"logs", "spark"}
"""What no other version reads."""


class Kept:
    """A data folder in the making."""

    def __init__(self, folder: Path, kafka: LocalKafka) -> None:
        self.folder = folder
        self.given = SETTINGS | {
            "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
            "OFFSETWATCH_DATA": str(folder / "data"),
        }
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        child = started(*arguments, cwd=self.folder, **self.given)
        self.children.append(child)
        return child

    def rows(self, table: str) -> list[dict[str, Any]]:
        try:
            return list(DeltaTable(str(self.folder / "data" / "tables" / table)).to_pyarrow_table().to_pylist())
        except TableNotFoundError:
            return []

    def told(self) -> int:
        return sum(row["anomaly"] == "duplicate" for row in self.rows("findings"))

    def send_twice(self, records: int) -> int:
        """Returns who sent them."""
        config = from_environment(self.given)
        to = connection(config)
        admin = open_admin(admin_settings(to, client="keep"))
        topics = ProbeTopics(admin, config.probes.topics, lambda line: None, config.probes.topic_names)
        layout = layout_of(topics.view(), topics.names)
        where = max(layout.partitions(config.probes.topics.records))
        sent = send_twice(
            to, config.journals, run=RUN, layout=layout, where=where, records=records, clock=SystemClock()
        )
        return sent.process

    def is_logged(self, process: int) -> bool:
        log = DeltaTable(str(self.folder / "data" / "tables" / "history")).to_pyarrow_table(columns=["process", "f"])
        return bool(pc.sum(pc.and_(pc.equal(log["process"], process), pc.equal(log["f"], "close"))).as_py())


def until(holds: Callable[[], object], seconds: float = 180.0) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > limit:
            raise SystemExit("it does not come: see err.txt")
        time.sleep(0.5)


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="kept-") as made, LocalKafka(Path(made) / "kafka", brokers=1) as kafka:
        kept = Kept(Path(made), kafka)
        try:
            probes, monitor = kept.start("probe", "run"), kept.start("monitor")
            until(lambda: any(row["topic"].endswith("records") for row in kept.rows("partition_state")))
            kept.send_twice(TOLD)
            until(lambda: kept.told() == TOLD)
            os.killpg(monitor.pid, signal.SIGTERM)
            if monitor.wait(timeout=60) or kept.told() != TOLD:
                raise SystemExit("the monitor did not end as it should")
            last = kept.send_twice(UNTOLD)
            until(lambda: kept.is_logged(last))
            os.killpg(probes.pid, signal.SIGKILL)
            probes.wait()
        finally:
            for child in kept.children:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as archive:
            for one in sorted((Path(made) / "data").iterdir()):
                if one.name not in _LOGS:
                    archive.add(one, one.name)
        print(json.dumps({"archive": target.stat().st_size, "findings": len(kept.rows("findings"))}))


if __name__ == "__main__":
    main()
