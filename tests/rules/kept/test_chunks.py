"""A chunk that was not asked for is not there, and must not be written."""

from __future__ import annotations

import numpy as np
import pytest

from rules.kept.chunks import ASPECTS, SPAN, Aspect, Chunks, Undeclared, Values, chunk_name


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
        [7],
        [3 * SPAN],
        [3 * SPAN + 2],
    ]
    assert Chunks({}, {name}).top(7, 3) == -1


@pytest.mark.parametrize("seed", range(12))
def test_what_was_added_is_what_is_kept(seed: int) -> None:
    random = np.random.default_rng(seed)
    name, base = chunk_name(7, 3), 3 * SPAN
    upto = [0, 1, SPAN - 1, SPAN, *random.integers(1, SPAN, 4).tolist()][seed % 8]
    share = random.choice([0.0, 0.2, 0.5, 1.0])
    placed = (np.arange(SPAN) < upto) & (np.repeat(random.random(SPAN // 4), 4) >= share)
    shapes = [
        placed,
        ~placed & (np.arange(SPAN) < upto),
        ~placed,
        np.zeros(SPAN, bool),
        np.ones(SPAN, bool),
        random.random(SPAN) < share,
        placed ^ (random.random(SPAN) < 0.01),
        np.arange(SPAN) < upto,
    ]
    told = {"placed": placed} | {one: shapes[i] for i, one in enumerate(ASPECTS[1:])}
    if seed % 3 == 0:
        told["placed"] = shapes[int(random.integers(len(shapes)))]
    chunks = Chunks({}, {name})
    for aspect in ASPECTS:
        members = base + np.flatnonzero(told[aspect])
        chunks.add(aspect, (np.full(len(members), 7), members, members + 1))
    chunks.stands(7, 3, seed)
    stored = chunks.changed()[name]
    assert stored is not None
    again = Chunks({name: stored}, {name})
    assert again.top(7, 3) == seed
    for aspect in ASPECTS:
        _, start, end = again.having(aspect, values(7, base, base + SPAN))
        found = [base + i for i in range(SPAN) if told[aspect][i]]
        assert [one for a, b in zip(start.tolist(), end.tolist(), strict=True) for one in range(a, b)] == found
    again.add("placed", values(7, base, base))  # nothing, but it is written anew
    again.stands(7, 3, SPAN)
    changed = again.changed()[name]
    assert changed is not None and changed[12:] == stored[12:]


def test_what_is_as_it_stands_in_the_log_takes_no_room() -> None:
    def taken(*aspects: Aspect, but: Aspect | None = None) -> int:
        chunks = Chunks({}, {chunk_name(7, 0)})
        aborted = np.flatnonzero(np.random.default_rng(1).random(1_000) < 0.2)
        kept = np.setdiff1d(np.arange(1_000), aborted)
        for aspect, of in [(one, kept) for one in aspects] + ([(but, aborted)] if but else []):
            chunks.add(aspect, (np.full(len(of), 7), 4 * of, 4 * of + 4))
        stored = chunks.changed()[chunk_name(7, 0)]
        assert stored is not None
        return len(stored)

    assert taken("placed") == taken("placed", "polled", "delivered", but="failed")


def test_what_was_aborted_here_and_there_takes_little() -> None:
    """3,000 transactions of one to four values, of which one in twenty was aborted: little more than twice what
    tells which of them were (0.29 bits each), and how long these are (2 bits each)."""
    random = np.random.default_rng(1)
    length = random.integers(1, 5, 3_000)
    start = np.cumsum(length) - length
    kept = random.random(3_000) >= 0.05
    chunks = Chunks({}, {chunk_name(7, 0)})
    chunks.add("placed", (np.full(kept.sum(), 7), start[kept], (start + length)[kept]))
    stored = chunks.changed()[chunk_name(7, 0)]
    assert stored is not None and len(stored) < 2.2 * (0.29 * 3_000 + 2 * (~kept).sum()) / 8
