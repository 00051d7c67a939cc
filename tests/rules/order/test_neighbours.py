"""A finding tells of its own value, writer, operation and offset: beside each stand others that differ in one respect,
and come first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.told_of_cases import of_value
from tests.rules.whole import Told, finished, whole

P, Q, R, T, V, W = (number(name) for name in "pqrtvw")
Fed = Callable[[History], Store]
in_each_way = pytest.mark.parametrize("fed", [row_by_row, at_once, finished])


@in_each_way
def test_a_duplicate_and_an_inconsistent_offset_among_others(fed: Fed) -> None:
    h = History()
    h.poll("r", [("v", 0, 3, 0), ("w", 0, 1, 8), ("w", 1, 3, 10), ("w", 5, 2, 20)])
    h.poll("q", [("w", 2, 1, 30)])
    h.poll("p", [("v", 7, 1, 11)])
    twice = of_value("duplicate", W, 2, "stands at offsets 11 and 30", 0.004, offsets=[11, 30])
    both = sorted([(V, 7), (W, 2)])
    assert whole(fed(h), ["duplicate", "inconsistent-offsets"]) == [
        twice._replace(context={"idempotent": "true"}),
        Told(
            "inconsistent-offsets",
            (11,),
            f"offset 11 holds 2 values: {' and '.join(f'{w}/{s}' for w, s in both)}",
            {"offset": 11, "values": [{"writer": w, "seq": s} for w, s in both]},
            0.006,
        ),
    ]


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_a_duplicate_of_what_is_settled(fed: Fed) -> None:
    """Where the other one stands is not kept."""
    h = History()
    h.assign("r")
    h.send("w", 0, 5, at=0)
    h.poll("r", [("w", 0, 5, 0)])
    for _ in range(20):
        h.observe(end=5)
        h.mark(1.0)
    store = fed(h)
    h.rows.clear()
    h.poll("s", [("w", 3, 1, 50)])
    store.feed(h.rows)
    told = of_value("duplicate", W, 3, "stands at offset 50 and below the settled frontier", 20.088, offsets=[50])
    assert whole(store, ["duplicate"]) == [told._replace(context={"idempotent": "true"})]


@in_each_way
def test_a_duplicate_of_what_turned_out_to_be_acknowledged(fed: Fed) -> None:
    """The acknowledgement of an indefinite send counts once a value of it was polled."""
    h = History()
    h.assign("r")
    h.send("w", 0, 2, at=5, type="info")
    h.poll("r", [("w", 0, 1, 5)])
    h.poll("r", [("w", 1, 1, 9)])
    for _ in range(20):
        h.observe(end=10)
        h.mark(1.0)
    (told,) = whole(fed(h), ["duplicate"])
    assert (told.subject, told.evidence["offsets"]) == ((W, 1), [6, 9])


@pytest.mark.parametrize("fed", [at_once, finished])
def test_an_aborted_read_among_others(fed: Fed) -> None:
    h = History()
    h.poll("q", [("v", 0, 5, 20), ("w", 0, 1, 29), ("w", 5, 3, 30)])
    h.txn("p", sends=[("v", 8, 3, None), ("w", 8, 3, None)], type="fail", txn=3)
    h.txn("t", sends=[("w", 1, 2, None)], type="fail", txn=1)
    h.poll("r", [("w", 1, 1, 1)])
    words = "was polled, and its write failed or its transaction aborted; its transaction 1 was told to be aborted"
    told = of_value(
        "G1a", W, 1, words, 0.008, offset=1, process=R, op=0, failed_process=T, failed_op=0, txn=1, told="aborted"
    )
    assert whole(fed(h), ["G1a"]) == [told._replace(context={"isolation": "read_committed"})]


def test_aborted_reads_of_polls_that_wait_among_others() -> None:
    """The polls came in an earlier step, and their time has not."""
    h, store = History(), Store()
    h.poll("q", [("v", 0, 5, 20), ("w", 0, 1, 29), ("w", 5, 3, 30)])
    h.poll("r", [("w", 1, 2, 40)])
    h.txn("t", sends=[("w", 2, 1, None)], type="fail", txn=1)
    store.feed(h.rows[:2])
    store.feed(h.rows[2:])
    words = "was polled, and its write failed or its transaction aborted; its transaction 1 was told to be aborted"
    told = of_value(
        "G1a", W, 2, words, 0.006, offset=41, process=R, op=0, failed_process=T, failed_op=0, txn=1, told="aborted"
    )
    assert whole(store, ["G1a"]) == [told._replace(context={"isolation": "read_committed"})]


def test_an_own_value_polled_among_others() -> None:
    """Of two operations, and of two writers in one of them."""
    h = History()
    h.txn("p", sends=[("w", 3, 2, 50)], polls=[("v", 0, 9, 60)])
    h.txn("t", sends=[("w", 0, 2, 5), ("v", 0, 1, 60)], polls=[("v", 1, 4, 61), ("w", 1, 4, 6)], type="info")
    assert whole(finished(h), ["precommitted-read"]) == [
        Told(
            "precommitted-read",
            (W, 1, T, 0),
            f"operation 0 of process {T} polled its own value {W}/1",
            {"writer": W, "seq": 1, "offset": 6, "process": T, "op": 0},
            0.004,
            context={"isolation": "read_committed"},
        )
    ]


def cut(txn: int, reader: int, writer: int, seq: int, at: float, op: int = 0) -> Told:
    said = f"operation {op} of process {reader} polled a part of transaction {txn}, cut at value {writer}/{seq}"
    return Told(
        "G1b", (txn, reader, op), said, {"txn": txn, "process": reader, "op": op, "writer": writer, "seq": seq}, at
    )


def by_two_processes(h: History) -> list[Told]:
    h.poll("q", [("w", 4, 2, 4)])
    h.poll("r", [("w", 6, 2, 6)])
    return [cut(1, Q, W, 6, 0.006), cut(1, R, W, 6, 0.008)]


def of_two_writers(h: History) -> list[Told]:
    h.poll("r", [("w", 4, 2, 4), ("v", 6, 2, 22)])
    return [cut(1, R, W, 6, 0.006), cut(2, R, V, 6, 0.006)]


def with_a_gap(h: History) -> list[Told]:
    h.poll("r", [("w", 4, 1, 4), ("w", 6, 2, 6)])
    return [cut(1, R, W, 6, 0.006)]


def in_two_operations(h: History) -> list[Told]:
    h.poll("r", [("w", 4, 2, 4)])
    h.poll("r", [("w", 6, 2, 6)])
    return [cut(1, R, W, 6, 0.006), cut(1, R, W, 6, 0.008, op=1)]


def whole_and_what_stands_around(h: History) -> list[Told]:
    h.poll("r", [("w", 0, 3, 0), ("w", 4, 2, 4), ("w", 6, 2, 6), ("w", 9, 1, 9)])
    return []


@pytest.mark.parametrize(
    "build", [by_two_processes, of_two_writers, with_a_gap, in_two_operations, whole_and_what_stands_around]
)
def test_a_part_of_a_transaction_among_others(build: Callable[[History], list[Told]]) -> None:
    """Transactions 1 and 2 are values 4 to 7 of two writers."""
    h = History()
    h.txn("t", sends=[("w", 4, 4, 4)], txn=1)
    h.txn("p", sends=[("v", 4, 4, 20)], txn=2)
    expected = build(h)
    assert whole(finished(h), ["G1b"]) == sorted(expected, key=lambda one: (one.at, str(one.subject)))


def test_what_a_live_poll_cut_in_two_is_counted_and_not_told() -> None:
    h = History()
    h.txn("t", sends=[("w", 4, 4, 4)], txn=1)
    by_two_processes(h)
    for _ in range(3):
        h.mark(1.0)
    store = row_by_row(h)
    (last,) = store.last.values()
    assert (whole(store, ["G1b"]), last.summary["partial_reads"]) == ([], 2)


def test_a_late_record() -> None:
    """One reader had gone over its offset before another one was given it; a third one's poll there failed."""
    h = History()
    h.poll("s", [("w", 0, 1, 0), ("w", 2, 1, 2)])
    h.poll("p", [("w", 0, 1, 0), ("w", 2, 1, 2)], type="fail")
    h.poll("r", [("w", 0, 3, 0)])
    words = (
        f"value {W}/1 was polled at offset 1 by process {R}, and process {number('s')} had passed that offset before"
    )
    evidence = {
        "writer": W,
        "seq": 1,
        "offset": 1,
        "process": R,
        "op": 0,
        "passed_process": number("s"),
        "passed_op": 0,
        "apart_s": 0.004,
    }
    assert whole(finished(h), ["late-record", "vanished-record"]) == [
        Told("late-record", (1, W, 1), f"{words}, when nothing was there", evidence, 0.006)
    ]


@in_each_way
@pytest.mark.parametrize("back", [False, True])
def test_an_order_that_only_a_duplicate_disturbs_is_explained_by_it(fed: Fed, back: bool) -> None:
    """By offsets the reader went on; its next operation begins before the last place of the value that it had polled
    last. Who went back by offsets, too, is explained by nothing."""
    h = History()
    h.assign("r")
    h.send("w", 0, 9, at=0)
    h.send("v", 0, at=9)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 1, 5, 1)] if back else [("w", 4, 2, 4)], position_before=3)
    h.poll("q", [("w", 2, 1, 10)], mode="subscribe")
    for _ in range(20):
        h.observe(end=11)
        h.mark(1.0)
    store = fed(h)
    (twice,) = [f for f in store.findings if f.anomaly == "duplicate"]
    (told,) = [f for f in store.findings if f.anomaly == "nonmonotonic-poll"]
    went = "went from offset 2, whose value stands at 10 too, back to "
    assert (told.message, told.implied_by, dict(told.context)) == (
        f"process {R} " + ("went back from offset 10 to 1" if back else went + "4"),
        None if back else twice.id,
        {"mode": "assign", "duplicate": "critical"},
    )


@in_each_way
def test_a_skip_that_only_a_duplicate_makes_is_explained_by_it(fed: Fed) -> None:
    """A marker lies at offset 3: records that are neighbours to the offset are no step to be judged."""
    h = History()
    h.assign("r")
    h.send("w", 0, 3, at=0)
    h.send("w", 3, 6, at=4)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 3, 1, 4)], position_before=3)
    h.poll("q", [("w", 3, 1, 10)], mode="subscribe")
    for _ in range(20):
        h.observe(end=11)
        h.mark(1.0)
    store = fed(h)
    (twice,) = [f for f in store.findings if f.anomaly == "duplicate"]
    (told,) = [f for f in store.findings if f.anomaly == "poll-skip"]
    what = f"process {R} went from offset 2 to 4, whose value stands at 10 too, over 5 known values"
    assert (told.message, told.implied_by) == (what, twice.id)


def test_a_duplicate_beside_one_of_another_chunk_of_its_writer() -> None:
    """Both are in the open window, as a reader has not come by; what the first one touched is not asked for when the
    second one comes."""
    h, store = History(), Store()
    h.assign("slow")
    h.poll("slow", [("w", 0, 1, 0)])
    h.assign("r")
    h.poll("r", [("w", 8200, 1, 5), ("w", 8200, 1, 9)])
    for _ in range(20):
        h.observe(end=10)
        h.mark(1.0)
    store.feed(h.rows)
    h.rows.clear()
    h.poll("r", [("w", 3, 1, 20), ("w", 3, 1, 21)])
    store.feed(h.rows)
    assert [f.subject for f in store.findings if f.anomaly == "duplicate"] == [(W, 8200), (W, 3)]


@in_each_way
def test_a_skip_beside_a_duplicate_is_not_explained_by_it(fed: Fed) -> None:
    """The value where the reader began again stands twice, and it went over others before, by offsets as well."""
    h = History()
    h.assign("r")
    h.send("w", 0, 9, at=0)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 5, 1, 5)], position_before=3)
    h.poll("q", [("w", 3, 2, 3), ("w", 5, 1, 9)], mode="subscribe")
    for _ in range(20):
        h.observe(end=10)
        h.mark(1.0)
    (told,) = [f for f in fed(h).findings if f.anomaly == "poll-skip"]
    what = f"process {R} went from offset 2 to 5, whose value stands at 9 too, over 5 known values"
    assert (told.message, told.implied_by) == (what, None)
