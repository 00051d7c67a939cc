"""What readers went over counts for what was sent before: offsets are given again when a log is cut."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest

from rules.engine.order import KINDS
from rules.kept.state import Clocks, Moves, Outstanding, Passed, Proven, Spans, State, load
from rules.settling import passes
from rules.settling.listings import Listings, prove_passes
from rules.settling.passes import EXACT, SEVERAL
from rules.vocabulary.objectives import SECOND
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import START, History, Store, found, number

T = TypeVar("T")
W, V = number("w"), number("v")


def cut(h: History, *, early_listing: bool) -> None:
    """A reader has come to 100. The log is cut to 80, three records are written there that it does not read, since it
    is sent to the log's end at 83, and it goes on."""
    h.assign("r")
    for i in range(10):
        h.send("w", i * 10, 10, at=i * 10)
        h.poll("r", [("w", i * 10, 10, i * 10)])
        h.observe(end=i * 10 + 10)
        h.mark(1.0)
    if early_listing:
        h.observe(end=80)
    h.send("v", 0, 3, at=80)
    h.poll("r", [], position_before=100, position_after=83)
    for i in range(3, 20):
        h.send("v", i, 1, at=80 + i)
        h.poll("r", [("v", i, 1, 80 + i)], position_before=80 + i)
        h.observe(end=81 + i)
        h.mark(1.0)


def read_again(h: History, *, polled: bool) -> None:
    """An audit reader reads it all from the start."""
    h.assign("audit")
    h.poll("audit", [("w", 0, 80, 0), *([("v", 0, 3, 80)] if polled else []), ("v", 3, 17, 83)])
    for _ in range(15):
        h.observe(end=100)
        h.mark(1.0)


def lost(store: Store) -> set[tuple[int | str, ...]]:
    return {subject for name, subject in found(store.findings) if name == "lost-write"}


@pytest.mark.parametrize("early_listing", [True, False])
@pytest.mark.parametrize("late", [0, 3, 12])
def test_what_was_passed_before_it_was_sent_is_not_lost(late: int, early_listing: bool) -> None:
    """Also where the row that tells of the sending comes as many seconds late."""
    h = History()
    cut(h, early_listing=early_listing)
    (told,) = [row for row in h.rows if row.sent and row.sent[0].writer == V and row.sent[0].seq == 0]
    h.rows.remove(told)
    at = h.rows.index(next(row for row in h.rows if row.f == "mark" and row.completed > told.completed))
    marks = [i for i, row in enumerate(h.rows) if row.f == "mark" and i >= at]
    h.rows.insert(marks[late], told)
    assert lost(row_by_row(h)) == set()


@pytest.mark.parametrize("early_listing", [True, False])
def test_what_is_passed_again_without_being_polled_is_lost(early_listing: bool) -> None:
    h = History()
    cut(h, early_listing=early_listing)
    read_again(h, polled=False)
    assert lost(row_by_row(h)) == {(V, 0), (V, 1), (V, 2)}


def test_what_is_polled_by_the_one_who_reads_again_is_not() -> None:
    h = History()
    cut(h, early_listing=True)
    read_again(h, polled=True)
    assert lost(row_by_row(h)) == set()


def test_what_was_lost_before_the_cut_stays_lost() -> None:
    """Passed by a reader after it was acknowledged, and within grace of the cut."""
    h = History()
    h.assign("r")
    for i in range(10):
        h.send("w", i * 10, 10, at=i * 10)
        h.poll("r", [("w", i * 10, 10 if i != 8 else 7, i * 10)])
        h.observe(end=i * 10 + 10)
        h.mark(1.0)
    h.observe(end=90)
    h.send("v", 0, 3, at=90)
    for i in range(3, 20):
        h.poll("r", [("v", i - 3, 1, 87 + i)], position_before=87 + i)
        h.send("v", i, 1, at=90 + i)
        h.observe(end=91 + i)
        h.mark(1.0)
    assert lost(row_by_row(h)) == {(W, 87), (W, 88), (W, 89)}


def by_the_clock_of(h: History, begun: int, boot: str, off: float) -> None:
    """The rows from the number `begun` on are of this boot, whose clock is so many seconds off."""
    by = timedelta(seconds=off)
    for row in h.rows[begun:]:
        times = [round((at - START).total_seconds() * 1e9) for at in (row.invoked, row.completed)]
        row.boot, row.mono_invoked, row.mono_completed = boot, *times
        row.invoked, row.completed = row.invoked + by, row.completed + by
        row.marks = [mark._replace(through=mark.through + by) for mark in row.marks]


@pytest.mark.long
@pytest.mark.parametrize("off", [-600, 0, 20])
@pytest.mark.parametrize(("audit", "found"), [(None, set()), (True, set()), (False, {(V, 0), (V, 1), (V, 2)})])
def test_what_an_earlier_boot_went_over_says_nothing_of_what_the_next_one_sends(
    off: float, audit: bool | None, found: set[tuple[int, int]]
) -> None:
    """While the host is down the log is cut to its beginning; its next reader is sent to where the log ends by then.
    Nobody can compare the clocks of the two boots."""
    h = History()
    h.assign("r")
    for i in range(10):
        h.send("w", i * 10, 10, at=i * 10)
        h.poll("r", [("w", i * 10, 10, i * 10)])
        h.observe(end=i * 10 + 10)
        h.mark(1.0)
    h.row("r", "close")
    h.mark(1.0)
    by_the_clock_of(h, 0, "first", 0)
    begun, h.processes = len(h.rows), []
    h.time += 75
    h.send("v", 0, 3, at=0)
    h.assign("r2")
    h.poll("r2", [], position_before=100, position_after=3)
    for i in range(3, 20):
        h.send("v", i, 1, at=i)
        h.poll("r2", [("v", i, 1, i)], position_before=i)
        h.row("o2", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1)
        h.mark(1.0)
    if audit is not None:
        h.assign("audit")
        h.poll("audit", [*([("v", 0, 3, 0)] if audit else []), ("v", 3, 17, 3)], position_before=0)
    for _ in range(20):
        h.row("o2", "offsets", log_start=0, log_end=20, last_stable=20)
        h.mark(1.0)
    by_the_clock_of(h, begun, "second", off)
    assert lost(row_by_row(h)) == found


def went(start: int, end: int, at: int, boot: int = 0) -> Proven:
    return Proven(*(np.array([n], np.int64) for n in (start, end, at, at, at, boot)))


def kept(state: State) -> list[tuple[int, ...]]:
    """(start, end, since, until, boot, first)"""
    columns = (getattr(state.passed, name) for name in ("start", "end", "since", "until", "boot", "first"))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_last_pass_of_each_offset_is_remembered_and_when_the_first_was() -> None:
    state = State()
    for one in (went(0, 10, 1), went(10, 20, 2), went(5, 12, 3), went(4, 30, 1)):
        passes.remember(state, one)
    assert kept(state) == [
        (0, 4, 1, 1, 0, 1),
        (4, 5, 1, 1, 0, 1),
        (5, 10, 3, 3, 0, 1),
        (10, 12, 3, 3, 0, 1),
        (12, 20, 2, 2, 0, 1),
        (20, 30, 1, 1, 0, 1),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_passed_together_or_apart_each_offset_tells_its_last_and_its_first_pass(seed: int) -> None:
    """Held against each offset by itself; of two passes at one time the one that came later counts."""
    rng, state = np.random.default_rng(seed), State()
    last: dict[int, tuple[int, ...]] = {}
    first: dict[int, int] = {}
    for _ in range(6):
        count = int(rng.integers(1, 12))
        start, until = rng.integers(0, 60, count), rng.integers(0, 8, count)
        new = Proven(
            start,
            start + rng.integers(1, 20, count),
            until + 10,
            until - rng.integers(0, 9, count),
            until,
            rng.integers(0, 3, count),
        )
        for row in until.argsort(kind="stable").tolist():
            for offset in range(int(new.start[row]), int(new.end[row])):
                if offset not in last or until[row] >= last[offset][1]:
                    last[offset] = int(new.since[row]), int(until[row]), int(new.boot[row])
                first[offset] = min(first.get(offset, 100), int(new.at[row]))
        passes.remember(state, new)
    known = kept(state)
    assert all(one[1] <= two[0] for one, two in pairwise(known)) and len(known) <= EXACT
    assert {
        offset: (since, until, boot, by) for start, end, since, until, boot, by in known for offset in range(start, end)
    } == {offset: (*told, first[offset]) for offset, told in last.items()}


def test_what_a_reader_goes_over_without_a_break_within_a_second_is_one_pass() -> None:
    """It says since when and until when; another second is another pass, and so is what comes after a leap."""
    h = History()
    h.assign("r")
    at = 0
    for length in (5, 5, 5, 5):
        h.send("w", at, length, at=at)
        h.poll("r", [("w", at, length, at)], position_before=at)
        at += length
    h.observe(end=at)
    h.mark(12.0)
    (stored,) = row_by_row(h).stored.values()
    assert stored.hot is not None
    known = kept(load(stored.hot, KINDS))
    assert [(start, end, since < until) for start, end, since, until, *_ in known] == [(0, 20, True)]


@pytest.mark.parametrize(("place", "counted"), [((10, 20), True), ((2, 4), False), ((42, 44), False)])
def test_only_offsets_that_were_given_again_ask_for_a_certain_order(place: tuple[int, int], counted: bool) -> None:
    """Several readers passed all of it, nobody knows whether after the sending; two stretches were given again."""
    state = State(given_again=Spans(np.array([0, 40]), np.array([5, 45])))
    passes.remember(state, went(0, 50, 100, boot=SEVERAL))
    assert len(passes.over(state, state.passed, place, (90, 0))) == counted


def noticed(sent: Outstanding, moves: Moves) -> list[tuple[int, int]]:
    """What is known to be given again, where [0, 50) was passed at 100 by the clock of boot 0."""
    state = State()
    passes.remember(state, went(0, 50, 100))
    told = passes.note_given_again(state, Proven(), sent, moves)
    assert state.given_again.start.tolist() == told.start.tolist()
    return list(zip(told.start.tolist(), told.end.tolist(), strict=True))


def one(kind: type[T], **columns: int) -> T:
    return kind(**{f.name: np.array([columns.get(f.name, -1)], np.int64) for f in fields(kind)})  # type: ignore


@pytest.mark.parametrize(
    ("offset", "invoked", "boot", "expected"),
    [(30, 200, 0, [(30, 50)]), (30, 90, 0, []), (50, 200, 0, []), (30, 200, 1, [])],
    ids=["after it was passed", "before", "elsewhere", "by a clock that nobody can compare"],
)
def test_a_cut_is_noticed_by_what_is_sent_to_a_place_that_was_passed(
    offset: int, invoked: int, boot: int, expected: list[tuple[int, int]]
) -> None:
    assert noticed(one(Outstanding, offset=offset, length=5, invoked=invoked, boot=boot), Moves()) == expected


@pytest.mark.parametrize(
    ("end", "invoked", "boot", "expected"),
    [(40, 200, 0, [(40, 50)]), (40, 90, 0, []), (50, 200, 0, []), (40, 200, 1, [])],
    ids=["after it was passed", "before", "all is there", "by a clock that nobody can compare"],
)
def test_a_cut_is_noticed_by_a_listing_below_what_was_passed(
    end: int, invoked: int, boot: int, expected: list[tuple[int, int]]
) -> None:
    assert noticed(Outstanding(), one(Moves, end=end, invoked=invoked, boot=boot)) == expected


def test_old_passes_are_joined_and_say_between_which_times_they_were() -> None:
    state = State()
    for i in range(1000):
        passes.remember(state, went(i * 10, i * 10 + 10, i, boot=i % 400 // 200))
    known = kept(state)
    assert len(known) <= EXACT
    assert [start for start, *_ in known] == [0, *(end for _, end, *_ in known[:-1])] and known[-1][1] == 10_000
    for start, end, since, until, boot, first in known:
        assert (since, until, first) == (start // 10, end // 10 - 1, since)
        assert boot == (since % 400 // 200 if since % 400 // 200 == until % 400 // 200 else SEVERAL) or boot == SEVERAL
    assert all(since == until for _, _, since, until, _, _ in known[-EXACT // 4 :])


def test_stretches_with_gaps_between_them_are_bounded() -> None:
    state = State()
    for i in range(passes.KEPT + 50):
        passes.remember(state, went(i * 10, i * 10 + 5, i))
    assert len(state.passed) == passes.KEPT and int(state.passed.start[0]) == 500


@pytest.mark.parametrize(("bound", "listed", "by"), [(-39, 50, 46), (-39, 79, 46), (39, 125, 85), (0, 86, 85)], ids=str)
def test_by_when_a_reader_had_passed_is_told_by_the_clock_that_is_behind_whenever_the_log_start_was_listed(
    bound: int, listed: int, by: int
) -> None:
    """A reader's clock is 39 s ahead of the observer's at least, or behind it: the first listing after it may be known
    late, and another one before."""
    reader, observer = 0, 1
    state = State(boot_names=["r", "o"], tops=[(0, -1)] * 2)
    pairs = np.array([(reader, observer, bound * SECOND)], np.int64).T
    state.clocks = Clocks(pairs[0], pairs[1], np.zeros(1, np.int64), pairs[2])
    went = Passed(*np.array([(0, 10, 84 * SECOND, 85 * SECOND, 7, reader)], np.int64).T)
    asked = np.array([(listed * SECOND, (listed + 1) * SECOND, observer, 0, 100)], np.int64).T
    proven = prove_passes(state, went, Listings(*asked))
    assert (proven.start.tolist(), proven.end.tolist(), proven.at.tolist()) == ([0], [10], [by * SECOND])
