"""Where readers stand: each goes on where its last ok operation left it, and what it goes over on its way.

A failed or indefinite transaction is compared with that position and does not move it. An assignment that drops the
partition forgets the position.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rules.arrays.columns import ASSIGN, CLOSE, OK, POLL, POSITION, REVOKE, SUBSCRIBE, TXN
from rules.arrays.intervals import EMPTY, Bools, Ints, each, indices, numbered, tails
from rules.kept.state import HELD_ON, Moves, State, Transitions, take
from rules.settling import strangers
from rules.settling.clocks import ahead
from rules.settling.frontier import Advance, forgets


@dataclass(slots=True)
class Passes:
    """Offsets that readers in assign mode went over in ok operations: [start, end), at time `at`, in the order of
    process and slice."""

    at: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)

    def __len__(self) -> int:
        return len(self.at)


@dataclass(slots=True)
class Walked:
    """What readers went over, and their steps from one poll to the next that are not plainly consecutive."""

    passes: Passes = field(default_factory=Passes)
    steps: Transitions = field(default_factory=Transitions)


def walk(state: State, moves: Moves, advance: Advance | None) -> Walked:
    """Let the readers make these moves (in canonical order): moves the processes' positions, and tells what was passed
    and which steps are not consecutive; a poll that takes records of this log for a stranger's has passed nothing
    (`rules.settling.strangers`). What was settled when a poll came (`advance`; None for a
    finished history) is no part of its verdict: the log below is forgotten, and polls there are the audit's."""
    polled = (moves.first >= 0) & ((moves.f == POLL) | (moves.f == TXN))
    relevant = polled | (moves.f == ASSIGN) | (moves.f == SUBSCRIBE) | (moves.f == REVOKE) | (moves.f == POSITION)
    relevant = (relevant | (moves.f == CLOSE)) & ~_overtaken(state, moves)
    order = np.lexsort((moves.slice, moves.process))
    order = order[relevant[order]]
    m, polled = take(moves, order), polled[order]
    dropped = forgets(m)
    if not len(m):
        return Walked()
    here = np.arange(len(m))
    head = np.concatenate(([True], m.process[1:] != m.process[:-1]))
    heads = np.maximum.accumulate(np.where(head, here, 0))
    ok = polled & (m.type == OK)
    anchor = np.maximum.accumulate(np.where(ok | dropped, here, -1))
    before = np.concatenate(([-1], anchor[:-1]))
    inside = before >= heads
    previous, previous_op, previous_known = _carried(state, m, head)
    i = before[inside]
    previous[inside] = np.where(dropped[i], -1, m.last[i])
    previous_op[inside] = m.op[i]
    previous_known[inside] = (m.known[i] & 2) > 0
    gaps = _after_a_gap(state, m, before, inside)
    if gaps:
        previous[gaps] = -1
    stepped = (previous >= 0) & (m.first >= 0) & (m.first != previous + 1)
    sure = stepped & previous_known & ((m.known & 1) > 0)
    t = indices(sure)
    if advance is None:
        low = log_start_at(state.log_start, moves, m.at[t])
    else:
        low = known_from(state, advance, m.at[t], m.boot[t], previous[t])
    steps = _steps(take(m, t), previous[t], previous_op[t], low, awaits=advance is not None)
    _settle_positions(state, m, head, ok, dropped)
    start = np.where(
        (previous >= 0) & (previous < m.first),
        previous + 1,
        np.where((m.before >= 0) & (m.before <= m.first), m.before, m.first),
    )
    end = np.maximum(m.first, m.last) + 1  # one that went back inside has passed up to its first record
    by_assignment = ok & (m.subscribed == 0) & ~strangers.note(state, m, start, end)
    start, end = start[by_assignment], end[by_assignment]
    at, boot = m.at[by_assignment], m.boot[by_assignment]
    return Walked(Passes(at, m.process[by_assignment], m.op[by_assignment], start, end, boot), steps)


def _steps(m: Moves, previous: Ints, previous_op: Ints, low: Ints, *, awaits: bool) -> Transitions:
    """The steps of these moves, none of which is consecutive to where its process stood before; `awaits` what the log's
    other rows tell of them."""
    none = np.zeros(len(m), np.int64)
    # A client that says itself that it stood there has had the partition since then: no rebalance has moved it.
    held = (m.f == POLL) & (m.before == previous + 1)
    subscribed = np.where(held & (m.subscribed > 0), HELD_ON, m.subscribed)
    return Transitions(
        m.process, subscribed, m.op, m.at, m.first, previous, previous_op, low, none, none + int(awaits), m.boot
    )


def known_from(state: State, advance: Advance, at: Ints, boot: Ints, previous: Ints) -> Ints:
    """From which offset on the index is part of the verdict of steps from `previous`, made at these times: what was
    settled at that time is not, and of a poll that comes late, what the index still reaches. One whose clock is ahead,
    or may be, was there earlier than it says."""
    low = _reached_from(state, advance, at)
    if len(state.boot_names) < 2:
        return low
    doubtful = indices(low > previous + 1)
    if len(doubtful):
        at = at[doubtful] - _ahead_of_others(state, boot[doubtful])
        low[doubtful] = _reached_from(state, advance, at)
    return low


def _reached_from(state: State, advance: Advance, at: Ints) -> Ints:
    return np.where(at < advance.at[0], state.index_from, advance.settled_before(at))


def _ahead_of_others(state: State, boot: Ints) -> Ints:
    """By how much the clock of each of these is ahead of that of any other that is known here, at most: `UNKNOWN` where
    nobody knows."""
    found = np.zeros(len(boot), np.int64)
    others = {process.boot for process in state.processes.values()}
    for one in each(boot[boot >= 0]):
        found[boot == one] = max([0, *(ahead(state, one, other) for other in others - {-1, one})])
    return found


def _after_a_gap(state: State, m: Moves, before: Ints, inside: Bools) -> list[int]:
    """The moves between which and what their process did last a slice is missing: where it stood is unknown."""
    found = []
    for number, process in state.processes.items():
        for low, high in process.missing:
            for i in indices((m.process == number) & (m.slice >= high)).tolist():
                last = int(m.slice[before[i]]) if inside[i] else process.last_slice
                if last < low:
                    found.append(i)
    return found


def _overtaken(state: State, m: Moves) -> Bools:
    """The moves that come after others of their process had been followed, because they were missing for long."""
    late: Bools = np.zeros(len(m), bool)
    last = {number: process.last_slice for number, process in state.processes.items()}
    if len(m) and int(m.slice.min()) <= max(last.values(), default=-1):
        numbers, which = numbered(m.process)
        late = m.slice <= np.array([last.get(number, -1) for number in numbers.tolist()], np.int64)[which]
    return late


def _carried(state: State, m: Moves, head: Bools) -> tuple[Ints, Ints, Bools]:
    """Where each move's process stood before this step."""
    numbers = m.process[head].tolist()
    processes = [state.processes.get(number) for number in numbers]
    heads = indices(head)
    counts = tails(heads, len(m)) - heads + 1
    position = np.array([p.position - 1 if p and p.position >= 0 else -1 for p in processes], np.int64)
    op = np.array([p.last_op if p else -1 for p in processes], np.int64)
    known = np.array([bool(p and p.position_known) for p in processes], bool)
    return np.repeat(position, counts), np.repeat(op, counts), np.repeat(known, counts)


def _settle_positions(state: State, m: Moves, head: Bools, ok: Bools, dropped: Bools) -> None:
    heads, here = indices(head), np.arange(len(m))
    ends = tails(heads, len(m))
    numbers, subscribed, slices = m.process[heads].tolist(), m.subscribed[ends].tolist(), m.slice[ends].tolist()
    # Of each process the last that told an assignment, was ok, or moved it; -1 for none.
    which = ((m.assigned >= 0) | (m.f == CLOSE), ok, ok | dropped)
    lasts = (np.maximum.reduceat(np.where(rows, here, -1), heads).tolist() for rows in which)
    for number, mode, last, told, read, moved in zip(numbers, subscribed, slices, *lasts, strict=True):
        process = state.processes.get(number)
        if process is None:
            continue
        process.subscribed, process.last_slice = bool(mode), last
        if told >= 0:
            process.assigned = bool(m.assigned[told] == 1 and m.f[told] != CLOSE)
        elif read >= 0:
            process.assigned = True
        if process.assigned and process.assigned_at < 0:
            process.assigned_at = int(m.at[told if told >= 0 else read])
        if moved >= 0:
            process.position = -1 if dropped[moved] else int(m.last[moved]) + 1
            process.position_known = bool(m.known[moved] & 2)
            if process.last_op >= 0 or process.assigned or not dropped[moved]:  # else it was never here
                process.last_op = int(m.op[moved])
            process.moved = max(process.moved, int(m.at[moved]))


def log_start_at(before: int, moves: Moves, at: Ints) -> Ints:
    """The log start at each of these times of a finished history, as the first observation after it tells;
    `before`: as it was known before them."""
    seen = indices(moves.low >= 0)
    if not len(seen):
        return np.full(len(at), before, np.int64)
    times, lows = moves.at[seen], np.maximum(np.maximum.accumulate(moves.low[seen]), before)
    return np.asarray(lows[np.minimum(times.searchsorted(at, side="left"), len(seen) - 1)])
