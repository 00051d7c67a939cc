"""What the facts of one transaction prove, as they come in one batch after the other: each finding once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from rules.across.lookups import Question, answer, read_through, values_of
from rules.across.resolution import FORMAT, Resolved, resolve
from rules.across.shared_conditions import FORGOTTEN
from rules.checks.transactions.given_up import AGAIN
from rules.vocabulary.finding import FACT_SCHEMA, Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.times import micros
from tests.rules.histories import History, number

ABOUT = {"transactional_id": "x", "invoked": 1, "completed": 2}
WRITER = 5


def fact(kind: str, partition: int, seq: int, at: int, *, outcome: str = "info", **more: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "topic_id": f"t{partition}",
        "topic": "topic",
        "partition": partition,
        "kind": kind,
        "at": at,
        "txn": 7,
        "outcome": outcome,
        "writer": WRITER,
        "seq": seq,
        "offset": 10 + seq,
        "length": 1,
        "about": orjson.dumps(ABOUT).decode(),
    } | more


def guarded(partition: int, at: int) -> dict[str, Any]:
    told = {
        "anomaly": "inconsistent-offsets",
        "subject": [12],
        "message": "offset 12 holds 2 values: 5/2 and 6/0",
        "evidence": {"offset": 12, "values": [{"writer": WRITER, "seq": 2}, {"writer": 6, "seq": 0}]},
    }
    nothing = dict.fromkeys(("writer", "seq", "offset", "length"))
    return fact("guarded", partition, 0, at, about=orjson.dumps(told).decode()) | nothing


def value(partition: int, seq: int) -> dict[str, Any]:
    return {"topic": "topic", "partition": partition, "writer": WRITER, "seq": seq, "offset": 10 + seq}


def lost(partition: int, seq: int, at: int, seen: dict[str, Any]) -> Finding:
    return Finding(
        anomaly="lost-write",
        cluster="c",
        topic_id=f"t{partition}",
        topic="topic",
        partition=partition,
        subject=(WRITER, seq),
        message=f"value 5/{seq} was acknowledged at offset {10 + seq} and never polled; its transaction 7 is visible in"
        f" partition {seen['partition']} of topic",
        evidence={
            "writer": WRITER,
            "seq": seq,
            "offset": 10 + seq,
            "txn": 7,
            "seen": seen,
            "transactional_id": "x",
        },
        at=at,
        decidable=at,
    )


def torn(outcome: str, seen: dict[str, Any], absent: dict[str, Any], at: int) -> Finding:
    return Finding(
        anomaly="torn-transaction",
        cluster="c",
        topic_id="",
        topic="topic",
        partition=-1,
        subject=(7,),
        message=f"of transaction 7 ({outcome}), value 5/{seen['seq']} was polled in partition {seen['partition']} of"
        f" topic, and value 5/{absent['seq']} is absent from offset {absent['offset']} of partition"
        f" {absent['partition']} of topic, which a reader passed",
        evidence={"txn": 7, "outcome": outcome, "seen": seen, "absent": absent, "transactional_id": "x"},
        at=at,
        decidable=at,
    )


class Stage:
    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def take(self, *facts: dict[str, Any], finished: bool = False) -> Resolved:
        table = pa.Table.from_pylist(list(facts), schema=FACT_SCHEMA)
        resolved = resolve(self.stored, table, Objectives(), finished=finished)
        for name, data in resolved.changes.items():
            if data is None:
                del self.stored[name]
            else:
                self.stored[name] = data
        return resolved


def test_an_indefinite_transaction_that_turns_out_visible() -> None:
    stage, seen = Stage(), value(0, 4)
    assert stage.take(fact("absent", 1, 0, 30, length=2), guarded(1, 20)).findings == []
    assert stage.stored["format"] == FORMAT
    told = stage.take(fact("visible", 0, 4, 25), fact("visible", 2, 1, 60))
    inconsistent = Finding(
        anomaly="inconsistent-offsets",
        cluster="c",
        topic_id="t1",
        topic="topic",
        partition=1,
        subject=(12,),
        message="offset 12 holds 2 values: 5/2 and 6/0",
        evidence={"offset": 12, "values": [{"writer": WRITER, "seq": 2}, {"writer": 6, "seq": 0}]},
        at=25,
        decidable=25,
    )
    assert told.findings == [
        torn("info", seen, value(1, 0), 30),
        lost(1, 0, 30, seen),
        lost(1, 1, 30, seen),
        inconsistent,
    ]
    assert stage.take(fact("visible", 3, 1, 65)).findings == []
    last = stage.take(fact("absent", 4, 3, 70))
    assert last.findings == [lost(4, 3, 70, seen)]
    assert list(last.changes) == ["txn|7|c"]


def shown_again(partition: int, seq: int, at: int, given_up: int) -> dict[str, Any]:
    """It had been absent there by `given_up`."""
    return fact("visible", partition, seq, at, about=orjson.dumps(ABOUT | {AGAIN: given_up}).decode())


def awaited(partition: int, at: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("writer", "seq", "offset", "length", "about"))
    return fact("awaited", partition, 0, at) | nothing


def test_what_was_absent_everywhere_and_is_shown_in_one_partition_may_be_shown_in_the_next() -> None:
    """As by a broker that has lost which transactions were aborted."""
    stage = Stage()
    absent = fact("absent", 0, 4, 30), fact("absent", 1, 0, 30), fact("absent", 1, 2, 35)
    assert stage.take(*absent).findings == []
    assert stage.take(shown_again(0, 4, 90, 40)).findings == []
    assert stage.take(fact("absent", 2, 1, 80)).findings == []  # of a host that was away
    assert stage.take(shown_again(1, 0, 99, 40), shown_again(2, 1, 99, 85)).findings == []
    assert stage.take(awaited(0, 4000), awaited(1, 4100)).findings == []


def test_what_is_not_shown_with_it_for_long_is_absent() -> None:
    stage, seen = Stage(), value(0, 4)
    stage.take(fact("absent", 0, 4, 30), fact("absent", 1, 0, 35), fact("absent", 2, 1, 35))
    assert stage.take(shown_again(0, 4, 90, 40), shown_again(2, 1, 95, 40)).findings == []
    expected = [torn("info", seen, value(1, 0), 90), lost(1, 0, 90, seen)]
    assert stage.take(awaited(0, 4000)).findings == [replace(one, decidable=4000) for one in expected]
    # Once, also where more comes of it.
    assert stage.take(awaited(2, 4100)).findings == []
    assert stage.take(shown_again(3, 1, 4200, 40)).findings == []
    assert stage.take(fact("absent", 4, 7, 4300)).findings == [lost(4, 7, 4300, seen)]


def test_what_a_reader_goes_over_after_it_was_shown_elsewhere_is_absent_at_once() -> None:
    stage, seen = Stage(), value(0, 4)
    stage.take(fact("absent", 0, 4, 30), shown_again(0, 4, 90, 40))
    told = stage.take(fact("absent", 4, 7, 120)).findings
    assert told == [torn("info", seen, value(4, 7), 120), lost(4, 7, 120, seen)]
    assert stage.take(awaited(0, 4000)).findings == []


def test_what_was_visible_from_the_first_leaves_nothing_to_wait_for() -> None:
    stage, seen = Stage(), value(2, 1)
    stage.take(fact("absent", 0, 4, 30), fact("absent", 1, 0, 35))
    stage.take(shown_again(0, 4, 90, 40))
    told = stage.take(fact("visible", 2, 1, 60))
    assert told.findings == [torn("info", seen, value(1, 0), 60), lost(1, 0, 60, seen)]
    assert stage.take(awaited(0, 4000)).findings == []


def test_a_loss_that_its_own_partition_tells_is_not_told_again() -> None:
    """There another value of the transaction was polled, so that the partition knows that it is visible."""
    about = orjson.dumps(ABOUT | {"told_here": True}).decode()
    told = Stage().take(fact("absent", 1, 0, 30, about=about), fact("visible", 1, 1, 25))
    assert told.findings == [torn("info", value(1, 1), value(1, 0), 30)]


def test_a_transaction_that_shows_nothing_and_one_of_another_cluster() -> None:
    stage = Stage()
    assert stage.take(fact("absent", 1, 0, 30), guarded(1, 20)).findings == []
    assert stage.take(fact("visible", 0, 4, 25, cluster="another")).findings == []
    assert stage.take().changes == {}


def test_an_aborted_transaction_of_which_something_shows_later() -> None:
    """What was absent before comes before what is absent now."""
    stage, of = Stage(), {"outcome": "fail"}
    assert stage.take(fact("absent", 1, 0, 30, **of)).findings == []
    told = stage.take(fact("absent", 2, 0, 35, **of), fact("visible", 0, 4, 40, **of))
    assert told.findings == [torn("fail", value(0, 4), value(1, 0), 40)]


def test_what_nobody_sees_any_more_is_closed_by_whatever_comes() -> None:
    about = {
        "anomaly": "evidence-late",
        "subject": ["process", 5],
        "message": "late",
        "decidable": 9,
        "waits": False,
        "evidence": {"process": 5, "host": 9, "hold": "rows", "since": 1, "behind_s": 3.0},
    }
    stage = Stage()
    assert stage.take().changes == {}
    (opened,) = stage.take(fact("holds", 1, 0, 10, txn=None, about=orjson.dumps(about).decode())).findings
    (closed,) = stage.take(fact("absent", 1, 0, 11 + FORGOTTEN)).findings
    assert (opened.event, closed.event, closed.at) == ("opened", "closed", 11 + FORGOTTEN)


@pytest.mark.parametrize("outcome", ["ok", "fail"])
def test_a_finished_history_has_all_facts(outcome: str) -> None:
    of = {"outcome": outcome}
    facts = [
        guarded(0, 20) | of,
        fact("absent", 1, 1, 30, **of),
        fact("absent", 2, 0, 35, **of),
        fact("visible", 3, 5, 40, **of),
        fact("visible", 4, 0, 45, **of),
    ]
    others = [
        fact("visible", 0, 0, 10, txn=8, **of),
        fact("absent", 0, 0, 10, txn=8, cluster="another", **of),
        fact("absent", 0, 0, 10, txn=9, **of),
    ]
    told = Stage().take(*others, *facts, finished=True).findings
    assert told == [torn(outcome, value(3, 5), value(1, 1), 40)]


def test_a_poll_of_another_place_answers_nothing() -> None:
    """It wrote to a partition of that number, and to one of that topic."""
    h = History()
    h.poll("r", [("w", 0, 1, 0)], partition=1)
    question = Question.of([fact("absent", 0, 0, 30, outcome="ok")])
    wrote = {("topic", 0): [(number("w"), 0, 4)], ("other", 1): [(number("w"), 0, 4)]}
    assert answer(question, wrote, h.table()) is None


@pytest.mark.parametrize("writer", ["w", "v"])
def test_another_writers_value_of_the_same_number_answers_nothing(writer: str) -> None:
    h = History()
    h.poll("r", [(writer, 0, 1, 0)])
    question = Question.of([fact("absent", 1, 0, 30, outcome="ok")])
    found = answer(question, {("topic", 0): [(number("w"), 0, 4)]}, h.table())
    assert (found is not None and found.evidence["seen"]["writer"] == number("w")) == (writer == "w")


def test_what_a_transaction_wrote_is_told_by_its_rows() -> None:
    """Not by those of another one, or where it only polled."""
    h = History()
    h.txn("t", sends=[("w", 0, 3, 5)], txn=7, op=1)
    h.row("t", "txn", partition=1, txn=7, op=1)
    h.txn("t", sends=[("w", 3, 3, 9)], txn=8)
    h.send("v", 0, at=20)
    w = number("w")
    question = Question.of([fact("absent", 0, 0, 30, outcome="ok")])
    assert values_of(question, h.table()) == {("topic", 0): [(w, 0, 3)]}
    table = h.table()
    empty = table.set_column(
        table.column_names.index("sent"), table.schema.field("sent"), pa.nulls(4, table["sent"].type)
    )
    assert values_of(question, empty) == {}


@pytest.mark.parametrize("times", [(100, 160), (160, 100)])
def test_who_asks_of_a_topic_that_was_created_again_goes_by_its_newest_life(times: tuple[int, int]) -> None:
    """The summaries of both lives come in any order; that of a life which nobody has read yet tells nothing."""
    h = History()
    told = [("c", "topic", 0, h.at(at)) for at in times]
    unread = ("c", "topic", 0, None)
    assert read_through([*told, unread, ("c", "other", 0, None)]) == {("c", "topic", 0): micros(h.at(160))}
