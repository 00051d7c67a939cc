"""What became of writes: phantoms, zombies, errors that mislead, transactions seen in part."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rules.checks.transactions.transaction_outcomes import NAMES_KEPT
from rules.checks.transactions.transaction_runs import Outcomes
from rules.engine.order import KINDS
from rules.kept.state import load
from rules.settling.transactional_ids import KEPT, NAME, inits
from rules.vocabulary.slices import Run
from tests.rules.histories import History, Store, found, number, without

W = number("w")
Findings = set[tuple[str, tuple[int | str, ...]]]
SECOND = 1_000_000_000


def settle(h: History, seconds: int = 30) -> None:
    for _ in range(seconds):
        h.observe(end=100)
        h.mark(1.0)


def step_through(h: History, seed: int | None) -> Store:
    store = Store()
    rng = random.Random(seed)
    rows = list(h.rows)
    if seed is not None:
        late = {row.process: rng.choice((0, 0, 4, 20)) for row in rows}
        rows = [rows[i] for i in sorted(range(len(rows)), key=lambda i: (i + late[rows[i].process] * rng.random(), i))]
    while rows:
        size = 1 if seed is None else rng.randint(1, 20)
        store.feed(rows[:size])
        rows = rows[size:]
    return store


def found_whole_and_live(build: Callable[[History], None], expected: Findings, seed: int | None) -> None:
    """What is found in the finished history, and live: row by row, or in the random batches of `seed`."""
    h = History()
    h.assign("r")
    build(h)
    whole = Store()
    whole.feed(h.rows, finished=True)
    assert found(whole.findings) == expected
    settle(h)
    assert found(step_through(h, seed).findings) == expected


# phantom-read


def phantom(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0), ("w", 7, 1, 3)])


def phantom_of_a_silent_writer(h: History) -> None:
    h.start("w", writer=str(W))
    h.poll("r", [("w", 0, 1, 0)])


def sent_later_than_polled(h: History) -> None:
    """The send was under way when the value was polled: its row comes after."""
    early = h.at(h.time)
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0), ("w", 3, 1, 3)])
    h.send("w", 3, 1, at=3, invoked=early)


def of_a_host_whose_clock_is_ahead(h: History) -> None:
    """The writer's log is there past the poll by its own clock, and only then comes the send that was polled."""
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0), ("w", 3, 1, 3)])
    h.observe(end=4)
    h.mark(2.0)
    h.send("w", 3, 1, at=3)


def of_an_unknown_writer(h: History) -> None:
    h.poll("r", [("w", 0, 3, 0)])


def indefinite_and_polled(h: History) -> None:
    h.send("w", 0, 3, at=None, type="info")
    h.poll("r", [("w", 0, 3, 0)])


PHANTOMS: list[tuple[Callable[[History], None], Findings]] = [
    (phantom, {("phantom-read", (W, 7))}),
    (phantom_of_a_silent_writer, {("phantom-read", (W, 0))}),
    (sent_later_than_polled, set()),
    (of_a_host_whose_clock_is_ahead, set()),
    (of_an_unknown_writer, set()),
    (indefinite_and_polled, set()),
]


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
@pytest.mark.parametrize(("build", "expected"), PHANTOMS, ids=[c[0].__name__ for c in PHANTOMS])
def test_phantoms(build: Callable[[History], None], expected: Findings, seed: int | None) -> None:
    found_whole_and_live(build, expected, seed)


def test_no_phantom_while_its_writer_s_log_is_incomplete() -> None:
    h = History()
    h.assign("r")
    h.start("w", writer=str(W))
    h.send("w", 0, 1, at=0)
    hidden = h.send("w", 1, 1, at=1)
    h.poll("r", [("w", 0, 2, 0)])
    settle(h)
    h.rows.remove(hidden)
    store = step_through(h, None)
    assert found(store.findings) == set()
    store.feed([hidden])
    store.feed([h.mark(1.0)])
    assert found(store.findings) == set()


# zombie-write: two lives of one transactional id


def life(h: History, process: str, at: float, boot: str = "b") -> None:
    mono = int(at * SECOND)
    h.row(
        process,
        "init",
        transactional_id="x",
        boot=boot,
        mono_invoked=mono - 1000,
        mono_completed=mono,
    )


def transaction(
    h: History, process: str, ended: float | None, type: str = "ok", *, polled: bool = True, **more: Any
) -> None:
    mono = None if ended is None else int(ended * SECOND)
    told: dict[str, Any] = {
        "boot": "b",
        "transactional_id": "x",
        "txn": 5,
        "txn_intent": "commit",
        "txn_partitions": [("topic", 0)],
    } | more
    h.row(
        process,
        "txn",
        type=type,
        sent=[Run(W, 0, 0 if type == "ok" else None, 2)],
        mono_end_invoked=mono,
        op=9,
        mono_invoked=0,
        mono_completed=(mono or 0) + 1000,
        **told,
    )
    if polled:
        h.poll("r", [("w", 0, 2, 0)])


def committed_after_its_successor_began(h: History) -> None:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", 6)


def committed_before(h: History) -> None:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", 4)


def never_committed(h: History) -> None:
    life(h, "first", 1)
    transaction(h, "first", None, "info")


def perhaps_committed(h: History) -> None:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", 4, "info")


def of_another_id(h: History) -> None:
    life(h, "first", 1)
    h.row("second", "init", transactional_id="y", boot="b", mono_invoked=4 * SECOND, mono_completed=5 * SECOND)
    transaction(h, "first", 6)


def on_another_boot(h: History) -> None:
    """Clocks that cannot be compared prove nothing."""
    life(h, "first", 1)
    life(h, "second", 5, boot="another")
    transaction(h, "first", 6)


def the_successor_itself(h: History) -> None:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "second", 6)


def the_id_came_back(h: History) -> None:
    """As a transform's partition may: first, second, and the first process again."""
    life(h, "first", 1)
    life(h, "second", 3)
    life(h, "first", 5)
    transaction(h, "first", 6)


def never_committed_by_one_that_begins_at_no_time(h: History) -> None:
    """When it took the id is not known: somebody may have ended its transaction for it."""
    h.row("first", "init", transactional_id="x", boot="b")
    transaction(h, "first", None, "info")


def committed_at_no_time(h: History) -> None:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", None)


ZOMBIE: Findings = {("zombie-write", (number("first"), 9))}
ZOMBIES: list[tuple[Callable[[History], None], Findings]] = [
    (committed_after_its_successor_began, ZOMBIE),
    (committed_before, set()),
    (never_committed, ZOMBIE),
    (perhaps_committed, set()),
    (of_another_id, set()),
    (on_another_boot, set()),
    (the_successor_itself, set()),
    (the_id_came_back, set()),
    (never_committed_by_one_that_begins_at_no_time, set()),
    (committed_at_no_time, set()),
]


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
@pytest.mark.parametrize(("build", "expected"), ZOMBIES, ids=[c[0].__name__ for c in ZOMBIES])
def test_zombies(build: Callable[[History], None], expected: Findings, seed: int | None) -> None:
    found_whole_and_live(build, expected, seed)


def test_the_first_rows_of_one_that_never_committed_may_come_after_all_others() -> None:
    h, store = History(), Store()
    never_committed(h)
    late, others = h.rows[0], h.rows[1:]
    assert late.f == "init"
    store.feed([*others, h.mark(0.5)])
    store.feed([h.mark(2.0)])
    assert found(store.findings) == set(), "nobody knows yet what it had begun with"
    store.feed([late])
    store.feed([h.mark(4.0)])
    assert found(store.findings) == ZOMBIE


@pytest.mark.parametrize("before", [True, False])
def test_a_row_that_is_missing_matters_where_it_may_tell_of_the_commit(before: bool) -> None:
    """It is refused, and its process never heard of again."""
    h, store = History(), Store()
    h.assign("r")
    life(h, "first", 1)
    h.mark(1.0)
    missing = h.send("first", 0, at=50)
    h.send("first", 30, at=49)
    h.mark(1.0)
    transaction(h, "first", None, "info", polled=False)
    missing = missing if before else h.send("first", 40, at=48)
    h.poll("r", [("w", 0, 2, 0)])
    h.send("first", 41, at=47)
    h.mark(1.0)
    h.processes.remove("first")
    for i in range(40):
        h.send("other", 1 + i, at=51 + i)
        h.mark(1.0)
    for row in without(h.rows, [missing]):
        store.feed([row])
    zombies = [one.subject for one in store.findings if one.anomaly == "zombie-write"]
    assert zombies == ([(number("first"), 9)] if before else [])


def of_several_successors(h: History) -> Findings:
    """The first one after it had begun had fenced it."""
    for process, at in (("third", 5.5), ("second", 5), ("earlier", 0.5), ("first", 1), ("fourth", 7), ("first", 8)):
        life(h, process, at)
    transaction(h, "first", 6)
    return ZOMBIE


def aborted_after_its_successor_began(h: History) -> Findings:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", 6, "fail")
    return set()


def of_which_nobody_knows_when_it_began(h: History) -> Findings:
    transaction(h, "first", None, "info")
    return set()


def of_a_host_without_a_clock(h: History) -> Findings:
    life(h, "first", 1)
    life(h, "second", 5)
    transaction(h, "first", 6, boot=None)
    return set()


@pytest.mark.parametrize(
    "build",
    [
        of_several_successors,
        aborted_after_its_successor_began,
        of_a_host_without_a_clock,
        of_which_nobody_knows_when_it_began,
    ],
)
def test_zombies_among_others(build: Callable[[History], Findings]) -> None:
    h, store = History(), Store()
    expected = build(h)
    store.feed(h.rows, finished=True)
    told = [f for f in store.findings if f.anomaly == "zombie-write"]
    assert {(f.anomaly, f.subject) for f in told} == expected
    for one in told:
        assert (one.evidence["later_process"], one.evidence["late_by_s"]) == (number("second"), 1.0)


def test_an_aborted_transaction_that_shows_is_G1a_and_no_zombie() -> None:
    h = History()
    h.assign("r")
    life(h, "first", 1)
    transaction(h, "first", None, "fail")
    settle(h)
    assert {name for name, _ in found(step_through(h, None).findings)} == {"G1a"}


# Classified


@pytest.mark.parametrize(("error", "expected"), [("INVALID_TXN_STATE", 1), ("_TIMED_OUT", 0), (None, 0)])
def test_an_error_that_misleads(error: str | None, expected: int) -> None:
    h = History()
    h.assign("r")
    life(h, "first", 1)
    transaction(h, "first", 2, "info", error=error)
    settle(h)
    store = step_through(h, None)
    assert found(store.findings) == set()
    assert [f.anomaly for f in store.findings].count("misleading-error") == expected


def test_a_send_whose_error_misleads() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 2, at=None, type="info", error="NOT_LEADER_FOR_PARTITION")
    h.send("w", 2, 2, at=None, type="info", error="NOT_LEADER_FOR_PARTITION")
    h.poll("r", [("w", 0, 2, 0)])
    settle(h)
    (finding,) = (f for f in step_through(h, None).findings if f.anomaly == "misleading-error")
    assert finding.subject == (number("w"), 0)


def test_a_transaction_seen_in_part_is_counted_live_and_listed_in_files() -> None:
    h = History()
    h.assign("r")
    transaction(h, "first", 2, polled=False)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 1, 1)])
    whole = Store()
    whole.feed(h.rows, finished=True)
    parts = [f.subject for f in whole.findings if f.anomaly == "G1b"]
    assert sorted(parts) == [(5, number("r"), 1), (5, number("r"), 2)]
    settle(h)
    store = step_through(h, None)
    assert [f for f in store.findings if f.anomaly == "G1b"] == []
    (kept,) = store.stored.values()
    assert kept.hot is not None
    assert load(kept.hot, KINDS).checks["transaction-outcomes"].partial_reads == 2


def test_names_of_transactional_ids_are_forgotten() -> None:
    h, store = History(), Store()
    for i in range(600):
        name = f"p{i}"
        h.row(name, "init", transactional_id=f"id-{i}", boot="b", mono_invoked=i, mono_completed=i + 1)
        h.row(name, "close")
        h.mark(1.0)
        if i % 20 == 0:
            store.feed(h.rows)
            h.rows = []
            h.processes = h.processes[-3:]
    (kept,) = store.stored.values()
    assert kept.hot is not None
    state = load(kept.hot, KINDS)
    outcomes = state.checks.get("transaction-outcomes", Outcomes())
    assert len(outcomes.names) <= NAMES_KEPT
    assert len(inits(state, "id-1")) == 0
    assert len(state.checks[NAME].inits) <= KEPT
