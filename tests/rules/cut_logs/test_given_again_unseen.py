"""Offsets that are given again while nobody can list the log's end: a write tells it, below what had been known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.cut_logs.test_audit import explained, subjects
from tests.rules.histories import History, Store
from tests.rules.whole import live, whole

Fed = Callable[[History], Store]


def settled(h: History, *, observed: int = 30) -> None:
    """Ten values that everybody has polled, and all of it settled; then nobody lists the log's end any more."""
    h.assign("r")
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)], position_before=0, position_after=10)
    for _ in range(observed):
        h.observe(end=10)
        h.mark(1.0)


def goes_on(h: History, start: int, *, slow: int = 10) -> None:
    """Written anew, a record each `slow` seconds, and beyond what was there; a reader that begins now reads it all."""
    for i in range(9):
        h.send("v", i, 1, at=start + i)
        for _ in range(slow):
            h.mark(1.0)
    h.assign("s")
    h.poll("s", [("w", 0, start, 0), ("v", 0, 9, start)], position_before=0, position_after=start + 9)
    for _ in range(40):
        h.mark(1.0)
    h.observe(end=start + 9)
    for _ in range(35):
        h.mark(1.0)


@pytest.mark.parametrize(("start", "slow"), [(3, 10), (3, 1), (10, 10)])
@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_offsets_that_are_given_again_are_asked_for(start: int, slow: int, fed: Fed) -> None:
    h = History()
    settled(h)
    goes_on(h, start, slow=slow)
    store = fed(h)
    again = start < 10
    assert {(one.start, one.end) for _, one in store.rechecks} == ({(0, 10)} if again else set())
    told = subjects(explained(h, store)) | {
        (one.anomaly, one.subject) for one in whole(store, ["inconsistent-offsets"])
    }
    assert told == {("inconsistent-offsets", (offset,)) for offset in range(start, 10)}
    assert whole(store, ["log-truncation"]) == [], "an acknowledgement may be wrong"


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_writes_that_are_under_way_at_once_are_acknowledged_in_any_order(fed: Fed) -> None:
    """The lower offset was asked for before the higher one was known."""
    h = History()
    settled(h)
    began = h.at(h.time)
    h.send("v", 0, 3, at=13)
    h.mark(1.0)
    h.send("x", 0, 3, at=10, invoked=began)
    for _ in range(60):
        h.mark(1.0)
    assert fed(h).rechecks == []
