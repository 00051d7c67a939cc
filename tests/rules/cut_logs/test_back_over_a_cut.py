"""Readers that are taken back by a log that was cut, and has been written on since, beside those that read on."""

from __future__ import annotations

from collections.abc import Callable

from tests.rules.cut_logs.log_end_histories import written_again
from tests.rules.histories import History, Store, without
from tests.rules.whole import in_any_way, whole

Fed = Callable[[History], Store]


def cut(h: History) -> None:
    """From ten records to seven, of which an eighth is written then."""
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)])
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=7)
    written_again(h, 7)


def longer_than_before(h: History, seq: int, offset: int) -> None:
    """What the reader stood at last holds another value by then; it polls on from this one."""
    h.time += 1
    h.send("v", 1, 8, at=8)
    h.poll("r", [("v", seq, 9 - seq, offset)])
    for _ in range(30):
        h.time += 1
        h.observe(end=16)


def taken_back(h: History) -> None:
    cut(h)
    h.poll("r", [("v", 0, 1, 7)])
    longer_than_before(h, 1, 8)


def going_on(h: History) -> None:
    """The same log, and a reader that goes on behind what it had polled before the cut."""
    cut(h)
    longer_than_before(h, 3, 10)


@in_any_way(file=False)
def test_a_step_back_over_a_cut_is_found_whatever_stands_there_by_then(fed: Fed) -> None:
    h = History()
    taken_back(h)
    (told,) = whole(fed(h), ["nonmonotonic-poll"])
    assert told.message.endswith("went back from offset 9 to 7")
    assert (told.evidence["previous_offset"], told.evidence["offset"], told.context) == (9, 7, {"mode": "assign"})
    assert 4.0 <= told.at < 9.0, "once it was polled, and with the listing that tells of the cut"


@in_any_way(file=False)
def test_who_goes_on_behind_the_cut_is_not_called_so(fed: Fed) -> None:
    h = History()
    going_on(h)
    assert whole(fed(h), ["nonmonotonic-poll"]) == []


def test_it_waits_for_the_listings_that_tell_of_the_cut() -> None:
    h = History()
    taken_back(h)
    for _ in range(5):
        h.mark(1.0)
    late = [row for row in h.rows if row.f == "offsets" and row.log_end in (7, 8)]
    others = without(h.rows, late)
    store = Store()
    for i in range(0, len(others), 5):
        store.feed(others[i : i + 5])
    assert whole(store, ["nonmonotonic-poll"]) == []
    store.feed(late)
    seen = len(h.rows)
    for _ in range(5):
        h.mark(1.0)
    store.feed(h.rows[seen:])
    (told,) = whole(store, ["nonmonotonic-poll"])
    assert told.message.endswith("went back from offset 9 to 7")
