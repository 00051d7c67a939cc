"""The detector against the model: healthy histories find nothing, one broken promise finds exactly itself, and neither
the cut into batches nor the order of arrival changes what is found."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.history import Slice
from tests.rules.histories import Store, found
from tests.rules.model import Fault, Model

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDER = {"poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"}


def in_parts(rows: list[Slice], seed: int, parts: int) -> Store:
    """Feed the rows in random batches, each process's rows delayed by a random amount of their own."""
    rng = random.Random(seed)
    delay: dict[int, float] = defaultdict(lambda: rng.choice((0.0, 0.0, 3.0, 40.0)))
    late = sorted(range(len(rows)), key=lambda i: (i + delay[rows[i].process] * rng.random(), i))
    cuts = sorted(rng.randint(0, len(rows)) for _ in range(parts))
    store = Store()
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if a < b:
            store.feed([rows[i] for i in late[a:b]])
    return store


@EXAMPLES
@given(st.integers(0, 10**9))
def test_a_healthy_history_finds_nothing(seed: int) -> None:
    model = Model(seed).run()
    live, whole = Store(), Store()
    live.feed(model.history.rows)
    assert found(live.findings) == set()
    whole.feed(model.history.rows, finished=True)
    assert found(whole.findings) == set()


@pytest.mark.parametrize("fault", ["lost", "duplicate", "replaced", "aborted-read"])
@EXAMPLES
@given(seed=st.integers(0, 10**9))
def test_one_broken_promise_finds_itself(fault: Fault, seed: int) -> None:
    model = Model(seed, fault).run()
    store = Store()
    store.feed(model.history.rows)
    assert {f for f in found(store.findings) if f[0] not in ORDER} == model.expected


@pytest.mark.parametrize("fault", ["none", "lost", "duplicate", "replaced", "aborted-read", "skip"])
@EXAMPLES
@given(seed=st.integers(0, 10**9), parts=st.integers(1, 40))
def test_batches_and_arrival_do_not_matter(fault: Fault, seed: int, parts: int) -> None:
    rows = Model(seed, fault).run().history.rows
    once = Store()
    once.feed(rows)
    assert found(in_parts(rows, seed, parts).findings) == found(once.findings)


def test_a_skip_by_one_reader_is_found() -> None:
    skips = 0
    for seed in range(20):
        store = Store()
        store.feed(Model(seed, "skip").run().history.rows)
        names = {f[0] for f in found(store.findings)}
        assert names <= {"poll-skip", "int-poll-skip"}
        skips += bool(names)
    assert skips >= 15  # where it was the last record of the log, nobody went over it
