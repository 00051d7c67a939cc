"""Transactions that wait for long wait apart (`rules.checks.transactions.set_aside`), and what is found is the same:
guilty histories beside their innocent twins, with more transactions than are looked at in each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rules.checks.transactions import set_aside, transaction_outcomes
from rules.checks.transactions.transaction_runs import Outcomes, Written
from rules.engine import order
from rules.kept.state import load
from rules.vocabulary.slices import Place
from tests.rules.conditions.liveness_of import at_once
from tests.rules.histories import History, Store
from tests.rules.splits import fed_in_any_way, in_random_pieces
from tests.rules.transactions.test_transactions import (
    NS,
    TORN_CASES,
    ZOMBIE_CASES,
    Log,
    T,
    _alone,
    begun,
)
from tests.rules.whole import Told, whole

MANY, GUILTY = 60, 21
NAMES = ("torn-transaction", "zombie-write", "lost-write", "G1a", "misleading-error", "window-overflow")


def outcomes(store: Store, partition: int = 0) -> Outcomes:
    hot = store.stored[Place("c", "t", partition)].hot
    assert hot is not None
    found: Outcomes = order.own(load(hot, order.KINDS), transaction_outcomes.CHECK)
    return found


def with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """That are looked at in each step."""
    monkeypatch.setattr(transaction_outcomes, "CERTAIN_KEPT", 16)
    monkeypatch.setattr(transaction_outcomes, "INDEFINITE_KEPT", 4)
    monkeypatch.setattr(transaction_outcomes, "NAMES_KEPT", 4)
    monkeypatch.setattr(set_aside, "RUNS", 8)


@pytest.fixture
def hardly_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_outcomes, "CERTAIN_KEPT", 1)
    monkeypatch.setattr(transaction_outcomes, "INDEFINITE_KEPT", 1)
    monkeypatch.setattr(set_aside, "RUNS", 1)
    monkeypatch.setattr(set_aside, "EVERY", 0)
    monkeypatch.setattr(set_aside, "ROUND", 1)


def away(h: Log, type: str, *, guilty: bool, returns: bool = True) -> None:
    """A transaction a second, of a value in each of two partitions, which `r` reads at once; of one it is shown only
    half. What `q` reads, on a host that is away meanwhile, comes at the end: it was shown the other half, or not."""
    for partition in (0, 1):
        h.assign("q", partition=partition)
    h.wait(1)
    h.away.add("q")
    for i in range(MANY):
        h.transaction({0: (2 * i, 1, 2 * i), 1: (2 * i + 1, 1, 2 * i)}, type, op=i, txn=100 + i, name=f"x{i // 2}")
        here = type == "ok" or i == GUILTY
        if here:
            h.read(0, ("w", 2 * i, 1, 2 * i))
        if here and i != GUILTY:
            h.read(1, ("w", 2 * i + 1, 1, 2 * i))
        if not here:
            h.filled(0, i, 2 * i + 1)
        h.filled(1, MANY + i, 2 * i + 1)
        if i == GUILTY and not guilty:
            h.read(1, ("w", 2 * i + 1, 1, 2 * i), reader="q")
        h.wait(1)
    h.wait(20)
    if returns:
        h.away.clear()
    h.wait(300, every=2)


def found(h: Log, fed: Callable[[History], Store]) -> list[Told]:
    """Without what is told of the transaction behind, as much as has come, and of what stands between."""
    return [_alone(one) for one in whole(fed(h), NAMES)]


@pytest.mark.long
@pytest.mark.parametrize("guilty", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("type", ["ok", "fail", "info"])
def test_one_of_many_that_wait_for_a_host_is_found(type: str, guilty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told as it is where all are looked at in each step."""
    h = Log()
    away(h, type, guilty=guilty)
    expected = found(h, at_once)
    torn = [one.subject for one in expected if one.anomaly == "torn-transaction"]
    assert torn == ([(100 + GUILTY,)] if guilty else [])
    assert {one.evidence["transactional_id"] for one in expected} <= {f"x{GUILTY // 2}"}
    with_few(monkeypatch)
    assert found(h, in_random_pieces) == expected
    assert found(h, at_once) == expected


@pytest.mark.parametrize("guilty", [True, False], ids=["guilty", "innocent"])
def test_a_zombie_among_many_that_wait_for_a_host_is_found(guilty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That another life had taken its id over is known from the log of a host that is away."""
    with_few(monkeypatch)
    h = Log()
    begun(h)
    h.wait(1)
    h.away.add("u")
    begun(h, "u", 5.5 if guilty else 500.0)
    for i in range(1, MANY):
        h.transaction(
            {0: (i, 1, 2 * i)},
            op=i,
            txn=6 + i,
            ended=6.0 if i == 1 else 3.0 + 0.01 * i,
            boot="b",
            mono_invoked=2 * NS,
            mono_completed=9 * NS,
        )
        h.read(0, ("w", i, 1, 2 * i))
        h.wait(1)
    h.away.clear()
    h.wait(300, every=2)
    told = whole(in_random_pieces(h), NAMES)
    assert [(one.anomaly, one.subject) for one in told] == ([("zombie-write", (T, 1))] if guilty else [])


@pytest.mark.long
@pytest.mark.parametrize("guilty", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("many", [2, MANY], ids=["one", "many"])
def test_the_lives_that_it_asks_for_are_remembered_as_long_as_a_transaction_waits(
    many: int, guilty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are over, and so are a hundred that came after them, when the log is here of another that was away."""
    with_few(monkeypatch)
    h, store = Log(), Store()
    begun(h)
    begun(h, "u", 5.5)
    h.row("away", "init", op=0, transactional_id="y", boot="b", mono_invoked=NS, mono_completed=NS)
    h.wait(1)
    h.away.add("away")
    for i in range(1, many):
        h.transaction(
            {0: (i, 1, 2 * i)},
            op=i,
            txn=6 + i,
            ended=6.0 if i == 1 and guilty else 3.0 + 0.01 * i,
            boot="b",
            mono_invoked=2 * NS,
            mono_completed=9 * NS,
        )
        h.read(0, ("w", i, 1, 2 * i))
    for i in range(101):
        last = ("t", "u")[i] if i < 2 else f"p{i}"
        if i >= 2:
            h.row(
                last,
                "init",
                op=0,
                transactional_id="x" if i > 50 else f"x{i}",
                boot="b",
                mono_invoked=(20 + i) * NS,
                mono_completed=(20 + i) * NS,
            )
        h.row(last, "close")
        h.wait(4)
        h.processes = [name for name in h.processes if name != last]
        store.feed(h.rows)
        h.rows.clear()
    assert whole(store, NAMES) == []
    h.away.clear()
    for _ in range(60):
        h.wait(4)
        store.feed(h.rows)
        h.rows.clear()
    told = whole(store, NAMES)
    assert [(one.anomaly, one.subject) for one in told] == ([("zombie-write", (T, 1))] if guilty else [])


@pytest.mark.parametrize("guilty", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("type", ["ok", "info"])
def test_one_of_many_that_nobody_reads_is_found_when_somebody_does(
    type: str, guilty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader comes when all have been written. Half of one is missing."""
    h = Log()
    h.wait(1)
    for i in range(MANY):
        h.transaction({0: (2 * i, 1, 2 * i), 1: (2 * i + 1, 1, 2 * i)}, type, op=i, txn=100 + i)
        h.wait(1)
    for i in range(0, MANY, 10):
        for partition in (0, 1):
            runs = [("w", 2 * k + partition, 1, 2 * k) for k in range(i, i + 10) if k != GUILTY or not partition]
            h.read(partition, *runs, *([] if guilty or i else [("w", 2 * GUILTY + 1, 1, 2 * GUILTY)]))
        h.wait(1)
    h.wait(300, every=2)
    expected = found(h, at_once)
    assert [one.subject for one in expected if one.anomaly == "torn-transaction"] == (
        [(100 + GUILTY,)] if guilty else []
    )
    with_few(monkeypatch)
    assert found(h, in_random_pieces) == expected


def test_what_waits_apart_leaves_when_it_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    with_few(monkeypatch)
    h = Log()
    away(h, "fail", guilty=True, returns=False)
    waiting = outcomes(at_once(h))
    assert len(waiting.written) <= 16 and waiting.aside.runs.sum() + len(waiting.written) >= MANY - 1
    h = Log()
    away(h, "fail", guilty=True)
    store = in_random_pieces(h)
    assert not len(outcomes(store).aside)
    assert not [name for name in store.stored[Place("c", "t", 0)].chunks if name.startswith("set-aside")]


def test_what_is_dropped_of_too_many_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with_few(monkeypatch)
    monkeypatch.setattr(set_aside, "KEPT", 4)
    h = Log()
    away(h, "fail", guilty=True)
    told = [one for one in whole(in_random_pieces(h), NAMES) if one.anomaly == "window-overflow"]
    assert [(one.subject, one.event) for one in told] == [(("transactions",), "opened")] * 2  # of each partition
    assert all(one.evidence["dropped"] >= 8 for one in told)


@pytest.mark.slow
@fed_in_any_way
@pytest.mark.parametrize(("build", "expected"), TORN_CASES, ids=[case[0].__name__ for case in TORN_CASES])
def test_torn_where_hardly_any_are_looked_at_in_each_step(
    build: Callable[[Log], None], expected: list[Told], fed: Callable[[History], Store], hardly_any: None
) -> None:
    h = Log()
    h.filled(1, 0, 4)
    build(h)
    assert whole(fed(h), ("torn-transaction",)) == expected


@pytest.mark.slow
@fed_in_any_way
@pytest.mark.parametrize(("build", "expected"), ZOMBIE_CASES, ids=[case[0].__name__ for case in ZOMBIE_CASES])
def test_zombies_where_hardly_any_are_looked_at_in_each_step(
    build: Callable[[Log], None], expected: list[Told], fed: Callable[[History], Store], hardly_any: None
) -> None:
    h = Log()
    build(h)
    assert whole(fed(h), ("zombie-write",)) == expected


@pytest.mark.parametrize("type", ["fail", "info"])
def test_what_is_polled_after_all_is_told_with_its_transaction(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that nobody was shown the first is polled at last; others are not."""
    h = Log()
    h.wait(1)
    for i in range(MANY):
        h.transaction({0: (2 * i, 2, 3 * i)}, type, op=i, txn=100 + i, name=f"x{i}", error="INVALID_TXN_STATE")
        h.wait(1)
    h.read(0, ("w", 3, 1, 4))
    h.wait(20)
    expected = found(h, in_random_pieces)
    wanted = "G1a" if type == "fail" else "misleading-error"
    assert [one.anomaly for one in expected].count(wanted) == 1
    if type == "fail":
        assert {"txn": 101, "told": "aborted", "transactional_id": "x1"}.items() <= expected[0].evidence.items()
    with_few(monkeypatch)
    assert found(h, in_random_pieces) == expected


@pytest.mark.parametrize(
    ("ops", "parts"),
    [
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], [(0, 6), (6, 9)]),
        ([0, 1, 2, 3, 4], [(0, 4), (4, 5)]),
        ([0, 0, 0, 0, 0, 0, 0], [(0, 7)]),
        ([0, 1], [(0, 2)]),
        ([], []),
    ],
)
def test_a_parcel_holds_whole_operations(
    ops: list[int], parts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_aside, "RUNS", 4)
    of_one = np.array(ops, np.int64)
    rows = Written(process=np.zeros(len(ops), np.int64), op=of_one)
    assert [(part.start, part.stop) for part in set_aside._parts(rows)] == parts
