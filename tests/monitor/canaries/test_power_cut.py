"""The power of a host fails: its file system loses what had not been written, as ext4 does, half a minute of it. After
that everything begins again by itself, and nothing that the probe log had is lost."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from deploy.local_kafka import LocalKafka
from rules.vocabulary.catalogue import CATALOGUE
from tests.monitor.commands import COMMAND, environment
from tests.monitor.disks import Disk
from tests.monitor.hosts import FEW, Host, until
from tests.probes.log.lives import check_slices

pytestmark = [pytest.mark.evening, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1200)]

WRITTEN = 45
"""Appends before that: more than a kernel leaves unwritten."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.unmount()


BOOT_ID = "/proc/sys/kernel/random/boot_id"
IN_A_BOOT = ["unshare", "-m", "sh", "-c", f'mount --bind "$0" {BOOT_ID} && exec "$@"']


@contextmanager
def at_work(host: Host) -> Iterator[None]:
    """The monitor and its probes, in another boot each time."""
    boot = host.folder / f"boot-{uuid.uuid4()}"
    boot.write_text(f"{uuid.uuid4()}\n")
    with (host.folder / "out.txt").open("w") as out, (host.folder / "err.txt").open("w") as err:
        host.child = subprocess.Popen(
            [*IN_A_BOOT, str(boot), *COMMAND, "monitor", "--probes"],
            cwd=host.folder,
            env=environment(host.given),
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
    try:
        yield
    finally:
        assert host.child is not None
        for one in _all_of(host):
            one.kill()
        host.child.wait()


def _all_of(host: Host) -> list[psutil.Process]:
    assert host.child is not None
    try:
        parent = psutil.Process(host.child.pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def test_after_a_power_cut_all_goes_on_by_itself(disk: Disk, tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=1) as kafka:
        given = FEW | {
            "OFFSETWATCH_DATA": str(disk.at / "data"),
            "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
            "OFFSETWATCH_PROBES__RUN": "power",
            "OFFSETWATCH_PROBES__TOPICS__PREFIX": f"cut-{tmp_path.name}"[:60],
        }
        host = Host(tmp_path / "host", given)
        log = host.data / "tables" / "history" / "_delta_log"
        with at_work(host):
            until(lambda: log.is_dir() and len(list(log.glob("*.json"))) > WRITTEN and host.table("readers"), [host])
            host.send_twice(3)
            until(lambda: len(host.duplicates()) == 3, [host])
            time.sleep(3)
            host.send_twice(3)
            time.sleep(1.5)
            before = {(row["process"], row["op"]) for row in host.table("history")}
            disk.cut_the_power()
        disk.begin_again()
        empty = [file for file in (host.data / "tables").rglob("*") if file.is_file() and not file.stat().st_size]
        assert empty, "nothing was lost, and nothing is tried"
        under_way = max(log.glob("*.json"))  # it is made again: its plan is there, and its rows are in the journals
        assert {file for file in empty if file.is_relative_to(log.parent)} <= {under_way}
        with at_work(host):
            until(lambda: len(host.duplicates()) == 6, [host])
            until(lambda: len(list(log.glob("*.json"))) > 3 * WRITTEN, [host])
            host.stop()
        rows = host.table("history")
        check_slices(rows)
        assert before <= {(row["process"], row["op"]) for row in rows}
        violations = [row["anomaly"] for row in host.table("findings") if CATALOGUE[row["anomaly"]].kind == "violation"]
        assert violations == ["duplicate"] * 6
