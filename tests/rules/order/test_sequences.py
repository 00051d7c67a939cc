"""`sequence-loss` against `benign-retention`: a broken sequence, and whether the log still reaches back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.arrays.columns import FEW
from rules.engine.order import KINDS
from rules.kept.state import load
from rules.vocabulary.slices import Run
from tests.rules.conditions.liveness_of import at_once, row_by_row, shuffled
from tests.rules.histories import History, Store, number

W = number("w")


def finished(h: History) -> Store:
    store = Store()
    store.feed(h.rows, finished=True)
    return store


FEEDS = pytest.mark.parametrize(
    "fed",
    [row_by_row, at_once, lambda h: shuffled(h, 2), finished],
    ids=["row_by_row", "at_once", "shuffled", "finished"],
)


def broken(
    h: History, *, start: int, error: str = "OUT_OF_ORDER_SEQUENCE_NUMBER", acknowledged: bool = True, **more: Any
) -> None:
    """Ten values are acknowledged at offsets 0 to 9, then the client reports a broken sequence."""
    if acknowledged:
        h.send("w", 0, 10, at=0)
        h.poll("r", [("w", 0, 10, 0)])
    h.observe(start=0, end=10)
    h.mark(1.0)
    f = "txn" if "txn_partitions" in more else "send"
    h.row("w", f, type="info", error=error, **more)
    for _ in range(3):
        h.observe(start=start, end=10)
        h.mark(1.0)


def verdicts(store: Store) -> set[tuple[str, tuple[int | str, ...]]]:
    return {(f.anomaly, f.subject) for f in store.findings if f.anomaly in ("sequence-loss", "benign-retention")}


@FEEDS
@pytest.mark.parametrize("error", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_GAPLESS_GUARANTEE"])
@pytest.mark.parametrize(("start", "name"), [(0, "sequence-loss"), (9, "sequence-loss"), (10, "benign-retention")])
def test_where_the_log_starts_decides(start: int, name: str, error: str, fed: Callable[[History], Store]) -> None:
    h = History()
    broken(h, start=start, error=error)
    assert verdicts(fed(h)) == {(name, (W, 1))}


@FEEDS
@pytest.mark.parametrize(
    "more",
    [{"error": "_MSG_TIMED_OUT"}, {"acknowledged": False}, {"txn_partitions": [("topic", 0), ("topic", 1)], "txn": 1}],
    ids=["another error", "nothing acknowledged", "a transaction over two partitions"],
)
def test_nothing_is_concluded(more: dict[str, Any], fed: Callable[[History], Store]) -> None:
    h = History()
    broken(h, start=0, **more)
    assert verdicts(fed(h)) == set()


@pytest.mark.parametrize("fed", [at_once, finished])
def test_a_broken_sequence_among_hundreds_of_rows(fed: Callable[[History], Store]) -> None:
    """What another writer sent failed otherwise, and what it was told of sequences where it polled breaks none."""
    h = History()
    broken(h, start=0)
    h.send("v", 0, 1, at=10)
    for _ in range(FEW):
        h.row("v", "send", type="info", error="_MSG_TIMED_OUT")
    h.row("v", "poll", type="info", error="UNKNOWN_PRODUCER_ID", mode="assign", isolation="read_committed")
    for _ in range(3):
        h.observe(start=0, end=11)
        h.mark(1.0)
    assert verdicts(fed(h)) == {("sequence-loss", (W, 1))}


@FEEDS
def test_a_log_that_was_cut_ends_below_what_it_lost(fed: Callable[[History], Store]) -> None:
    """It may never be as long again: that is not waited for."""
    h = History()
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)])
    h.mark(1.0)
    h.row("w", "send", type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    for _ in range(3):
        h.observe(start=0, end=5)
        h.mark(1.0)
    assert verdicts(fed(h)) == {("sequence-loss", (W, 1))}


@FEEDS
def test_what_comes_after_the_error_is_no_evidence(fed: Callable[[History], Store]) -> None:
    """The client recovered and wrote on: what it was acknowledged then does not make a loss of the retention before."""
    h = History()
    broken(h, start=10, error="UNKNOWN_PRODUCER_ID")
    h.send("w", 10, 5, at=10)
    h.poll("r", [("w", 10, 5, 10)])
    h.mark(1.0)
    assert verdicts(fed(h)) == {("benign-retention", (W, 1))}


@FEEDS
@pytest.mark.parametrize(
    ("given_up", "expected"),
    [
        ("before it was acknowledged anything again", {("sequence-loss", (W, 3))}),
        ("since then", set()),
        ("while it was told", set()),
        ("in a transaction that was aborted", set()),
        ("on nothing: what was aborted had been acknowledged", {("sequence-loss", (W, 3))}),
    ],
)
def test_a_client_that_gave_up_on_something_may_skip_its_numbers(
    given_up: str, expected: set[object], fed: Callable[[History], Store]
) -> None:
    """It goes on with the number after those that the broker never saw."""
    h = History()
    h.send("w", 0, 10, at=0)
    lost: dict[str, Any] = {"type": "info", "error": "_MSG_TIMED_OUT"}
    if given_up.startswith("before"):
        h.send("w", 10, 2, **lost)
        h.send("w", 12, 5, at=10)
    else:
        h.send("w", 10, 5, at=10)
        if given_up.startswith(("in", "on")):
            run = Run(W, 15, None if given_up.startswith("in") else 15, 2)
            h.row("w", "txn", type="fail", sent=[run], txn=7, transactional_id="t", error="_TIMED_OUT")
        else:
            when: dict[str, Any] = {"completed": h.at(1.5)} if given_up.startswith("while") else {}
            h.send("w", 15, 2, **lost, **when)
    h.poll("r", [("w", 0, 10, 0)])
    h.observe(start=0, end=15)
    h.mark(1.0)
    h.send("w", 17, 1, type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER", op=3)
    for _ in range(3):
        h.observe(start=0, end=15)
        h.mark(1.0)
    assert verdicts(fed(h)) == expected


def test_it_waits_for_a_log_start_after_the_error() -> None:
    h = History()
    h.send("w", 0, 10, at=0)
    h.observe(start=0, end=10)
    h.row("w", "send", type="info", error="UNKNOWN_PRODUCER_ID")
    for _ in range(3):
        h.mark(1.0)
    assert verdicts(row_by_row(h)) == set()


@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_values_that_nobody_polled_before_retention_took_them(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 4, 0)])
    for _ in range(20):
        h.observe(start=10, end=10)
        h.mark(1.0)
    store = fed(h)
    assert verdicts(store) == {("benign-retention", (W, 4))}
    assert "lost-write" not in {f.anomaly for f in store.findings}


@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_values_that_were_polled_before_retention_took_them(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)])
    for _ in range(20):
        h.observe(start=10, end=10)
        h.mark(1.0)
    assert verdicts(fed(h)) == set()


def another_gives_up(h: History) -> None:
    """And it had more acknowledged."""
    h.send("v", 0, 5, at=20)
    h.send("v", 5, 2, type="info", error="_MSG_TIMED_OUT")


def something_else_has_no_answer(h: History) -> None:
    h.row("w", "position", type="info", error="_TIMED_OUT")


def something_is_acknowledged_without_an_offset(h: History) -> None:
    h.send("w", 20, 1, at=None)


@FEEDS
@pytest.mark.parametrize(
    "before", [another_gives_up, something_else_has_no_answer, something_is_acknowledged_without_an_offset]
)
@pytest.mark.parametrize("partitions", [None, [("topic", 0)]])
def test_a_broken_sequence_among_others(
    before: Callable[[History], None], partitions: list[tuple[str, int]] | None, fed: Callable[[History], Store]
) -> None:
    """Another operation hears of a broken sequence, too, and what is given up later explains nothing."""
    h = History()
    h.send("w", 0, 10, at=0)
    h.observe(start=0, end=10)
    before(h)
    h.mark(1.0)
    h.row("w", "position", op=7, type="info", error="UNKNOWN_PRODUCER_ID")
    h.row(
        "w",
        "txn" if partitions else "send",
        op=8,
        type="info",
        error="UNKNOWN_PRODUCER_ID",
        txn=1 if partitions else None,
        txn_partitions=partitions or (),
    )
    h.mark(1.0)
    h.send("w", 30, 2, type="info", error="_MSG_TIMED_OUT")
    for _ in range(3):
        h.observe(start=0, end=30)
        h.mark(1.0)
    told = [f for f in fed(h).findings if f.anomaly == "sequence-loss"]
    assert [(f.subject, f.evidence["acknowledged"]) for f in told] == [((W, 8), 9)]


def test_a_broken_sequence_that_comes_twice_is_told_once() -> None:
    h = History()
    broken(h, start=0)
    store = at_once(h)
    again = list(h.rows)
    h.rows.clear()
    for _ in range(3):
        h.observe(start=0, end=10)
        h.mark(1.0)
    store.feed([*again, *h.rows])
    assert len([f for f in store.findings if f.anomaly == "sequence-loss"]) == 1


def test_what_was_acknowledged_just_before() -> None:
    """In the same second of log time, which is not over when both are here."""
    h, store = History(), Store()
    h.observe(start=0, end=0)
    h.time = 1.3
    h.send("w", 0, 10, at=0)
    h.row("w", "send", type="info", error="UNKNOWN_PRODUCER_ID")
    h.mark(0.4)
    store.feed(h.rows)
    h.rows.clear()
    for _ in range(3):
        h.observe(start=0, end=10)
        h.mark(1.0)
    store.feed(h.rows)
    assert verdicts(store) == {("sequence-loss", (W, 1))}


MANY = 100


def test_who_gave_up_before_many_others_did_may_skip_its_numbers_in_a_backlog() -> None:
    h = History()
    h.send("w", 0, 10, at=0)
    h.send("w", 10, 2, type="info", error="_MSG_TIMED_OUT")
    for i in range(MANY):
        h.send(f"other {i}", 0, 1, type="info", error="_MSG_TIMED_OUT")
    h.observe(start=0, end=10)
    h.mark(1.0)
    h.send("w", 12, 1, type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    for _ in range(3):
        h.observe(start=0, end=10)
        h.mark(1.0)
    assert verdicts(at_once(h)) == set()


def test_of_many_broken_sequences_in_a_backlog_each_is_told() -> None:
    h = History()
    for i in range(MANY):
        h.send(f"w{i}", 0, 1, at=i)
    h.observe(start=0, end=MANY)
    h.mark(1.0)
    for i in range(MANY):
        h.row(f"w{i}", "send", type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    for _ in range(3):
        h.observe(start=0, end=MANY)
        h.mark(1.0)
    assert verdicts(at_once(h)) == {("sequence-loss", (number(f"w{i}"), 1)) for i in range(MANY)}


@pytest.mark.parametrize("fed", [row_by_row, at_once, finished], ids=["row_by_row", "at_once", "finished"])
@pytest.mark.parametrize(
    ("gave_up", "expected"), [(True, set()), (False, {("sequence-loss", (W, 2))})], ids=["w too", "others alone"]
)
def test_who_gave_up_while_many_others_did_is_remembered(
    gave_up: bool, expected: set[object], fed: Callable[[History], Store]
) -> None:
    """In an outage nobody has an answer, second after second; the log tells of each of them in its time."""
    h = History()
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)])
    if gave_up:
        h.send("w", 10, 2, op=1, type="info", error="_MSG_TIMED_OUT")
    for i in range(MANY):
        h.send(f"other {i % 5}", i, 1, type="info", error="_MSG_TIMED_OUT")
        h.observe(start=0, end=10)
        h.mark(0.2)
    h.send("w", 12, 1, op=2, type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    for _ in range(3):
        h.observe(start=0, end=10)
        h.mark(1.0)
    assert verdicts(fed(h)) == expected


@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
@pytest.mark.parametrize("when", ["before it was acknowledged more", "since then", "after the error"])
def test_an_error_that_waits_is_told_apart_from_what_is_given_up_around_it(
    when: str, fed: Callable[[History], Store]
) -> None:
    """Its log start is not listed while others, and the writer itself, give up again and again."""
    h = History()
    lost: dict[str, Any] = {"type": "info", "error": "_MSG_TIMED_OUT"}
    h.send("w", 0, 10, op=0, at=0)
    if when.startswith("before"):
        h.send("w", 10, 2, op=1, **lost)
    h.mark(1.0)
    h.send("w", 12, 5, op=2, at=10)
    if when.startswith("since"):
        h.send("w", 17, 2, op=3, **lost)
    h.mark(1.0)
    h.send("w", 19, 1, op=4, type="info", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    for i in range(MANY):
        h.mark(0.2)
        h.send("w" if i % 2 else "v", 20 + i, 1, **lost)
    h.mark(1.0)
    for _ in range(3):
        h.observe(start=0, end=15)
        h.mark(1.0)
    assert verdicts(fed(h)) == (set() if when.startswith("since") else {("sequence-loss", (W, 4))})


def test_what_is_kept_of_those_who_gave_up_is_bounded_by_how_many_live() -> None:
    h, store = History(), Store()
    for i in range(6 * MANY):
        h.send(f"w{i % 3}", i, 1, type="info", error="_MSG_TIMED_OUT")
        h.mark(0.2)
        if i % 50 == 49:
            store.feed(h.rows)
            h.rows.clear()
    (stored,) = store.stored.values()
    assert stored.hot is not None
    assert len(load(stored.hot, KINDS).checks["sequence-loss"].unanswered) < MANY
