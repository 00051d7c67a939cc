"""Small arbitrary histories: not what a cluster could do, but anything that a log of operations can say.

Most of what is sent and polled lies where one small log, `LAYOUT`, has it, so that there is an order to speak of; the
rest is anywhere. A history is a list of `Operation`, plain data that Hypothesis can shrink; `build` makes the rows, and
the `repr` of an operation is how a disagreement is written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rules.vocabulary.slices import Irregular, Run
from tests.rules.histories import History, number

LAYOUT = ("w0", "w1", "v0", "", "w2", "v1", "v2", "t0", "t1", "", "w3", "w4", "v3", "t2", "", "w5")
"""The value at each offset: writer and seq. Offsets 3, 9 and 14 are holes, as transaction markers leave them."""

OFFSETS = len(LAYOUT)
HOLES = (3, 9, 14)
WRITERS = ("w", "v", "t")
READERS = ("r", "s", "g", "u")
TRANSACTIONAL = ("t", "x")
SUBSCRIBED = ("g",)
UNCOMMITTED = ("u", "x")


@dataclass(frozen=True)
class Records:
    """Records in a row: those of the layout from `at` on, holes left out, or, with a writer, its values anywhere."""

    at: int | None
    length: int = 1
    writer: str | None = None
    seq: int = 0

    def runs(self) -> list[Run]:
        if self.writer is not None:
            return [Run(number(self.writer), self.seq, self.at, self.length)]
        assert self.at is not None
        runs: list[Run] = []
        for offset in range(self.at, min(self.at + self.length, OFFSETS)):
            if LAYOUT[offset]:
                writer, seq = number(LAYOUT[offset][0]), int(LAYOUT[offset][1:])
                last = runs[-1] if runs else None
                if last and (last.writer, last.seq + last.length, last.offset) == (writer, seq, offset - last.length):
                    runs[-1] = last._replace(length=last.length + 1)
                else:
                    runs.append(Run(writer, seq, offset, 1))
        return runs


@dataclass(frozen=True)
class Odd:
    """An irregular record: `corrupted`, `foreign`, or `relocated` from partition 3."""

    status: Any
    offset: int
    seq: int = 0
    front: bool = True

    def record(self, index: int) -> Irregular:
        hash_ = 1000 + 10 * self.seq + ("corrupted", "foreign", "relocated").index(self.status)
        if self.status == "corrupted":
            return Irregular(index, self.offset, self.status, hash_)
        run = "another" if self.status == "foreign" else None
        partition = 3 if self.status == "relocated" else 0
        return Irregular(index, self.offset, self.status, hash_, number("w"), self.seq, "topic", partition, run)


@dataclass(frozen=True)
class Part:
    """What an operation did in one partition. Are the offsets of what it sent (`acknowledged`) and polled (`placed`)
    known? `sources`: the inputs that a transform reflects."""

    partition: int = 0
    sent: tuple[Records, ...] = ()
    acknowledged: bool = True
    polled: tuple[Records, ...] = ()
    placed: bool = True
    odd: tuple[Odd, ...] = ()
    rebalanced: bool = False
    sources: tuple[Records, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One operation of a process. `overlap`: it was invoked before the two before it had completed. `error`: what an
    indefinite write was told; `ended`: was the commit of an indefinite transaction invoked?"""

    process: str
    f: Any
    type: Any = "ok"
    parts: tuple[Part, ...] = (Part(),)
    assigned: bool = True
    start: int = 0
    end: int = 0
    committed: int | None = None
    group: str | None = None
    overlap: bool = False
    error: str | None = None
    ended: bool = True


def build(operations: list[Operation]) -> History:
    """The rows of these operations: they complete in the order given, a second apart, on one host. Those that write
    transactions take one transactional id from each other."""
    history = History()
    for op, operation in enumerate(operations):
        completed = op + 1.0
        invoked = completed - (2.5 if operation.overlap else 0.5)
        for part in operation.parts:
            more: dict[str, Any] = {"boot": "b", "mono_invoked": nanoseconds(invoked)}
            more["mono_completed"] = nanoseconds(completed)
            if operation.type == "info":
                more["error"] = operation.error
            if operation.f in ("poll", "txn"):
                more["mode"] = "subscribe" if operation.process in SUBSCRIBED else "assign"
                more["isolation"] = "read_uncommitted" if operation.process in UNCOMMITTED else "read_committed"
                more["rebalanced"] = part.rebalanced
                polled = [run for records in part.polled for run in records.runs()]
                more["polled"] = [run if part.placed else run._replace(offset=None) for run in polled]
                regular = sum(run.length for run in more["polled"])
                fronts = [odd for odd in part.odd if odd.front]
                backs = [odd for odd in part.odd if not odd.front]
                more["irregular"] = [odd.record(i) for i, odd in enumerate(fronts)] + [
                    odd.record(len(fronts) + regular + i) for i, odd in enumerate(backs)
                ]
            if operation.f in ("send", "txn"):
                sent = [run for records in part.sent for run in records.runs()]
                more["sent"] = [run if part.acknowledged else run._replace(offset=None) for run in sent]
            if operation.f == "txn":
                more |= {"txn": op + 1, "txn_intent": "abort" if operation.type == "fail" else "commit"}
                more["txn_partitions"] = [("topic", touched.partition) for touched in operation.parts]
                if operation.type != "info" or operation.ended:
                    ended = completed - 0.25
                    more |= {"end_invoked": history.at(ended), "mono_end_invoked": nanoseconds(ended)}
                more["sources"] = [run for records in part.sources for run in records.runs()]
            if operation.f in ("txn", "init"):
                more["transactional_id"] = "id"
            if operation.f in ("assign", "subscribe", "revoke"):
                more["assigned"] = operation.assigned and operation.f != "revoke"
            if operation.f == "offsets" and operation.group is None:
                more.update(log_start=operation.start, log_end=operation.end, last_stable=operation.end)
            if operation.group is not None:
                more.update(committed=operation.committed, group=operation.group)
            history.row(
                operation.process,
                operation.f,
                type=operation.type,
                partition=part.partition,
                op=op,
                invoked=history.at(invoked),
                completed=history.at(completed),
                **more,
            )
    return history


def nanoseconds(time: float) -> int:
    """By the host's monotonic clock, which began before the first operation."""
    return round((time + 10) * 1e9)


outcomes = st.sampled_from(("ok", "ok", "ok", "info", "fail"))
partitions = st.sampled_from((0, 0, 0, 1))
laid_out = st.builds(Records, at=st.integers(0, OFFSETS - 1), length=st.sampled_from((1, 1, 2, 3, 6)))
anywhere = st.builds(
    Records,
    at=st.integers(0, OFFSETS - 1),
    length=st.sampled_from((1, 1, 2, 3)),
    writer=st.sampled_from(WRITERS),
    seq=st.integers(0, 8),
)
again = st.builds(Records, at=st.sampled_from(HOLES), writer=st.sampled_from(WRITERS), seq=st.integers(0, 3))
records = st.integers(0, 7).flatmap(lambda n: (*(laid_out,) * 6, again, anywhere)[n])
odd = st.builds(
    Odd,
    status=st.sampled_from(("corrupted", "foreign", "relocated")),
    offset=st.integers(0, OFFSETS - 1),
    seq=st.integers(0, 2),
    front=st.booleans(),
)
odds = st.integers(0, 29).flatmap(lambda n: st.tuples(odd) if n == 29 else st.just(()))


def some(element: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(element, min_size=1, max_size=most).map(tuple)


sending = st.builds(Part, partitions, sent=some(records, 2), acknowledged=st.sampled_from((True, True, True, False)))
polling = st.builds(
    Part,
    partitions,
    polled=some(records, 3),
    odd=odds,
    rebalanced=st.sampled_from((False, False, False, True)),
    placed=st.integers(0, 29).map(lambda n: n < 29),
)
both = st.builds(
    Part,
    partitions,
    sent=some(records, 2),
    acknowledged=st.sampled_from((True, True, True, False)),
    polled=st.lists(records, max_size=2).map(tuple),
    sources=st.integers(0, 5).flatmap(lambda n: st.tuples(laid_out) if n == 5 else st.just(())),
)
touched = st.lists(both, min_size=1, max_size=2, unique_by=lambda part: part.partition).map(tuple)
rarely = st.sampled_from((False, False, False, True))
errors = st.sampled_from((None, "_TIMED_OUT", "INVALID_TXN_STATE", "NOT_LEADER_FOR_PARTITION"))

sends = st.builds(
    Operation, st.sampled_from(("w", "v")), st.just("send"), outcomes, st.tuples(sending), overlap=rarely, error=errors
)
polls = st.builds(Operation, st.sampled_from(READERS), st.just("poll"), outcomes, st.tuples(polling), overlap=rarely)
txns = st.builds(
    Operation,
    st.sampled_from(TRANSACTIONAL),
    st.just("txn"),
    outcomes,
    touched,
    overlap=rarely,
    error=errors,
    ended=st.sampled_from((True, True, False)),
)
inits = st.builds(
    Operation, st.sampled_from(TRANSACTIONAL), st.just("init"), outcomes, st.just((Part(0), Part(1))), overlap=rarely
)
moves = st.builds(
    Operation,
    st.sampled_from((*READERS, "t")),
    st.sampled_from(("assign", "subscribe", "revoke")),
    outcomes,
    st.tuples(st.builds(Part, partitions)),
    assigned=st.booleans(),
)
observed = st.builds(
    lambda partition, start, more: Operation(
        "o", "offsets", parts=(Part(partition),), start=start, end=min(OFFSETS, start + more)
    ),
    partitions,
    st.sampled_from((0, 0, 2, 5)),
    st.integers(0, OFFSETS),
)
groups = st.builds(
    Operation,
    st.just("o"),
    st.sampled_from(("commit", "offsets")),
    outcomes,
    st.tuples(st.builds(Part, partitions)),
    committed=st.sampled_from((None, 0, 0, 2, 3, 5)),
    group=st.sampled_from(("g", "h")),
    overlap=rarely,
)

operations = st.sampled_from((sends, sends, polls, polls, polls, txns, txns, inits, moves, observed, groups)).flatmap(
    lambda s: s
)
histories = st.lists(operations, min_size=1, max_size=25)
"""Lists of operations. `build` makes a history of one."""
