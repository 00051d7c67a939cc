"""A rebuild of the newest days alone: it ends in time, finds what these can prove, and invents nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.slices import Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.history.handover import handover
from streaming_jobs.history.replay import Replay
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from tests.streaming_jobs.probe_log import commit
from tests.streaming_jobs.test_rebuild import eventful

DAY = 86_400.0


@pytest.fixture
def parts() -> list[list[Slice]]:
    """A history that begins some minutes before a midnight, and goes on long after it."""
    return eventful(40, day=DAY - 200.0)


def rebuilt(config: JobConfig, **more: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What a rebuild with other settings finds, by id, in tables of its own, and what it says."""
    said: list[str] = []
    name = "_".join(map(str, more.items())) or "whole"
    own = config.model_copy(update={"root": config.root / name, "history": config.history_path, **more})
    Rebuild(own, say=said.append).run("it is tried")
    assert handover(own.checkpoint_path) is not None
    rows = read_table(own.tables_path, "findings").to_pylist()
    return {r["id"]: r for r in rows if CATALOGUE[r["anomaly"]].kind == "violation"}, said


def test_what_is_older_is_not_read(tmp_path: Path, parts: list[list[Slice]]) -> None:
    config = JobConfig(root=tmp_path)
    for part in parts:
        commit(config.history_path, part)
    whole, said = rebuilt(config)
    assert not [line for line in said if "is not judged again" in line]
    newest, said = rebuilt(config, rebuild_days=0)
    midnight = parts[0][0].completed + timedelta(seconds=200)
    assert [line for line in said if "is not judged again" in line] == [
        "the first rows of 1 partitions are older than job.rebuild_days, or have been aged out: state begins with "
        f"{midnight.date()}, and what was sent before that is not judged again"
    ]
    assert newest.keys() < whole.keys(), "nothing is invented"
    sure = {i for i, one in whole.items() if one["at"] > midnight + timedelta(seconds=660)}
    assert sure and sure <= newest.keys(), "what happened well after that is found"
    assert rebuilt(config, rebuild_days=1)[0].keys() == whole.keys()


def test_a_day_to_come_is_not_the_last_one(tmp_path: Path, parts: list[list[Slice]]) -> None:
    """A host was a week ahead for a moment, and has logged something."""
    config = JobConfig(root=tmp_path)
    for part in parts[:4]:
        commit(config.history_path, part)
    ahead = parts[4][0]
    ahead.invoked, ahead.completed = (at + timedelta(days=7) for at in (ahead.invoked, ahead.completed))
    commit(config.history_path, [ahead])
    today = parts[3][0].completed.date()
    replay = Replay(config.history_path)
    assert len(replay.days()) == len({row.completed.date() for part in parts[:4] for row in part}) + 1
    assert replay.newest_days(1, today).days() == replay.days()
    assert replay.newest_days(1, ahead.completed.date()).days() == replay.days()[-1:]
    assert replay.newest_days(1, ahead.completed.date() + timedelta(days=9)).days() == replay.days()[-1:]
