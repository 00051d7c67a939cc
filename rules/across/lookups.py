"""Was a value of this ok transaction polled anywhere? The rows of the probe log tell, when another value is absent.

Of a healthy transaction nothing is told to stage 2. A value that is absent asks one question: the transaction's own
rows say which values it wrote, and where; the earliest ok poll at read_committed that holds one of them proves that the
transaction is torn. It is asked again until then, or until its partitions have told that all of it is absent: a lost
transaction is not torn. Values that are shown later than a reader had gone over them are not absent. Whoever has the
rows gives those that `own_rows` and `polls_of` pick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import OK, Columns, by_place, from_table
from rules.kept.chunks import values
from rules.vocabulary.finding import FACT_SCHEMA, Finding
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Place
from rules.vocabulary.times import from_micros, micros

MARGIN: Final = 60 * SECOND
"""Rows of one operation have the same times; as far apart as this they are found in any case."""

EVIDENCE: Final = frozenset(
    {"transactional_id", "next_txn", "next_process", "next_op", "next_told", "next_offset", "offsets_between"}
)
"""Of what a fact is `about`, what goes into a finding's evidence: see
`rules.checks.transactions.transaction_evidence.Told`."""

Values = dict[tuple[str, int], list[tuple[int, int, int]]]
"""By (topic, partition): (writer, first seq, end of seq)."""

Through = Mapping[tuple[str, str, int], int]
"""By (cluster, topic, partition): the log time through which all that readers did is here, as far as it is expected.
Who only writes has no part in it."""


@dataclass(frozen=True, slots=True)
class Question:
    """Of `txn`, which was invoked and completed at these log times, `absent` tells what is absent: facts as JSON, in
    the order of their places."""

    cluster: str
    txn: int
    invoked: int
    completed: int
    absent: tuple[str, ...]

    @classmethod
    def of(cls, facts: Sequence[dict[str, Any]]) -> Question:
        """What these facts of one transaction ask."""
        about = [orjson.loads(fact["about"]) for fact in facts]
        told = tuple(orjson.dumps(fact).decode() for fact in sorted(facts, key=order_of))
        times = (min(one["invoked"] for one in about), max(one["completed"] for one in about))
        return cls(facts[0]["cluster"], facts[0]["txn"], *times, told)

    def joined(self, other: Question) -> Question:
        """Both questions about one transaction."""
        return Question.of([orjson.loads(fact) for fact in dict.fromkeys(self.absent + other.absent)])

    @property
    def key(self) -> tuple[str, int]:
        """What it is about."""
        return self.cluster, self.txn

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [orjson.loads(fact) for fact in self.absent]

    @property
    def due(self) -> int:
        """The log time at which what is absent was known to be."""
        return int(max(fact["at"] for fact in self.facts))


def order_of(fact: dict[str, Any]) -> tuple[str, int, int, int]:
    """The order in which facts of one transaction are preferred as evidence."""
    return fact["topic_id"], fact["partition"], fact["writer"] or 0, fact["seq"] or 0


def answer(question: Question, wrote: Values, polls: pa.Table) -> Finding | None:
    """What the polls prove, if anything; `wrote` is what the transaction wrote."""
    seen = list(_first_seen(question, wrote, polls))
    if not seen:
        return None
    first = min(seen, key=lambda one: (one["at"], order_of(one)))
    absent = [fact for fact in question.facts if not _is_late(question, fact, first["at"], polls)]
    return torn(first, min(absent, key=order_of)) if absent else None


def _is_late(question: Question, absent: dict[str, Any], seen: int, polls: pa.Table) -> bool:
    """Was any of what is `absent` polled after all, by when both were known: that it is, and that another one was
    `seen`? Or any other that is absent from its partition: then whoever reads there may be about to be shown the rest.
    What was told to be absent later than that still is."""
    until = max(seen, absent["at"])
    for fact in question.facts:
        place = fact["topic"], fact["partition"]
        if place != (absent["topic"], absent["partition"]):
            continue
        values = [(fact["writer"], fact["seq"], fact["seq"] + fact["length"])]
        since = -1 if fact == absent else absent["at"]
        if any(since <= one["at"] <= until for one in _first_seen(question, {place: values}, polls)):
            return True
    return False


def is_ripe(question: Question, wrote: Values, through: Through) -> bool:
    """Do all partitions that the transaction wrote to know what their readers did up to the time in question? Then they
    have told what is absent there, and the earliest poll is here."""
    return all(through.get((question.cluster, *place), -1) >= question.due for place in wrote)


def is_lost(question: Question, wrote: Values) -> bool:
    """Have all partitions that the transaction wrote to told that all of it is absent there?"""
    absent = question.facts
    for (topic, partition), runs in wrote.items():
        here = [fact for fact in absent if (fact["topic"], fact["partition"]) == (topic, partition)]
        missing = values(*(np.array([fact[name] for fact in here], np.int64) for name in ("writer", "seq", "length")))
        if not intervals.contained_grouped(*missing, *np.array(runs, np.int64).T).all():
            return False
    return bool(wrote)


def read_through(told: Iterable[tuple[str, str, int, datetime | None]]) -> Through:
    """How far the log of each partition's readers is here, of (cluster, topic, partition, `read_through` as its summary
    tells it). A topic that was created again goes on where the log of the one before it ended."""
    through: dict[tuple[str, str, int], int] = {}
    for cluster, topic, partition, at in told:
        if at is not None:
            place = cluster, topic, partition
            through[place] = max(through.get(place, -1), micros(at))
    return through


def own_rows(questions: Sequence[Question]) -> pc.Expression:
    """The rows of these transactions."""
    begin = min(q.invoked for q in questions) - MARGIN
    end = max(q.completed for q in questions) + MARGIN
    return (
        (pc.field("completed") >= from_micros(begin))
        & (pc.field("completed") <= from_micros(end))
        & pc.field("txn").isin([q.txn for q in questions])
    )


def polls_of(wrote: Sequence[Values]) -> pc.Expression:
    """The rows that may have polled what was written."""
    places = {place for values in wrote for place in values}
    return (
        pc.field("topic").isin(sorted({topic for topic, _ in places}))
        & pc.field("partition").isin(sorted({partition for _, partition in places}))
        & (pc.field("type") == "ok")
        & pc.field("polled").is_valid()
    )


def values_of(question: Question, rows: pa.Table) -> Values:
    """What the transaction wrote, as its rows tell."""
    mine = pc.and_(pc.equal(rows["txn"], question.txn), pc.equal(rows["cluster"], question.cluster))
    found: Values = {}
    for row in rows.filter(pc.fill_null(mine, False)).select(["topic", "partition", "sent"]).to_pylist():
        runs = [(run["writer"], run["seq"], run["seq"] + run["length"]) for run in row["sent"] or ()]
        if runs:
            found.setdefault((row["topic"], row["partition"]), []).extend(runs)
    return found


def _first_seen(question: Question, wrote: Values, polls: pa.Table) -> Iterator[dict[str, Any]]:
    """In each partition, the value of the transaction that was polled first."""
    cluster = polls.filter(pc.equal(polls["cluster"], question.cluster))
    for place, own in sorted(by_place(cluster).items()):
        topic = own["topic"][0].as_py()
        if (topic, place.partition) in wrote:
            yield from _first_here(question, place, topic, wrote[topic, place.partition], from_table(own))


def _first_here(
    question: Question, place: Place, topic: str, wrote: list[tuple[int, int, int]], columns: Columns
) -> Iterator[dict[str, Any]]:
    polled = columns.polled
    polled = polled.take((columns.type[polled.row] == OK) & columns.committed_only[polled.row])
    at = columns.completed[polled.row]
    first: tuple[int, int, int, int] | None = None
    for writer, low, high in wrote:
        for i in np.flatnonzero(
            (polled.writer == writer) & (polled.seq < high) & (low < polled.seq + polled.length)
        ).tolist():
            seq = max(low, int(polled.seq[i]))
            one = (int(at[i]), writer, seq, int(polled.offset[i]) + seq - int(polled.seq[i]))
            first = one if first is None else min(first, one)
    if first is None:
        return
    when, writer, seq, offset = first
    yield dict.fromkeys(FACT_SCHEMA.names) | {
        "cluster": question.cluster,
        "topic_id": place.topic_id,
        "topic": topic,
        "partition": place.partition,
        "kind": "visible",
        "at": when,
        "txn": question.txn,
        "outcome": "ok",
        "writer": writer,
        "seq": seq,
        "offset": offset,
        "length": 1,
    }


def torn(seen: dict[str, Any], absent: dict[str, Any]) -> Finding:
    """`torn-transaction`, of a fact that a value of it is visible, and one that another is absent."""
    at, txn, outcome = max(seen["at"], absent["at"]), absent["txn"], absent["outcome"]
    evidence = {"txn": txn, "outcome": outcome, "seen": _value(seen), "absent": _value(absent)}
    for fact in (seen, absent):  # what is told of the absent value goes before
        about = orjson.loads(fact["about"] or "{}")
        evidence |= {name: told for name, told in about.items() if name in EVIDENCE}
    return Finding(
        anomaly="torn-transaction",
        cluster=absent["cluster"],
        topic_id="",  # it is about no single partition
        topic=absent["topic"],
        partition=-1,
        subject=(txn,),
        message=f"of transaction {txn} ({outcome}), value {seen['writer']}/{seen['seq']} was polled in {_where(seen)},"
        f" and value {absent['writer']}/{absent['seq']} is absent from offset {absent['offset']} of {_where(absent)},"
        " which a reader passed",
        evidence=evidence,
        at=at,
        decidable=at,
    )


def _where(fact: dict[str, Any]) -> str:
    return f"partition {fact['partition']} of {fact['topic']}"


def _value(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: fact[name] for name in ("topic", "partition", "writer", "seq", "offset")}
