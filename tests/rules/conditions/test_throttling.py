"""`throttled`: brokers that hold back for seconds what they answer the probes, by a quota, beside ones that hardly do,
or not for long; and what waits meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.kept.outages import cause_id
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, delayed, events, row_by_row, shuffled
from tests.rules.histories import START, History, Store
from tests.rules.whole import Told, whole

NAME = "throttled"
FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])


def observed(
    h: History, seconds: int, throttled: str | None = None, *, partitions: int = 1, each: int = 1, end: int = 2
) -> None:
    """A row a second; those of every `each` second tell who throttles."""
    for i in range(seconds):
        for p in range(partitions):
            settings = {"throttled": throttled} if throttled is not None and i % each == 0 else None
            h.row("observer", "offsets", partition=p, log_start=0, log_end=end, last_stable=end, settings=settings)
            h.mark(partition=p)
        h.time += 1.0


def behind() -> History:
    """A reader that has polled one record of two."""
    h = History()
    h.assign("r")
    h.send("w", 0, 1, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    observed(h, 10, end=1)
    h.send("w", 1, 1, at=1)
    return h


@FEEDS
def test_answers_held_back_for_long_are_told_once_and_end(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 10, partitions=2)
    since = micros(h.at(h.time + 0.002))
    observed(h, 5, "1:11.0", partitions=2)
    observed(h, 200, "1:7.0,2:9.5,3:0.2", partitions=2)
    observed(h, 60, partitions=2)
    opened, closed = whole(fed(h), [NAME])
    evidence = {"brokers": [1, 2], "longest_s": 11.0, "since": since}
    began = round((since - micros(START)) / 1e6, 3)
    said = "broker 1, 2 hold back what the probes' clients are answered, by a quota, for up to 11.0 s each time"
    assert opened == Told(NAME, (), said, evidence, opened.at, round(began + 20, 3), "opened")
    assert began + 20 <= opened.at <= began + 22
    lasted = round(closed.at - opened.at, 3)
    assert closed == Told(
        NAME,
        (),
        f"{NAME} ended after {lasted:.1f} s",
        {**evidence, "since": since + 4_000, "partitions": 2, "lasted_s": lasted},
        closed.at,
        event="closed",
    )
    assert 204 <= closed.at - began <= 206, "when it was told last"


@FEEDS
@pytest.mark.parametrize(
    ("seconds", "throttled"),
    [
        (18, "1:11.0"),
        (200, "1:4.9,2:0.1"),
        (200, ""),
        (200, "1"),
        (200, "1:nan,2:inf,3:1e300,4:-8,x:11.0,5:-1:0.9,6:0.5:nan,7:0.5:2"),
        (200, None),
        (18, "1:0.6:1.00"),
        (200, "1:0.9:0.79"),
    ],
    ids=[
        "not for long",
        "hardly",
        "nobody",
        "no number of seconds",
        "nothing that a client is told",
        "no quota",
        "always, and not for long",
        "now and then",
    ],
)
def test_a_client_that_is_hardly_held_back_or_not_for_long_is_not_told_of(
    fed: Callable[[History], Store], seconds: int, throttled: str | None
) -> None:
    h = History()
    observed(h, 10)
    observed(h, seconds, throttled)
    observed(h, 60)
    assert not events(fed(h), NAME)


@FEEDS
def test_it_lasts_where_rows_tell_of_it_now_and_then_and_begins_anew_where_none_does_for_long(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    observed(h, 60, "1:11.0", each=12)
    assert [event for event, _, _ in events(fed(h), NAME)] == ["opened"]
    again = History()
    observed(again, 19, "1:11.0")
    observed(again, 17)
    observed(again, 19, "1:11.0")
    observed(again, 30)
    assert not events(fed(again), NAME), "twice for less than is long"


@FEEDS
def test_it_begins_with_what_was_held_back_for_less_and_holds_when_one_was_for_long(
    fed: Callable[[History], Store],
) -> None:
    h = History()
    observed(h, 40, "1:2.0")
    observed(h, 1, "1:6.0")
    observed(h, 9, "1:2.0")
    observed(h, 40)
    opened, closed = whole(fed(h), [NAME])
    assert (opened.evidence["longest_s"], opened.evidence["since"]) == (6.0, micros(h.at(0.002)))
    assert 40 <= opened.at <= 42 and 48 <= closed.at <= 50


@pytest.mark.long
def test_it_is_told_in_whatever_order_its_rows_come() -> None:
    h = History()
    observed(h, 10)
    observed(h, 90, "1:11.0")
    observed(h, 90)
    expected = [("opened", ()), ("closed", ())]
    for store in (at_once(h), *(shuffled(h, seed) for seed in range(4)), *(delayed(h, seed) for seed in range(4))):
        assert [(event, subject) for event, subject, _ in events(store, NAME)] in (expected, [])
    assert [(event, subject) for event, subject, _ in events(at_once(h), NAME)] == expected


@FEEDS
@pytest.mark.parametrize(
    ("throttled", "more", "told"),
    [
        ("1:11.0", 0, [True]),
        ("1:11.0", 90, [True, False]),  # it goes on when nothing is held back any more
        ("1:0.6:0.95", 90, [True, False]),  # a quota on requests
        ("1:2.0", 0, [False]),
        (None, 0, [False]),
    ],
    ids=["while it lasts", "outlasts it", "again and again", "hardly held back", "not held back"],
)
def test_a_reader_that_stands_meanwhile_is_explained_by_it(
    fed: Callable[[History], Store], throttled: str | None, more: int, told: list[bool]
) -> None:
    h = behind()
    observed(h, 50, throttled)
    observed(h, more)
    found = [one for one in fed(h).findings if one.anomaly == "stuck-consumer" and one.event == "opened"]
    assert [one.implied_by == cause_id(NAME, "c") for one in found] == told


@pytest.mark.parametrize("throttled", ["1:11.0", None])
def test_what_readers_do_not_see_in_time_is_explained_by_it(throttled: str | None) -> None:
    h = behind()
    observed(h, 40, throttled)
    h.poll("r", [("w", 1, 1, 1)])
    observed(h, 30)
    found = [one for one in row_by_row(h).findings if one.anomaly == "unseen"]
    cause = cause_id(NAME, "c") if throttled else None
    assert [(one.event, one.implied_by) for one in found] == [("opened", cause), ("closed", cause)]


@FEEDS
def test_a_transaction_that_hangs_is_not(fed: Callable[[History], Store]) -> None:
    """Coordinators end it by themselves: no quota of ours delays that."""
    h = History()
    h.start("t", **{"transaction.timeout.ms": "20000"})
    for i in range(70):
        settings = {"throttled": "1:11.0"} if i else None
        h.row("observer", "offsets", log_start=0, log_end=2, last_stable=1, settings=settings)
        h.mark(1.0)
    found = [one for one in fed(h).findings if one.anomaly == "hanging-transaction"]
    assert [(one.event, one.implied_by) for one in found] == [("opened", None)]


# To the microsecond, and what comes late


@FEEDS
def test_it_is_due_to_the_microsecond(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 30, "1:11.0")
    opened = [one for one in fed(h).findings if one.anomaly == NAME]
    assert [one.decidable for one in opened] == [micros(h.at(20.002))]


@FEEDS
def test_what_was_held_back_for_less_a_while_ago_is_no_beginning(fed: Callable[[History], Store]) -> None:
    h = History()
    observed(h, 5, "1:2.0")
    observed(h, 40)
    h.time -= 0.5  # it is told before the next tick
    observed(h, 10, "1:11.0")
    observed(h, 20)
    assert not events(fed(h), NAME)


@pytest.mark.parametrize("first", [True, False], ids=["rows first", "as they come"])
def test_nothing_is_told_before_log_time_has_come_so_far(first: bool) -> None:
    """An observer's rows are here, and the marks of its host come later."""
    h = History()
    observed(h, 40, "1:11.0")
    store = Store()
    rows = [row for row in h.rows if row.f != "mark"] if first else []
    if rows:
        store.feed(rows)
    for row in h.rows:
        if row not in rows:
            store.feed([row])
    assert [(event, second) for event, _, second in events(store, NAME)] == [("opened", 21)]


def test_it_begins_anew_when_the_last_time_is_forgotten() -> None:
    h = History()
    observed(h, 30, "1:11.0")
    observed(h, 700, each=60)
    store = at_once(h)
    rows = len(h.rows)
    observed(h, 5)
    observed(h, 30, "1:11.0")
    store.feed(h.rows[rows:])
    assert [event for event, _, _ in events(store, NAME)] == ["opened", "closed", "opened"]
