"""Whose a transaction is that hangs, where many others do not end meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store
from tests.rules.whole import whole

MANY = 100
FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])


def many(h: History, *, hangs: bool) -> None:
    """x holds the last stable offset, or it is ended in time; of all who come after it nobody is told how it ended."""
    h.start("t", **{"transaction.timeout.ms": "10000"})
    h.row("t", "init", transactional_id="x")
    h.observe(end=0, stable=0)
    h.mark(1.0)
    h.txn("t", sends=[("t", 0, 3, 0)], type="info", txn=1, transactional_id="x")
    h.observe(end=3, stable=0)
    h.mark(1.0)
    for i in range(MANY):
        h.txn(f"t{i}", sends=[(f"t{i}", 0, 1, 4 + i)], type="info", txn=2 + i, transactional_id=f"x{i}")
        h.observe(end=5 + i, stable=0 if hangs or i < 5 else 5 + i)
        h.mark(0.6)


@FEEDS
@pytest.mark.parametrize("hangs", [True, False], ids=["guilty", "innocent"])
def test_who_holds_the_last_stable_offset_is_named_however_many_came_after_it(
    hangs: bool, fed: Callable[[History], Store]
) -> None:
    h = History()
    many(h, hangs=hangs)
    told = whole(fed(h), ["hanging-transaction"])
    assert [one.evidence["transactional_ids"] for one in told] == ([["x"]] if hangs else [])


@pytest.mark.parametrize("hangs", [True, False], ids=["too many", "room"])
def test_that_others_were_dropped_is_told(hangs: bool) -> None:
    """They may hold the next place. What the last stable offset has passed is not kept."""
    h = History()
    many(h, hangs=hangs)
    told = [(one.subject, one.event) for one in whole(row_by_row(h), ["window-overflow"])]
    assert told == ([(("transactions whose end is not known",), "opened")] if hangs else [])
