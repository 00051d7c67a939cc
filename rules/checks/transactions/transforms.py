"""`eos-violation`: consume-transform-produce must reflect every input once in its committed output.

A transform writes one output record per input record, to the output partition of the same number; its rows there name
the inputs (`sources`). An output is committed when its transaction is ok, or indefinite and one of its values was
polled. *Twice* is seen, and is decided in the output's partition, in the order of log time. *Not at all, while a later
input is* rests on absence, and needs both partitions: stage 2 (`rules.across.transforms`) joins the input's settled
records with what was reflected. Inputs that an indefinite transaction may have reflected are `doubtful` until its
output turns out visible, or until all of it turns out absent (`transaction_outcomes`), so that it was aborted.

Each group is judged by itself: the transforms of several hosts read the same input, each in a group of its own, and
each reflects all of it; again from where the log starts once its offsets have expired (`group_beginnings`). What a
transaction reflected that was told to be aborted counts from when its output was read (`G1a`), for twice the grace.
Only what it takes for an input: `unknown_inputs`.

State: one bit per input value and group (chunk aspect `reflected`), the sources of undecided transactions, at most
`DOUBTFUL_KEPT` runs, and of those that failed not long ago, no more of them, the groups that were heard of within
`FORGET_GROUP`, and `unknown_inputs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import (
    FAIL,
    OK,
    POLL,
    START,
    TXN,
    Columns,
    Runs,
    group_names,
    sources,
)
from rules.arrays.intervals import EMPTY, Ints, among, indices
from rules.checks.transactions import group_beginnings, unknown_inputs
from rules.checks.transactions.group_beginnings import Beginnings
from rules.checks.transactions.unknown_inputs import UnknownInputs
from rules.kept.check import FOREVER, Asked, Check, News, Passage
from rules.kept.chunks import Chunks, Values, chunk_names, values
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import Hole, State
from rules.settling.clocks import UNKNOWN, ahead
from rules.settling.frontier import TICK

DOUBTFUL_KEPT: Final = 1024
DOUBTFUL: Final = "reflections that may not be committed"
FORGET_GROUP: Final = group_beginnings.WEEK
"""A group that comes back later begins again."""
NAMES_KEPT: Final = 64
"""Of more, the names that nothing needs are dropped."""


@dataclass(slots=True)
class Reflections(Table):
    """Input records (writer, seq, offset in the input partition) that operations of transforms reflected in this
    output partition; `group` is a number of `Transforms.groups`; `committed`: 1 if that is known."""

    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    group: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    committed: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Transforms:
    """`waiting`: what log time has not reached; `doubtful`: reflections of indefinite transactions; `failed`: of those
    that failed; `groups` are numbered by their places here. `reflected_by`: the groups that have reflected something
    here, and when last; `consumed_by`: those that read here, and when last. `readers`: [process, group] of living
    transforms. `told_log_start`, `told_holes`: to stage 2."""

    waiting: Reflections = field(default_factory=Reflections)
    doubtful: Reflections = field(default_factory=Reflections)
    failed: Reflections = field(default_factory=Reflections)
    beginnings: Beginnings = field(default_factory=Beginnings)
    groups: list[str] = field(default_factory=list)
    reflected_by: dict[str, int] = field(default_factory=dict)
    readers: list[list[int | str]] = field(default_factory=list)
    consumed_by: dict[str, int] = field(default_factory=dict)
    unknown: UnknownInputs = field(default_factory=UnknownInputs)
    told_log_start: int = -1
    told_holes: list[list[int]] = field(default_factory=list)


def needs(own: Transforms, asked: Asked) -> Iterable[str]:
    """What new rows reflect, what is doubtful, and the inputs that may be told of."""
    names = _needed_of_groups(own, asked.columns)
    if own.consumed_by or own.readers:
        log = asked.state.log
        names |= chunk_names(log.writer, log.seq, log.length)
    return names


def _needed_of_groups(own: Transforms, columns: Columns) -> set[str]:
    """What may be committed in this step, in all beginnings of its group that it may turn out to be of."""
    new, kept = sources(columns), concat(own.waiting, concat(own.doubtful, own.failed))
    groups = [*_told_groups(columns, new), *_named(own, kept)]
    times = [*columns.completed[new.row].tolist(), *kept.at.tolist()]
    since = dict(own.reflected_by)
    for group, at in zip(groups, times, strict=True):
        since[group] = min(since.get(group, at), at)
    expires = group_beginnings.may_expire_after(own.beginnings, columns)
    writer, seq, length = (np.append(getattr(new, name), getattr(kept, name)) for name in ("writer", "seq", "length"))
    at, kept_as = [], []
    for i, number in enumerate(writer.tolist()):
        for name in group_beginnings.names_until(own.beginnings, groups[i], since[groups[i]], times[i], expires):
            at.append(i)
            kept_as.append(_number_of(number, name))
    return set(chunk_names(np.array(kept_as, np.int64), seq[at], length[at]))


# Stage 1: the output's partition


def arrive(own: Transforms, new: News) -> None:
    """New rows of transforms name what they reflect, if they did not fail."""
    _note_readers(own, new)
    unknown_inputs.note_strangers(own.unknown, new, {int(process): str(group) for process, group in own.readers})
    columns = new.columns
    if own.groups or own.readers:
        group_beginnings.note_retention(own.beginnings, columns)
    told = sources(columns)
    if not len(told):
        return
    told = told.take(new.fresh[told.row])
    shown, row = columns.type[told.row] == OK, told.row
    if new.visible:
        ops = zip(columns.process[row].tolist(), columns.op[row].tolist(), strict=True)
        shown |= np.array([op in new.visible for op in ops], bool)
    made = Reflections(
        columns.process[row],
        columns.op[row],
        _groups(own, columns, told),
        columns.completed[row],
        shown.astype(np.int64),
        told.offset,
        told.writer,
        told.seq,
        told.length,
    )
    failed = columns.type[row] == FAIL
    own.waiting = concat(own.waiting, take(made, ~failed))
    own.failed = new.report.last(concat(own.failed, take(made, failed)), DOUBTFUL_KEPT, DOUBTFUL)


def fold(own: Transforms, passage: Passage) -> None:
    """What was committed is reflected, and what turned out visible; what turned out not to be is dropped. What was
    settled of the input is told."""
    ripe = (own.waiting.at <= passage.end) | passage.finished
    new, own.waiting = take(own.waiting, ripe), take(own.waiting, ~ripe)
    doubtful = take(new, new.committed == 0)
    passage.report.facts.add("doubtful", doubtful.at, group=_named(own, doubtful), runs=_runs(doubtful))
    own.doubtful = concat(own.doubtful, doubtful)
    turned_out = concat(_resolve_doubtful(own, passage), _resolve_failed(own, passage))
    commit(own, passage.chunks, concat(take(new, new.committed == 1), turned_out), passage.report)
    _tell_inputs(own, passage)
    if own.reflected_by:
        _tell_holes(own, passage)
        groups = list(own.reflected_by)
        _tell_horizon(passage, groups, None, [_apart(own, passage.state, group) for group in groups])
    _forget(own, int(passage.at[-1]))
    unknown_inputs.forget(own.unknown, passage.state, passage.report)


def _resolve_doubtful(own: Transforms, passage: Passage) -> Reflections:
    """Those that turned out to be committed."""
    waiting = own.doubtful
    if not len(waiting):
        return waiting
    shown, refused = passage.shown | passage.revealed, passage.refused
    ops = list(zip(waiting.process.tolist(), waiting.op.tolist(), strict=True))
    seen = np.array([op in shown for op in ops], bool)
    gone = np.array([op not in shown and op in refused for op in ops], bool)
    dropped = take(waiting, gone)
    at = np.array([refused[op] for op, is_gone in zip(ops, gone.tolist(), strict=True) if is_gone], np.int64)
    passage.report.facts.add("dropped", at, group=_named(own, dropped), runs=_runs(dropped))
    own.doubtful = passage.report.last(take(waiting, ~(seen | gone)), DOUBTFUL_KEPT, DOUBTFUL)
    return take(waiting, seen)


def _resolve_failed(own: Transforms, passage: Passage) -> Reflections:
    """Those that were committed all the same, as readers say."""
    failed = own.failed
    if not len(failed):
        return failed
    ops = zip(failed.process.tolist(), failed.op.tolist(), strict=True)
    seen = np.array([op in passage.revealed for op in ops], bool)
    own.failed = take(failed, ~seen & (failed.at > passage.end - 2 * passage.report.objectives.grace))
    return take(failed, seen)


def commit(own: Transforms, chunks: Chunks, made: Reflections, report: Report) -> None:
    """These reflections are part of the committed output: in the order of their times, each is the first or again."""
    if not len(made):
        return
    made = take(made, np.lexsort((made.seq, made.op, made.process, made.at)))
    groups = _named(own, made)
    report.facts.add("reflected", made.at, group=groups, runs=_runs(made))
    expires = group_beginnings.expires_after(own.beginnings)
    for group, at in zip(groups, made.at.tolist(), strict=True):
        last = own.reflected_by.get(group, at)
        if at - last >= expires:
            group_beginnings.begin_again(own.beginnings, group, at)
        own.reflected_by[group] = max(at, last)
    names = [group_beginnings.name_at(own.beginnings, *one) for one in zip(groups, made.at.tolist(), strict=True)]
    kept_as = np.array([_number_of(*one) for one in zip(made.writer.tolist(), names, strict=True)], np.int64)
    new = values(kept_as, made.seq, made.length)
    before = chunks.having("reflected", new)
    both = intervals.merge_grouped(*(np.concatenate(pair) for pair in zip(before, _twice(made, kept_as), strict=True)))
    chunks.add("reflected", new)
    for label, start, end in zip(*(a.tolist() for a in both), strict=True):
        for seq in report.each("eos-violation", start, end):
            mine = before[0] == label
            known = intervals.touched(before[1][mine], before[2][mine], np.array([seq]), np.array([seq + 1]))[0]
            _report_twice(own, take(made, kept_as == label), seq, bool(known), report)


@lru_cache(maxsize=1024)
def _number_of(writer: int, group: str) -> int:
    """Whose chunks keep what a group reflected of a writer: 63 bits of a digest, of which two are as likely to meet as
    two writers' numbers are."""
    digest = blake2b(f"{writer:x} {group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _twice(made: Reflections, kept_as: Ints) -> Values:
    label, numbers = np.unique(kept_as, return_inverse=True)
    found = []
    for number in range(len(label)):
        own = numbers == number
        start, end = intervals.deeper(made.seq[own], made.seq[own] + made.length[own])
        found.append((np.full(len(start), label[number], np.int64), start, end))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _report_twice(own: Transforms, made: Reflections, seq: int, known: bool, report: Report) -> None:
    """Report the operation that reflected it again: the first of these of one writer and group, where it was `known`
    before."""
    by = indices((made.seq <= seq) & (seq < made.seq + made.length))
    i = int(by[0 if known else 1])
    writer, group = int(made.writer[i]), own.groups[int(made.group[i])]
    if not report.once(f"twice:{group}:{writer}:{seq}"):
        return
    report.add(
        "eos-violation",
        ("twice", group, writer, seq),
        f"input {writer}/{seq} is reflected more than once in the committed output of group {group}, again by operation"
        f" {made.op[i]} of {report.state.called(int(made.process[i]))}",
        at=int(made.at[i]),
        evidence={
            "writer": writer,
            "seq": seq,
            "input_offset": int(made.offset[i] + seq - made.seq[i]),
            "group": group,
            "process": int(made.process[i]),
            "op": int(made.op[i]),
        },
    )


def _tell_holes(own: Transforms, passage: Passage) -> None:
    """What of this partition's log will never be here: transforms may have written in it."""
    holes = [[hole.process, hole.start, hole.end] for hole in map(Hole._make, passage.state.holes) if hole.writes]
    for process, start, end in holes:
        if [process, start, end] not in own.told_holes:
            groups = list(own.reflected_by)
            passage.report.facts.add("hole", np.full(len(groups), end), group=groups)
    own.told_holes = holes


def _apart(own: Transforms, state: State, group: str) -> int:
    """By how much the clock of one of the group's transforms is ahead of that of another that may have reflected as
    well, at most, where that is a tick or more: the transform may have come back on another host. `FOREVER` where
    nobody knows."""
    if len(state.boot_names) < 2:
        return 0
    boots = {state.processes[int(process)].boot for process, of in own.readers if of == group}
    worst = max((ahead(state, one, other) for one in boots for other in boots), default=0)
    return FOREVER if worst >= UNKNOWN else worst if worst >= TICK else 0


def _tell_horizon(passage: Passage, groups: list[str], about: str | None, apart: list[int] | None = None) -> None:
    """How far this partition's log is complete, for these groups; of the output, how far `apart` each one's clocks
    are."""
    facts, through = passage.report.facts, min(passage.end, passage.gate.told_through())
    none = np.zeros(len(groups), np.int64)
    runs = Runs(none, none, none, none, none if apart is None else np.array(apart, np.int64))
    facts.add("horizon", np.full(len(groups), through), group=groups, about=[about] * len(groups), runs=runs)


# Stage 1: the input's partition


def _note_readers(own: Transforms, new: News) -> None:
    """What start rows tell: a transform reads with this group."""
    for row in new.where(START).tolist():
        told = dict(new.columns.table["settings"][row].as_py() or ())
        if new.columns.table["kind"][row].as_py() == "transform" and told.get("group.id"):
            own.readers.append([int(new.columns.process[row]), told["group.id"]])
        unknown_inputs.note_start(own.unknown, new, row, told)


def _tell_inputs(own: Transforms, passage: Passage) -> None:
    """The records that were settled now and that readers polled, for each transform that reads here. A transform whose
    first poll is among the moves is told what was settled after it. Of a finished history, all there is."""
    begun = _begin_to_consume(own, passage)
    if not own.consumed_by:
        return
    state, facts, groups = passage.state, passage.report.facts, list(own.consumed_by)
    if state.log_start > own.told_log_start:
        at, starts = _log_starts(passage, own.told_log_start)
        own.told_log_start = state.log_start
        for group in groups:
            none = np.zeros(len(at), np.int64)
            facts.add("gone", at, group=[group] * len(at), runs=Runs(none, none, none, starts, none))
    settled = _settled_inputs(passage)
    for group in groups:
        runs, times = settled
        strange = unknown_inputs.unknown_to(own.unknown, group, runs, times, state.processes)
        new = (runs.offset >= begun.get(group, 0)) & ~strange
        facts.add("input", times[new], group=[group] * int(new.sum()), runs=runs.take(new))
    _tell_horizon(passage, groups, "input")


def _log_starts(passage: Passage, told: int) -> tuple[Ints, Ints]:
    """When the log start was first known to have risen, each time that it did, and where it was then. A step may take
    in minutes of a log, and what retention took at their end explains nothing of their beginning."""
    moves, newest = passage.moves, passage.state.log_start
    seen = indices(moves.low > told)
    seen = seen[moves.at[seen].argsort(kind="stable")]
    low = np.maximum.accumulate(moves.low[seen])
    rose = np.diff(low, prepend=told) > 0
    at, low = moves.at[seen][rose], low[rose]
    if not len(low) or low[-1] < newest:
        at, low = np.append(at, passage.at[-1]), np.append(low, newest)
    return at, low


def _begin_to_consume(own: Transforms, passage: Passage) -> dict[str, int]:
    """The transforms of which a poll was ok here for the first time, and what was settled before it. That a process is
    known here, or closes, proves no reading: every partition is told."""
    moves, advance = passage.moves, passage.advance
    own.readers = [entry for entry in own.readers if entry[0] in passage.state.processes]
    transforms = {int(process): str(group) for process, group in own.readers}
    begun: dict[str, int] = {}
    if not transforms:
        return begun
    reading = ((moves.f == POLL) | (moves.f == TXN)) & (moves.type == OK) & (moves.first >= 0)
    reading &= among(moves.process, transforms)
    rows = indices(reading)
    settled = np.zeros(len(rows), np.int64) if advance is None else advance.settled_before(moves.at[rows])
    numbers, times = moves.process[rows].tolist(), moves.at[rows].tolist()
    for number, low, at in zip(numbers, settled.tolist(), times, strict=True):
        if transforms[number] not in own.consumed_by:
            begun[transforms[number]] = low
            own.consumed_by[transforms[number]] = -1
            passage.report.facts.add("begun", np.array([at], np.int64), group=[transforms[number]])
    for number, at in zip(numbers, times, strict=True):
        own.consumed_by[transforms[number]] = max(own.consumed_by[transforms[number]], at)
    return begun


def _settled_inputs(passage: Passage) -> tuple[Runs, Ints]:
    """What readers polled of the log between two settled frontiers, and the tick at which each part was settled."""
    log, advance = passage.state.log, passage.advance
    edges = np.array([0, FOREVER]) if advance is None else np.unique(np.append(advance.settled, advance.before))
    first = edges.searchsorted(log.offset, side="right") - 1
    last = edges.searchsorted(log.offset + log.length, side="left")
    first, last = np.maximum(first, 0), np.minimum(last, len(edges) - 1)
    parts = np.maximum(last - first, 0)
    of = np.repeat(np.arange(len(log)), parts)
    k = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)
    offset = np.maximum(log.offset[of], edges[k])
    length = np.minimum((log.offset + log.length)[of], edges[k + 1]) - offset
    writer, seq = log.writer[of], log.seq[of] + offset - log.offset[of]
    runs = _polled(passage.chunks, Runs(of, writer, seq, offset, length))
    if advance is None:
        return runs, np.full(len(runs), int(passage.at[-1]))
    settled_at = advance.settled.searchsorted(runs.offset + runs.length - 1, side="right")
    return runs, advance.at[np.minimum(settled_at, len(advance.at) - 1)]


def _polled(chunks: Chunks, runs: Runs) -> Runs:
    """What ok operations polled of these runs."""
    runs = runs.take(runs.length > 0)
    seen = chunks.having("polled", values(runs.writer, runs.seq, runs.length))
    whole = intervals.contained_grouped(*seen, runs.writer, runs.seq, runs.seq + runs.length)
    parts = [runs.take(whole)]
    for i in indices(~whole).tolist():
        one = slice(i, i + 1)
        _, start, end = chunks.having("polled", values(runs.writer[one], runs.seq[one], runs.length[one]))
        same = np.full(len(start), i)
        parts.append(Runs(runs.row[same], runs.writer[same], start, runs.offset[i] + start - runs.seq[i], end - start))
    return Runs.concat(*parts)


def _forget(own: Transforms, now: int) -> None:
    """Drop the groups that have not been heard of for long, and names that nothing needs."""
    for heard in (own.reflected_by, own.consumed_by, own.unknown.born):
        for group in [group for group, at in heard.items() if at < now - FORGET_GROUP]:
            if heard is own.reflected_by:
                group_beginnings.begin_again(own.beginnings, group, now)
            del heard[group]
    if len(own.groups) > NAMES_KEPT:
        reflections = own.doubtful, own.waiting, own.failed
        used = np.unique(np.concatenate([kept.group for kept in reflections])).tolist()
        for kept in reflections:
            kept.group = np.searchsorted(used, kept.group)
        own.groups = [own.groups[number] for number in used]


def _told_groups(columns: Columns, told: Runs) -> list[str]:
    names = group_names(columns) if len(told) else {}
    return [names.get(row, "") for row in told.row.tolist()]


def _groups(own: Transforms, columns: Columns, told: Runs) -> Ints:
    numbers = []
    for name in _told_groups(columns, told):
        if name not in own.groups:
            own.groups.append(name)
        numbers.append(own.groups.index(name))
    return np.array(numbers, np.int64)


def _named(own: Transforms, made: Reflections) -> list[str]:
    return [own.groups[i] for i in made.group.tolist()]


def _runs(made: Reflections) -> Runs:
    return Runs(made.process, made.writer, made.seq, made.offset, made.length)


CHECK: Final = Check(
    "transforms",
    Transforms,
    needs=needs,
    arrive=arrive,
    fold=fold,
    rows=frozenset({START, "sources", "irregular", "settings"}),
    rests=True,
)
