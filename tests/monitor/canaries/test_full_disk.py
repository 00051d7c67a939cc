"""The disk of a data folder is full: that is said once, nothing that was logged is lost, and all goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from rules.vocabulary.catalogue import CATALOGUE
from tests.monitor.disks import Disk
from tests.monitor.hosts import FEW, Host, until
from tests.probes.log.lives import check_slices

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1200)]

FULL_FOR = 45.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path, 512 << 20)
    yield made
    made.unmount()


def test_a_full_disk_is_said_once_and_all_goes_on_where_there_is_room_again(disk: Disk, tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=1) as kafka:
        given = FEW | {
            "OFFSETWATCH_DATA": str(disk.at / "data"),
            "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
            "OFFSETWATCH_PROBES__RUN": "full",
            "OFFSETWATCH_PROBES__TOPICS__PREFIX": f"full-{tmp_path.name}"[:60],
        }
        host = Host(tmp_path / "host", given)
        host.start("monitor", "--probes")
        try:
            until(lambda: host.table("readers"), [host])
            host.send_twice(3)
            until(lambda: len(host.duplicates()) == 3, [host])
            before, said = {(row["process"], row["op"]) for row in host.table("history")}, len(host.said.splitlines())
            ballast = disk.fill()
            time.sleep(FULL_FOR)
            lines = host.said.splitlines()[said:]
            assert any("No space left" in line for line in lines) and len(lines) <= 8, "\n".join(lines)
            ballast.unlink()
            until(lambda: host.table("history")[-1:] and len(host.table("history")) > len(before) + 200, [host])
            host.send_twice(3)
            until(lambda: len(host.duplicates()) == 6, [host])
            host.stop()
        finally:
            host.kill()
        rows = host.table("history")
        check_slices(rows)
        assert before <= {(row["process"], row["op"]) for row in rows}
        told = [row["anomaly"] for row in host.table("findings") if CATALOGUE[row["anomaly"]].kind == "violation"]
        assert told == ["duplicate"] * 6
        disk.fill()
        begun = host.asked("monitor")
        assert begun.returncode == 2 and "Traceback" not in begun.stderr, begun.stderr
        last = begun.stderr.splitlines()[-1]
        assert last.startswith("offsetwatch: THE DISK IS FULL: "), begun.stderr
