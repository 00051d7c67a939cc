"""`eos-violation`: consume-transform-produce must reflect every input once in its committed output.

A transform writes one output record per input record, to the output partition of the same number; its rows there name
the inputs (`sources`). An output is committed when its transaction is ok, or indefinite and one of its values was
polled. *Twice* is seen, and is decided in the output's partition at once. *Not at all, while a later input is* rests on
absence, and needs both partitions: stage 2 joins the input's settled records (`input`) with what was `reflected`.
An input that an indefinite transaction may have reflected (`doubtful`) is never called missing, nor is one below the
first that was reflected at all (a transform begins somewhere), nor one below the input's log start (`gone`).

Stage 1 remembers one bit per input value (chunk aspect `reflected`) and the sources of undecided transactions. Stage 2
keeps, per transform group and partition, the inputs that nothing has reflected yet, and the reflected offsets that no
input fact has met: both are as many as records in flight between the two topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, OK, POLL, START, TXN, Columns, Runs, listed_runs
from rules.arrays.intervals import EMPTY, Ints
from rules.kept.check import FOREVER, Asked, Check, News, Passage
from rules.kept.chunks import Chunks, Values, chunk_names, values
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report


@dataclass(slots=True)
class Reflections(Table):
    """Input records (writer, seq, offset in the input partition) that operations of transforms reflected in this
    output partition; `group` is a number of `Transforms.groups`."""

    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    group: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Transforms:
    """`doubtful`: reflections of indefinite transactions; `groups` are numbered by their places here, and
    `reflected_groups` are those that have reflected something. `readers`: [process, group] of living transforms;
    `consumed_by`: the groups that read here; `told_log_start`: to stage 2, for them."""

    doubtful: Reflections = field(default_factory=Reflections)
    groups: list[str] = field(default_factory=list)
    reflected_groups: list[int] = field(default_factory=list)
    readers: list[list[int | str]] = field(default_factory=list)
    consumed_by: list[str] = field(default_factory=list)
    told_log_start: int = -1


def needs(own: Transforms, asked: Asked) -> Iterable[str]:
    """What new rows reflect, what is doubtful, and the inputs that may be told of."""
    sources = listed_runs(asked.columns, "sources")
    names = chunk_names(sources.writer, sources.seq, sources.length)
    names |= chunk_names(own.doubtful.writer, own.doubtful.seq, own.doubtful.length)
    if own.consumed_by or own.readers:
        log = asked.state.log
        names |= chunk_names(log.writer, log.seq, log.length)
    return names


# Stage 1: the output's partition


def arrive(own: Transforms, new: News) -> None:
    """New rows of transforms: what they reflect is committed, or doubtful until a value of theirs is polled."""
    _note_readers(own, new)
    columns = new.columns
    sources = listed_runs(columns, "sources")
    if not len(sources):
        return
    sources = sources.take(new.fresh[sources.row] & (columns.type[sources.row] != FAIL))
    group = _groups(own, columns, sources)
    shown = columns.type[sources.row] == OK
    if new.visible:
        ops = zip(columns.process[sources.row].tolist(), columns.op[sources.row].tolist(), strict=True)
        shown |= np.array([op in new.visible for op in ops], bool)
    made = Reflections(
        columns.process[sources.row], columns.op[sources.row], group, columns.completed[sources.row], sources.offset,
        sources.writer, sources.seq, sources.length,
    )  # fmt: skip
    commit(own, new.chunks, take(made, shown), new.report)
    doubtful = take(made, ~shown & (columns.type[sources.row] == INFO))
    own.doubtful = concat(own.doubtful, doubtful)
    new.report.facts.add("doubtful", doubtful.at, group=_named(own, doubtful), runs=_runs(doubtful))


def fold(own: Transforms, passage: Passage) -> None:
    """What turned out visible is reflected; what was settled of the input is told."""
    grace = passage.report.objectives.grace
    resolve_doubtful(own, passage, FOREVER if passage.finished else passage.end - 30 * grace)
    _tell_inputs(own, passage)
    if not passage.finished:
        _tell_horizon(own, passage)


def resolve_doubtful(own: Transforms, passage: Passage, before: int) -> None:
    """Indefinite operations turned out visible. Those from before log time `before` are waited for no longer."""
    waiting = own.doubtful
    if not len(waiting):
        return
    ops = zip(waiting.process.tolist(), waiting.op.tolist(), strict=True)
    seen = np.array([op in passage.shown for op in ops], bool)
    own.doubtful = take(waiting, ~seen & (waiting.at >= before))
    commit(own, passage.chunks, take(waiting, seen), passage.report)


def commit(own: Transforms, chunks: Chunks, made: Reflections, report: Report) -> None:
    """These reflections are part of the committed output."""
    if not len(made):
        return
    order = np.argsort(made.at, kind="stable")
    made = take(made, order)
    report.facts.add("reflected", made.at, group=_named(own, made), runs=_runs(made))
    own.reflected_groups = sorted({*own.reflected_groups, *made.group.tolist()})
    new = values(made.writer, made.seq, made.length)
    again = chunks.having("reflected", new)
    twice = _twice(made)
    chunks.add("reflected", new)
    both = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(again, twice, strict=True)))
    for writer, start, end in zip(*(a.tolist() for a in both), strict=True):
        for seq in range(start, min(end, start + report.room("eos-violation") + 1)):
            _report_twice(own, made, writer, seq, report)
        report.skip("eos-violation", max(0, end - start - report.objectives.findings_per_step - 1))


def _twice(made: Reflections) -> Values:
    label, numbers = np.unique(made.writer, return_inverse=True)
    found = []
    for number in range(len(label)):
        own = numbers == number
        start, end = intervals.deeper(made.seq[own], made.seq[own] + made.length[own])
        found.append((np.full(len(start), label[number], np.int64), start, end))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _report_twice(own: Transforms, made: Reflections, writer: int, seq: int, report: Report) -> None:
    by = np.flatnonzero((made.writer == writer) & (made.seq <= seq) & (seq < made.seq + made.length))
    last = int(by[-1])
    report.add(
        "eos-violation",
        ("twice", writer, seq),
        f"input {writer}/{seq} is reflected more than once in the committed output, the last time by operation"
        f" {made.op[last]} of process {made.process[last]}",
        at=int(made.at[last]),
        evidence={
            "writer": writer,
            "seq": seq,
            "input_offset": int(made.offset[last] + seq - made.seq[last]),
            "group": own.groups[int(made.group[last])],
            "outputs": [{"process": int(made.process[i]), "op": int(made.op[i])} for i in by.tolist()],
        },
    )


def _tell_horizon(own: Transforms, passage: Passage) -> None:
    """How far this partition's log is complete, for each transform that writes here."""
    if not own.reflected_groups or passage.state.holes:
        return
    for group in own.reflected_groups:
        passage.report.facts.add("horizon", np.array([passage.end]), group=[own.groups[group]])


# Stage 1: the input's partition


def _note_readers(own: Transforms, new: News) -> None:
    """What start rows tell: a transform reads with this group."""
    for row in new.where(START).tolist():
        told = dict(new.columns.table["settings"][row].as_py() or ())
        if new.columns.table["kind"][row].as_py() == "transform" and told.get("group.id"):
            own.readers.append([int(new.columns.process[row]), told["group.id"]])


def _tell_inputs(own: Transforms, passage: Passage) -> None:
    """The records that were settled now and that readers polled, for each transform that reads here. A transform whose
    first poll is among the moves is told what was settled after it. Of a finished history, all there is."""
    begun = _begin_to_consume(own, passage)
    state, report, end = passage.state, passage.report, int(passage.at[-1])
    before, settled = (0, FOREVER) if passage.advance is None else (passage.advance.before, state.settled)
    if own.consumed_by and state.log_start > own.told_log_start:
        own.told_log_start = state.log_start
        here = np.full(len(own.consumed_by), state.log_start, np.int64)
        none = np.zeros(len(here), np.int64)
        gone = Runs(none, none, none, here, none)
        report.facts.add("gone", np.full(len(here), end, np.int64), group=own.consumed_by, runs=gone)
    for group in own.consumed_by:
        runs = _settled_inputs(passage, max(before, begun.get(group, 0)), settled)
        report.facts.add("input", np.full(len(runs), end, np.int64), group=[group] * len(runs), runs=runs)


def _begin_to_consume(own: Transforms, passage: Passage) -> dict[str, int]:
    """The transforms of which a poll was ok here for the first time, and what was settled before it. That a process is
    known here, or closes, proves no reading: every partition is told."""
    moves, advance = passage.moves, passage.advance
    own.readers = [entry for entry in own.readers if entry[0] in passage.state.processes]
    transforms = {int(process): str(group) for process, group in own.readers}
    begun: dict[str, int] = {}
    if not transforms:
        return begun
    reading = np.isin(moves.f, (POLL, TXN)) & (moves.type == OK) & (moves.first >= 0)
    reading &= np.isin(moves.process, np.fromiter(transforms, np.int64, len(transforms)))
    rows = np.flatnonzero(reading)
    settled = np.zeros(len(rows), np.int64) if advance is None else advance.settled_before(moves.at[rows])
    for number, low in zip(moves.process[rows].tolist(), settled.tolist(), strict=True):
        group = transforms[number]
        if group not in own.consumed_by:
            own.consumed_by.append(group)
            begun[group] = low
    return begun


def _settled_inputs(passage: Passage, before: int, settled: int) -> Runs:
    """What readers polled of the log between two settled frontiers."""
    log = passage.state.log
    low, high = np.maximum(log.offset, before), np.minimum(log.offset + log.length, settled)
    inside = low < high
    offset, writer, length = low[inside], log.writer[inside], (high - low)[inside]
    seq = log.seq[inside] + offset - log.offset[inside]
    seen = passage.chunks.having("polled", values(writer, seq, length))
    whole = intervals.contained_grouped(*seen, writer, seq, seq + length)
    return Runs(offset[whole], writer[whole], seq[whole], offset[whole], length[whole])


def _groups(own: Transforms, columns: Columns, sources: Runs) -> Ints:
    column = columns.table["group"]
    numbers = []
    for row in sources.row.tolist():
        name = column[row].as_py() or ""
        if name not in own.groups:
            own.groups.append(name)
        numbers.append(own.groups.index(name))
    return np.array(numbers, np.int64)


def _named(own: Transforms, made: Reflections) -> list[str]:
    return [own.groups[i] for i in made.group.tolist()]


def _runs(made: Reflections) -> Runs:
    return Runs(made.process, made.writer, made.seq, made.offset, made.length)


CHECK: Final = Check("transforms", Transforms, needs=needs, arrive=arrive, fold=fold)
