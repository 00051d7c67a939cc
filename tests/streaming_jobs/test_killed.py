"""The job killed with SIGKILL at several moments: no finding is lost, and none is written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rules.step import step
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import to_table
from streaming_jobs.config import JobConfig
from streaming_jobs.tables.delta_tables import read_table
from tests.known import a_folder
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import commit, duplicates
from tests.streaming_jobs.victim import config as victim_config

COMMITS = 12
DEADLINE = 800.0


def _start(root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.streaming_jobs.victim", str(root)],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole session at once: the process, its JVM and the Python workers, as a host's end would."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stderr:
        child.stderr.close()


def _kill_when(config: JobConfig, ready: Callable[[], bool]) -> None:
    child = _start(config.root)
    deadline = time.monotonic() + DEADLINE
    try:
        while not ready():
            if child.poll() is not None:
                why = child.stderr.read().decode() if child.stderr else ""
                assert "WorkerLate" in why, why
                _kill(child)
                child = _start(config.root)  # a machine that busy ends it before it is killed
            assert time.monotonic() < deadline, "the moment never came"
            time.sleep(0.002)
    finally:
        _kill(child)


def _versions(config: JobConfig, table: str) -> int:
    """Of a young table: -1 where there is none. Read from the folder, since to open the table hundreds of times a
    second takes a core from who is to be killed."""
    log = a_folder(config.tables_path) / table / "_delta_log"
    return max((int(commit.stem) for commit in log.glob("*.json")), default=-1)


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_killed_at_any_moment_it_loses_no_finding_and_writes_none_twice(tmp_path: Path) -> None:
    config = victim_config(tmp_path / "data")
    parts = duplicates(COMMITS)
    for part in parts:
        commit(config.history_path, part)
    checkpoint = a_folder(config.checkpoint_path)
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"

    # Planned, and nothing of it done.
    _kill_when(config, (offsets / "0").exists)
    # Findings are in the table, and Spark has not committed the batch.
    _kill_when(config, lambda: _versions(config, "findings") >= 1)
    # Everything written, in the moment that Spark commits.
    _kill_when(config, lambda: len(list(commits.glob("[0-9]*"))) >= 2)

    last = _start(config.root)
    try:
        _, said = last.communicate(timeout=DEADLINE)
    finally:
        _kill(last)
    assert last.returncode == 0, said.decode()
    assert said == b""  # and nothing on the terminal

    whole = to_table([row for part in parts for row in part])
    expected = {f.id for stepped in step({}, whole, Objectives()).values() for f in stepped.findings}
    assert len(expected) >= 2 * COMMITS
    events = read_table(config.tables_path, "findings")
    written = list(zip(*(events[name].to_pylist() for name in ("id", "event", "at")), strict=True))
    assert len(set(written)) == len(written)
    assert {id for id, _, _ in written} == expected
    states = read_table(config.tables_path, "partition_state").to_pylist()
    assert {s["partition"]: s["polled"] for s in states} == {0: 6 * COMMITS, 1: 6 * COMMITS}
