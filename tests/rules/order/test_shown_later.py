"""A reader's step is judged by what was known when its time came. What others are shown long after that, as an audit
is, makes no skip of it, in however large pieces the log comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, away_after_seconds, away_in_the_midst, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import whole

R = number("r")
Fed = Callable[[History], Store]
in_each_way = pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds, away_in_the_midst])
SKIP = ("poll-skip", f"process {R} went from offset 0 to 4 over 3 known values")


def left_out(h: History, type: str) -> None:
    """Reader r leaves out three records of a transaction with this outcome."""
    h.assign("r")
    h.assign("s")
    h.send("w", 0, 1, at=0)
    h.txn("t", sends=[("w", 1, 3, None)], type=type, txn=1)
    h.send("w", 4, 1, at=4)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 4, 1, 4)])


def goes_on(h: History, seconds: int = 30) -> None:
    for _ in range(seconds):
        h.observe(end=5)
        h.mark(1.0)


def skips(store: Store) -> list[tuple[str, str]]:
    return [(one.anomaly, one.message) for one in whole(store, ["poll-skip"])]


@pytest.mark.parametrize("type", ["fail", "info"])
@in_each_way
def test_what_is_shown_to_others_later_was_not_left_out(fed: Fed, type: str) -> None:
    h = History()
    left_out(h, type)
    h.poll("s", [("w", 0, 1, 0), ("w", 4, 1, 4)])
    goes_on(h)
    h.assign("a")
    h.poll("a", [("w", 0, 5, 0)])
    goes_on(h)
    assert skips(fed(h)) == []


@in_each_way
def test_what_others_had_been_shown_was_left_out_also_if_it_is_shown_again(fed: Fed) -> None:
    h = History()
    left_out(h, "info")
    h.poll("s", [("w", 0, 5, 0)])
    goes_on(h)
    h.assign("a")
    h.poll("a", [("w", 0, 5, 0)])
    goes_on(h)
    assert skips(fed(h)) == [SKIP]


@in_each_way
def test_of_what_is_shown_later_that_counts_which_others_had_been_shown(fed: Fed) -> None:
    h = History()
    left_out(h, "info")
    h.poll("s", [("w", 0, 1, 0), ("w", 2, 1, 2), ("w", 4, 1, 4)])
    goes_on(h)
    h.assign("a")
    h.poll("a", [("w", 0, 5, 0)])
    goes_on(h)
    assert (R, "poll-skip") in {(one.evidence["process"], one.anomaly) for one in whole(fed(h), ["poll-skip"])}


@in_each_way
def test_what_was_acknowledged_counts_whoever_is_shown_it_later(fed: Fed) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 5, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 4, 1, 4)])
    goes_on(h)
    h.assign("a")
    h.poll("a", [("w", 0, 5, 0)])
    goes_on(h)
    assert skips(fed(h)) == [SKIP]


def test_what_is_here_before_log_time_has_come_to_the_step_was_shown_later_all_the_same() -> None:
    """The auditor's rows are here at once, and the time up to which all is known follows."""
    h, store = History(), Store()
    left_out(h, "info")
    h.poll("s", [("w", 0, 1, 0), ("w", 4, 1, 4)])
    goes_on(h, 1)
    first = len(h.rows)
    goes_on(h)
    audit = [h.assign("a"), h.poll("a", [("w", 0, 5, 0)])]
    goes_on(h)
    early = {id(row) for row in [*h.rows[:first], *audit]}
    store.feed([row for row in h.rows if id(row) in early])
    store.feed([row for row in h.rows if id(row) not in early])
    assert skips(store) == []
