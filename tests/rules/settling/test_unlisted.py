"""Nobody lists the log start for long: what readers went over meanwhile is proven when somebody does."""

from __future__ import annotations

import pytest

from rules.settling import listings
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import whole

POLLS, EACH = 60, 5
LOST = 3


def unlisted(*, polled: bool = False, start: int = 0, straight: bool = True) -> Store:
    """A reader is given five records in each of many polls, and in one of the first does not get one (or does:
    `polled`). Then the log start is listed, where it is by then. `straight`: five polls are in a second."""
    h = History()
    h.assign("r")
    h.observe(end=0)
    h.mark(1.0)
    for i in range(POLLS):
        low = i * EACH
        h.send("w", low, EACH, at=low)
        runs = [("w", low, EACH, low)]
        if low <= LOST < low + EACH and not polled:
            runs = [("w", low, LOST - low, low), ("w", LOST + 1, low + EACH - LOST - 1, LOST + 1)]
        h.poll("r", runs, position_before=low, position_after=low + EACH)
        h.mark(0.19 if straight else 1.0)
    for _ in range(30):
        h.observe(start=start, end=POLLS * EACH)
        h.mark(1.0)
    return row_by_row(h)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "UNPROVEN_FEW", 8, raising=False)
    monkeypatch.setattr(listings, "UNPROVEN_KEPT", 32)


@pytest.mark.parametrize(("polled", "start", "lost"), [(False, 0, True), (True, 0, False), (False, LOST + 1, False)])
def test_what_was_lost_meanwhile_is_told(polled: bool, start: int, lost: bool) -> None:
    """But for what retention has taken since."""
    store = unlisted(polled=polled, start=start)
    told = [one.subject for one in whole(store, ["lost-write"])]
    assert told == ([(number("w"), LOST)] if lost else [])
    assert whole(store, ["window-overflow"]) == []


def test_of_too_much_the_oldest_is_dropped_and_that_is_told() -> None:
    store = unlisted(straight=False)
    told = [(one.subject, one.event) for one in whole(store, ["lost-write", "window-overflow"])]
    assert told == [((listings.WHAT,), "opened")]
