"""`lost-write` beside what is none: acknowledged without an offset, taken by retention, passed again later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.liveness_of import at_once, row_by_row
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
