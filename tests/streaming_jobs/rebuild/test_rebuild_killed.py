"""A rebuild killed with SIGKILL at several moments goes on: no finding is lost, none is written twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming_jobs.config import JobConfig
from streaming_jobs.history.handover import Workspace, handover
from streaming_jobs.tables.delta_tables import read_table, version_of
from tests.known import a_folder
from tests.streaming_jobs.conftest import CHECKOUT
from tests.streaming_jobs.probe_log import commit
from tests.streaming_jobs.rebuild.rebuild_victim import config as victim_config
from tests.streaming_jobs.rebuild.test_rebuild import eventful, run, shown, undisturbed, violations
from tests.streaming_jobs.test_job import written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def _kill_when(config: JobConfig, ready: Callable[[], bool]) -> bool:
    """Run a rebuild and kill it in the moment that `ready`; False where it ended before."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.streaming_jobs.rebuild.rebuild_victim", str(config.root)],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
    )
    deadline = time.monotonic() + 240
    try:
        while not ready():
            if child.poll() is not None:
                assert child.returncode == 0
                return False
            assert time.monotonic() < deadline, "the moment never came"
            time.sleep(0.0005)
        return True
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.mark.evening
def test_killed_at_any_moment_a_rebuild_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    config = victim_config(tmp_path / "data")
    parts = eventful(12)
    for part in parts[:3]:
        commit(config.history_path, part)
    run(spark, config)
    for part in parts[3:11]:  # news for the rebuild
        commit(config.history_path, part)
    DeltaTable(str(config.history_path)).optimize.compact()
    shutil.rmtree(a_folder(config.checkpoint_path))
    space = Workspace(config.checkpoint_path)
    before = version_of(config.tables_path, "findings")

    def state_after(pieces: int) -> Callable[[], bool]:
        return lambda: space.progress().done >= pieces

    # Planned, and nothing of it done.
    assert _kill_when(config, lambda: space.plan() is not None)
    plan = space.plan()
    assert plan is not None and len(plan.pieces) >= 10
    # Findings are in the table, the state is not saved.
    assert _kill_when(config, lambda: version_of(config.tables_path, "findings") > before)
    assert _kill_when(config, state_after(3))
    assert _kill_when(config, state_after(8))
    # The state is complete; then the new checkpoint is being put into its place.
    _kill_when(config, space.complete)
    _kill_when(config, lambda: handover(config.checkpoint_path) is not None)
    assert space.plan() in (plan, None)

    commit(config.history_path, parts[11])
    run(spark, config)
    handed = handover(config.checkpoint_path)
    assert handed is not None and handed.plan.id == plan.id  # it went on; it did not begin anew
    whole = undisturbed(spark, config, parts)
    assert violations(config) == violations(whole)
    assert len(set(violations(config))) == len(violations(config))
    assert len(set(written(config))) == len(written(config))
    assert shown(config) == shown(whole)
    assert (
        read_table(config.tables_path, "partition_state")["polled"].to_pylist()
        == read_table(whole.tables_path, "partition_state")["polled"].to_pylist()
    )
