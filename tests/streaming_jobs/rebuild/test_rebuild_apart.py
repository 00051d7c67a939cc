"""State that is rebuilt from a log of hosts whose clocks are minutes apart: nothing that one did is overlooked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import orjson
import pytest

from monitor.history_files import probe_log
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros
from streaming_jobs.config import JobConfig
from streaming_jobs.history.handover import Workspace
from streaming_jobs.history.replay import Replay
from streaming_jobs.rebuild import rebuild
from streaming_jobs.rebuild.rebuild import Rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.verdicts.sink import Sink
from tests.known import a_folder
from tests.rules.conditions import test_carried_over as waiting
from tests.rules.settling.test_held import LOST, W, history
from tests.streaming_jobs.probe_log import commit

SUBJECT = [str(W), str(LOST)]


def rebuilt(config: JobConfig) -> list[list[str]]:
    Rebuild(config).run("its checkpoint is gone", rows=100)
    rows = read_table(config.tables_path, "findings").to_pylist()
    told = [orjson.loads(row["evidence"]) for row in rows if row["anomaly"] == "lost-write"]
    return [[str(one["writer"]), str(one["seq"])] for one in told]


def checked(config: JobConfig) -> list[list[str]]:
    found = probe_log.judge(a_folder(config.history_path), Objectives(), cycles=False).findings
    return [[str(part) for part in one.subject] for one in found if one.anomaly == "lost-write"]


@pytest.mark.parametrize("judged", [rebuilt, checked])
@pytest.mark.parametrize("polled", [True, False], ids=["innocent", "guilty"])
def test_what_a_host_did_whose_clock_is_minutes_ahead(
    judged: Callable[[JobConfig], list[list[str]]], polled: bool, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Replay.pieces
    monkeypatch.setattr(Replay, "pieces", lambda self, rows=0: pieces(self, 100))
    commit(config.history_path, history(90.0, polled=polled).rows)
    assert judged(config) == ([] if polled else [SUBJECT])


def test_where_log_time_is_not_held_back_it_is_overlooked(config: JobConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "HELD", 0)
    commit(config.history_path, history(90.0, polled=True).rows)
    assert rebuilt(config) == [SUBJECT]


def test_what_is_settled_in_the_end_is_what_the_stream_goes_on_with(config: JobConfig) -> None:
    commit(config.history_path, history(90.0, polled=False).rows)
    rebuilt(config)
    (state,) = read_table(config.tables_path, "partition_state").to_pylist()
    newest = max(row.completed for row in history(90.0, polled=False).rows if row.f == "mark")
    assert state["now"] == newest, "and not a quarter of an hour before"
    assert Workspace(config.checkpoint_path, config.rebuild_folder).plan() is None, "it is over"


@pytest.mark.parametrize("anomaly", ["cluster-unreachable", "evidence-late"])
def test_what_many_partitions_saw_ends_where_the_rebuilt_state_does_not_know_it(
    anomaly: str, config: JobConfig
) -> None:
    """The cluster answered again while no monitor was there."""
    commit(config.history_path, history(0.0, polled=True).rows)
    long_ago = micros(datetime(2024, 1, 1, tzinfo=UTC))
    open_then = Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="",
        topic="",
        partition=-1,
        subject=(),
        event="opened",
        message="m",
        at=long_ago,
        decidable=long_ago,
    )
    Sink(config.tables_path, "earlier").report([open_then])
    assert current_findings(config.tables_path)["state"].to_pylist() == ["open"]
    Rebuild(config).run("its state is another version's")
    told = next(row for row in current_findings(config.tables_path).to_pylist() if row["id"] == open_then.id)
    assert told["state"] == "closed"
    assert told["message"] == f"{anomaly} no longer held when the state was rebuilt"


def again(config: JobConfig, rows: Sequence[Slice]) -> dict[str, str]:
    """These come, and the state is rebuilt: what is open then, and what is over."""
    commit(config.history_path, rows)
    if (checkpoint := a_folder(config.checkpoint_path)).exists():
        shutil.rmtree(checkpoint)
    Rebuild(config).run("its checkpoint is gone")
    now = current_findings(config.tables_path).to_pylist()
    return {row["anomaly"]: row["state"] for row in now if row["anomaly"] in waiting.NAMES}


def test_what_cannot_be_judged_yet_is_not_over(config: JobConfig) -> None:
    """It was told before a reader was heard of whose log is not here; then the state is rebuilt."""
    h = waiting.history(polled_at=waiting.BEGINS + 5, by="s")
    rows, late = waiting.parted(h)
    before = [row for row in rows if row.completed < h.at(waiting.BEGINS)]
    told = {"unseen": "open", "stuck-consumer": "open"}
    assert again(config, before) == told
    assert again(config, [row for row in rows if row not in before]) == told
    assert again(config, late) == {"unseen": "closed", "stuck-consumer": "open"}
