"""`cluster-unreachable`: since when a leader is asked in vain, what ends that, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Run, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import START, History, Store, number

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
NAME = "cluster-unreachable"
BROKERS = {"leader": "1", "silent": "1", "brokers": "1,2"}


def told(store: Store) -> list[tuple[str, float]]:
    """(event, since when, or when it ended) in seconds of the history."""
    found = [one for one in store.findings if one.anomaly == NAME]
    return [(one.event, seconds(one.evidence["since"] if one.event == "opened" else one.at)) for one in found]


def seconds(at: int) -> float:
    return round((at - micros(START)) / 1e6, 3)


def opened(store: Store) -> Finding:
    (one,) = (one for one in store.findings if one.anomaly == NAME and one.event == "opened")
    return one


def passes(h: History, many: int) -> None:
    for _ in range(many):
        h.mark(1.0)


def answered(h: History, many: int) -> None:
    for _ in range(many):
        h.observe(end=1)
        h.mark(1.0)


def in_vain(
    h: History, many: int, *, error: str | None = "_TIMED_OUT", settings: dict[str, str] | None = BROKERS
) -> None:
    """A question each second, given up at once."""
    for _ in range(many):
        h.row("observer", "offsets", type="info", error=error, settings=settings)
        h.mark(1.0)


def until(h: History, process: str, f: str, begun: float, **more: Any) -> Slice:
    """Something that this process began then, and that ends now."""
    return h.row(process, f, invoked=h.at(begun), **more)


# Since when


@FEEDS
def test_it_is_away_since_it_answered_last_if_it_was_asked_soon_after(fed: Callable[[History], Store]) -> None:
    h = History()
    answered(h, 10)
    passes(h, 3)
    in_vain(h, 35)
    assert told(fed(h)) == [("opened", 9.038)]


@FEEDS
def test_and_else_since_it_was_asked(fed: Callable[[History], Store]) -> None:
    """Nobody had asked for a minute: nothing is known of that."""
    h = History()
    answered(h, 10)
    passes(h, 60)
    in_vain(h, 20)
    assert told(fed(h)) == []
    in_vain(h, 15)
    assert told(fed(h)) == [("opened", 70.161)]


@FEEDS
def test_what_was_answered_may_have_been_when_it_was_asked(fed: Callable[[History], Store]) -> None:
    """A send takes from second 5 to 25: when the leader had it is not known."""
    h = History()
    passes(h, 5)
    begun = h.time
    passes(h, 20)
    until(h, "w", "send", begun, sent=[Run(number("w"), 0, 0, 1)])
    h.mark()
    until(h, "observer", "offsets", begun + 14, type="info", error="_TIMED_OUT", settings=BROKERS)
    in_vain(h, 20)
    assert told(fed(h)) == [("opened", round(begun, 3))]


# What ends it


def an_earlier_send_is_answered(h: History) -> None:
    begun = h.time - 0.5
    in_vain(h, 20)
    until(h, "w", "send", begun, sent=[Run(number("w"), 0, 0, 1)])
    in_vain(h, 20)


def an_earlier_question_is_answered_in_part(h: History) -> None:
    begun = h.time - 0.5
    in_vain(h, 20)
    until(h, "other", "offsets", begun, type="info", error="_TIMED_OUT", log_end=1)
    in_vain(h, 20)


def what_it_may_have_answered_before_is_answered(h: History) -> None:
    """A question and a send were under way when it answered last: neither says that it did so later."""
    begun = h.time - 1.5
    passes(h, 3)
    until(h, "observer", "offsets", begun, type="info", error="_TIMED_OUT", settings=BROKERS)
    in_vain(h, 13)
    until(h, "w", "send", begun + 0.4, sent=[Run(number("w"), 0, 0, 1)])
    in_vain(h, 25)


def a_later_send_is_answered(h: History) -> None:
    in_vain(h, 10)
    begun = h.time
    in_vain(h, 10)
    until(h, "w", "send", begun, sent=[Run(number("w"), 0, 0, 1)])
    in_vain(h, 20)


def an_earlier_poll_is_answered(h: History) -> None:
    begun = h.time - 0.5
    in_vain(h, 20)
    until(h, "r", "poll", begun, mode="assign", isolation="read_committed", polled=[Run(number("w"), 0, 0, 1)])
    in_vain(h, 20)


def an_earlier_question_is_answered(h: History) -> None:
    begun = h.time - 0.5
    in_vain(h, 20)
    until(h, "other", "offsets", begun, log_start=0, log_end=1, last_stable=1)
    in_vain(h, 20)


def a_later_question_is_answered_in_part(h: History) -> None:
    in_vain(h, 10)
    begun = h.time
    in_vain(h, 10)
    until(h, "other", "offsets", begun, type="info", error="_TIMED_OUT", log_end=1)
    in_vain(h, 20)


def it_says_nothing(h: History) -> None:
    """A row of the observer that is about something else."""
    for _ in range(40):
        h.row("observer", "offsets", settings={"led_by": "1"})
        h.mark(1.0)


@FEEDS
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (an_earlier_send_is_answered, [("opened", 9.54)]),
        (an_earlier_question_is_answered_in_part, [("opened", 9.54)]),
        (what_it_may_have_answered_before_is_answered, [("opened", 9.038)]),
        (a_later_send_is_answered, []),
        (an_earlier_poll_is_answered, []),
        (an_earlier_question_is_answered, []),
        (a_later_question_is_answered_in_part, []),
        (it_says_nothing, []),
    ],
)
def test_what_can_only_have_come_after_it_was_asked_ends_it(
    build: Callable[[History], None], expected: list[tuple[str, float]], fed: Callable[[History], Store]
) -> None:
    h = History()
    answered(h, 10)
    build(h)
    assert told(fed(h)) == expected


def test_a_question_in_vain_that_is_known_late_counts_no_more() -> None:
    h = History()
    answered(h, 5)
    late = h.row("observer", "offsets", type="info", error="_TIMED_OUT", settings=BROKERS)
    answered(h, 5)
    passes(h, 40)
    before = len(h.rows)
    passes(h, 45)
    store = Store()
    store.feed([row for row in h.rows[:before] if row is not late])
    store.feed([late, *h.rows[before:]])
    assert told(store) == []


@pytest.mark.parametrize("first", [True, False], ids=["rows first", "as they come"])
def test_an_answer_counts_in_the_order_of_time(first: bool) -> None:
    """An observer's rows are here, and the marks of its host come later."""
    h = History()
    answered(h, 10)
    in_vain(h, 9)
    answered(h, 1)
    in_vain(h, 45)
    rows = [row for row in h.rows if row.f != "mark" or row.completed < h.at(5)] if first else []
    store = Store()
    if rows:
        store.feed(rows)
    for row in h.rows:
        if row not in rows:
            store.feed([row])
    assert told(store) == [("opened", 19.078)]


# What is said


@FEEDS
def test_where_no_broker_is_named_it_is_the_leader_of_the_partition(fed: Callable[[History], Store]) -> None:
    h = History()
    answered(h, 10)
    in_vain(h, 35, settings=None)
    one = opened(fed(h))
    assert one.message == (
        "no request to the leader of partition 0 of topic has been answered for 31 s (asked by the observer of run run)"
    )
    assert {**one.evidence, "since": 0} == {
        "brokers": [],
        "known_brokers": [],
        "whole_cluster": False,
        "since": 0,
        "error": "_TIMED_OUT",
        "runs": ["run"],
    }


@FEEDS
@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (("_SSL", "_TIMED_OUT"), "_SSL"),
        (("_SSL", "_AUTHENTICATION"), "_AUTHENTICATION"),
        (("_TIMED_OUT", "_TRANSPORT"), "_TRANSPORT"),
        (("LEADER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE"), "LEADER_NOT_AVAILABLE"),
    ],
)
def test_the_newest_reason_is_told_and_which_brokers(
    errors: tuple[str, str], said: str, fed: Callable[[History], Store]
) -> None:
    h = History()
    answered(h, 10)
    in_vain(h, 15, error=errors[0])
    in_vain(h, 20, error=errors[1])
    one = opened(fed(h))
    assert {**one.evidence, "since": 0} == {
        "brokers": [1],
        "known_brokers": [1, 2],
        "whole_cluster": False,
        "since": 0,
        "error": said,
        "runs": ["run"],
    }
