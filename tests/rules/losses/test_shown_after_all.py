"""Values of a transaction that a reader went over, and that somebody is shown later: they are late, and not absent.
What is left out again then is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.step import Stepped
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place
from tests.rules.histories import History, Store, singly
from tests.rules.splits import WAYS
from tests.rules.transactions.test_transactions import NS, Log, T, W, begun, is_zombie
from tests.rules.whole import Told, finished, whole

pytestmark = pytest.mark.slow

Fed = Callable[[History], Store]
NAMES = ("torn-transaction", "lost-write", "zombie-write")
AS_IT_COMES = ("row by row", "in random pieces", "interleaved")
fed_as_it_comes = pytest.mark.parametrize("fed", [WAYS[way] for way in AS_IT_COMES], ids=AS_IT_COMES)
fed_at_the_end = pytest.mark.parametrize("fed", [WAYS["at once"], finished], ids=["at once", "finished"])
fed_in_any_way = pytest.mark.parametrize("fed", [*WAYS.values(), finished], ids=[*WAYS, "finished"])
ALL = ((1, 4, 5),)
"""(seq, length, offset) of what one poll returns of the transaction's values 1 to 4 at the offsets 5 to 8."""


def left_open(h: Log, *partitions: int) -> None:
    """Transaction 7 writes four values to each partition, and readers go over them there."""
    begun(h)
    of: dict[str, Any] = {
        "ended": None,
        "error": "process-died",
        "boot": "b",
        "mono_invoked": 2 * NS,
        "mono_completed": 3 * NS,
    }
    h.transaction(dict.fromkeys(partitions, (1, 4, 5)), "info", op=1, **of)
    for partition in partitions:
        h.filled(partition, 0, 4)
        h.filled(partition, 1, 10)
    h.wait(200, every=10)


def shown(h: Log, *polls: tuple[tuple[int, int, int], ...], reader: str = "audit", pause: float = 0.0) -> None:
    """A reader reads partition 0 from before these values to behind them, and is shown these."""
    if reader == "audit":
        h.assign(reader)
    for i, own in enumerate(polls):
        runs = [("w", *run) for run in own]
        if i == 0:
            runs.insert(0, ("v", 0, 1, 4))
        if i == len(polls) - 1:
            runs.append(("v", 1, 1, 10))
        h.read(0, *runs, reader=reader)
        if pause:
            h.wait(pause)
    h.wait(30)


def is_torn(at: float, seen: int, absent: tuple[int, int], **more: Any) -> Told:
    """Value `seen` of partition 0, and the one of (seq, partition)."""
    seq, partition = absent
    places = {
        name: {"topic": "topic", "partition": p, "writer": W, "seq": s, "offset": 4 + s}
        for name, s, p in (("seen", seen, 0), ("absent", seq, partition))
    }
    message = (
        f"of transaction 7 (info), value {W}/{seen} was polled in partition 0 of topic, and value {W}/{seq} is absent"
        f" from offset {4 + seq} of partition {partition} of topic, which a reader passed"
    )
    evidence = {"txn": 7, "outcome": "info", "transactional_id": "x", **places, **more}
    return Told("torn-transaction", (7,), message, evidence, at)


def is_lost(at: float, seq: int, partition: int = 0) -> Told:
    seen = {"topic": "topic", "partition": 0, "writer": W, "seq": 1, "offset": 5}
    message = (
        f"value {W}/{seq} was acknowledged at offset {4 + seq} and never polled; its transaction 7 is visible in"
        " partition 0 of topic"
    )
    evidence = {"writer": W, "seq": seq, "offset": 4 + seq, "txn": 7, "seen": seen, "transactional_id": "x"}
    return Told("lost-write", (W, seq), message, evidence, at)


@fed_in_any_way
@pytest.mark.parametrize(
    ("polls", "pause", "reader"),
    [
        ((ALL,), 0, "audit"),
        ((ALL,), 0, "r"),
        ((((1, 2, 5),), ((3, 2, 7),)), 0, "audit"),
        ((((1, 2, 5),), ((3, 2, 7),)), 20, "audit"),
    ],
    ids=["one_poll", "by_the_same", "two_polls", "two_polls_with_a_pause"],
)
def test_what_was_passed_and_is_all_shown_later_is_late_and_not_absent(
    polls: tuple[tuple[tuple[int, int, int], ...], ...], pause: float, reader: str, fed: Fed
) -> None:
    """By another reader, or by the one that went over it, which goes back."""
    h = Log()
    left_open(h, 0)
    shown(h, *polls, reader=reader, pause=pause)
    assert whole(fed(h), NAMES) == [is_zombie(200.283 if reader == "audit" else 200.281)]


def some_left_out(pause: float) -> Log:
    """Of the four the first two are shown, and their reader goes on behind the others."""
    h = Log()
    left_open(h, 0)
    shown(h, ((1, 2, 5),), (), pause=pause)
    return h


@fed_as_it_comes
@pytest.mark.parametrize("pause", [0, 20])
def test_what_is_left_out_again_is_absent(pause: float, fed: Fed) -> None:
    at = 211 + pause
    lost = [is_lost(at, seq) for seq in (3, 4)]
    assert whole(fed(some_left_out(pause)), NAMES) == [is_zombie(200.283), *lost, is_torn(at, 1, (3, 0))]


@fed_at_the_end
def test_where_it_is_looked_at_only_then_the_same_is_absent(fed: Fed) -> None:
    told = {(one.anomaly, one.subject) for one in whole(fed(some_left_out(0)), NAMES)}
    assert told == {
        ("zombie-write", (T, 1)),
        ("lost-write", (W, 3)),
        ("lost-write", (W, 4)),
        ("torn-transaction", (7,)),
    }


@fed_as_it_comes
@pytest.mark.parametrize("also", [False, True])
def test_what_was_absent_from_another_partition_is_missed_where_it_is_not_shown_within_an_hour(
    also: bool, fed: Fed
) -> None:
    """As where a broker has lost which transactions were aborted: who is shown this part has not come to that one."""
    h = Log()
    left_open(h, 0, 1)
    shown(h, ALL)
    if fed is WAYS["row by row"]:
        assert whole(fed(h), NAMES) == [is_zombie(200.293)]
    if also:
        h.assign("audit", partition=1)
        h.read(1, ("v", 0, 1, 4), ("w", 1, 4, 5), ("v", 1, 1, 10), reader="audit")
    h.wait(3_700, every=60)
    missed = [*(is_lost(200.293, seq) for seq in (1, 2, 3, 4)), is_torn(200.293, 1, (1, 1))]
    expected = [is_zombie(200.293), is_zombie(230.537)] if also else [*missed, is_zombie(200.293)]
    found = whole(fed(h), NAMES)
    assert [one._replace(decidable=None) for one in found] == expected
    # Whoever hears of all that at once has not seen it absent before it was shown.
    assert {one.decidable for one in found if one.anomaly != "zombie-write"} <= {None, 3801.0}


class Awaiting(Store):
    """Notes how often a partition tells that what it was shown has waited long enough."""

    told = 0

    def _take(self, out: dict[Place, Stepped], *, finished: bool = False) -> list[Finding]:
        self.told += sum(one.facts["kind"].to_pylist().count("awaited") for one in out.values())
        return super()._take(out, finished=finished)


def test_that_it_was_shown_long_ago_is_told_once() -> None:
    """Also where it is shown again meanwhile."""
    h, store = Log(), Awaiting()
    left_open(h, 0)
    shown(h, ((1, 2, 5),), (), pause=20)
    h.wait(600, every=10)
    shown(h, ((3, 2, 7),))
    h.wait(3_400, every=60)
    for row in singly(h.rows):
        store.feed(row)
    assert store.told == 1


@fed_as_it_comes
@pytest.mark.parametrize("missing", [False, True])
def test_of_a_transaction_that_went_well_what_is_shown_late_is_not_absent(missing: bool, fed: Fed) -> None:
    """Those of partition 0 had been passed, and are shown then, or those of partition 1 are."""
    h = Log()
    begun(h)
    h.transaction({0: (1, 4, 5), 1: (1, 4, 5)}, op=1)
    h.filled(0, 0, 4)
    h.filled(0, 1, 10)
    h.wait(200, every=10)
    if missing:
        h.read(1, ("w", 1, 4, 5))
        h.wait(30)
    else:
        shown(h, ((1, 2, 5),), ((3, 2, 7),))
    torn = [(one.subject, one.at, one.evidence["absent"]["seq"]) for one in whole(fed(h), ("torn-transaction",))]
    assert torn == ([((7,), 200.283, 1)] if missing else [])
