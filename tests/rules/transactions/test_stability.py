"""`hanging-transaction`, `unrecovered-transaction`, `stuck-close`: what does not end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from rules.checks.transactions.hanging_transactions import KEPT
from rules.engine.order import KINDS
from rules.kept.state import load
from rules.vocabulary.slices import Mark
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, delayed, events, kinds, row_by_row, shuffled
from tests.rules.histories import History, Store, number

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])


def seconds(h: History, count: int, *, end: int, stable: int) -> None:
    for _ in range(count):
        h.observe(end=end, stable=stable)
        h.mark(1.0)


def hanging(h: History) -> None:
    h.start("t", **{"transaction.timeout.ms": "10000"})
    h.txn("t", sends=[("t", 0, 3, None)], type="info", txn=1)
    seconds(h, 55, end=9, stable=3)


def ended_by_its_timeout(h: History) -> None:
    h.start("t", **{"transaction.timeout.ms": "10000"})
    h.txn("t", sends=[("t", 0, 3, None)], type="info", txn=1)
    seconds(h, 12, end=9, stable=3)
    seconds(h, 30, end=9, stable=9)


def ended_by_a_coordinator_that_took_over(h: History) -> None:
    """The one before was killed just as it was about to look."""
    h.start("t", **{"transaction.timeout.ms": "10000"})
    h.txn("t", sends=[("t", 0, 3, None)], type="info", txn=1)
    seconds(h, 39, end=9, stable=3)
    seconds(h, 30, end=9, stable=9)


def may_last_longer(h: History) -> None:
    """Another client may keep its transactions open for a minute."""
    h.start("v", **{"transaction.timeout.ms": "60000"})
    hanging(h)


def idle_and_then_open(h: History) -> None:
    """An idle log's stable offset has not moved for long; a transaction that begins now does not hang."""
    h.start("t", **{"transaction.timeout.ms": "10000"})
    seconds(h, 60, end=3, stable=3)
    seconds(h, 5, end=6, stable=3)
    seconds(h, 5, end=7, stable=7)


def held_while_nobody_looks(h: History) -> None:
    """The cluster is switched off with a transaction open, and ends it when it is back."""
    h.start("t", **{"transaction.timeout.ms": "10000"})
    h.txn("t", sends=[("t", 0, 3, None)], type="info", txn=1)
    seconds(h, 5, end=9, stable=3)
    for _ in range(280):
        h.mark(1.0)
    seconds(h, 3, end=9, stable=3)
    seconds(h, 10, end=9, stable=9)


@FEEDS
def test_a_hanging_transaction(fed: Callable[[History], Store]) -> None:
    h = History()
    hanging(h)
    seconds(h, 2, end=9, stable=9)
    assert [e[::2] for e in events(fed(h), "hanging-transaction")] == [("opened", 41), ("closed", 56)]


@FEEDS
def test_it_hangs_when_the_cluster_is_back_as_well(fed: Callable[[History], Store]) -> None:
    h = History()
    hanging(h)
    for _ in range(60):
        h.mark(1.0)
    h.rows = [row for row in h.rows if row.f != "offsets" or row.completed < h.at(10) or row.completed > h.at(114)]
    seconds(h, 45, end=9, stable=3)
    assert [e[0] for e in events(fed(h), "hanging-transaction")] == ["opened"]


def not_there(h: History, error: str, count: int = 1) -> None:
    for _ in range(count):
        h.row("observer", "offsets", type="info", error=error)
        h.mark(1.0)


@FEEDS
@pytest.mark.parametrize(
    ("error", "count", "closed"),
    [
        ("topic-replaced", 1, 56),
        ("UNKNOWN_TOPIC_OR_PART", 7, 61),
        ("UNKNOWN_TOPIC_OR_PART", 3, None),  # a broker that has just begun
        ("_TIMED_OUT", 7, None),
    ],
)
def test_nothing_hangs_in_a_topic_that_was_deleted(
    fed: Callable[[History], Store], error: str, count: int, closed: int | None
) -> None:
    h = History()
    hanging(h)
    not_there(h, error, count)
    if closed is None:
        seconds(h, 2, end=9, stable=3)
        not_there(h, error, 3)
    for _ in range(10):
        h.mark(1.0)
    ended = [] if closed is None else [("closed", closed)]
    assert [e[::2] for e in events(fed(h), "hanging-transaction")] == [("opened", 41), *ended]


def test_of_what_log_time_has_not_come_to_the_newest_is_kept() -> None:
    """A deleted topic's observers say that it is not there for as long as a host is late."""
    h = History()
    hanging(h)
    for _ in range(2 * KEPT):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        h.time += 1.0
    (stored,) = at_once(h).stored.values()
    assert stored.hot is not None
    absent = load(stored.hot, KINDS).checks["hanging-transaction"].absent
    assert KEPT <= len(absent) <= KEPT + 1
    assert max(absent)[0] == micros(h.rows[-1].completed)


@FEEDS
@pytest.mark.parametrize(
    "build",
    [
        ended_by_its_timeout,
        ended_by_a_coordinator_that_took_over,
        may_last_longer,
        idle_and_then_open,
        held_while_nobody_looks,
    ],
)
def test_transactions_that_end(build: Callable[[History], object], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert "hanging-transaction" not in kinds(fed(h))


def killed(
    h: History,
    *,
    init: str = "x",
    other: bool = False,
    stable: int = 0,
    at: int | None = 0,
    strange: int = 0,
    beside: int = 0,
) -> None:
    """A life is killed in its transaction; the next takes its id, and init_transactions returns."""
    h.row("t1", "init", transactional_id="x")
    seconds(h, 2, end=0, stable=0)
    h.txn("t1", sends=[("t1", 0, 3, at)], type="info", txn=1, transactional_id="x")
    if other:
        h.row("v", "init", transactional_id="y")
        h.txn("v", sends=[("v", 0, 3, None)], type="info", txn=2, transactional_id="y")
    h.row("t1", "close", type="info", error="process-died")
    if beside:
        h.send("w", 0, beside, at=3)
    seconds(h, 3, end=3 + strange + beside, stable=0)
    h.row("t2", "init", transactional_id=init)
    seconds(h, 1, end=4, stable=stable)
    seconds(h, 20, end=4, stable=stable)


@FEEDS
@pytest.mark.parametrize(
    ("at", "beside"),
    [(0, 0), (None, 0), (None, 2)],
    ids=["acknowledged there", "nobody else wrote", "others wrote beside"],
)
def test_an_earlier_life_still_holds_the_stable_offset(
    at: int | None, beside: int, fed: Callable[[History], Store]
) -> None:
    h = History()
    killed(h, at=at, beside=beside)
    seconds(h, 2, end=6, stable=6)
    assert [e[:2] for e in events(fed(h), "unrecovered-transaction")] == [("opened", ("x",)), ("closed", ("x",))]


def killed_beside_others(h: History) -> None:
    """What another id wrote elsewhere, began later, or had ended before, does not hold the stable offset."""
    early = h.at(h.time)
    h.row("t1", "init", transactional_id="x")
    seconds(h, 12, end=0, stable=0)
    h.txn("a", sends=[("a", 0, 1, None)], txn=5, transactional_id="ya", invoked=early)
    h.txn("b", sends=[("b", 0, 1, 2)], type="info", txn=6, transactional_id="yb")
    h.txn("t1", sends=[("t1", 0, 3, 0)], type="info", txn=1, transactional_id="x")
    h.row("t1", "close", type="info", error="process-died")
    seconds(h, 3, end=3, stable=0)
    h.txn("d", sends=[("d", 0, 1, None)], type="info", txn=7, transactional_id="yd")
    h.row("t2", "init", transactional_id="x")
    seconds(h, 21, end=4, stable=0)


@FEEDS
def test_an_earlier_life_beside_others(fed: Callable[[History], Store]) -> None:
    h = History()
    killed_beside_others(h)
    assert [e[:2] for e in events(fed(h), "unrecovered-transaction")] == [("opened", ("x",))]


@FEEDS
@pytest.mark.parametrize(
    "how",
    [{"stable": 4}, {"init": "z"}, {"other": True}, {"at": None, "strange": 1}, {"at": 1, "strange": 1}],
    ids=[
        "init ended it",
        "another id's init",
        "another id may hold it",
        "a stranger may hold it",
        "a stranger holds it",
    ],
)
def test_a_life_that_recovers(how: dict[str, object], fed: Callable[[History], Store]) -> None:
    h = History()
    killed(h, **how)  # type: ignore[arg-type]
    assert "unrecovered-transaction" not in kinds(fed(h))


@FEEDS
@pytest.mark.parametrize("told", [False, True], ids=["still open", "committed at last"])
def test_a_transaction_that_is_open_behind_one_that_was_aborted(fed: Callable[[History], Store], told: bool) -> None:
    """The next life's init ended the killed one's transaction, and another's holds the place behind it."""
    h = History()
    h.row("t1", "init", transactional_id="x")
    h.row("v", "init", transactional_id="y")
    seconds(h, 2, end=0, stable=0)
    h.txn("t1", sends=[("t1", 0, 3, None)], type="info", txn=1, transactional_id="x")
    h.row("t1", "close", type="info", error="process-died")
    began = h.at(h.time)
    seconds_held(h, 1, "v", began, end=4, stable=3)
    h.row("t2", "init", transactional_id="x")
    seconds_held(h, 30, "v", began, end=5, stable=3)
    if told:
        h.txn("v", sends=[("v", 0, 1, 3)], txn=2, transactional_id="y", invoked=began)
        seconds(h, 5, end=6, stable=6)
    assert "unrecovered-transaction" not in kinds(fed(h))


def seconds_held(h: History, count: int, name: str, began: datetime, *, end: int, stable: int) -> None:
    """Seconds in which something that this process began then is open."""
    slices = sum(row.process == number(name) for row in h.rows)
    for _ in range(count):
        h.observe(end=end, stable=stable)
        row = h.mark(1.0)
        row.marks = [Mark(number(name), slices, began) if m.process == number(name) else m for m in row.marks]


@pytest.mark.long
def test_recovery_in_any_order_of_arrival() -> None:
    h = History()
    killed(h)
    hanging(h)
    in_order, late = row_by_row(h), [delayed(h, seed) for seed in range(5)]
    for name in ("unrecovered-transaction", "hanging-transaction"):
        expected = events(in_order, name)
        assert [events(store, name) for store in late] == [expected] * 5


@FEEDS
def test_a_close_that_does_not_return(fed: Callable[[History], Store]) -> None:
    h = History()
    h.start("r")
    h.row("r", "close", type="info", error="_CLOSE_STUCK")
    h.mark(5.0)
    assert [e[:2] for e in events(fed(h), "stuck-close")] == [("opened", (number("r"),))]
    h.row("r", "close")
    h.mark(1.0)
    assert [e[0] for e in events(fed(h), "stuck-close")] == ["opened", "closed"]
    assert [e[0] for e in events(shuffled(h, 1), "stuck-close")] == ["opened", "closed"]


@FEEDS
def test_a_close_that_failed_returned(fed: Callable[[History], Store]) -> None:
    h = History()
    h.start("r")
    h.row("r", "close", type="info", error="_TRANSPORT")
    h.mark(5.0)
    assert "stuck-close" not in kinds(fed(h))
