"""`under-replicated-probe-topic` and `unsafe-config`: settings that were told, beside those that are as promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.vocabulary.settings import ASKED
from rules.vocabulary.slices import Mark
from tests.rules.conditions.liveness_of import at_once, events, kinds, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, whole

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
SAFE = {
    "replicas": "3",
    "replicas_asked": "3",
    "min_insync": "2",
    "min_insync_asked": "2",
    "created_by": "offsetwatch",
    "unclean_leader_election": "false",
    "cleanup_policy": "delete",
}
BOTH = {"under-replicated-probe-topic", "unsafe-config"}


def topic(h: History, **told: str) -> None:
    h.row("o", "offsets", log_start=0, log_end=0, last_stable=0, settings={**SAFE, **told})
    h.mark(1.0)


def writer(h: History, **told: str) -> None:
    h.start("w", writer=str(number("w")), **told)
    h.mark(1.0)


@FEEDS
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, set()),
        ({"replicas": "1"}, {"under-replicated-probe-topic"}),
        ({"min_insync": "1"}, {"under-replicated-probe-topic"}),
        ({"created_by": "auto"}, {"under-replicated-probe-topic"}),
        ({"created_by": "unknown"}, set()),
        ({"replicas": "5"}, set()),
        ({"unclean_leader_election": "true"}, {"unsafe-config"}),
        ({"cleanup_policy": "compact,delete"}, {"unsafe-config"}),
    ],
)
def test_a_topic(told: dict[str, str], expected: set[str], fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, **told)
    assert kinds(fed(h)) & BOTH == expected


@FEEDS
def test_a_topic_that_is_put_right(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, replicas="1", unclean_leader_election="true")
    topic(h)
    for name in BOTH:
        assert [e[0] for e in events(fed(h), name)] == ["opened", "closed"]


@FEEDS
def test_a_second_setting_that_is_unsafe_is_told_while_the_first_is(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, unclean_leader_election="true")
    topic(h, unclean_leader_election="true", cleanup_policy="compact")
    topic(h, unclean_leader_election="true")
    h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    h.mark(1.0)
    assert [(f.event, f.subject) for f in fed(h).findings if f.anomaly == "unsafe-config"] == [
        ("opened", ()),
        ("opened", ("cleanup.policy",)),
        ("closed", ("cleanup.policy",)),
        ("closed", ()),
    ]


@FEEDS
def test_a_compacted_topic_that_is_deleted_promises_nothing_any_more(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, cleanup_policy="compact")
    h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    writer(h)
    h.mark(1.0)
    assert [e[0] for e in events(fed(h), "unsafe-config")] == ["opened", "closed"]


@FEEDS
@pytest.mark.parametrize("error", ["topic-replaced", "UNKNOWN_TOPIC_OR_PART"])
def test_a_topic_that_is_deleted_promises_nothing_any_more(error: str, fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, replicas="1", unclean_leader_election="true")
    h.row("o", "offsets", type="info", error=error)
    h.mark(1.0)
    for name in BOTH:
        assert [e[0] for e in events(fed(h), name)] == ["opened", "closed"]


@FEEDS
def test_a_topic_that_was_not_there_for_a_while_is_as_unsafe_as_before(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, replicas="1")
    h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    topic(h, replicas="1")
    assert [e[0] for e in events(fed(h), "under-replicated-probe-topic")] == ["opened", "closed", "opened"]


@FEEDS
def test_a_group_that_has_no_such_topic_says_nothing_of_it(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, replicas="1")
    h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART", group="g")
    h.mark(1.0)
    assert [e[0] for e in events(fed(h), "under-replicated-probe-topic")] == ["opened"]


@FEEDS
def test_which_brokers_do_not_answer_says_nothing_of_the_topic(fed: Callable[[History], Store]) -> None:
    h = History()
    topic(h, replicas="1", unclean_leader_election="true")
    h.row("o", "offsets", type="info", error="_TIMED_OUT", settings={"leader": "1", "silent": "1", "brokers": "1,2"})
    h.mark(1.0)
    for name in BOTH:
        assert [e[0] for e in events(fed(h), name)] == ["opened"]


def test_the_newest_row_counts_whatever_comes_last() -> None:
    h = History()
    topic(h, replicas="1")
    topic(h)
    store = Store()
    for row in reversed(h.rows):
        store.feed([row])
    assert kinds(store) & BOTH == set()


@FEEDS
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"acks": "all", "enable.idempotence": "true"}, set()),
        ({"acks": "-1"}, set()),
        ({"acks": "1"}, {"unsafe-config"}),
        ({"enable.idempotence": "false"}, {"unsafe-config"}),
        ({"enable.idempotence": "false", "idempotent": "false"}, set()),
        ({"acks": "1", "idempotent": "false"}, set()),
    ],
)
def test_a_writer(told: dict[str, str], expected: set[str], fed: Callable[[History], Store]) -> None:
    h = History()
    writer(h, **told)
    assert kinds(fed(h)) & BOTH == expected


@FEEDS
def test_an_unsafe_writer_that_ends(fed: Callable[[History], Store]) -> None:
    h = History()
    writer(h, acks="0")
    h.row("w", "close", type="info")
    h.mark(1.0)
    assert [e[:2] for e in events(fed(h), "unsafe-config")] == [
        ("opened", (number("w"),)),
        ("closed", (number("w"),)),
    ]


@FEEDS
def test_a_reader_promises_nothing(fed: Callable[[History], Store]) -> None:
    h = History()
    h.start("r", **{"enable.auto.commit": "false", "acks": "1"})
    h.mark(1.0)
    assert kinds(fed(h)) & BOTH == set()


def lost(h: History, process: str) -> None:
    """Its host went down, and nothing says how it ended; others go on."""
    h.processes.remove(process)
    over = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(number(process), h._slices[number(process), 0], over, over)])
    h.start("v", name="writer-2")
    for _ in range(3):
        h.mark(1.0)


def test_an_unsafe_writer_whose_process_is_forgotten_is_one_no_more_and_stays_so() -> None:
    """Its first row may come once more."""
    h = History()
    writer(h, acks="0")
    lost(h, "w")
    store = row_by_row(h)
    expected = [("opened", (number("w"),), 0), ("closed", (number("w"),), 4)]
    assert events(store, "unsafe-config") == expected
    store.feed(h.rows[:1])
    h.mark(1.0)
    store.feed(h.rows[-1:])
    assert events(store, "unsafe-config") == expected


@pytest.mark.parametrize("late", [True, False], ids=["known late", "in time"])
def test_that_a_topic_was_not_there_before_says_nothing_of_it_now(late: bool) -> None:
    h = History()
    gone = h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    topic(h, replicas="1")
    store = Store()
    store.feed([row for row in h.rows if row is not gone or not late])
    h.mark(1.0)
    store.feed([*([gone] if late else []), h.rows[-1]])
    assert [e[0] for e in events(store, "under-replicated-probe-topic")] == ["opened"]


@FEEDS
def test_what_is_not_told_of_a_topic_is_not_judged_and_who_asks_is_no_setting(fed: Callable[[History], Store]) -> None:
    h = History()
    told = {name: value for name, value in SAFE.items() if name != "replicas"} | {ASKED: "7"}
    h.row("o", "offsets", log_start=0, log_end=0, last_stable=0, settings=told)
    h.mark(1.0)
    assert kinds(fed(h)) & BOTH == set()
    h = History()
    topic(h, unclean_leader_election="true", **{ASKED: "7"})
    h.row("o", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    h.mark(1.0)
    evidence = {**SAFE, "unclean_leader_election": "true"}
    message = "of the probe topic, unclean leader election is on"
    assert whole(fed(h), ["unsafe-config"]) == [
        Told("unsafe-config", (), message, evidence, 0.002, None, "opened"),
        Told("unsafe-config", (), "unsafe-config ended after 1.0 s", {"lasted_s": 1.004}, 1.006, None, "closed"),
    ]
