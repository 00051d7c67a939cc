"""`torn-transaction` where the other part is read much later, beside reads that prove nothing of it."""

from __future__ import annotations

import pytest

from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import Store, number
from tests.rules.transactions.test_transactions import TORN, Log, is_torn
from tests.rules.whole import Told, whole

W = number("w")


def passed_by_and_read_later(kind: str) -> tuple[Log, int]:
    """Values 4 to 7 of both partitions; those of partition 1 are absent, those of partition 0 are read at 40 s. And the
    row at which they are."""
    h = Log()
    h.send("w", 0, 2, at=0)
    h.filled(1, 0, 4)
    h.read(0, ("w", 0, 2, 0))
    h.transaction({0: (4, 4, 5), 1: (4, 4, 5)}, kind)
    h.poll("u", [("w", 4, 4, 5)], isolation="read_uncommitted")
    h.poll("r", [("w", 0, 2, 0)], partition=2)
    h.transaction({0: (8, 1, 10), 1: (8, 1, 10)}, op=1, txn=8)
    h.read(1, ("w", 8, 1, 10))
    h.wait(39)
    at = len(h.rows)
    h.read(0, ("w", 4, 4, 5), ("w", 8, 1, 10))
    h.read(0, ("w", 4, 4, 5), reader="s")
    h.wait(15)
    return h, at


@pytest.mark.parametrize("kind", ["ok", "fail", "info"])
def test_the_part_that_shows_comes_last(kind: str) -> None:
    h, later = passed_by_and_read_later(kind)
    store = Store()
    store.feed(h.rows[:later])
    assert whole(store, TORN) == []
    store.feed(h.rows[later:])
    told = is_torn(39.542, kind)
    seen, absent = ({**told.evidence[name], "seq": 4, "offset": 5} for name in ("seen", "absent"))
    message = told.message.replace(f"{W}/0", f"{W}/4")
    expected = Told(told.anomaly, (7,), message, {**told.evidence, "seen": seen, "absent": absent}, told.at)
    assert whole(store, TORN) == [expected]
    (finding,) = (one for one in store.findings if one.anomaly in TORN)
    assert finding.at == micros(h.rows[later].completed)


@pytest.mark.parametrize("kind", ["ok", "fail", "info"])
def test_both_parts_are_in_one_partition(kind: str) -> None:
    """A record of another writer stands between them."""
    h = Log()
    h.filled(1, 0, 4)
    h.time += 0.001
    times = {"invoked": h.at(h.time), "completed": h.at(h.time + 0.1)}
    h.row(
        "t",
        "txn",
        partition=1,
        op=0,
        type=kind,
        txn=7,
        txn_partitions=[("topic", 1)],
        txn_intent="commit",
        sent=[Run(W, 0, 5, 2), Run(W, 2, 8, 2)],
        transactional_id="x",
        mono_end_invoked=5_000_000_000,
        **times,
    )
    h.time += 0.1
    h.send("v", 1, 1, at=7, partition=1)
    h.transaction({1: (4, 1, 12)}, op=1, txn=8)
    h.read(1, ("w", 0, 2, 5), ("v", 1, 1, 7), ("w", 4, 1, 12))
    h.wait(30)
    seen, absent = ({"topic": "topic", "partition": 1, "writer": W, "seq": s, "offset": o} for s, o in ((0, 5), (2, 8)))
    following = {
        "next_txn": 8,
        "next_process": number("t"),
        "next_op": 1,
        "next_told": "committed",
        "next_offset": 12,
        "offsets_between": 2,
    }
    assert whole(row_by_row(h), TORN) == [
        Told(
            "torn-transaction",
            (7,),
            f"of transaction 7 ({kind}), value {W}/0 was polled in partition 1 of topic, and value {W}/2 is absent from"
            " offset 8 of partition 1 of topic, which a reader passed",
            {"txn": 7, "outcome": kind, "seen": seen, "absent": absent, "transactional_id": "x", **following},
            11.0,
        )
    ]


@pytest.mark.parametrize("shows", [2, 4])
def test_the_rest_of_one_run_is_passed_long_after_its_beginning_was_read(shows: int) -> None:
    """An aborted transaction that wrote four values here and nowhere else: two of them are polled, or all."""
    h = Log()
    h.filled(1, 0, 4)
    h.transaction({1: (4, 4, 5)}, "fail")
    h.read(1, ("w", 4, 2, 5))
    h.wait(12)
    h.transaction({1: (8, 1, 10)}, op=1, txn=8)
    h.read(1, *[("w", 6, 2, 7)] * (shows == 4), ("w", 8, 1, 10))
    h.wait(40)
    at_once = Store()
    at_once.feed(h.rows)
    for store in (at_once, row_by_row(h)):
        torn = [one.evidence for one in store.findings if one.anomaly in TORN]
        pairs = [(one["seen"]["seq"], one["seen"]["offset"], one["absent"]["seq"]) for one in torn]
        assert pairs == ([(4, 5, 6)] if shows == 2 else [])
