"""A rebuild of the newest days alone: it ends in time, finds what these can prove, and invents nothing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.slices import Slice
from streaming_jobs.config import JobConfig
from streaming_jobs.history.handover import handover
from streaming_jobs.history.replay import Replay
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.schemas import SPECS
from tests.streaming_jobs.probe_log import commit
from tests.streaming_jobs.rebuild.test_rebuild import eventful

DAY = 86_400.0


@pytest.fixture
def parts() -> list[list[Slice]]:
    """A history that begins some minutes before a midnight, and goes on long after it."""
    return eventful(40, day=DAY - 200.0)


def rebuilt(
    config: JobConfig, judged: datetime | None = None, **more: Any
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What a rebuild with other settings finds, by id, and what it says: beside tables that tell only up to which time
    the log had been judged."""
    said: list[str] = []
    name = f"{judged} {more}"
    own = config.model_copy(update={"root": config.root / name, "history": config.history_path, **more})
    if judged is not None:
        schema = SPECS["partition_state"].schema
        told = {"cluster": "c", "topic_id": "another", "topic": "another", "partition": 0, "now": judged}
        row = dict.fromkeys(schema.names) | told | {"slices_behind": 0, "batch": 0}
        write_deltalake(own.tables_path / "partition_state", pa.Table.from_pylist([row], schema=schema))
    Rebuild(own, say=said.append).run("it is tried")
    assert handover(own.checkpoint_path) is not None
    rows = read_table(own.tables_path, "findings").to_pylist()
    return {r["id"]: r for r in rows if CATALOGUE[r["anomaly"]].kind == "violation"}, said


@pytest.mark.long
def test_what_is_older_and_was_judged_is_not_read(tmp_path: Path, parts: list[list[Slice]]) -> None:
    config = JobConfig(root=tmp_path)
    for part in parts:
        commit(config.history_path, part)
    now = datetime.now(UTC) + timedelta(hours=1)
    whole, said = rebuilt(config, now, rebuild_days=1)
    assert not [line for line in said if "is not judged again" in line]
    newest, said = rebuilt(config, now, rebuild_days=0)
    midnight = parts[0][0].completed + timedelta(seconds=200)
    assert [line for line in said if "is not judged again" in line] == [
        "the first rows of 1 partitions are older than job.rebuild_days, or have been aged out: state begins with "
        f"{midnight.date()}, and what was sent before that is not judged again"
    ]
    assert newest.keys() < whole.keys(), "nothing is invented"
    sure = {i for i, one in whole.items() if one["at"] > midnight + timedelta(seconds=660)}
    assert sure and sure <= newest.keys(), "what happened well after that is found"
    for never in (None, now - timedelta(days=1)):  # nobody has judged what was written since
        assert rebuilt(config, never, rebuild_days=0)[0].keys() == whole.keys()


def test_which_days_are_read(tmp_path: Path, parts: list[list[Slice]]) -> None:
    """Also where a host was a week ahead for a moment, and has logged something."""
    config = JobConfig(root=tmp_path)
    for part in parts[:4]:
        commit(config.history_path, part)
    ahead = parts[4][0]
    ahead.invoked, ahead.completed = (at + timedelta(days=7) for at in (ahead.invoked, ahead.completed))
    commit(config.history_path, [ahead])
    today, to_come = parts[3][0].completed.date(), ahead.completed.date()
    replay, written = Replay(config.history_path), datetime.now(UTC)
    days, long_judged = replay.days(), written + timedelta(hours=1)
    assert len(days) == len({row.completed.date() for part in parts[:4] for row in part}) + 1

    def read(today: date, judged: datetime | None) -> list[str]:
        return replay.newest_days(1, today, judged).days()

    assert read(today, long_judged) == days
    assert read(to_come, long_judged) == read(to_come + timedelta(days=9), long_judged) == days[-1:]
    assert read(to_come, None) == days, "nothing was judged"
    assert read(to_come, written + timedelta(minutes=1)) == days, "some of that may not have been"
    assert read(to_come, written + timedelta(minutes=3)) == days[-1:]
