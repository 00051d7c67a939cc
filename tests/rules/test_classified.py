"""`misleading-fence`, `rebalance`, `abort-position`: what is counted and judges nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.policy import severity
from tests.rules.conditions.liveness_of import at_once, row_by_row, shuffled
from tests.rules.histories import History, Store, number, singly

T = number("t")


def finished(h: History) -> Store:
    store = Store()
    store.feed(h.rows, finished=True)
    return store


FEEDS = pytest.mark.parametrize(
    "fed",
    [row_by_row, at_once, lambda h: shuffled(h, 4), finished],
    ids=["row_by_row", "at_once", "shuffled", "finished"],
)


def of(store: Store, name: str) -> list[tuple[int | str, ...]]:
    return sorted(f.subject for f in store.findings if f.anomaly == name)


def fenced(h: History, *, others: tuple[str, ...] = (), before: tuple[str, ...] = (), **more: Any) -> None:
    """`t` hears that it was fenced; `others` (processes of its id) began before that and after it, `before` before."""
    for name in before:
        h.row(name, "init", transactional_id="x")
    h.row("t", "init", transactional_id="x")
    h.row("v", "init", transactional_id="y")
    for name in others:
        h.row(name, "init", transactional_id="x")
    error = more.pop("error", "PRODUCER_FENCED")
    h.txn("t", sends=[("t", 0, 1, None)], type="info", txn=1, transactional_id="x", error=error, **more)
    for _ in range(3):
        h.mark(1.0)


@FEEDS
@pytest.mark.parametrize("error", ["PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_fenced_by_nobody(error: str, fed: Callable[[History], Store]) -> None:
    h = History()
    fenced(h, error=error, before=("s",))
    assert of(fed(h), "misleading-fence") == [(T, 1)]


@FEEDS
@pytest.mark.parametrize(
    "more",
    [{"others": ("u",)}, {"error": "_TIMED_OUT"}, {"txn_partitions": [("topic", 0), ("a-topic", 3)]}],
    ids=["by a successor", "another error", "reported in another partition"],
)
def test_no_misleading_fence(more: dict[str, Any], fed: Callable[[History], Store]) -> None:
    h = History()
    fenced(h, **more)
    assert of(fed(h), "misleading-fence") == []


@FEEDS
def test_a_successor_that_came_after_the_error_did_not_fence_it(fed: Callable[[History], Store]) -> None:
    h = History()
    fenced(h)
    h.row("u", "init", transactional_id="x")
    h.mark(1.0)
    assert of(fed(h), "misleading-fence") == [(T, 1)]


def test_of_many_in_a_backlog_each_is_told() -> None:
    h = History()
    for i in range(100):
        h.row(f"t{i}", "init", transactional_id=f"x{i}")
        of_its_own: dict[str, Any] = {"type": "info", "txn": i, "transactional_id": f"x{i}", "error": "PRODUCER_FENCED"}
        h.txn(f"t{i}", sends=[(f"t{i}", 0, 1, None)], **of_its_own)
    for _ in range(3):
        h.mark(1.0)
    assert of(at_once(h), "misleading-fence") == sorted((number(f"t{i}"), 1) for i in range(100))


def test_a_successor_whose_row_is_still_to_come() -> None:
    h = History()
    fenced(h, others=("u",))
    late = next(row for row in h.rows if row.process == number("u"))
    h.rows.remove(late)
    store = Store()
    for row in singly(h.rows):
        store.feed(row)
    assert of(store, "misleading-fence") == []
    store.feed([late])
    store.feed([h.mark(1.0)])
    assert of(store, "misleading-fence") == []


def rebalanced(h: History) -> None:
    r: dict[str, Any] = {"f": "assign", "mode": "subscribe"}
    h.row("r", "subscribe", assigned=False, mode="subscribe")
    h.row("r", **r, assigned=True)
    h.row("r", **r, assigned=True)
    h.row("r", "revoke", assigned=False, mode="subscribe")
    h.row("r", **r, assigned=False)
    h.row("r", **r, assigned=True)
    for _ in range(3):
        h.mark(1.0)


@FEEDS
def test_each_gain_and_loss_of_a_partition_is_counted_once(fed: Callable[[History], Store]) -> None:
    h = History()
    rebalanced(h)
    store = fed(h)
    assert of(store, "rebalance") == [(number("r"), op) for op in (1, 3, 5)]
    changes = Counter(f.context["change"] for f in store.findings if f.anomaly == "rebalance")
    assert changes == {"gained": 2, "lost": 1}


@FEEDS
def test_a_reader_in_assign_mode_and_a_close_are_no_rebalance(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.assign("r", assigned=False)
    h.row("g", "assign", assigned=False, mode="subscribe")
    h.row("g", "close")
    h.row("s", "subscribe", mode="subscribe")  # which says nothing of what it is given
    for _ in range(3):
        h.mark(1.0)
    assert of(fed(h), "rebalance") == []


@FEEDS
def test_who_held_a_partition_in_assign_mode_is_given_it_as_a_member(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.row("r", "assign", assigned=True, mode="subscribe")
    for _ in range(3):
        h.mark(1.0)
    assert of(fed(h), "rebalance") == [(number("r"), 1)]


@FEEDS
@pytest.mark.parametrize(
    ("after", "expected"), [(20, "advance"), (10, "rewind"), (7, "rewind-further"), (14, "other"), (25, "other")]
)
@pytest.mark.parametrize("rebalanced", [True, False])
def test_where_a_consumer_stands_after_an_abort(
    after: int, expected: str, rebalanced: bool, fed: Callable[[History], Store]
) -> None:
    h = History()
    h.row("a", "position", txn=5, position_before=10, reached=20, position_after=after, rebalanced=rebalanced)
    h.mark(1.0)
    (finding,) = (f for f in fed(h).findings if f.anomaly == "abort-position")
    assert finding.subject == (number("a"), 5)
    assert finding.context == {"class": expected, "rebalanced": "true" if rebalanced else "false"}
    assert severity(finding.anomaly, finding.context) == "info"


@FEEDS
def test_an_ordinary_position_is_no_abort(fed: Callable[[History], Store]) -> None:
    h = History()
    h.row("a", "position", position_before=10, position_after=10)
    h.mark(1.0)
    assert of(fed(h), "abort-position") == []


def test_a_position_after_an_abort_moves_nobody() -> None:
    """A rewind to the log's start after an abort is no spurious zero: the probe goes back by itself."""
    h = History()
    h.assign("a")
    h.poll("a", [("w", 0, 5, 0)])
    h.row("a", "position", txn=5, position_before=5, reached=9, position_after=0)
    for _ in range(15):
        h.mark(1.0)
    assert {f.anomaly for f in row_by_row(h).findings} <= {"abort-position"}


FENCED: dict[str, Any] = {"type": "info", "txn": 1, "transactional_id": "x", "error": "PRODUCER_FENCED"}


def settled(h: History) -> History:
    for _ in range(3):
        h.mark(1.0)
    return h


@FEEDS
def test_a_fence_of_a_process_whose_own_init_is_not_known(fed: Callable[[History], Store]) -> None:
    """Who began before it, nobody knows: its successor may have, or not."""
    alone, followed = History(), History()
    for h in (alone, followed):
        h.txn("t", sends=[("t", 0, 1, None)], **FENCED)
    followed.row("u", "init", transactional_id="x")
    for h in (alone, followed):
        assert of(fed(settled(h)), "misleading-fence") == []


@FEEDS
def test_a_client_that_is_closed_writes_nothing(fed: Callable[[History], Store]) -> None:
    h = History()
    h.row("t", "init", transactional_id="x")
    h.row("t", "close", type="info", transactional_id="x", error="_FENCED")
    assert of(fed(settled(h)), "misleading-fence") == []


@FEEDS
def test_a_subscription_alone_gives_nothing(fed: Callable[[History], Store]) -> None:
    h = History()
    h.row("r", "subscribe", mode="subscribe")
    assert of(fed(settled(h)), "rebalance") == []


@FEEDS
def test_a_reader_that_was_assigned_and_then_subscribed(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.row("r", "assign", mode="subscribe", assigned=True)
    assert of(fed(settled(h)), "rebalance") == [(number("r"), 1)]


@FEEDS
def test_a_position_of_no_transaction_is_no_abort(fed: Callable[[History], Store]) -> None:
    h = History()
    h.row("a", "position", position_before=10, reached=20, position_after=10)
    assert of(fed(settled(h)), "abort-position") == []


@pytest.mark.parametrize("build", [fenced, rebalanced])
def test_rows_that_come_twice_are_told_once(build: Callable[[History], None]) -> None:
    h = History()
    build(h)
    h.row("a", "position", txn=5, position_before=10, reached=20, position_after=20, rebalanced=False)
    store = row_by_row(settled(h))
    assert of(store, "abort-position") != []
    assert store.feed(h.rows) == []
    assert store.feed([h.mark(1.0), h.mark(1.0)]) == []
