"""`under-replicated-probe-topic` and `unsafe-config`: settings that were told, beside those that are as promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.liveness_of import at_once, events, kinds, row_by_row

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
SAFE = {
    "replicas": "3", "replicas_asked": "3", "min_insync": "2", "min_insync_asked": "2", "created_by": "offsetwatch",
    "unclean_leader_election": "false", "cleanup_policy": "delete",
}  # fmt: skip
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
        ("opened", ()), ("opened", ("cleanup.policy",)), ("closed", ("cleanup.policy",)), ("closed", ()),
    ]  # fmt: skip


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
