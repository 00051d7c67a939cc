"""The probe log read again: in the order of its times, each row once, neither too many rows nor too long at once."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rules.vocabulary.slices import Place
from streaming_jobs.history.replay import SPAN, Replay
from tests.rules.histories import History
from tests.streaming_jobs.probe_log import commit


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Rows of five hours in bursts, over a midnight, the newest commit first."""
    h = History()
    h.row("w", "start")
    for burst in range(20):
        for _ in range(30):
            h.send("w", len(h.rows), at=len(h.rows))
            h.time += 1
        h.time += 900 if burst % 5 else 2_000
    shift = timedelta(hours=20)
    for row in h.rows:
        row.invoked, row.completed = row.invoked + shift, row.completed + shift
    path = tmp_path / "history"
    commit(path, h.rows[300:])
    commit(path, h.rows[:300])
    return path


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 7, 40, 10_000])
def test_each_row_is_in_one_piece_and_pieces_follow_each_other(log: Path, rows: int) -> None:
    replay = Replay(log)
    pieces = replay.pieces(rows)
    read = [replay.read(piece) for piece in pieces]
    assert [piece.rows for piece in pieces] == [part.num_rows for part in read]
    assert min(piece.rows for piece in pieces) > 0
    slices = [number for part in read for number in part["slice"].to_pylist()]
    assert len(slices) == len(set(slices)) == 601
    times = [part["completed"].to_pylist() for part in read]
    assert all(max(one) < min(other) for one, other in pairwise(times))
    assert max(max(one) - min(one) for one in times) <= timedelta(seconds=SPAN)


def test_pieces_hold_as_much_as_they_may(log: Path) -> None:
    assert len(Replay(log).days()) == 2
    assert len(Replay(log).pieces()) in (20, 21), "a burst each, unless midnight is in one"
    assert max(piece.rows for piece in Replay(log).pieces(7)) == 7


@pytest.mark.parametrize(("size", "read"), [(30, [30] * 4), (50, [60, 60]), (100, [120]), (1_000, [120])])
def test_rows_of_many_small_files_are_read_so_many_at_a_time(tmp_path: Path, size: int, read: list[int]) -> None:
    h = History()
    for _ in range(4):
        for _ in range(30):
            h.send("w", len(h.rows), at=len(h.rows))
        commit(tmp_path / "history", h.rows[-30:])
    replay, one = Replay(tmp_path / "history"), h.rows[0]
    (day,) = replay.days()
    places = [Place(one.cluster, one.topic_id, one.partition)]
    assert [table.num_rows for table in replay.rows_of(day, places, size)] == read
