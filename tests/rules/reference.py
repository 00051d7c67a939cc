"""A reference checker: every rule once more, over a whole finished history, as plainly as it can be said.

It knows no windows, no arrays and no state: operations, dictionaries and sets, and one function per anomaly, named
after it. Nothing here is shared with `rules` save the vocabulary, so that an error would have to be made twice, in two
different ways, to pass unnoticed. `check` gives the findings of each partition as (anomaly, subject), with the subjects
that `rules` uses; where `rules` reports a whole partition (`unseen`) the subject here is the single value.

The terms:

- A *value* is a record's identity. A corrupt record has none.
- A write is *visible* if its operation is ok, or is info and an ok operation polled one of its values, in any
  partition. A poll at read_uncommitted proves no commit, and makes no write visible.
- The *log* of a partition says at which offsets a value was seen: in polls of any outcome and either isolation level,
  and in acknowledgements of visible writes.
- A value's *index* is the rank of its last place among the places that have an index: those seen by a poll at
  read_committed or an acknowledgement of a visible write, and by one value only. Earlier places of a value that stands
  again further on have none; neither has an offset with several values. Where an index is unknown, nothing is
  concluded.
- A value counts for a step over it unless it was sent, as far as that is known, after the step.
- The *log start* at a poll is what the first observation after it tells: retention may overtake a reader unseen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rules.vocabulary.slices import Irregular, Place, Slice

Subject = tuple[int | str, ...]
Found = tuple[str, Subject]


class Value(NamedTuple):
    """A record's identity. `run` is None for a run that the log knows."""

    writer: int
    topic: str
    partition: int
    seq: int
    run: str | None = None


@dataclass
class Record:
    """One record, sent or polled: `value` is None if the tag is corrupt, `offset` if it is unknown."""

    value: Value | None
    offset: int | None
    irregular: Irregular | None = None


@dataclass
class Part:
    """What an operation did in one partition."""

    row: Slice
    sent: list[Record] = field(default_factory=list)
    polled: list[Record] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.row.type == "ok"

    @property
    def committed_only(self) -> bool:
        """Is this a read at read_committed? Unknown counts as such."""
        return self.row.isolation != "read_uncommitted"

    @property
    def operation(self) -> tuple[int, int]:
        return self.row.process, self.row.op


@dataclass
class Log:
    """One partition's log, and the history it was taken from."""

    history: History
    place: Place
    parts: list[Part]
    values: dict[int, set[Value]] = field(default_factory=lambda: defaultdict(set))
    places: dict[Value, set[int]] = field(default_factory=lambda: defaultdict(set))
    index: dict[int, int] = field(default_factory=dict)

    def subject(self, value: Value) -> Subject:
        """(writer, seq), and where the value was meant to be if it was not here."""
        if value.partition == self.place.partition and value.run is None:
            return value.writer, value.seq
        return value.writer, value.topic, value.partition, value.seq

    def index_of(self, record: Record) -> int | None:
        """The index of the record's value, None if unknown."""
        if record.value is None or record.value not in self.places:
            return None
        if record.offset is not None and len(self.values[record.offset]) > 1:
            return None
        return self.index.get(max(self.places[record.value]))

    def offset_of(self, record: Record) -> int:
        """Where the record was sent to or polled from; where its value stands last, if the operation did not say."""
        if record.offset is not None:
            return record.offset
        assert record.value is not None
        return max(self.places[record.value])

    def sent_after(self, offset: int, part: Part) -> bool:
        """Was what stands there sent after this operation, as a log that was cut gives its offsets again? By one boot's
        clock, and not where no send is known."""
        sends = [
            other.row
            for other in self.parts
            for record in other.sent
            if other.row.type != "fail"
            and record.value in self.values[offset]
            and (record.offset in (offset, None) or other.row.type == "info")
        ]
        return bool(sends) and all(r.boot == part.row.boot and r.invoked > part.row.completed for r in sends)

    def log_start(self, time: object = None) -> int:
        """The highest log start observed until the first observation after that time; ever, if no time is given."""
        seen = sorted(
            ((p.row.completed, p.row.log_start) for p in self.parts if p.row.log_start is not None),
            key=lambda observed: observed[0],
        )
        after = [i for i, (completed, _) in enumerate(seen) if time is not None and completed >= time]  # type: ignore[operator]
        return max((low for _, low in (seen[: after[0] + 1] if after else seen)), default=0)

    def processes(self) -> Iterator[list[Part]]:
        """The operations of each process, in its order."""
        own: dict[int, list[Part]] = defaultdict(list)
        for part in self.parts:
            own[part.row.process].append(part)
        for parts in own.values():
            yield sorted(parts, key=lambda p: p.row.slice)


@dataclass
class History:
    """Everything, by partition and by value."""

    parts: list[Part]
    logs: dict[Place, Log] = field(default_factory=dict)
    outcomes: dict[Value, set[str]] = field(default_factory=lambda: defaultdict(set))
    read_by_ok: set[Value] = field(default_factory=set)
    visible_operations: set[tuple[int, int]] = field(default_factory=set)
    visible_values: set[Value] = field(default_factory=set)


def read(rows: Iterable[Slice]) -> History:
    """The history with its logs."""
    history = History([_part(row) for row in rows])
    committed: set[Value] = set()
    for part in history.parts:
        for record in part.sent:
            assert record.value is not None
            history.outcomes[record.value].add(part.row.type)
        if part.ok:
            history.read_by_ok |= {r.value for r in part.polled if r.value}
            if part.committed_only:
                committed |= {r.value for r in part.polled if r.value}
    for part in history.parts:
        if part.ok or (part.row.type == "info" and any(r.value in committed for r in part.sent)):
            history.visible_operations.add(part.operation)
    for part in history.parts:
        if part.operation in history.visible_operations:
            history.visible_values |= {r.value for r in part.sent if r.value}
        elif part.row.type == "info":  # nobody knows where, if anywhere
            part.sent = [Record(r.value, None) for r in part.sent]
    for place in {p.row.place for p in history.parts}:
        history.logs[place] = _log(history, place)
    return history


def _part(row: Slice) -> Part:
    part = Part(row)
    for run in row.sent:
        for i in range(run.length):
            value = Value(run.writer, row.topic, row.partition, run.seq + i)
            part.sent.append(Record(value, None if run.offset is None else run.offset + i))
    regular = [
        Record(Value(run.writer, row.topic, row.partition, run.seq + i), None if run.offset is None else run.offset + i)
        for run in row.polled
        for i in range(run.length)
    ]
    singly = {record.index: record for record in row.irregular}
    for position in range(len(regular) + len(singly)):
        if position in singly:
            record = singly[position]
            part.polled.append(Record(_irregular_value(record), record.offset, record))
        else:
            part.polled.append(regular.pop(0))
    return part


def _irregular_value(record: Irregular) -> Value | None:
    if record.status == "corrupted":
        return None
    assert record.writer is not None and record.topic is not None
    assert record.partition is not None and record.seq is not None
    return Value(record.writer, record.topic, record.partition, record.seq, record.run)


def _log(history: History, place: Place) -> Log:
    log = Log(history, place, [p for p in history.parts if p.row.place == place])
    indexed: set[int] = set()
    for part in log.parts:
        for record in part.polled:
            _stand(log, record)
            if part.committed_only and record.value is not None and record.offset is not None:
                indexed.add(record.offset)
        if part.operation in history.visible_operations:
            for record in part.sent:
                _stand(log, record)
                if record.offset is not None:
                    indexed.add(record.offset)
    clear = []
    for offset in sorted(indexed):
        if len(log.values[offset]) == 1:
            (value,) = log.values[offset]
            if offset == max(log.places[value]):
                clear.append(offset)
    log.index = {offset: rank for rank, offset in enumerate(clear)}
    return log


def _stand(log: Log, record: Record) -> None:
    if record.value is not None and record.offset is not None:
        log.values[record.offset].add(record.value)
        log.places[record.value].add(record.offset)


# What was seen.


def duplicate(log: Log) -> Iterator[Found]:
    for value, offsets in log.places.items():
        if len(offsets) >= 2:
            yield "duplicate", log.subject(value)


def inconsistent_offsets(log: Log) -> Iterator[Found]:
    for offset, values in log.values.items():
        if len(values) >= 2:
            yield "inconsistent-offsets", (offset,)


def g1a(log: Log) -> Iterator[Found]:
    for part in log.parts:
        for record in part.polled:
            if part.ok and part.committed_only and record.value and "fail" in log.history.outcomes[record.value]:
                yield "G1a", log.subject(record.value)


def precommitted_read(log: Log) -> Iterator[Found]:
    for part in log.parts:
        sends = {r.value for p in log.history.parts if p.operation == part.operation for r in p.sent}
        for record in part.polled:
            if record.value is not None and record.value in sends:
                yield "precommitted-read", (*log.subject(record.value), *part.operation)


def corrupted_record(log: Log) -> Iterator[Found]:
    for record in _irregulars(log, "corrupted"):
        yield "corrupted-record", (record.offset, record.hash)


def relocated_write(log: Log) -> Iterator[Found]:
    for record in _irregulars(log, "relocated"):
        value = _irregular_value(record)
        assert value is not None
        yield "relocated-write", (value.writer, value.topic, value.partition, value.seq, record.offset)


def foreign_record(log: Log) -> Iterator[Found]:
    for record in _irregulars(log, "foreign"):
        yield "foreign-record", (record.run or "",)


def _irregulars(log: Log, status: str) -> list[Irregular]:
    return [
        record.irregular
        for part in log.parts
        for record in part.polled
        if record.irregular is not None and record.irregular.status == status
    ]


# What is missing.


def lost_write(log: Log) -> Iterator[Found]:
    polled = [
        min(log.places[record.value])
        for part in log.parts
        if part.ok and part.committed_only
        for record in part.polled
        if record.value in log.places
    ]
    if not polled:
        return
    for value in log.history.visible_values:
        if value not in log.places or value.partition != log.place.partition or value in log.history.read_by_ok:
            continue
        if log.log_start() <= max(log.places[value]) <= max(polled):
            yield "lost-write", log.subject(value)


def unseen(log: Log) -> Iterator[Found]:
    for part in log.parts:
        for record in part.sent:
            assert record.value is not None
            below = record.offset is not None and record.offset < log.log_start()
            if part.ok and not below and record.value not in log.history.read_by_ok:
                yield "unseen", log.subject(record.value)


# The order of polls and sends.


class Step(NamedTuple):
    """From one record to the next, within one operation of a process or from one of its operations to its next."""

    part: Part
    one: Record
    other: Record

    def indices(self, log: Log) -> tuple[int, int] | None:
        """Both, or None where one is unknown."""
        before, after = log.index_of(self.one), log.index_of(self.other)
        return None if before is None or after is None else (before, after)

    def backwards(self, log: Log) -> bool:
        known = self.indices(log)
        return known is not None and known[1] <= known[0]

    def skips(self, log: Log, start: int = 0, *, of: Part | None = None) -> bool:
        """Does any index lie between whose offset is not below `start`? If a poll went over it, `of`: and what stands
        there was not sent after that."""
        known = self.indices(log)
        if known is None:
            return False
        between = (o for o, index in log.index.items() if known[0] < index < known[1] and o >= start)
        return any(of is None or not log.sent_after(offset, of) for offset in between)

    def inside(self, log: Log) -> Subject:
        """The subject of a finding inside an operation: it tells the next record's offset."""
        return (*self.part.operation, log.offset_of(self.other))


def steps_between_polls(log: Log) -> Iterator[Step]:
    for parts in log.processes():
        position: Record | None = None
        for part in parts:
            moved = part.row.f in ("assign", "subscribe", "revoke") and part.row.type != "fail"
            if moved and part.row.assigned is False:
                position = None
            if part.polled and part.committed_only:
                if position is not None:
                    yield Step(part, position, part.polled[0])
                if part.ok:
                    position = part.polled[-1]


def steps_inside_polls(log: Log) -> Iterator[Step]:
    for part in log.parts:
        if part.committed_only and not part.row.rebalanced:
            for one, other in pairwise(part.polled):
                yield Step(part, one, other)


def steps_between_sends(log: Log) -> Iterator[Step]:
    for parts in log.processes():
        sends = [p for p in parts if p.sent and p.row.type != "fail"]
        for one, other in pairwise(sends):
            yield Step(other, one.sent[-1], other.sent[0])


def steps_inside_sends(log: Log) -> Iterator[Step]:
    for part in log.parts:
        if part.row.type != "fail":
            for one, other in pairwise(part.sent):
                yield Step(part, one, other)


def poll_skip(log: Log) -> Iterator[Found]:
    for step in steps_between_polls(log):
        if step.skips(log, log.log_start(step.part.row.completed), of=step.part):
            yield "poll-skip", step.part.operation


def nonmonotonic_poll(log: Log) -> Iterator[Found]:
    for step in steps_between_polls(log):
        if step.backwards(log):
            yield "nonmonotonic-poll", step.part.operation


def int_poll_skip(log: Log) -> Iterator[Found]:
    for step in steps_inside_polls(log):
        if step.skips(log, log.log_start(step.part.row.completed), of=step.part):
            yield "int-poll-skip", step.inside(log)


def int_nonmonotonic_poll(log: Log) -> Iterator[Found]:
    for step in steps_inside_polls(log):
        if step.backwards(log):
            yield "int-nonmonotonic-poll", step.inside(log)


def int_send_skip(log: Log) -> Iterator[Found]:
    for step in steps_inside_sends(log):
        if step.skips(log):
            yield "int-send-skip", step.inside(log)


def int_nonmonotonic_send(log: Log) -> Iterator[Found]:
    for step in steps_inside_sends(log):
        if step.backwards(log):
            yield "int-nonmonotonic-send", step.inside(log)


def nonmonotonic_send(log: Log) -> Iterator[Found]:
    for step in steps_between_sends(log):
        if step.backwards(log):
            yield "nonmonotonic-send", step.part.operation


# Offsets that are zero.


def spurious_zero_offset_acknowledged(log: Log) -> Iterator[Found]:
    for part in log.parts:
        for record in part.sent:
            if record.offset == 0 and part.ok:
                before = [p for p in log.parts if p.row.completed < part.row.invoked]
                if any(offset > 0 for p in before for offset in _known_offsets(p)):
                    assert record.value is not None
                    yield "spurious-zero-offset", ("acknowledgement", record.value.writer, record.value.seq)


def _known_offsets(part: Part) -> list[int]:
    """The offsets that the operation was told of."""
    told = [record.offset for record in part.polled]
    if part.ok:
        told += [record.offset for record in part.sent]
    told += [part.row.log_start, part.row.log_end, part.row.last_stable]
    return [offset for offset in told if offset is not None]


def spurious_zero_offset_committed(log: Log) -> Iterator[Found]:
    told = [p for p in log.parts if p.row.f in ("commit", "offsets") and p.ok and p.row.committed is not None]
    for part in told:
        if part.row.f == "offsets" and part.row.committed == 0:
            for other in told:
                assert other.row.committed is not None
                before = other.row.completed < part.row.invoked and other.row.group == part.row.group
                if before and other.row.committed > 0:
                    yield "spurious-zero-offset", ("committed", part.row.group or "")


RULES: tuple[Callable[[Log], Iterator[Found]], ...] = (
    duplicate,
    inconsistent_offsets,
    g1a,
    precommitted_read,
    corrupted_record,
    relocated_write,
    foreign_record,
    lost_write,
    unseen,
    poll_skip,
    nonmonotonic_poll,
    int_poll_skip,
    int_nonmonotonic_poll,
    int_send_skip,
    int_nonmonotonic_send,
    nonmonotonic_send,
    spurious_zero_offset_acknowledged,
    spurious_zero_offset_committed,
)


def check(rows: Iterable[Slice], rules: Iterable[Callable[[Log], Iterator[Found]]] = RULES) -> dict[Place, set[Found]]:
    """The findings of a finished history, for each of its partitions."""
    history = read(rows)
    rules = tuple(rules)
    return {place: {found for rule in rules for found in rule(log)} for place, log in history.logs.items()}
