"""`lost-write` beside what is none: acknowledged without an offset, taken by retention, passed again later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number, without
from tests.rules.told_of_cases import lost_at
from tests.rules.whole import finished, whole

V, W = number("v"), number("w")
Fed = Callable[[History], Store]
NAMES = ("lost-write", "benign-retention")
live = pytest.mark.parametrize("fed", [row_by_row, at_once])


def wait(h: History, seconds: int, *, start: int = 0, end: int = 3) -> None:
    for _ in range(seconds):
        h.observe(start=start, end=end)
        h.mark(1.0)


def passed(h: History, *, by: str = "r") -> None:
    """Value 1 of three, which nobody polls."""
    h.poll(by, [("w", 0, 1, 0)])
    h.poll(by, [("w", 2, 1, 2)])


def acknowledged(h: History) -> None:
    for reader in ("r", "s"):
        h.assign(reader)
    h.send("w", 0, 3, at=0)


@live
def test_it_is_lost_from_the_first_time_that_it_was_passed(fed: Fed) -> None:
    h = History()
    acknowledged(h)
    passed(h)
    wait(h, 5)
    passed(h, by="s")
    wait(h, 20)
    assert whole(fed(h), NAMES) == [lost_at(1, W, 1, 3, 11.0)]


@live
def test_it_is_lost_though_retention_takes_its_place_within_the_grace(fed: Fed) -> None:
    h = History()
    acknowledged(h)
    passed(h)
    wait(h, 3)
    wait(h, 20, start=3)
    assert whole(fed(h), NAMES) == [lost_at(1, W, 1, 3, 11.0)]


@live
@pytest.mark.parametrize("start", [0, 3])
def test_what_was_acknowledged_without_an_offset_lies_nowhere(start: int, fed: Fed) -> None:
    h = History()
    acknowledged(h)
    h.send("v", 0, 3, at=None)
    h.poll("r", [("w", 0, 3, 0)])
    wait(h, 3)
    wait(h, 20, start=start)
    assert whole(fed(h), NAMES) == []


def test_of_a_finished_history_what_lies_below_the_log_start_is_not_lost() -> None:
    h = History()
    acknowledged(h)
    h.observe(start=2, end=3)
    h.poll("r", [("w", 2, 1, 2)])
    assert whole(finished(h), NAMES) == []


@live
@pytest.mark.parametrize("delivered", [True, False], ids=["innocent", "guilty"])
def test_what_was_polled_at_read_uncommitted_alone_is_not_lost(delivered: bool, fed: Fed) -> None:
    h = History()
    acknowledged(h)
    passed(h)
    if delivered:
        h.poll("u", [("w", 0, 3, 0)], isolation="read_uncommitted")
    wait(h, 20)
    assert whole(fed(h), NAMES) == ([] if delivered else [lost_at(1, W, 1, 3, 11.0)])


@pytest.mark.parametrize("lost", [True, False], ids=["guilty", "innocent"])
def test_of_a_finished_history_what_else_was_polled_at_read_uncommitted_changes_nothing(lost: bool) -> None:
    """Of the values that are outstanding, if there are any."""
    h = History()
    acknowledged(h)
    h.poll("r", [("w", 0, 1, 0), ("w", 2, 1, 2)] if lost else [("w", 0, 3, 0)])
    h.poll("u", [("w", 2, 1, 2)], isolation="read_uncommitted")
    assert whole(finished(h), NAMES) == ([lost_at(1, W, 1, 3, 0.008)] if lost else [])


@live
def test_beside_what_is_lost_what_nobody_has_passed_is_not(fed: Fed) -> None:
    h = History()
    acknowledged(h)
    h.send("v", 0, 2, at=3)
    passed(h)
    wait(h, 20, end=5)
    assert whole(fed(h), NAMES) == [lost_at(1, W, 1, 3, 11.0)]


@pytest.mark.parametrize("went", [True, False], ids=["guilty", "innocent"])
def test_what_retention_took_may_be_lost_as_long_as_a_reader_s_log_is_not_here(went: bool) -> None:
    h, store = History(), Store()
    acknowledged(h)
    h.observe(end=3)
    h.mark(1.0)
    late = [h.poll("r", [("w", i, 1, i)] if went else []) for i in (0, 2)]
    wait(h, 2)
    for _ in range(5):
        h.observe(start=3, end=3)
        h.mark(10.0)
    store.feed(without(h.rows, late))
    assert whole(store, NAMES) == []
    store.feed(late)
    store.feed([h.mark(1.0)])
    (told,) = whole(store, NAMES)
    if went:
        assert told == lost_at(1, W, 1, 3, 12.0)
    else:
        assert (told.anomaly, told.evidence["values"], told.evidence["log_start"]) == ("benign-retention", 3, 3)
