"""When rows came to the probe log, seen in a real Delta table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_jobs.history.arrivals import ASKED_AFTER, ASKED_EVERY, Arrivals
from streaming_jobs.history.source import NewestVersion
from streaming_jobs.location import TableUrl

START = datetime(2026, 1, 1, tzinfo=UTC)


class Times:
    """Both clocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    append(tmp_path / "history")
    return tmp_path / "history"


def append(log: Path) -> None:
    write_deltalake(str(log), pa.table({"n": [1, 2]}), mode="append")


def arrivals(log: Path, times: Times) -> Arrivals:
    return Arrivals(log, NewestVersion(log), times.clock, monotonic=times.monotonic)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_rows_came_when_they_were_seen_and_not_when_a_batch_takes_them(log: Path, times: Times) -> None:
    seen = arrivals(log, times)
    assert (seen.last(), seen.waiting()) == (None, 0), "what is there at the first look came at no known time"
    times.seconds = 5
    append(log)
    assert seen.last() == at(5)
    times.seconds = 9
    assert (seen.last(), seen.waiting()) == (at(5), 4)
    assert (seen.taken(), seen.waiting()) == (at(5), 0)
    times.seconds = 12
    append(log)
    assert (seen.taken(), seen.last(), seen.waiting()) == (at(12), at(12), 0), "seen as the batch began, which has them"
    append(log)
    times.seconds = 13
    assert seen.last() == at(13)
    times.seconds = 14
    append(log)
    assert (seen.last(), seen.waiting()) == (at(14), 1), "the first of those that wait"


def test_compaction_brings_no_rows_also_where_an_append_came_with_it(log: Path, times: Times) -> None:
    append(log)
    seen = arrivals(log, times)
    seen.last()
    times.seconds = 5
    DeltaTable(str(log)).optimize.compact()
    assert (seen.last(), seen.waiting()) == (None, 0)
    append(log)
    DeltaTable(str(log)).optimize.compact()
    assert seen.last() == at(5)


def test_a_log_that_cannot_be_looked_at_is_as_it_was(log: Path, times: Times) -> None:
    seen = arrivals(log, times)
    seen.last()
    append(log)
    assert seen.last() == at(0)
    log.rename(log.with_name("away"))
    times.seconds = 5
    assert (seen.last(), seen.taken()) == (at(0), at(0))
    log.with_name("away").rename(log)
    assert (seen.last(), seen.waiting()) == (at(0), 0)
    append(log)
    assert seen.last() == at(5)


class Store:
    """A log in an object store, as `NewestVersion` tells it: how often it is asked is what matters here."""

    def __init__(self) -> None:
        self.known: int | None = None
        self.now, self.asked = 7, 0

    def version(self) -> int:
        self.asked += 1
        self.known = self.now
        return self.now


def test_a_store_is_asked_only_where_no_batch_comes(times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arrivals, "_has_rows", lambda self, version: True)
    store = Store()
    seen = Arrivals(TableUrl("s3://bucket/log"), store, times.clock, monotonic=times.monotonic)  # type: ignore[arg-type]
    seen.last()
    asked = store.asked
    for second in range(1, 60):
        times.seconds = second
        if second % 3 == 0:
            assert seen.taken() == at(second)
        assert seen.last() == at(second - second % 3) or second < 3
    assert store.asked == asked
    store.now = 9
    times.seconds = 57 + ASKED_AFTER - 0.1
    assert seen.last() == at(57)
    times.seconds = 57 + ASKED_AFTER
    assert (seen.last(), store.asked) == (at(57 + ASKED_AFTER), asked + 1)
    times.seconds += ASKED_EVERY - 0.1
    assert (seen.last(), store.asked, round(seen.waiting(), 1)) == (at(57 + ASKED_AFTER), asked + 1, ASKED_EVERY - 0.1)
    times.seconds += 0.1
    assert (seen.last(), store.asked) == (at(57 + ASKED_AFTER), asked + 2)
