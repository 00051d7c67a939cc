"""How far the evidence is complete: slice counters, marks, and the horizon that follows from them.

What is missing must be complete before it is called lost. Each process numbers its slices of a partition without gaps,
and each host's committer marks, once a second, up to which slice and which time a process's log is in the table. A mark
is *fulfilled* once all the slices that it counts are here. The *horizon* is the earliest time through which every
process of the partition is known: below it, nothing that happened is missing.

A process whose log does not complete within `COMPLETION_LIMIT` is `unverifiable`: it stops holding the horizon, and
as long as it might have read what is missing, no loss is called. It is forgotten when nobody has vouched for it for
twice as long.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import CLOSE, MARK, START, SUBSCRIBE, Columns, marks
from rules.arrays.intervals import Bools, Ints, distinct
from rules.checks import transforms
from rules.kept.state import Process, State
from rules.vocabulary.objectives import SECOND

COMPLETION_LIMIT: Final = 600 * SECOND
FORGET_CLOSED: Final = 120 * SECOND
MARKS_KEPT: Final = 128
UNVERIFIED_KEPT: Final = 64


def new_rows(state: State, columns: Columns) -> Bools:
    """Which rows are here for the first time; counts them in. Rows of one process may come in any order."""
    fresh = np.ones(len(columns), bool)
    order = np.lexsort((columns.slice, columns.process))
    process, number = columns.process[order], columns.slice[order]
    heads = np.flatnonzero(np.diff(process, prepend=process[0] - 1))
    ends = np.append(heads[1:], len(process))
    for head, end in zip(heads.tolist(), ends.tolist(), strict=True):
        known = state.processes.setdefault(int(process[head]), Process())
        numbers = number[head:end]
        repeated = np.concatenate(([False], numbers[1:] == numbers[:-1])) | (numbers < known.next)
        if known.ahead:
            repeated |= intervals.touched(*_ahead(known), numbers, numbers + 1)
        if repeated.any():
            fresh[order[head:end][repeated]] = False
            numbers = numbers[~repeated]
        _count(known, numbers)
    return fresh


def _ahead(process: Process) -> tuple[Ints, Ints]:
    start, end = np.array(process.ahead, np.int64).reshape(-1, 2).T
    return start, end


def _count(process: Process, numbers: Ints) -> None:
    """Count these slices in; they ascend, and none was here before."""
    if not len(numbers):
        return
    first, last = int(numbers[0]), int(numbers[-1])
    if not process.ahead and first == process.next and last - first == len(numbers) - 1:
        process.next = last + 1
        return
    start, end = _ahead(process)
    merged = intervals.merge(np.append(start, numbers), np.append(end, numbers + 1))
    waiting = [[low, high] for low, high in zip(*(bounds.tolist() for bounds in merged), strict=True)]
    if waiting[0][0] == process.next:
        process.next = waiting.pop(0)[1]
    process.ahead = waiting


def note_lives(state: State, columns: Columns) -> None:
    """What start, close and mark rows tell of processes, and which rows came first."""
    rare = np.flatnonzero(columns.where(START, CLOSE, MARK))
    committers = set()
    for row in rare.tolist():
        process = state.processes.get(int(columns.process[row]))
        if columns.f[row] == MARK:
            state.now = max(state.now, int(columns.completed[row]))
            committers.add(int(columns.process[row]))
        elif process is None:
            continue
        elif columns.f[row] == CLOSE:
            # A close that did not return, and then did, has two rows.
            process.closes_at = max(process.closes_at, int(columns.slice[row]) + 1)
            process.closed = max(process.closed, int(columns.completed[row]))
        else:
            _note_settings(state, columns, row)
    for number in committers:
        state.processes.pop(number, None)  # a committer vouches for others and has nothing to be complete itself
    for number in distinct(columns.process).tolist():
        process = state.processes.get(number)
        if process is not None and process.through < 0:
            began = int(columns.invoked[columns.process == number].min())
            process.first = began if process.first < 0 else min(process.first, began)
    reading = columns.where(SUBSCRIBE) | (columns.assigned >= 0)
    for number in distinct(columns.process[reading]).tolist():
        if number in state.processes:
            state.processes[number].reads = True
    if len(columns.polled):
        for number in distinct(columns.process[columns.polled.row]).tolist():
            if number in state.processes:
                state.processes[number].reads = True
    _note_marks(state, columns)


def _note_settings(state: State, columns: Columns, row: int) -> None:
    settings = columns.table["settings"][row].as_py()
    if not settings:
        return
    told = dict(settings)
    kind = columns.table["kind"][row].as_py()
    process = state.processes[int(columns.process[row])]
    transforms.note_transform(process, kind, told)
    if told.get("writer", "").isdigit():
        process.writer = int(told["writer"])
    if told.get("idempotent") == "false" and told.get("writer", "").lstrip("-").isdigit():
        writer = int(told["writer"])
        if writer not in state.not_idempotent:
            state.not_idempotent.append(writer)
            state.not_idempotent_processes.append(int(columns.process[row]))


def _note_marks(state: State, columns: Columns) -> None:
    _, processes, slices, through = marks(columns)
    if not len(processes):
        return
    order = np.lexsort((through, slices, processes))
    for i in order.tolist():
        number = int(processes[i])
        if number not in state.processes:
            if slices[i] == 0:
                continue  # it has no row here, and none is missing
            # None of its rows is here: it has been awaited since this mark.
            state.processes[number] = Process(first=int(through[i]))
        state.processes[number].marks.append((int(slices[i]), int(through[i])))


def horizon(state: State) -> int:
    """The time through which the log of every process is here, in microseconds; -1 while nothing is known.

    Forgets processes that closed long ago, and notes those that have become unverifiable."""
    if state.now < 0:
        return -1
    earliest = state.now
    for number, process in list(state.processes.items()):
        fulfilled = [t for n, t in process.marks if n <= process.next]
        if fulfilled:
            process.through = max(process.through, *fulfilled)
        process.marks = [(n, t) for n, t in process.marks if n > process.next and t > process.through][-MARKS_KEPT:]
        if process.complete:
            if state.now - process.closed > FORGET_CLOSED and state.tick > process.closed:
                del state.processes[number]
            continue
        known = max(process.through, process.first)
        if state.now - known > COMPLETION_LIMIT:
            process.unverifiable = True
        elif process.unverifiable:
            process.unverifiable = False
        if not process.unverifiable:
            earliest = min(earliest, process.known_through)
        elif state.now - max([known, *(through for _, through in process.marks)]) > 2 * COMPLETION_LIMIT:
            # Nobody has vouched for it any more, either. While it lives its log goes on, with a hole in it.
            del state.processes[number]
            state.unverified = [*state.unverified, number][-UNVERIFIED_KEPT:]
    return earliest
