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

from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, OK, POLL, TXN, Columns, Runs, listed_runs
from rules.arrays.intervals import Bools, Ints
from rules.kept.chunks import Chunks, Values, values
from rules.kept.report import Report
from rules.kept.state import Moves, Process, Reflections, State, concat, take
from rules.settling.frontier import Advance

SPANS_KEPT: Final = 10_000
FOREVER: Final = 2**62


# Stage 1: the output's partition


def note_reflections(
    state: State, chunks: Chunks, columns: Columns, fresh: Bools, visible: set[tuple[int, int]], report: Report
) -> None:
    """New rows of transforms: what they reflect is committed, or doubtful until a value of theirs is polled."""
    sources = listed_runs(columns, "sources")
    if not len(sources):
        return
    sources = sources.take(fresh[sources.row] & (columns.type[sources.row] != FAIL))
    group = _groups(state, columns, sources)
    shown = columns.type[sources.row] == OK
    if visible:
        ops = zip(columns.process[sources.row].tolist(), columns.op[sources.row].tolist(), strict=True)
        shown |= np.array([op in visible for op in ops], bool)
    made = Reflections(
        columns.process[sources.row], columns.op[sources.row], group, columns.completed[sources.row], sources.offset,
        sources.writer, sources.seq, sources.length,
    )  # fmt: skip
    commit(state, chunks, take(made, shown), report)
    doubtful = take(made, ~shown & (columns.type[sources.row] == INFO))
    state.doubtful = concat(state.doubtful, doubtful)
    report.facts.add("doubtful", doubtful.at, group=_named(state, doubtful), runs=_runs(doubtful))


def resolve_doubtful(state: State, chunks: Chunks, shown: set[tuple[int, int]], before: int, report: Report) -> None:
    """Indefinite operations (process, op) turned out visible. Those from before log time `before` are waited for no
    longer."""
    waiting = state.doubtful
    if not len(waiting):
        return
    ops = zip(waiting.process.tolist(), waiting.op.tolist(), strict=True)
    seen = np.array([op in shown for op in ops], bool)
    state.doubtful = take(waiting, ~seen & (waiting.at >= before))
    commit(state, chunks, take(waiting, seen), report)


def commit(state: State, chunks: Chunks, made: Reflections, report: Report) -> None:
    """These reflections are part of the committed output."""
    if not len(made):
        return
    order = np.argsort(made.at, kind="stable")
    made = take(made, order)
    report.facts.add("reflected", made.at, group=_named(state, made), runs=_runs(made))
    state.reflected_groups = sorted({*state.reflected_groups, *made.group.tolist()})
    new = values(made.writer, made.seq, made.length)
    again = chunks.having("reflected", new)
    twice = _twice(made)
    chunks.add("reflected", new)
    both = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(again, twice, strict=True)))
    for writer, start, end in zip(*(a.tolist() for a in both), strict=True):
        for seq in range(start, min(end, start + report.room("eos-violation") + 1)):
            _report_twice(state, made, writer, seq, report)
        report.skip("eos-violation", max(0, end - start - report.objectives.findings_per_step - 1))


def _twice(made: Reflections) -> Values:
    label, numbers = np.unique(made.writer, return_inverse=True)
    found = []
    for number in range(len(label)):
        own = numbers == number
        start, end = intervals.deeper(made.seq[own], made.seq[own] + made.length[own])
        found.append((np.full(len(start), label[number], np.int64), start, end))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _report_twice(state: State, made: Reflections, writer: int, seq: int, report: Report) -> None:
    own = np.flatnonzero((made.writer == writer) & (made.seq <= seq) & (seq < made.seq + made.length))
    last = int(own[-1])
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
            "group": state.groups[int(made.group[last])],
            "outputs": [{"process": int(made.process[i]), "op": int(made.op[i])} for i in own.tolist()],
        },
    )


def tell_horizon(state: State, end: int, report: Report) -> None:
    """How far this partition's log is complete, for each transform that writes here."""
    if not state.reflected_groups or bool(state.holes):
        return
    for group in state.reflected_groups:
        report.facts.add("horizon", np.array([end]), group=[state.groups[group]])


# Stage 1: the input's partition


def note_transform(process: Process, kind: str | None, settings: dict[str, str]) -> None:
    """What a start row tells: a transform reads with this group."""
    if kind == "transform" and settings.get("group.id"):
        process.transforms = settings["group.id"]


def tell_inputs(
    state: State, chunks: Chunks, moves: Moves, advance: Advance | None, end: int, report: Report
) -> None:  # fmt: skip
    """The records that were settled now and that readers polled, for each transform that reads here. A transform whose
    first poll is among `moves` (those of this step, in the order of their times) is told what was settled after it.
    Without `advance`, all there is."""
    begun = _begin_to_consume(state, moves, advance)
    before, settled = (0, FOREVER) if advance is None else (advance.before, state.settled)
    if state.consumed_by and state.log_start > state.told_log_start:
        state.told_log_start = state.log_start
        here = np.full(len(state.consumed_by), state.log_start, np.int64)
        none = np.zeros(len(here), np.int64)
        gone = Runs(none, none, none, here, none)
        report.facts.add("gone", np.full(len(here), end, np.int64), group=state.consumed_by, runs=gone)
    for group in state.consumed_by:
        runs = _settled_inputs(state, chunks, max(before, begun.get(group, 0)), settled)
        report.facts.add("input", np.full(len(runs), end, np.int64), group=[group] * len(runs), runs=runs)


def _begin_to_consume(state: State, moves: Moves, advance: Advance | None) -> dict[str, int]:
    """The transforms of which a poll was ok here for the first time, and what was settled before it. That a process is
    known here, or closes, proves no reading: every partition is told."""
    transforms = {number: p.transforms for number, p in state.processes.items() if p.transforms}
    begun: dict[str, int] = {}
    if not transforms:
        return begun
    reading = np.isin(moves.f, (POLL, TXN)) & (moves.type == OK) & (moves.first >= 0)
    reading &= np.isin(moves.process, np.fromiter(transforms, np.int64, len(transforms)))
    rows = np.flatnonzero(reading)
    settled = np.zeros(len(rows), np.int64) if advance is None else advance.settled_before(moves.at[rows])
    for number, low in zip(moves.process[rows].tolist(), settled.tolist(), strict=True):
        group = transforms[number]
        if group not in state.consumed_by:
            state.consumed_by.append(group)
            begun[group] = low
    return begun


def _settled_inputs(state: State, chunks: Chunks, before: int, settled: int) -> Runs:
    """What readers polled of the log between two settled frontiers."""
    log = state.log
    low, high = np.maximum(log.offset, before), np.minimum(log.offset + log.length, settled)
    inside = low < high
    offset, writer, length = low[inside], log.writer[inside], (high - low)[inside]
    seq = log.seq[inside] + offset - log.offset[inside]
    seen = chunks.having("polled", values(writer, seq, length))
    whole = intervals.contained_grouped(*seen, writer, seq, seq + length)
    return Runs(offset[whole], writer[whole], seq[whole], offset[whole], length[whole])


def _groups(state: State, columns: Columns, sources: Runs) -> Ints:
    column = columns.table["group"]
    numbers = []
    for row in sources.row.tolist():
        name = column[row].as_py() or ""
        if name not in state.groups:
            state.groups.append(name)
        numbers.append(state.groups.index(name))
    return np.array(numbers, np.int64)


def _named(state: State, made: Reflections) -> list[str]:
    return [state.groups[i] for i in made.group.tolist()]


def _runs(made: Reflections) -> Runs:
    return Runs(made.process, made.writer, made.seq, made.offset, made.length)
