"""How far the stream is behind, where it begins, and what its failures are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from streaming_jobs.errors import EvidenceGap, JobError, JobFailed, StateFormat, TableError, translated
from streaming_jobs.history.replay import Replay
from streaming_jobs.history.source import await_history, first_version, versions_behind
from tests.streaming_jobs.probe_log import commit, duplicates


@pytest.mark.parametrize(
    ("latest", "offset", "behind"),
    [
        (9, None, 10),
        (9, {"reservoirVersion": 10, "index": -1}, 0),
        (9, {"reservoirVersion": 9, "index": -1}, 1),
        (9, '{"reservoirVersion": 7, "index": 3}', 3),
        (9, {"reservoirVersion": 12, "index": -1}, 0),
        (9, {"version": 10, "file": 0}, 0),
        (9, '{"version": 9, "file": 2}', 1),
    ],
)
def test_the_lag_counts_commits_that_are_not_read_to_their_end(latest: int, offset: object, behind: int) -> None:
    assert versions_behind(latest, offset) == behind  # type: ignore[arg-type]


def test_a_log_of_another_format_is_not_read(tmp_path: Path) -> None:
    commit(tmp_path, duplicates(1)[0])
    assert await_history(tmp_path, 0), "a log that does not tell its format has the first"
    DeltaTable(str(tmp_path)).alter.set_table_properties({"offsetwatch.format": "2"}, raise_if_not_exists=False)
    for opened in (lambda: await_history(tmp_path, 0), lambda: Replay(tmp_path)):
        with pytest.raises(TableError, match="has format 2, and this version of Offsetwatch reads format 1"):
            opened()


def test_a_fresh_stream_begins_at_the_first_commit_while_that_is_there(tmp_path: Path) -> None:
    commit(tmp_path / "history", duplicates(1)[0])
    assert first_version(tmp_path / "history") == 0
    (tmp_path / "history" / "_delta_log" / f"{0:020d}.json").unlink()
    assert first_version(tmp_path / "history") is None


@pytest.mark.parametrize(
    ("error", "becomes", "text"),
    [
        (RuntimeError("Traceback\n  File x\nrules.state.UnknownFormat: version 9\n"), StateFormat, "version 9"),
        (RuntimeError("[DELTA_VERSION_NOT_CONTINUOUS] x"), EvidenceGap, "fallen behind"),
        (RuntimeError("Traceback\n  File x\nValueError: odd\nat java"), JobFailed, "ValueError: odd"),
        (TableError("The table findings is full."), TableError, "The table findings is full."),
    ],
)
def test_failures_have_few_names_and_a_sentence_each(error: Exception, becomes: type[JobError], text: str) -> None:
    made = translated(error, checkpoint="/checkpoint")
    assert type(made) is becomes
    assert text in str(made)
    assert "\n" not in str(made)
