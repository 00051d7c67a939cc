"""The detector against the model: healthy histories find nothing, one broken promise finds exactly itself, and neither
the cut into batches nor the order of arrival changes what is found.

`MODELS=200 pytest tests/rules/test_model.py` tries that many histories of each kind, other ones each time.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rules.arrays.columns import by_place
from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import to_table
from tests.rules.histories import Store
from tests.rules.model import FAULTS, SETTLE, Turn, World, turns
from tests.rules.model.faults import Expected, Found
from tests.rules.model.world import WHO

pytestmark = pytest.mark.slow

ASKED = os.environ.get("MODELS")


def examples(few: int) -> settings:
    return settings(
        max_examples=int(ASKED or few),
        derandomize=ASKED is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


histories = st.lists(st.builds(Turn, st.sampled_from(WHO), st.integers(0, 999)), max_size=120)
"""Turns one by one, so that a failing history shrinks to the few that matter."""
seeds = st.integers(0, 10**9)

ALWAYS = frozenset({"rebalance", "G1b"})
"""Classified findings that everyday life makes true: groups rebalance, short polls cut transactions."""
NEVER_IN_FILES = frozenset(
    {
        "stuck-consumer",
        "stuck-producer",
        "stuck-close",
        "hanging-transaction",
        "unrecovered-transaction",
        "unsafe-config",
        "under-replicated-probe-topic",
        "suspected",
    }
)
"""Conditions are open while they last; a finished history has no now. Its `unseen` is all that nobody ever polled."""


def located(findings: Sequence[Finding]) -> set[Found]:
    return {(f.anomaly, f.topic, f.partition, f.subject) for f in findings}


def explained(store: Store, rows: pa.Table) -> list[Finding]:
    """What the rows say where two readers saw the log differently, as the streaming job looks it up."""
    tables = by_place(rows) if store.rechecks else {}
    found: dict[str, Finding] = {}
    for place, (start, end) in store.rechecks:
        table = tables[place]
        for finding in (
            explain(Readings(table.filter(concerns(table, [(start, end)]))), place, start, end, finished=False) or ()
        ):
            found.setdefault(finding.id, finding)
    return list(found.values())


def live(rows: pa.Table) -> set[Found]:
    store = Store()
    store.feed(rows)
    return located(store.findings) | located(explained(store, rows))


def finished(rows: pa.Table) -> set[Found]:
    """Without `int-send-skip`, which is legal, and which a live partition only counts."""
    store = Store()
    store.feed(rows, finished=True)
    return {found for found in located(store.findings) if found[0] != "int-send-skip"}


def in_parts(world: World, told: pa.Table, seed: int, parts: int) -> set[Found]:
    """Feed the rows, which `told` holds, in random batches, each process's rows delayed by a random amount of their
    own, and then let it settle: what came late moves readers' positions late, and the verdicts that rest on them."""
    rows = list(world.journal.rows)
    rng = random.Random(seed)
    delay: dict[int, float] = defaultdict(lambda: rng.choice((0.0, 0.0, 3.0, 40.0, 400.0)))
    late = sorted(range(len(rows)), key=lambda i: (i + delay[rows[i].process] * rng.random(), i))
    cuts = sorted(rng.randint(0, len(rows)) for _ in range(parts))
    store = Store()
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if a < b:
            store.feed(told.take(pa.array(late[a:b])).combine_chunks())
    world.settle(SETTLE)
    more = to_table(world.journal.rows[len(rows) :])
    store.feed(more)
    return located(store.findings) | located(explained(store, pa.concat_tables([told, more])))


def unexpected(found: set[Found], expected: Expected) -> set[Found]:
    """What neither must nor may be found."""
    names = {must[0] for must in expected.must}
    own = {f for f in found if f[0] in names}
    others = {
        f
        for f in found - own
        if f[0] not in (expected.may if CATALOGUE[f[0]].kind == "violation" else expected.conditions | ALWAYS)
    }
    return own - expected.must - expected.perhaps | others


def exchange(world: World) -> World:
    """Each host's readers poll what the other's writers send, in each partition of the topic: so the bound of their
    clocks' difference is known. Nothing is concluded between hosts that exchange nothing."""
    for dice in range(60):
        world.run([Turn(who, dice) for who in ("w1", "w2", "r1", "r2")])
        if dice >= 5 and _has_exchanged(world):
            break
    return world


def _has_exchanged(world: World) -> bool:
    rows = [row for row in world.journal.rows if row.topic == "topic"]
    sent_by = {run.writer: row.boot for row in rows for run in row.sent}
    met = {
        (row.partition, sent_by[run.writer], row.boot)
        for row in rows
        for run in row.polled
        if run.writer in sent_by and sent_by[run.writer] != row.boot
    }
    return len(met) == 4  # two partitions, both ways


def broken(name: str, before: list[Turn], after: list[Turn], seed: int) -> tuple[World, Expected]:
    world = exchange(World()).run(before)
    expected = FAULTS[name](world, random.Random(seed))
    world.run(after).settle(SETTLE)
    return world, expected


# Healthy


@examples(40)
@given(histories, st.sampled_from((0.0, -0.4, 0.4, 3.0)))
def test_a_healthy_history_finds_nothing(history: list[Turn], skew: float) -> None:
    world = World(skew=skew).run(history)
    world.settle(SETTLE)
    rows = to_table(world.journal.rows)
    assert unexpected(live(rows), Expected(conditions=frozenset())) == set()
    assert unexpected(finished(rows), Expected(conditions=frozenset())) == set()


@examples(15)
@given(histories, st.sampled_from((0.0, -0.4, 3.0, 8.0, -8.0)), seeds, st.integers(1, 30))
def test_a_healthy_history_finds_nothing_however_late_each_host_comes(
    history: list[Turn], skew: float, seed: int, parts: int
) -> None:
    world = World(skew=skew).run(history)
    world.settle(SETTLE)
    told = to_table(world.journal.rows)
    assert unexpected(in_parts(world, told, seed, parts), Expected(conditions=frozenset(CATALOGUE))) == set()


@examples(12)
@given(seeds)
def test_where_retention_overtakes_readers_nothing_is_lost(seed: int) -> None:
    world = World(overtakes=True).run(turns(seed, 200))
    world.settle(SETTLE)
    trouble, rows = Expected(conditions=frozenset({"benign-retention"})), to_table(world.journal.rows)
    assert unexpected(live(rows), trouble) == set()
    assert unexpected(finished(rows), trouble) == set()


@examples(1)
@given(seeds)
def test_a_long_healthy_history_finds_nothing(seed: int) -> None:
    """Batch after batch, with a retention that keeps the log short."""
    store, world, rows = Store(), World(), 0
    for part in range(30):
        world.run(turns(seed + part, 100))
        world.trim()
        store.feed(world.journal.rows[rows:])
        rows = len(world.journal.rows)
    found = located(store.findings) | located(explained(store, to_table(world.journal.rows)))
    assert unexpected(found, Expected(conditions=frozenset())) == set()


# Broken


@pytest.mark.parametrize("name", FAULTS)
@examples(2)
@given(before=histories, after=histories, seed=seeds, parts=st.integers(1, 15))
def test_one_broken_promise_finds_itself(
    name: str, before: list[Turn], after: list[Turn], seed: int, parts: int
) -> None:
    """Live, in a finished history, and in any batches that come in any order."""
    world, expected = broken(name, before, after, seed)
    rows = to_table(world.journal.rows)
    stepped = live(rows)
    assert unexpected(stepped, expected) == set()
    assert expected.must <= stepped
    # Violations of a finished history are those of the live partition, save where the design says why not: order below
    # the settled frontier is judged here alone, where nothing of the log has been forgotten.
    whole = finished(rows)
    assert {f for f in expected.must if f[0] not in NEVER_IN_FILES | {"unseen"}} <= whole
    assert violations(whole ^ stepped, name) <= {f for f in whole if f[0] in ORDER_BELOW_THE_FRONTIER}
    # Likewise of a reader whose rows come so late that the index below the frontier has been forgotten.
    different = violations(in_parts(world, rows, seed, parts) ^ stepped, name)
    assert {f for f in different if f[0] not in ORDER_BELOW_THE_FRONTIER} == set()


ORDER_BELOW_THE_FRONTIER = frozenset({"poll-skip", "int-poll-skip", "nonmonotonic-poll", "int-nonmonotonic-poll"})


BELOW_THE_FRONTIER = {
    "inconsistent-offsets behind the frontier": frozenset({"duplicate"}),
    "spurious-zero-offset acknowledged": frozenset({"duplicate", "inconsistent-offsets", "nonmonotonic-send"}),
}
"""Whether a second place of a value is seen depends on whether its offset was settled when the row came: below the
frontier polls are compared by block digest alone, which tells the offset and both values."""


def violations(found: set[Found], name: str) -> set[Found]:
    return {f for f in found if CATALOGUE[f[0]].kind == "violation" and f[0] not in BELOW_THE_FRONTIER.get(name, ())}
