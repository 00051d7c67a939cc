"""Checks that need not be called are not: whether they are or not, nothing that a step makes may differ."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.arrays.columns import MARK, by_place
from rules.checks.records import irregular_records
from rules.engine import order
from rules.kept.check import Check
from rules.kept.state import State, load
from rules.step import Stored, prepare
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, to_table
from tests.rules.model import FAULTS, SETTLE, World, turns
from tests.rules.random_histories import Operation, build, histories


def plain(told: Any) -> Any:
    """What is kept, as plain values."""
    if isinstance(told, np.ndarray):
        return told.tolist()
    if is_dataclass(told):
        return {f.name: plain(getattr(told, f.name)) for f in fields(told)}
    if isinstance(told, dict):
        return {key: plain(one) for key, one in told.items()}
    return [plain(one) for one in told] if isinstance(told, list) else told


def steps(batches: Sequence[pa.Table]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """All that each step makes, and the state after it."""
    stored: dict[Place, Stored] = {}
    for batch in batches:
        for place, rows in by_place(batch).items():
            kept = stored.setdefault(place, Stored())
            prepared = prepare(kept.hot, rows)
            stepped = prepared.step({n: kept.chunks[n] for n in prepared.chunks if n in kept.chunks}, Objectives())
            kept.take(stepped)
            summary = {name: one for name, one in stepped.summary.items() if name != "state_bytes"}
            yield (
                {
                    "chunks": prepared.chunks,
                    "changed": stepped.chunks,
                    "findings": stepped.findings,
                    "facts": stepped.facts.to_pylist(),
                    "rechecks": stepped.rechecks,
                    "summary": summary,
                },
                stepped.hot,
            )


def same_if_all_are_called(batches: Sequence[pa.Table]) -> None:
    as_ever = list(steps(batches))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Check, "wakes", lambda check, state, there: True)
        patched.setattr(Check, "sleeps", lambda check, state: False)
        for (made, hot), (all_called, other) in zip(as_ever, steps(batches), strict=True):
            assert made == all_called
            assert hot == other or plain(load(hot, order.KINDS)) == plain(load(other, order.KINDS))


def in_pieces(table: pa.Table, seed: int, most: int) -> list[pa.Table]:
    """The rows nearly in order, a few at a time."""
    dice = random.Random(seed)
    rows = sorted(range(table.num_rows), key=lambda i: (i + dice.choice((0, 0, 0, 5, 40)) * dice.random(), i))
    batches = []
    while rows:
        size = dice.randint(1, most)
        batches.append(table.take(pa.array(rows[:size])).combine_chunks())
        del rows[:size]
    return batches


few = settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(histories, st.integers(0, 10**6))
def test_of_arbitrary_rows(operations: list[Operation], seed: int) -> None:
    history = build(operations)
    for _ in range(8):
        history.mark(5.0)
    same_if_all_are_called(in_pieces(history.table(), seed, 4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_of_a_healthy_cluster(seed: int) -> None:
    world = World().run(turns(seed, 150))
    world.settle(SETTLE)
    same_if_all_are_called(in_pieces(to_table(world.journal.rows), seed, 60))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_of_one_broken_promise(name: str) -> None:
    world = World().run(turns(1, 40))
    FAULTS[name](world, random.Random(1))
    world.settle(SETTLE)
    same_if_all_are_called(in_pieces(to_table(world.journal.rows), 1, 80))


def test_whom_marks_alone_wake() -> None:
    """A second in which nothing was done: who waits for certain rows is not told of it, unless it looks back."""
    state, there = State(), frozenset({MARK})
    asleep = {check.name for check in order.CHECKS + order.SETTLED if check.hears and not check.wakes(state, there)}
    assert asleep == {check.name for check in order.CHECKS + order.SETTLED if check.rows is not None}
    order.own(state, irregular_records.CHECK)
    assert irregular_records.CHECK.wakes(state, there) and not irregular_records.CHECK.sleeps(state)
