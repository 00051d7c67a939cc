"""Transactions of every outcome beside each other, in two partitions: each finding is of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.conditions.liveness_of import at_once
from tests.rules.histories import History, Store, number
from tests.rules.transactions.test_transactions import Log
from tests.rules.whole import finished, whole

U, W = number("u"), number("w")
NAMES = (
    "torn-transaction",
    "lost-write",
    "G1a",
    "inconsistent-offsets",
    "misleading-error",
    "duplicate",
    "zombie-write",
    "phantom-read",
)
Found = dict[tuple[str, tuple[int | str, ...]], float]


def many(*, live: bool = True) -> Log:
    """Two values each. Of partition 0 the reader is shown 7, 9, 11, half of 13, 14 and half of
    15 and of 16; of partition 1 only 14, and others' values where 9 was acknowledged, in part."""
    h = Log()
    h.filled(0, 0, 0)
    h.filled(1, 1, 0)
    h.transaction({0: (0, 2, 1), 1: (0, 2, 1)}, txn=7)
    h.transaction({0: (2, 2, 4), 1: (2, 2, 4)}, "info", txn=9, process="i", name="i", error="INVALID_TXN_STATE")
    h.transaction({0: (4, 2, 7), 1: (4, 2, 7)}, "info", txn=10, process="j", name="j")
    h.transaction({0: (6, 2, 10), 1: (6, 2, 10)}, "fail", txn=11, process="f", name="f")
    for seq in (0, 2):
        h.send("e", seq, 2, at=None, type="info", error="NOT_LEADER_FOR_PARTITION")
    h.transaction({0: (8, 2, 13), 1: (8, 2, 13)}, "fail", txn=12, op=1, process="f", name="f")
    h.transaction({0: (10, 2, 16)}, "info", txn=13, process="k", name="k")
    h.transaction({0: (12, 2, 20), 1: (12, 2, 20)}, txn=14, op=5)
    h.transaction({0: (14, 2, None), 1: (14, 2, 25)}, "info", txn=15, process="l", name="l")
    h.txn("m", sends=[("w", 16, 1, 32), ("w", 17, 1, 34)], txn=16, transactional_id="m", txn_partitions=[("topic", 0)])
    both: dict[str, Any] = {"txn": 17, "transactional_id": "n", "txn_partitions": [("topic", 0), ("topic", 1)], "op": 0}
    h.txn("n", sends=[("w", 18, 1, 38)], type="info", **both)
    h.txn("n", sends=[("w", 18, 1, 30), ("w", 19, 1, 33)], type="info", partition=1, **both)
    h.read(
        0,
        ("w", 0, 2, 1),
        ("w", 2, 2, 4),
        ("u", 0, 1, 8),
        ("w", 6, 2, 10),
        ("e", 0, 1, 12),
        ("w", 10, 1, 16),
        ("u", 1, 1, 17),
        ("u", 2, 1, 19),
        ("w", 12, 2, 20),
        ("w", 15, 1, 26),
        ("e", 3, 1, 30),
        ("w", 16, 1, 32),
        ("u", 3, 1, 36),
        ("w", 18, 1, 38),
    )
    h.read(
        1,
        ("u", 5, 1, 5),
        ("u", 9, 2, 6),
        ("w", 12, 2, 20),
        ("u", 15, 1, 26),
        ("u", 17, 1, 30),
        ("u", 18, 1, 33),
        ("u", 19, 1, 35),
    )
    if live:
        h.wait(14)
    h.read(0, ("w", 6, 1, 10), reader="q")
    if live:
        h.wait(12)
    return h


def found(seen: float, settled: float) -> Found:
    """What is proven by what was seen, and what by its absence, at these times."""
    at_the_poll: list[tuple[str, tuple[int | str, ...]]] = [
        ("G1a", (W, 6)),
        ("G1a", (W, 7)),
        *(("misleading-error", (number(who), op)) for who, op in (("e", 0), ("e", 1), ("i", 0))),
    ]
    later: list[tuple[str, tuple[int | str, ...]]] = [
        *(("lost-write", (W, seq)) for seq in (0, 1, 2, 3, 11, 14, 15, 17, 18, 19)),
        *(("torn-transaction", (txn,)) for txn in (7, 9, 11, 13, 15, 16, 17)),
        *(("inconsistent-offsets", (offset,)) for offset in OTHERS),
    ]
    return dict.fromkeys(at_the_poll, seen) | dict.fromkeys(later, settled)


def in_pieces(h: History) -> Store:
    store = Store()
    for first in range(0, len(h.rows), 25):
        store.feed(h.rows[first : first + 25])
    return store


OTHERS = {5: (3, 5), 26: (15, 15), 30: (18, 17), 33: (19, 18)}
"""By offset of partition 1: the value that was acknowledged there, and that of `u` which stands there."""
HALF_VISIBLE = ("inconsistent-offsets", (17,))
"""Where the other half was acknowledged. It is told at the end of the step in which the first half was polled."""


@pytest.mark.parametrize("fed", [at_once, in_pieces])
def test_live(fed: Callable[[History], Store]) -> None:
    store = fed(many())
    told = {(one.anomaly, one.subject): one.at for one in whole(store, NAMES)}
    assert told.pop(HALF_VISIBLE) in (5.0, 27.0)
    assert told == found(0.862, 11.0)
    of_one = {(one.anomaly, one.subject): one for one in whole(store, NAMES)}
    for offset, (acknowledged, stands) in OTHERS.items():
        values = sorted([(W, acknowledged), (U, stands)])
        words = " and ".join(f"{writer}/{seq}" for writer, seq in values)
        inconsistent = of_one["inconsistent-offsets", (offset,)]
        assert inconsistent.message == f"offset {offset} holds 2 values: {words}"
        assert inconsistent.evidence == {"offset": offset, "values": [{"writer": w, "seq": s} for w, s in values]}
        assert [one.subject for one in whole(store, NAMES)].count((offset,)) == 1
    for who, op, writer, seq in (("e", 0, "e", 0), ("e", 1, "e", 3), ("i", 0, "w", 2)):
        evidence = {"process": number(who), "op": op, "writer": number(writer), "seq": seq}
        assert of_one["misleading-error", (number(who), op)].evidence == evidence
    for txn, partitions, seqs, offsets in (
        (7, (0, 1), (0, 0), (1, 1)),
        (9, (0, 1), (2, 2), (4, 4)),
        (11, (0, 1), (6, 6), (10, 10)),
        (13, (0, 0), (10, 11), (16, 17)),
        (15, (0, 1), (15, 14), (26, 25)),
        (16, (0, 0), (16, 17), (32, 34)),
        (17, (0, 1), (18, 18), (38, 30)),
    ):
        torn = of_one["torn-transaction", (txn,)].evidence
        for which, partition, seq, offset in zip(("seen", "absent"), partitions, seqs, offsets, strict=True):
            where = {"topic": "topic", "partition": partition, "writer": W, "seq": seq, "offset": offset}
            assert torn[which] == where


def test_finished() -> None:
    told = [(one.anomaly, one.subject) for one in whole(finished(many(live=False)), NAMES)]
    assert sorted(told, key=str) == sorted([*found(0, 0), HALF_VISIBLE], key=str)


@pytest.mark.parametrize("fed", [at_once, in_pieces])
def test_each_is_told_once(fed: Callable[[History], Store]) -> None:
    ids = [one.id for one in fed(many()).findings if one.anomaly in NAMES]
    assert len(ids) == len(set(ids))
