"""The commits of the probe log are there for as long as a rebuild takes, and no longer."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from probes.log.commits.history import History, TableProperties
from rules.vocabulary.slices import to_table
from streaming_jobs.config import JobConfig
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables import log_kept
from streaming_jobs.tables.delta_tables import open_table
from streaming_jobs.tables.upkeep import Upkeep
from tests.streaming_jobs.probe_log import duplicates

EVERY = 4
"""Appends between two clean-ups of the log."""


@pytest.fixture
def log(tmp_path: Path) -> History:
    made = History(str(tmp_path / "tables" / "history"), TableProperties(checkpoint_interval=EVERY))
    append(made, 6)
    return made


def append(log: History, times: int) -> None:
    """Appends as a committer makes them; all of the log is three hours old then."""
    begun = log.last_version("host") or 0
    for version in range(begun + 1, begun + times + 1):
        log.last_version("host")
        log.append(to_table(duplicates(1)[0]), "host", version)
        if log._checkpoints is not None:
            log._checkpoints.close()  # appends are a second apart: one is made by the next
        for one in Path(log.uri, "_delta_log").iterdir():
            os.utime(one, (time.time() - 3 * 3600,) * 2)


def commits(log: History) -> list[Path]:
    return sorted(Path(log.uri, "_delta_log").glob("*.json"))


def test_commits_are_deleted_when_they_are_old_unless_a_rebuild_needs_them(log: History) -> None:
    first = commits(log)[-1]
    append(log, 2 * EVERY)
    assert not first.exists(), "as ever"
    first = commits(log)[-1]
    log_kept.keep(Path(log.uri))
    log_kept.keep(Path(log.uri))  # another rebuild, where the first was not finished
    append(log, 3 * EVERY)
    assert first.exists()
    assert log_kept.is_kept(DeltaTable(log.uri))
    assert log_kept.let_go(DeltaTable(log.uri)) == "interval 2 hours"
    assert not log_kept.is_kept(DeltaTable(log.uri))
    append(log, 2 * EVERY)
    assert not first.exists()


def test_a_log_that_is_kept_for_longer_is_left_as_it_is(tmp_path: Path) -> None:
    log = History(str(tmp_path / "history"), TableProperties(log_retention=log_kept.WEEK))
    append(log, 1)
    version = DeltaTable(log.uri).version()
    log_kept.keep(Path(log.uri))
    assert DeltaTable(log.uri).version() == version and not log_kept.is_kept(DeltaTable(log.uri))


@pytest.mark.parametrize("many", [0, 10**9])
def test_a_rebuild_of_many_rows_keeps_the_log_and_upkeep_lets_go(
    log: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(log_kept, "MANY", many)
    config = JobConfig(root=tmp_path)
    assert config.history_path == Path(log.uri)
    Rebuild(config).run("it is tried")
    assert log_kept.is_kept(DeltaTable(log.uri)) == (many == 0)
    through = max(open_table(config.tables_path, "partition_state").read()["now"].to_pylist())
    now = datetime.now(UTC)
    for at, done in ((through + timedelta(hours=1), False), (through + timedelta(minutes=1), many == 0), (now, False)):
        told = [line for line in Upkeep(config).run(at) if "commits are kept" in line]
        assert told == ["history: commits are kept for 2 hours again, after a rebuild"] * done
    assert not log_kept.is_kept(DeltaTable(log.uri))
