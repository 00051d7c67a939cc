"""What is asked of a query of Spark's, by what answers as one does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from streaming_jobs import query
from streaming_jobs.location import TableLocation, TableUrl

COMMITS = TableUrl("s3://bucket/checkpoint/commits")


def running(active: bool = True) -> StreamingQuery:
    return cast(StreamingQuery, SimpleNamespace(isActive=active))


def test_a_store_that_does_not_tell_what_is_committed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = [OSError("503"), OSError("503"), [4], [4, 5], AssertionError("asked once too often")]

    def numbers(folder: TableLocation) -> list[int]:
        assert folder == COMMITS
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast(list[int], answer)

    monkeypatch.setattr(query, "numbers", numbers)
    query.await_commit(running(), COMMITS, 5)
    assert len(told) == 1


@pytest.mark.parametrize("active", [True, False])
def test_it_is_not_waited_for_for_long_nor_where_the_query_is_over(
    active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(folder: TableLocation) -> list[int]:
        raise OSError("503")

    monkeypatch.setattr(query, "numbers", away)
    monkeypatch.setattr(query, "_COMMIT_WAIT", 0.3 if active else 600.0)
    query.await_commit(running(active), COMMITS, 5)
