"""Registers: the streaming check agrees with one that tries every order, and what it says does not depend on how the
log came. `op` and `history` are in tests/rules/cycles/linearizations.py; times there are seconds here."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.kept.chunks import Chunks
from rules.registers.blocks import NEVER, Op
from rules.registers.check import NAME, Kept, Registers, _load, _store
from rules.registers.form import pack, unpack
from rules.registers.linearizability import PENDING_KEPT, Register
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Mark, RegisterOp, Slice
from rules.vocabulary.times import micros
from tests.rules.cycles.linearizations import Steady, history, linearizable, op
from tests.rules.histories import START, Store, without

GRACE = 5
ASKED = os.environ.get("HISTORIES")
"""More histories than by default: `make search` tries many."""


def contradictions(ops: Sequence[Op], *, stored: int = 0) -> list[str]:
    """The reasons found, in the order found; the register is stored and restored after every `stored` operations."""
    register = Register()
    register.begin(0, 0)
    reasons: list[str] = []
    for count, one in enumerate(sorted(ops, key=lambda o: o[:4])):
        register.decide(one.at)
        register.take(one, GRACE)
        reasons += [c.reason for c in register.found]
        register.found = []
        if stored and count % stored == 0:
            register = unpack(orjson.loads(orjson.dumps(pack(register))))
    register.decide(NEVER)
    return reasons + [c.reason for c in register.found]


# Against the checker that tries every order


@pytest.mark.long
@pytest.mark.parametrize("wild", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("writes", [0.0, 0.3, 1.0])
def test_agrees_with_trying_every_order(writes: float, wild: float) -> None:
    guilty = 0
    for seed in range(1_500):
        ops = history(seed, clients=1 + seed % 4, length=1 + seed % 5, writes=writes, wild=wild)
        possible = linearizable(ops)
        assert (contradictions(ops) == []) == possible, (seed, ops)
        guilty += not possible
    assert guilty == 0 if wild == 0.0 else guilty > 100


IDS = st.integers(0, 5)


@st.composite
def anything(draw: st.DrawFn) -> list[Op]:
    """Operations that need not make any sense; written ids are unique."""
    ops = []
    for number in range(draw(st.integers(1, 6))):
        start, unknown = draw(st.integers(0, 12)), draw(st.integers(0, 3)) == 0
        end = NEVER if unknown else start + draw(st.integers(0, 8))
        action = draw(st.sampled_from(("write", "cas", "cas", "read")))
        type = "info" if unknown else draw(st.sampled_from(("ok", "ok", "fail")))
        tells = (action == "read" and type == "ok") or (action == "cas" and type == "fail")
        ops.append(
            op(
                number,
                0,
                start,
                end,
                action,
                type,
                None if action == "read" else number + 1,
                draw(IDS) if action == "cas" else None,
                draw(IDS) if tells else None,
            )
        )
    return ops


@pytest.mark.slow
@settings(max_examples=int(ASKED or 1_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(anything())
def test_agrees_where_nothing_makes_sense(ops: list[Op]) -> None:
    assert (contradictions(ops) == []) == linearizable(ops)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.sampled_from((0.0, 0.2)))
def test_a_stored_register_goes_on_as_it_was(seed: int, stored: int, wild: float) -> None:
    ops = history(seed, clients=3, length=8, writes=0.2, wild=wild)
    assert contradictions(ops, stored=stored) == contradictions(ops)


@pytest.mark.parametrize("seed", range(40))
def test_clocks_that_cannot_be_compared_accuse_nobody(seed: int) -> None:
    """Half of the clients are of another boot, whose clock stands elsewhere."""
    ops = history(seed, clients=4, length=10, writes=0.3, wild=0.0)
    skewed = [
        one._replace(boot="other", start=one.start + 7_000, end=one.end if one.end == NEVER else one.end + 7_000)
        if one.process % 2
        else one
        for one in ops
    ]
    assert contradictions(skewed) == []


# Guilty, and the innocent twin

A, B, C = 1, 2, 3
CASES = {
    "stale read": (
        [op(A, 0, 0, 2, "cas", id=5, expected=0), op(B, 0, 3, 4, "read", observed=0)],
        [op(A, 0, 0, 3, "cas", id=5, expected=0), op(B, 0, 3, 4, "read", observed=0)],
        ("stale", [(B, 0), (A, 0)]),
    ),
    "a read goes back": (
        [
            op(A, 0, 0, 20, "cas", id=5, expected=0),
            op(B, 0, 1, 2, "read", observed=5),
            op(C, 0, 3, 4, "read", observed=0),
        ],
        [
            op(A, 0, 0, 20, "cas", id=5, expected=0),
            op(B, 0, 1, 4, "read", observed=5),
            op(C, 0, 3, 4, "read", observed=0),
        ],
        ("stale", [(C, 0), (B, 0), (A, 0)]),
    ),
    "a cas applied twice": (
        [
            op(A, 0, 0, 1, "cas", id=5, expected=0),
            op(B, 0, 2, 3, "cas", id=6, expected=5),
            op(C, 0, 4, 5, "read", observed=6),
            op(C, 1, 6, 7, "read", observed=5),
        ],
        [
            op(A, 0, 0, 1, "cas", id=5, expected=0),
            op(B, 0, 2, 3, "cas", id=6, expected=5),
            op(C, 0, 4, 5, "read", observed=6),
            op(C, 1, 6, 7, "read", observed=6),
        ],
        ("stale", [(C, 1), (B, 0), (A, 0)]),
    ),
    "lost update": (
        [
            op(A, 0, 0, 2, "cas", id=5, expected=0),
            op(B, 0, 0, 2, "cas", id=6, expected=0),
        ],
        [
            op(A, 0, 0, 2, "cas", id=5, expected=0),
            op(B, 0, 0, 2, "cas", "fail", id=6, expected=0, observed=5),
        ],
        ("replaced-twice", [(B, 0), (A, 0)]),
    ),
    "a value never written": (
        [op(A, 0, 0, 2, "read", observed=77)],
        [op(A, 0, 0, 2, "read", observed=77), op(B, 0, 1, NEVER, "write", "info", id=77)],
        ("never-written", [(A, 0)]),
    ),
    "a failed write": (
        [op(B, 0, 0, 1, "write", "fail", id=5), op(A, 0, 2, 3, "read", observed=5)],
        [op(B, 0, 0, NEVER, "write", "info", id=5), op(A, 0, 2, 3, "read", observed=5)],
        ("never-written", [(A, 0), (B, 0)]),
    ),
    "an unknown write takes effect late": (
        [  # late, and between two that leave no room: 7 replaced 6 itself
            op(A, 0, 0, NEVER, "cas", "info", id=5, expected=0),
            op(B, 0, 2, 3, "cas", id=6, expected=0),
            op(C, 0, 9, 10, "read", observed=5),
        ],
        [
            op(A, 0, 0, NEVER, "write", "info", id=5),
            op(B, 0, 2, 3, "cas", id=6, expected=0),
            op(C, 0, 9, 10, "read", observed=5),
        ],
        ("stale", [(C, 0), (B, 0), (A, 0)]),
    ),
    "a write undone": (
        [
            op(A, 0, 0, 1, "write", id=5),
            op(B, 0, 2, 3, "write", id=6),
            op(C, 0, 4, 5, "read", observed=5),
        ],
        [
            op(A, 0, 0, 3, "write", id=5),
            op(B, 0, 2, 3, "write", id=6),
            op(C, 0, 4, 5, "read", observed=5),
        ],
        ("two-orders", [(C, 0), (A, 0), (B, 0)]),
    ),
    "a read before the write": (
        [op(A, 0, 0, 1, "read", observed=5), op(B, 0, 2, 3, "cas", id=5, expected=0)],
        [op(A, 0, 0, 2, "read", observed=5), op(B, 0, 2, 3, "cas", id=5, expected=0)],
        ("before-its-write", [(A, 0), (B, 0)]),
    ),
    "refused by what it expected": (
        [op(A, 0, 0, 1, "cas", "fail", id=5, expected=0, observed=0)],
        [op(A, 0, 0, 1, "cas", "fail", id=5, expected=9, observed=0)],
        ("refused-by-expected", [(A, 0)]),
    ),
}


def rows(ops: Sequence[Op], *, register: int = 3, until: int = 60) -> list[Slice]:
    """The log of these operations as it would come: each row when it completed, a mark a second."""
    slices: dict[int, int] = defaultdict(int)
    coming = sorted(ops, key=lambda one: (one.done, one.process, one.op))
    made: list[Slice] = []

    def add(process: int, f: Any, at: int, done: int, **more: Any) -> None:
        made.append(
            Slice(
                cluster="c",
                topic_id="t",
                topic="topic",
                partition=0,
                run="run",
                process=process,
                slice=slices[process],
                f=f,
                invoked=START + timedelta(seconds=at),
                completed=START + timedelta(seconds=done),
                **more,
            )
        )
        slices[process] += 1

    for process in sorted({one.process for one in ops}):
        add(process, "start", 0, 0, op=10_000, type="ok")
    for now in range(max(until, max(one.done for one in ops) + 30)):
        while coming and coming[0].done <= now:
            one = coming.pop(0)
            told = RegisterOp(register, one.action, one.id, one.expected, one.observed)  # type: ignore[arg-type]
            add(
                one.process,
                "register",
                one.at,
                one.done,
                op=one.op,
                type=one.type,
                registers=[told],
                boot=one.boot,
                mono_invoked=one.start,
                mono_completed=one.done,
            )
        busy = {one.process: one.at for one in reversed(coming) if one.at < now}
        marks = [
            Mark(p, slices[p], START + timedelta(seconds=busy.get(p, now)))
            for p in sorted({one.process for one in ops})
        ]
        add(99, "mark", now, now, op=now, type="ok", marks=marks)
    return made


def said(findings: Sequence[Finding]) -> set[tuple[str, tuple[int | str, ...]]]:
    return {(str(f.evidence["reason"]), f.subject) for f in findings if f.anomaly == "nonlinearizable-register"}


@pytest.mark.parametrize("finished", [False, True], ids=["live", "finished"])
@pytest.mark.parametrize("name", CASES)
def test_the_guilty_is_found_and_its_twin_is_not(name: str, finished: bool) -> None:
    guilty, innocent, (reason, ops) = CASES[name]
    store = Store()
    store.feed(rows(guilty), finished=finished)
    assert said(store.findings) == {(reason, (3, *(part for one in ops for part in one)))}
    store = Store()
    store.feed(rows(innocent), finished=finished)
    assert said(store.findings) == set()
    assert linearizable(innocent) and not linearizable(guilty)


def test_the_evidence_is_told_in_words() -> None:
    guilty, _, _ = CASES["a cas applied twice"]
    store = Store()
    store.feed(rows(guilty))
    (finding,) = [f for f in store.findings if f.anomaly == "nonlinearizable-register"]
    assert finding.message == (
        "register 3: process 3 read id 5 (operation 1, from 00:00:06.000000 until 00:00:07.000000); but id 5 had been"
        " replaced, as an operation shows that ended before it began; process 2 replaced id 5 by id 6 (operation 0,"
        " from 00:00:02.000000 until 00:00:03.000000); process 1 replaced id 0 by id 5 (operation 0, from"
        " 00:00:00.000000 until 00:00:01.000000)"
    )
    assert [one["op"] for one in finding.evidence["operations"]] == [1, 0, 0]


def told(one: Op) -> dict[str, Any]:
    """An operation as evidence tells it."""
    at, done = ((START + timedelta(seconds=seconds)).isoformat() for seconds in (one.at, one.done))
    return {
        "process": one.process,
        "op": one.op,
        "action": one.action,
        "type": one.type,
        "id": one.id,
        "expected": one.expected,
        "observed": one.observed,
        "invoked": at,
        "completed": done,
        "boot": one.boot,
        "mono_invoked": one.start,
        "mono_completed": None if one.type == "info" else one.done,
    }


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        (
            "an unknown write takes effect late",
            20,
            "process 1 replaced id 0 by id 5 (operation 0, from 00:00:00.000000 with unknown outcome)",
        ),
        (
            "a failed write",
            13,
            "process 2 wrote id 5 (operation 0, from 00:00:00.000000 until 00:00:01.000000)",
        ),
        (
            "refused by what it expected",
            1,
            "process 1 was refused to replace id 0 by id 5, and found id 0 (operation 0, from 00:00:00.000000 until"
            " 00:00:01.000000)",
        ),
    ],
)
def test_a_finding_tells_each_operation(name: str, at: int, words: str) -> None:
    guilty, _, (reason, ops) = CASES[name]
    store = Store()
    store.feed(rows(guilty))
    (finding,) = [f for f in store.findings if f.anomaly == "nonlinearizable-register"]
    assert words in finding.message
    by_name = {(one.process, one.op): one for one in guilty}
    assert finding.evidence == {"register": 3, "reason": reason, "operations": [told(by_name[one]) for one in ops]}
    assert finding.at == finding.decidable == micros(START + timedelta(seconds=at))


# How the log came


def shuffled(log: Sequence[Slice], seed: int, parts: int) -> Store:
    """Fed in random batches, each process's rows late by up to a bound of their own."""
    rng = random.Random(seed)
    late = {process: rng.choice((0, 0, 5, 60)) for process in sorted({row.process for row in log})}
    order = sorted(range(len(log)), key=lambda i: (i + late[log[i].process] * rng.random(), i))
    cuts = sorted(rng.randint(0, len(log)) for _ in range(parts))
    store = Store()
    for begin, end in pairwise([0, *cuts, len(log)]):
        if begin < end:
            store.feed([log[i] for i in order[begin:end]])
    return store


@pytest.mark.long
@settings(max_examples=int(ASKED or 30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9), st.integers(1, 40), st.sampled_from((0.0, 0.1, 0.3)))
def test_batches_and_arrival_do_not_matter(seed: int, parts: int, wild: float) -> None:
    log = rows(history(seed, clients=3, length=6, writes=0.3, wild=wild), until=90)
    once, whole = Store(), Store()
    once.feed(log)
    whole.feed(log, finished=True)
    assert said(shuffled(log, seed, parts).findings) == said(once.findings)
    assert bool(said(whole.findings)) == bool(said(once.findings))


@pytest.mark.parametrize("untold", ["mono_invoked", "mono_completed"])
@pytest.mark.parametrize("finished", [False, True], ids=["live", "finished"])
def test_an_operation_of_which_nobody_knows_when_it_was_accuses_nobody(untold: str, finished: bool) -> None:
    """The read began after the write had ended, as the two together would tell."""
    log, nothing = rows(CASES["stale read"][0]), dict[str, Any]({untold: None})
    log = [replace(row, **nothing) if row.process == B and row.f == "register" else row for row in log]
    store = Store()
    store.feed(log, finished=finished)
    assert said(store.findings) == set()


def test_an_operation_whose_row_comes_late_is_taken_in_its_turn() -> None:
    """What was invoked after it is not taken before it, and nothing is taken twice."""
    ops = [op(A, 0, 1, 20, "cas", id=5, expected=0), *(op(B, n, 21 + n, 22 + n, "read", observed=0) for n in range(3))]
    log = rows(ops, until=60)
    late = [row for row in log if row.process == A and row.f == "register"]
    store = Store()
    for row in log:
        if row not in late:
            store.feed([row])
        if row.f == "mark" and row.completed == START + timedelta(seconds=40):
            store.feed(late)
    told = [f.subject for f in store.findings if f.anomaly == "nonlinearizable-register"]
    assert told == [(3, B, n, A, 0) for n in range(3)]


def test_what_is_kept_of_registers_is_restored() -> None:
    own, chunks = Registers(), Chunks({}, {NAME})
    kept = Kept([(3, op(A, 0, 1, 2, "cas", id=5, expected=0))], {}, 7, True)
    _store(own, chunks, kept)
    assert (_load(chunks.blob(NAME)), own.due) == (kept, 1)


def test_nothing_is_said_before_the_writers_log_is_there() -> None:
    """A write in flight for forty seconds is read meanwhile; its row comes last."""
    ops = [
        op(A, 0, 1, 41, "cas", id=5, expected=0),
        op(B, 0, 2, 3, "read", observed=5),
        op(B, 1, 4, 5, "cas", id=6, expected=5),
    ]
    log = rows(ops, until=90)
    late = [row for row in log if row.process == A and row.f == "register"]
    early = without(log, late)
    store = Store()
    store.feed(early[: len(early) // 2])
    store.feed(early[len(early) // 2 :])
    assert said(store.findings) == set()
    store.feed(late)
    assert said(store.findings) == set()


def test_a_lost_log_accuses_nobody() -> None:
    """A client's journal is lost with the write in it: ids that it wrote are read for a day."""
    ops = [op(A, 0, 1, 2, "cas", id=5, expected=0)]
    ops += [op(B, n, 60 * n + 3, 60 * n + 4, "read", observed=5) for n in range(40)]
    ops.append(op(B, 40, 2_500, 2_501, "cas", id=6, expected=5))
    log = [row for row in rows(ops, until=2_600) if not (row.process == A and row.f == "register")]
    store = Store()
    for at in range(0, len(log), 50):
        store.feed(log[at : at + 50])
    assert said(store.findings) == set()
    assert any(f.anomaly == "unverifiable" for f in store.findings)


def test_registers_of_one_partition_are_told_apart() -> None:
    ops = [op(A, 0, 0, 1, "cas", id=5, expected=0)]
    other = [op(B, 0, 3, 4, "read", observed=0)]
    store = Store()
    store.feed(rows(ops, register=1) + rows(other, register=2))
    assert said(store.findings) == set()


# Bounds


@pytest.mark.slow
def test_a_hundred_thousand_operations_in_constant_memory(capsys: pytest.CaptureFixture[str]) -> None:
    register, clients, sizes, clusters = Register(), Steady(8, 1), [], []
    register.begin(0, 0)
    left: list[Op] = []
    for _ in range(20):
        left = sorted(left + clients.more(5_000), key=lambda one: one[:4])
        limit = min(clients.free)
        for one in left:
            if one.at < limit:
                register.decide(one.at)
                register.take(one, GRACE)
        left = [one for one in left if one.at >= limit]
        sizes.append(len(orjson.dumps(pack(register))))
        clusters.append(len(register.where))
        assert register.found == []
    with capsys.disabled():
        print(
            f"\n100,000 operations of 8 clients: {max(sizes)} bytes of state at most, {sizes[0]} after 5,000 and"
            f" {sizes[-1]} at the end; {max(clusters)} ids at most"
        )
    assert max(sizes) < 30_000 and max(clusters) < 20
    stale = op(1, 10**7, limit + 100, limit + 101, "read", observed=clients.value - 5_000)
    for one in [*left, stale]:
        register.take(one, GRACE)
    register.decide(NEVER)
    assert [(c.reason, c.ops) for c in register.found] == [("never-written", (stale,))]


@pytest.mark.parametrize("writes", [1_000, 1_200], ids=["room", "too many"])
def test_what_is_kept_is_bounded(writes: int) -> None:
    """Clients that die in each write, and ids that nobody wrote: the caps hold, and no innocent is accused. That a cap
    was reached is told."""
    store = Store(Objectives())
    ops = [op(A, n, n, NEVER, "write", "info", id=n + 1) for n in range(writes)]
    ops.append(op(B, 0, 1_300, 1_301, "read", observed=1))
    store.feed(rows(ops, until=1_400))
    assert said(store.findings) == set()
    told = [(f.subject, f.evidence["dropped"]) for f in store.findings if f.anomaly == "window-overflow"]
    assert told == ([(("operations on registers",), writes - PENDING_KEPT)] if writes > PENDING_KEPT else [])
    (kept,) = store.stored.values()
    assert len(kept.chunks[NAME]) < 100_000
