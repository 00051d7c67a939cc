"""What the evidence tells of a transaction whose records another one's marker decided."""

from __future__ import annotations

from typing import Any

import pytest

from rules.vocabulary.finding import Finding
from tests.rules.histories import History, Store, number
from tests.rules.losses.test_fates import settle, step_through

W = number("w")
T = number("t")


def pair(h: History, first: str, second: str, gap: int) -> None:
    """Two transactions of one id: two records at 0 and 1, then `gap` offsets, then two more."""
    h.assign("r")
    h.observe(end=10)
    h.txn("t", sends=[("w", 0, 2, 0)], type=first, txn=71, transactional_id="x", txn_intent=_intent(first))
    h.txn("t", sends=[("w", 2, 2, 2 + gap)], type=second, txn=72, transactional_id="x", txn_intent=_intent(second))


def _intent(outcome: str) -> str:
    return "commit" if outcome == "ok" else "abort"


def told_of(h: History, anomaly: str) -> list[Finding]:
    settle(h)
    return [one for one in step_through(h, None).findings if one.anomaly == anomaly]


def following(told: str, offset: int, between: int) -> dict[str, Any]:
    return {
        "txn": 71,
        "transactional_id": "x",
        "next_txn": 72,
        "next_process": T,
        "next_op": 1,
        "next_told": told,
        "next_offset": offset,
        "offsets_between": between,
    }


def test_an_aborted_record_that_the_next_commit_made_visible() -> None:
    h = History()
    pair(h, "fail", "ok", 0)
    read = h.poll("r", [("w", 0, 4, 0)])
    first, second = told_of(h, "G1a")
    assert (first.subject, second.subject) == ((W, 0), (W, 1))
    assert first.message == (
        f"value {W}/0 was polled, and its write failed or its transaction aborted; its transaction 71 of x was told to"
        " be aborted, no marker stands behind its records, and that of the next transaction 72, committed, decided over"
        " them"
    )
    assert first.evidence == {
        "writer": W,
        "seq": 0,
        "offset": 0,
        "process": read.process,
        "op": read.op,
        "told": "aborted",
        **following("committed", 2, 0),
    }


def test_where_a_marker_may_stand_none_is_said_to_be_missing() -> None:
    h = History()
    pair(h, "fail", "ok", 1)
    h.poll("r", [("w", 0, 2, 0), ("w", 2, 2, 3)])
    first, _ = told_of(h, "G1a")
    assert first.message.endswith("aborted; its transaction 71 of x was told to be aborted")
    assert first.evidence.items() >= following("committed", 3, 1).items()


@pytest.mark.parametrize(("others", "between"), [(3, 0), (2, 1)])
def test_values_of_others_between_are_no_markers(others: int, between: int) -> None:
    """Producers that waited for the same leader write side by side: only an offset without a value may be a marker."""
    h = History()
    pair(h, "fail", "ok", 3)
    h.send("v", 0, others, at=2)
    h.poll("r", [("w", 0, 2, 0), ("v", 0, others, 2), ("w", 2, 2, 5)])
    first, _ = told_of(h, "G1a")
    assert first.evidence.items() >= following("committed", 5, between).items()
    assert ("no marker stands behind its records" in first.message) == (between == 0)


def test_a_committed_record_that_the_next_abort_took() -> None:
    h = History()
    pair(h, "ok", "fail", 0)
    h.send("v", 0, 1, at=6)
    h.poll("r", [("v", 0, 1, 6)], position_before=0, position_after=7)
    first, second = told_of(h, "lost-write")
    assert (first.subject, second.subject) == ((W, 0), (W, 1))
    assert first.message == (
        f"value {W}/0 was acknowledged at offset 0 and never polled; readers are past 6; its transaction 71 of x was"
        " told to be committed, no marker stands behind its records, and that of the next transaction 72, aborted,"
        " decided over them"
    )
    assert first.evidence == {
        "writer": W,
        "seq": 0,
        "offset": 0,
        "read_to": 7,
        "told": "committed",
        **following("aborted", 2, 0),
    }


def test_a_committed_record_that_is_lost_before_the_next_commit_was_decided_by_no_marker() -> None:
    h = History()
    pair(h, "ok", "ok", 0)
    h.send("v", 0, 1, at=6)
    h.poll("r", [("w", 2, 2, 2), ("v", 0, 1, 6)], position_before=0, position_after=7)
    first, _ = told_of(h, "lost-write")
    assert first.message.endswith("; its transaction 71 of x was told to be committed")
    assert first.evidence.items() >= following("committed", 2, 0).items()


@pytest.mark.parametrize("other", ["y", None])
def test_the_next_transaction_of_another_id_decides_nothing(other: str | None) -> None:
    h = History()
    h.assign("r")
    h.txn("t", sends=[("w", 0, 1, 0)], type="fail", txn=71, transactional_id="x")
    h.txn("u", sends=[("v", 0, 1, 1)], txn=72, transactional_id=other)
    h.poll("r", [("w", 0, 1, 0), ("v", 0, 1, 1)])
    (found,) = told_of(h, "G1a")
    assert {name: value for name, value in found.evidence.items() if name.startswith(("txn", "next", "told"))} == {
        "txn": 71,
        "told": "aborted",
    }


def test_a_failed_send_has_no_transaction() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 1, at=None, type="fail")
    read = h.poll("r", [("w", 0, 1, 0)])
    store = Store()
    store.feed(h.rows)
    (found,) = (one for one in store.findings if one.anomaly == "G1a")
    assert found.message == f"value {W}/0 was polled, and its write failed or its transaction aborted"
    assert found.evidence == {
        "writer": W,
        "seq": 0,
        "offset": 0,
        "process": read.process,
        "op": read.op,
        "failed_process": W,
        "failed_op": 0,
    }


def test_the_next_transaction_among_others() -> None:
    """Behind the records stand those of another id, of none, of the same transaction, and of its id's later ones."""
    h = History()
    h.assign("r")
    h.txn("p", sends=[("w", 9, 1, 40)], txn=69, transactional_id="z")
    h.send("w", 2, 1, at=None, type="info", error="NOT_LEADER_FOR_PARTITION")
    h.txn("t", sends=[("w", 0, 2, 0)], txn=70, transactional_id="x")
    h.txn("s", sends=[("u", 2, 3, 3)], txn=59, transactional_id="x")
    read = h.poll("r", [("w", 2, 1, 10)])
    h.txn("t", sends=[("w", 2, 2, 10), ("w", 4, 1, 14), ("w", 8, 1, 25)], type="fail", txn=71, transactional_id="x")
    h.txn("u", sends=[("v", 2, 1, 12), ("v", 3, 1, 17)], txn=60, transactional_id="y")
    h.txn("q", sends=[("z", 2, 1, 13)], txn=61)
    h.send("t", 0, 1, at=15)
    h.txn("t", sends=[("w", 7, 1, None)], txn=73, transactional_id="x")
    second = h.txn("p", sends=[("w", 5, 1, 20)], txn=72, transactional_id="x")
    h.txn("t", sends=[("w", 6, 1, 30)], txn=74, transactional_id="x")
    store = Store()
    store.feed(h.rows, finished=True)
    (found,) = (one for one in store.findings if one.anomaly == "G1a")
    assert found.evidence == {
        "writer": W,
        "seq": 2,
        "offset": 10,
        "process": read.process,
        "op": read.op,
        "failed_process": T,
        "failed_op": 1,
        "told": "aborted",
        **following("committed", 20, 3),
        "next_process": second.process,
        "next_op": second.op,
    }
    assert found.message == (
        f"value {W}/2 was polled, and its write failed or its transaction aborted; its transaction 71 of x was told to"
        " be aborted"
    )


def test_of_what_was_not_acknowledged_nobody_knows_what_stands_behind_it() -> None:
    h = History()
    h.txn("t", sends=[("w", 0, 1, None)], type="fail", txn=71, transactional_id="x")
    h.txn("t", sends=[("w", 1, 1, 9)], txn=72, transactional_id="x")
    h.poll("r", [("w", 0, 1, 8)])
    store = Store()
    store.feed(h.rows, finished=True)
    (found,) = (one for one in store.findings if one.anomaly == "G1a")
    assert {name for name in found.evidence if name.startswith(("next", "offsets"))} == set()
