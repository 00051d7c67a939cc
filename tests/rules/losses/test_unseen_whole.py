"""`unseen` compared whole: two spells, as they come and caught up at once, and in a finished history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.step import HELD
from rules.vocabulary.slices import Mark
from tests.rules.conditions.liveness_of import at_once, away_after_seconds, row_by_row
from tests.rules.histories import History, Store, number, singly
from tests.rules.whole import Told, finished, in_any_way, whole

V, W = number("v"), number("w")


def two_spells(h: History) -> None:
    h.assign("r")
    h.send("w", 0, 5, at=0)
    h.send("v", 0, 1, at=5)
    for seconds, runs in ((15, [("w", 0, 5, 0), ("v", 0, 1, 5)]), (12, []), (13, [("w", 5, 2, 6)]), (3, [])):
        for _ in range(seconds):
            h.observe(end=8)
            h.mark(1.0)
        if runs:
            h.poll("r", runs)
        elif seconds == 12:
            h.send("w", 5, 2, at=6)


def some(offset: int, writer: int, seq: int, values: int) -> dict[str, int]:
    return {"offset": offset, "writer": writer, "seq": seq, "values": values}


def each_by_itself(h: History) -> Store:
    """However long the history is: a condition is told at the step that finds it."""
    store = Store()
    for row in singly(h.rows):
        store.feed(row)
    return store


@pytest.mark.parametrize(
    ("fed", "ended", "age"), [(each_by_itself, {"first": [], "age_s": 0.0}, 10.88), (at_once, {}, 10.882)]
)
def test_while_it_lasts(fed: Callable[[History], Store], ended: dict[str, Any], age: float) -> None:
    """Of a spell that a catch-up goes over in one step, less is told at its end."""
    h = History()
    two_spells(h)
    six = {"values": 6, "first": [some(0, W, 0, 5), some(5, V, 0, 1)], "age_s": 10.992}
    two = {"values": 2, "first": [some(6, W, 5, 2)], "age_s": age}
    words = "acknowledged values have not been polled, the oldest for"
    lasted = round(41 - 38 + age - 10, 3)
    assert whole(fed(h), ["unseen"]) == [
        Told("unseen", (), f"6 {words} 11.0 s", six, 11.0, 10.008, "opened"),
        Told("unseen", (), "unseen ended after 6.0 s", {"values": 0, **ended, "lasted_s": 5.992}, 16.0, event="closed"),
        Told("unseen", (), f"2 {words} 10.9 s", two, 38.0, round(48 - age, 3), "opened"),
        Told(
            "unseen", (), "unseen ended after 3.9 s", {"values": 0, **ended, "lasted_s": lasted}, 41.0, event="closed"
        ),
    ]


def cut_and_written_again(h: History, stable: int) -> None:
    """What is sent after the cut is given offsets that the last stable offset had passed before it."""
    h.assign("r")
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)])
    for _ in range(3):
        h.observe(end=10)
        h.mark(1.0)
    for _ in range(3):
        h.observe(end=6)
        h.mark(1.0)
    h.send("v", 0, 2, at=6)
    for _ in range(20):
        h.observe(end=8, stable=stable)
        h.mark(1.0)


@in_any_way(file=False)
@pytest.mark.parametrize(("stable", "values"), [(6, []), (8, [2])], ids=["innocent", "guilty"])
def test_what_a_log_had_passed_before_it_was_cut_was_something_else(
    fed: Callable[[History], Store], stable: int, values: list[int]
) -> None:
    h = History()
    cut_and_written_again(h, stable)
    assert [told.evidence["values"] for told in whole(fed(h), ["unseen"])] == values


@pytest.mark.parametrize("behind", [0.0, 300.0])
def test_an_observer_whose_clock_is_behind_delays_nothing(behind: float) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 2, at=0)
    for _ in range(20):
        then = h.at(h.time - behind)
        h.row("observer", "offsets", log_start=0, log_end=2, last_stable=2, invoked=then, completed=then)
        h.mark(1.0)
    for fed in (row_by_row, at_once):
        (opened,) = whole(fed(h), ["unseen"])
        assert (opened.decidable or opened.at) <= 12.0


@pytest.mark.parametrize("audits", [True, False])
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_nobody_but_an_audit_reads(fed: Callable[[History], Store], audits: bool) -> None:
    """It comes by after a while, and is through in a moment: those who should read are not there."""
    h = History()
    h.send("w", 0, 5, at=0)
    for _ in range(30):
        h.observe(end=5)
        h.mark(1.0)
    h.start("a", name="audit", **({"audit": "true"} if audits else {}))
    h.assign("a")
    for _ in range(3):
        h.observe(end=5)
        h.mark(1.0)
    h.poll("a", [("w", 0, 5, 0)])
    h.mark(1.0)
    h.mark(1.0)
    assert [one.event for one in whole(fed(h), ["unseen"])] == ([] if audits else ["opened", "closed"])


@pytest.mark.parametrize("before", [True, False], ids=["another_before", "nobody_before"])
@pytest.mark.parametrize(
    ("after", "spell"),
    [(0, []), (1, [("opened", 16.0), ("closed", 17.0)]), (5, [("opened", 16.0), ("closed", 21.0)])],
)
@pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds])
def test_while_nobody_was_assigned_nothing_was_unseen(
    fed: Callable[[History], Store], after: int, spell: list[tuple[str, float]], before: bool
) -> None:
    """The first reader, or the next one, is assigned 15 s after the write, and polls so many seconds later: a catch-up
    tells what would have been told live."""
    h = History()
    if before:
        h.assign("q")
        h.row("q", "close")
    h.send("w", 0, 5, at=0)
    for second in range(25):
        if second == 15:
            h.assign("r")
        if second == 15 + after:
            h.poll("r", [("w", 0, 5, 0)])
        h.observe(end=5)
        h.mark(1.0)
    assert [(one.event, one.at) for one in whole(fed(h), ["unseen"])] == spell


@pytest.mark.parametrize("late", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds])
def test_a_reader_that_polled_late_and_is_over_by_now(fed: Callable[[History], Store], late: bool) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 5, at=0)
    for second in range(25):
        if second == (15 if late else 5):
            h.poll("r", [("w", 0, 5, 0)])
        if second == 20:
            h.row("r", "close")
        h.observe(end=5)
        h.mark(1.0)
    spell = [("opened", 11.0), ("closed", 16.0)] if late else []
    assert [(one.event, one.at) for one in whole(fed(h), ["unseen"])] == spell


def went_down(h: History, *, assigned: int, polled: int) -> list[int]:
    """A host is killed before its reader has polled the last value, and is back an hour later, for 40 s. Its next
    reader is assigned, and polls that value, so many seconds after that. Returns how many rows there are before the
    host is back, and after 11 s."""
    h.assign("r")
    for i in range(20):
        h.send("w", i, at=i)
        if i < 19:
            h.poll("r", [("w", i, 1, i)])
        h.observe(end=i + 1)
        h.mark(1.0)
    pieces, over = [len(h.rows)], h.at(h.time)
    h.time += 3600
    dead = [Mark(number(p), h._slices[number(p), 0], over, h.at(h.time), lost=True) for p in h.processes]
    h.row("committer", "mark", marks=dead)
    h.processes = []
    h.row("s", "start", mode="subscribe")
    for second in range(40):
        if second == assigned:
            h.assign("s")
        if second == polled:
            h.poll("s", [("w", 19, 1, 19)])
        h.row("o", "offsets", log_start=0, log_end=20, last_stable=20)
        h.mark(1.0)
        if second == 10:
            pieces.append(len(h.rows))
    return pieces


def read_again(h: History, pieces: list[int]) -> Store:
    """Two pieces in the order of their times, as a rebuild reads them, then what comes."""
    store = Store()
    store.store.held = HELD
    store.feed(h.rows[: pieces[0]])
    store.feed(h.rows[pieces[0] : pieces[1]])
    store.settle()
    for row in h.rows[pieces[1] :]:
        store.feed([row])
    return store


@pytest.mark.parametrize("fed", [read_again, lambda h, _: row_by_row(h), lambda h, _: at_once(h)])
@pytest.mark.parametrize(("assigned", "polled"), [(3, 5), (3, 12), (16, 18), (45, 45)])
def test_who_was_killed_reads_no_more_and_who_is_to_read_begins_when_it_is_assigned(
    fed: Callable[[History, list[int]], Store], assigned: int, polled: int
) -> None:
    h = History()
    assert whole(fed(h, went_down(h, assigned=assigned, polled=polled)), ["unseen"]) == []


@pytest.mark.parametrize("fed", [read_again, lambda h, _: row_by_row(h), lambda h, _: at_once(h)])
@pytest.mark.parametrize("assigned", [3, 16])
def test_who_is_assigned_after_it_and_does_not_poll(fed: Callable[[History, list[int]], Store], assigned: int) -> None:
    h = History()
    told = whole(fed(h, went_down(h, assigned=assigned, polled=35)), ["unseen"])
    assert [(one.event, round(one.at - 3620 - assigned)) for one in told] == [
        ("opened", 11),
        ("closed", 36 - assigned),
    ]


def held_back(h: History) -> list[int]:
    """A transaction is open for 44 s, before everything that is sent meanwhile."""
    h.assign("r")
    pieces = []
    for i in range(60):
        if i < 40:
            h.send("w", i, at=1 + i)
        if i == 45:
            h.poll("r", [("w", 0, 40, 1)])
        h.observe(end=2 + min(i, 39), stable=0 if i < 44 else 41)
        h.mark(1.0)
        if i in (3, 30):
            pieces.append(len(h.rows))
    return pieces


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_acknowledged_before_log_time_has_come_to_any_observation_is_not_readable_yet(first: int) -> None:
    h = History()
    pieces = held_back(h)
    assert whole(read_again(h, [pieces[first], len(h.rows)]), ["unseen"]) == []


def several(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=None)
    h.poll("r", [("w", 0, 1, 0)])


def one_above_the_log_start(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.observe(start=2, end=3)
    h.poll("r", [("x", 0, 1, 9)])


@pytest.mark.parametrize(
    ("build", "said", "first"),
    [
        (several, "3 acknowledged values were", [(W, 1, 2), (V, 0, 1)]),
        (one_above_the_log_start, "1 acknowledged value was", [(W, 2, 1)]),
    ],
)
def test_of_a_finished_history(build: Callable[[History], None], said: str, first: list[tuple[int, int, int]]) -> None:
    h = History()
    build(h)
    listed = [{"writer": writer, "seq": seq, "values": values} for writer, seq, values in first]
    told = {"values": sum(one["values"] for one in listed), "first": listed}
    assert whole(finished(h), ["unseen"]) == [Told("unseen", (), f"{said} never polled", told, 0.006, event="opened")]


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_what_is_held_back_is_not_readable_however_much_comes_at_once(fed: Callable[[History], Store]) -> None:
    h = History()
    held_back(h)
    assert whole(fed(h), ["unseen"]) == []


@pytest.mark.parametrize("fed", [row_by_row, at_once])
@pytest.mark.parametrize("offset", [None, 0], ids=["innocent", "guilty"])
def test_of_what_was_acknowledged_at_no_offset_nobody_knows_when_it_can_be_read(
    offset: int | None, fed: Callable[[History], Store]
) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 1, at=offset)
    for _ in range(20):
        h.observe(end=1)
        h.mark(1.0)
    assert [one.event for one in whole(fed(h), ["unseen"])] == ([] if offset is None else ["opened"])


@pytest.mark.parametrize("fed", [row_by_row, at_once])
@pytest.mark.parametrize("closes", [True, False], ids=["innocent", "guilty"])
def test_where_the_only_reader_has_closed_nobody_reads(closes: bool, fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.observe(end=0)
    h.mark(1.0)
    if closes:
        h.row("r", "close")
    h.send("w", 0, 1, at=0)
    for _ in range(20):
        h.observe(end=1)
        h.mark(1.0)
    assert [one.event for one in whole(fed(h), ["unseen"])] == ([] if closes else ["opened"])
