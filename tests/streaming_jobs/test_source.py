"""How far the stream is behind, where it begins, and what its failures are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_jobs.errors import EvidenceGap, JobError, JobFailed, StateFormat, TableError, translated
from streaming_jobs.history.source import first_version, versions_behind
from tests.streaming_jobs.probe_log import commit, duplicates


@pytest.mark.parametrize(
    ("latest", "offset", "behind"),
    [
        (9, None, 10),
        (9, {"reservoirVersion": 10, "index": -1}, 0),
        (9, {"reservoirVersion": 9, "index": -1}, 1),
        (9, '{"reservoirVersion": 7, "index": 3}', 3),
        (9, {"reservoirVersion": 12, "index": -1}, 0),
    ],
)
def test_the_lag_counts_commits_that_are_not_read_to_their_end(latest: int, offset: object, behind: int) -> None:
    assert versions_behind(latest, offset) == behind  # type: ignore[arg-type]


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
