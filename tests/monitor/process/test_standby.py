"""A monitor that stands by: it waits while another is at work on the same data, and takes over when that has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.config.config import load
from rules.step import step
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice, to_table
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import read_table
from tests.monitor.commands import PROJECT, started
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.waiting import looks

HOLDER = """
import sys, time
from pathlib import Path
from streaming_jobs.checkpoint_claim import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def held(checkpoint: TableLocation) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child
        child.kill()


@contextmanager
def ended(child: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def said(folder: Path) -> list[str]:
    return (folder / "err.txt").read_text().splitlines()


def until(holds: Callable[[], object], folder: Path, seconds: float = 300) -> float:
    """Wait; how long it took."""
    began = time.monotonic()
    for _ in looks(0.05):
        if holds():
            break
        assert time.monotonic() < began + seconds, said(folder)
    return time.monotonic() - began


@pytest.mark.slow
def test_it_waits_for_the_one_at_work_and_then_goes_on(tmp_path: Path) -> None:
    """What comes next is the port of the metrics, which is taken here."""
    checkpoint = load(None, {"OFFSETWATCH_DATA": str(tmp_path / "data")}).job.checkpoint_path
    with socket.socket() as taken, held(checkpoint) as holder:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        asked = {"OFFSETWATCH_DATA": str(tmp_path / "data"), "OFFSETWATCH_ALERTS__METRICS_PORT": port}
        with ended(started("monitor", "--standby", cwd=tmp_path, **asked)) as standby:
            waits = [f"offsetwatch: standing by: another monitor (process {holder.pid}) is at work on {checkpoint}."]
            until(lambda: said(tmp_path), tmp_path)
            time.sleep(2.5)
            assert said(tmp_path) == waits and standby.poll() is None
            holder.kill()
            assert standby.wait(timeout=300) == 2
    _, takes_over, port_taken = said(tmp_path)
    assert takes_over == "offsetwatch: the other monitor has ended: this one takes over"
    assert port_taken.startswith(f"offsetwatch: metrics cannot be served on 127.0.0.1:{port}: ")


@pytest.mark.slow
def test_one_that_stands_by_is_stopped_at_once(tmp_path: Path) -> None:
    checkpoint = load(None, {"OFFSETWATCH_DATA": str(tmp_path / "data")}).job.checkpoint_path
    asked = {"OFFSETWATCH_DATA": str(tmp_path / "data")}
    with held(checkpoint), ended(started("monitor", "--standby", cwd=tmp_path, **asked)) as standby:
        until(lambda: said(tmp_path), tmp_path)
        os.killpg(standby.pid, signal.SIGTERM)
        assert standby.wait(timeout=60) == 0
    assert said(tmp_path)[1:] == ["offsetwatch: stopping (SIGTERM)"]


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1200)
def test_it_takes_over_from_one_that_is_killed_and_tells_each_finding_once(tmp_path: Path) -> None:
    config = load(None, {"OFFSETWATCH_DATA": str(tmp_path / "data")})
    tables, parts = config.job.tables_path, duplicates(6)
    asked = {
        "OFFSETWATCH_DATA": str(tmp_path / "data"),
        "OFFSETWATCH_ALERTS__METRICS": "false",
        "OFFSETWATCH_JOB__SHUFFLE_PARTITIONS": "2",
    }
    first_s, second_s = tmp_path / "first", tmp_path / "second"
    first_s.mkdir()
    second_s.mkdir()

    def found() -> int:
        return len(set(read_table(tables, "findings")["id"].to_pylist()))

    for part in parts[:3]:
        commit(config.job.history_path, part)
    with ended(started("monitor", cwd=first_s, **asked)) as first:
        until(lambda: found() >= 6, first_s)
        with ended(started("monitor", "--standby", cwd=second_s, **asked)) as second:
            until(lambda: said(second_s), second_s)
            known = found()
            for part in parts[3:]:
                commit(config.job.history_path, part)
            first.kill()  # itself alone: its JVM has to notice
            took = until(lambda: found() >= len(expected(parts)), second_s)
            print(f"taken over: {known} findings known, the others {took:.1f} s after the kill")
            os.killpg(second.pid, signal.SIGTERM)
            assert second.wait(timeout=240) == 0
    assert not any("Traceback" in line for line in said(second_s))
    events = read_table(tables, "findings")
    written = list(zip(*(events[name].to_pylist() for name in ("id", "event", "at")), strict=True))
    assert len(set(written)) == len(written)
    assert {id for id, _, _ in written} == expected(parts)
    assert took < 30


def expected(parts: list[list[Slice]]) -> set[str]:
    whole = to_table([row for part in parts for row in part])
    return {f.id for stepped in step({}, whole, Objectives()).values() for f in stepped.findings}
