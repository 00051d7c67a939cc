"""A chunk that was not asked for is not there, and must not be written."""

from __future__ import annotations

import numpy as np
import pytest

from rules.kept.chunks import SPAN, Chunks, Undeclared, Values, chunk_name


def values(writer: int, start: int, end: int) -> Values:
    return np.array([writer]), np.array([start]), np.array([end])


def test_an_undeclared_chunk_raises_and_is_not_written() -> None:
    chunks = Chunks({}, {chunk_name(1, 0), "blob"})
    chunks.add("polled", values(1, 0, 5))
    for touch in (
        lambda: chunks.add("polled", values(1, SPAN - 1, SPAN + 1)),
        lambda: chunks.having("polled", values(2, 0, 1)),
        lambda: chunks.blob("another"),
        lambda: chunks.put("another", b""),
    ):
        with pytest.raises(Undeclared):
            touch()
    chunks.put("gone", None)  # what is deleted need not be known
    assert chunk_name(1, 1) not in chunks.changed() and "another" not in chunks.changed()


def test_how_far_a_chunk_reaches_is_kept_with_it() -> None:
    name = chunk_name(7, 3)
    chunks = Chunks({}, {name})
    chunks.stands(7, 3, 100)
    chunks.stands(7, 3, 40)
    chunks.add("placed", values(7, 3 * SPAN, 3 * SPAN + 2))
    stored = chunks.changed()[name]
    assert stored is not None
    again = Chunks({name: stored}, {name})
    assert again.top(7, 3) == 100
    assert [a.tolist() for a in again.having("placed", values(7, 3 * SPAN, 4 * SPAN))] == [
        [7], [3 * SPAN], [3 * SPAN + 2],
    ]  # fmt: skip
    assert Chunks({}, {name}).top(7, 3) == -1
