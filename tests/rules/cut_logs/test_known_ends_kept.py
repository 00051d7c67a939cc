"""More is listed, and known, than is kept beside what log time has not come to: none of it is dropped in silence."""

from __future__ import annotations

import pytest

from rules.checks.ends import known_ends
from rules.step import HELD
from rules.vocabulary.slices import Run
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.cut_logs.log_end_histories import written_again
from tests.rules.histories import History, Store, number
from tests.rules.whole import whole

DIED = 100
"""More readers than one host has."""


@pytest.mark.parametrize("cut", [True, False], ids=["guilty", "innocent"])
def test_where_log_time_is_held_back_each_listing_waits_for_it(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is read again, of which hosts listed the end every second: a quarter of an hour of them waits."""
    monkeypatch.setattr(known_ends, "LISTINGS_KEPT", 8)
    h, store = History(), Store()
    store.store.held = HELD
    h.observe(end=0)
    h.mark(1.0)
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    if cut:
        h.observe(end=4)
    written_again(h, 4 if cut else 10)
    for i in range(100):
        h.send("v", 1 + i, 1, at=11 + i)
        h.observe(end=12 + i)
        h.mark(1.0)
        if i % 10 == 0:
            store.feed(h.rows)
            h.rows.clear()
    store.feed(h.rows)
    for _ in range(3):
        store.settle()
    told = [one.subject for one in whole(store, ["log-truncation", "window-overflow"])]
    assert told == ([(9,)] if cut else [])


def test_of_too_many_that_wait_for_somebody_s_rows_the_oldest_are_dropped_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_ends, "LISTINGS_KEPT", 8)
    h = History()
    h.start("away")
    h.rows.pop()
    for i in range(30):
        h.send("w", i, 1, at=i)
        h.observe(end=i + 1)
        h.mark(1.0)
    told = [one.subject for one in whole(row_by_row(h), ["window-overflow"]) if one.event == "opened"]
    assert told == [("ends of the log that were listed",)]


@pytest.mark.parametrize("cut", [True, False], ids=["guilty", "innocent"])
def test_what_the_dead_had_polled_is_known_of_all_of_them(cut: bool) -> None:
    """A host with many readers is lost: of one of them alone it is known how far the log reached, and its number is the
    lowest."""
    h = History()
    names = sorted((f"r{i}" for i in range(DIED)), key=number)
    for name in names:
        h.start(name)
    h.send("w", 0, 10, at=0)
    h.mark(1.0)
    for i, name in enumerate(names):
        polled = [Run(number("x"), 0, 20, 10)] if i == 0 else [Run(number("w"), 0, 0, 5)]
        now = h.at(h.time)
        h.row(
            name,
            "poll",
            type="info",
            error="process-died",
            polled=polled,
            mode="assign",
            isolation="read_committed",
            invoked=now,
            completed=now,
        )
    for name in names:
        h.row(name, "close", type="info", error="process-died")
    h.mark(1.0)
    h.observe(end=10 if cut else 30)
    written_again(h, 10 if cut else 30)
    for _ in range(20):
        h.observe(end=11 if cut else 31)
        h.mark(1.0)
    told = [one.subject for one in whole(row_by_row(h), ["log-truncation"])]
    assert told == ([(29,)] if cut else [])
