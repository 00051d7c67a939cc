"""`poll-skip`, `nonmonotonic-poll` and their internal forms: a reader must go on right after where it was.

What counts is the *index*, the offset with the holes removed: transaction markers and aborted records occupy offsets
and are no skip. So a step over offsets is a skip only if the log is known to hold a value between, and that is decided
once the offsets are settled. A process stands where its last ok operation left it: a failed or indefinite transaction
is compared with that position and does not move it. An assignment that drops the partition forgets the position.
Inside one operation, of any outcome, consecutive records must follow each other likewise (`int-poll-skip`,
`int-nonmonotonic-poll`), unless a rebalance fell into it.

A value that stands at several offsets counts at the last of them; an offset with several values concludes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import (
    ASSIGN,
    CLOSE,
    OFFSETS,
    OK,
    POLL,
    POSITION,
    REVOKE,
    SUBSCRIBE,
    TXN,
    Columns,
    Runs,
    irregulars,
)
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept.report import Report
from rules.kept.state import Moves, SendSteps, Spans, State, Transitions, concat, take
from rules.settling import completeness
from rules.settling.frontier import Advance, forgets
from rules.settling.listings import Listings
from rules.vocabulary.objectives import SECOND

SKIPPED_TOLD: Final = 10
"""Values that a skip's evidence lists; its message says how many there are."""


AWAITED: Final = 3_600 * SECOND


def moves_of(columns: Columns, fresh: Bools, polled: Runs) -> Moves:
    """The moves of new rows. `polled` are the runs that they polled at read_committed."""
    n = len(columns)
    first = np.full(n, -1, np.int64)
    last = np.full(n, -1, np.int64)
    known = np.full(n, 3, np.int64)
    if len(polled):
        heads = np.flatnonzero(np.diff(polled.row, prepend=-1))
        tails = np.append(heads[1:], len(polled)) - 1
        # A record polled at an unknown offset is one of unknown value here: it moves the reader to where nobody knows.
        rows = polled.row[heads]
        first[rows] = np.maximum(polled.offset[heads], 0)
        last[rows] = np.maximum(polled.offset[tails] + polled.length[tails] - 1, 0)
        known[rows] &= np.where(polled.offset[heads] < 0, 2, 3) & np.where(polled.offset[tails] < 0, 1, 3)
    _place_irregulars(columns, polled, first, last, known)
    # Where a transaction's abort left a consumer is not where it goes on: it seeks back.
    stands = columns.where(POSITION) & (columns.position_after >= 0) & (columns.type == OK) & (columns.txn < 0)
    first[stands & (columns.position_after == 0)] = 0
    polled_any = columns.where(POLL, TXN) & ((first >= 0) | (~columns.committed_only & (columns.position_after >= 0)))
    relevant = fresh & (columns.where(ASSIGN, SUBSCRIBE, REVOKE, CLOSE, OFFSETS) | polled_any | stands)
    known += np.where(columns.committed_only, 0, 4)
    # A committer's own rows and committed offsets move nobody; an observation that failed tells that nobody can see.
    unanswered = columns.where(OFFSETS) & (columns.last_stable < 0) & (columns.log_start < 0)
    if unanswered.any():
        asked = unanswered & (columns.committed < 0) & columns.table["group"].is_null().to_numpy()
        relevant &= ~unanswered | asked
    at = np.flatnonzero(relevant)
    return Moves(
        process=columns.process[at],
        slice=columns.slice[at],
        op=columns.op[at],
        f=columns.f[at].astype(np.int64),
        type=columns.type[at].astype(np.int64),
        at=columns.completed[at],
        assigned=columns.assigned[at].astype(np.int64),
        subscribed=columns.subscribed[at].astype(np.int64),
        first=first[at],
        last=last[at],
        known=known[at],
        before=columns.position_before[at],
        stable=columns.last_stable[at],
        low=columns.log_start[at],
        after=columns.position_after[at],
        end=columns.log_end[at],
        invoked=columns.invoked[at],
        boot=columns.boot[at],
    )


def inside(columns: Columns, polled: Runs) -> Transitions:
    """The steps between the runs of each new poll, read_committed, that are not plainly consecutive."""
    before, after = slice(None, -1), slice(1, None)
    end = polled.offset + polled.length
    steps = (polled.row[before] == polled.row[after]) & (end[before] != polled.offset[after])
    steps &= ~columns.rebalanced[polled.row[before]]
    steps &= (polled.offset[before] >= 0) & (polled.offset[after] >= 0)
    at = np.flatnonzero(steps)
    odd = irregulars(columns)
    if len(at) and len(odd):  # its index is unknown: nothing is concluded from the records around it
        around = intervals.touched_grouped(
            (odd.row, odd.offset, odd.offset + 1), polled.row[at], end[at], polled.offset[at + 1]
        )
        at = at[~around]
    rows = polled.row[at]
    return Transitions(
        columns.process[rows], columns.subscribed[rows].astype(np.int64), columns.op[rows], columns.completed[rows],
        polled.offset[at + 1], end[at] - 1, columns.op[rows], columns.log_start[rows], np.ones(len(at), np.int64),
        np.ones(len(at), np.int64), columns.boot[rows],
    )  # fmt: skip


def _place_irregulars(columns: Columns, polled: Runs, first: Ints, last: Ints, known: Ints) -> None:
    """Irregular records begin or end a poll, too; their value is unknown, or not of this partition."""
    odd = irregulars(columns)
    odd = odd.take(columns.committed_only[odd.row])
    if not len(odd):
        return
    records = np.bincount(odd.row, minlength=len(columns))
    np.add.at(records, polled.row, polled.length)
    begins, ends = odd.index == 0, odd.index == records[odd.row] - 1
    first[odd.row[begins]] = odd.offset[begins]
    known[odd.row[begins]] &= ~1
    last[odd.row[ends]] = odd.offset[ends]
    known[odd.row[ends]] &= ~2


@dataclass(slots=True)
class Passes:
    """Offsets that readers in assign mode went over in ok operations: [start, end), at time `at`, in the order of
    process and slice."""

    at: Ints
    process: Ints
    op: Ints
    start: Ints
    end: Ints
    boot: Ints

    def __len__(self) -> int:
        return len(self.at)


def walk_inside(state: State, moves: Moves, advance: Advance | None) -> None:
    """Steps inside operations whose time has come await their verdict with the others."""
    waiting = state.inside
    ripe = waiting.at <= state.tick if advance is not None else np.ones(len(waiting), bool)
    if not ripe.any():
        return
    steps, state.inside = take(waiting, ripe), take(waiting, ~ripe)
    if advance is None:
        steps.low = np.maximum(steps.low, _log_start_at(state, moves, steps.at))
        steps.awaits = np.zeros(len(steps), np.int64)
    else:
        steps.low = np.maximum(steps.low, _known_from(state, advance, steps.at))
    state.transitions = concat(state.transitions, steps)


def walk(state: State, moves: Moves, advance: Advance | None) -> Passes:
    """Let the readers make these moves (in canonical order): notes transitions that are not consecutive, moves the
    processes' positions, and tells what was passed. What was settled when a poll came (`advance`; None for a
    finished history) is no part of its verdict: the log below is forgotten, and polls there are the audit's."""
    order = np.lexsort((moves.slice, moves.process))
    m = take(moves, order)
    dropped = forgets(m)
    polled = (m.first >= 0) & np.isin(m.f, (POLL, TXN))
    relevant = polled | dropped | np.isin(m.f, (ASSIGN, SUBSCRIBE, REVOKE, POSITION))
    relevant &= ~_overtaken(state, m)
    m, dropped, polled = take(m, relevant), dropped[relevant], polled[relevant]
    if not len(m):
        return Passes(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
    if advance is None:
        low, awaits = _log_start_at(state, moves, m.at), np.zeros(len(m), np.int64)
    else:
        low, awaits = _known_from(state, advance, m.at), np.ones(len(m), np.int64)
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
    previous[_after_a_gap(state, m, before, inside)] = -1
    stepped = (previous >= 0) & (m.first >= 0) & (m.first != previous + 1)
    sure = stepped & previous_known & ((m.known & 1) > 0)
    if sure.any():
        t = np.flatnonzero(sure)
        state.transitions = concat(
            state.transitions,
            Transitions(
                m.process[t],
                m.subscribed[t],
                m.op[t],
                m.at[t],
                m.first[t],
                previous[t],
                previous_op[t],
                low[t],
                np.zeros(len(t), np.int64),
                awaits[t],
                m.boot[t],
            ),
        )
    _settle_positions(state, m, head, ok, dropped)
    by_assignment = ok & (m.subscribed == 0)
    start = np.where(
        (previous >= 0) & (previous < m.first),
        previous,
        np.where((m.before >= 0) & (m.before <= m.first), m.before, m.first),
    )
    start = start[by_assignment]
    end = np.maximum(m.first, m.last)[by_assignment] + 1  # one that went back inside has passed up to its first record
    at, boot = m.at[by_assignment], m.boot[by_assignment]
    return Passes(at, m.process[by_assignment], m.op[by_assignment], start, end, boot)


def _known_from(state: State, advance: Advance, at: Ints) -> Ints:
    """From which offset on the index is part of the verdict of polls at these times: what was settled at that time is
    not, and of a poll that comes late, what the index still reaches."""
    return np.where(at < advance.at[0], state.index_from, advance.settled_before(at))


def _after_a_gap(state: State, m: Moves, before: Ints, inside: Bools) -> list[int]:
    """The moves between which and what their process did last a slice is missing: where it stood is unknown."""
    found = []
    for number, process in state.processes.items():
        for low, high in completeness.gaps(process):
            for i in np.flatnonzero((m.process == number) & (m.slice >= high)).tolist():
                last = int(m.slice[before[i]]) if inside[i] else process.last_slice
                if last < low:
                    found.append(i)
    return found


def _overtaken(state: State, m: Moves) -> Bools:
    """The moves that come after others of their process had been followed, because they were missing for long."""
    late: Bools = np.zeros(len(m), bool)
    for number in intervals.distinct(m.process).tolist():
        process = state.processes.get(number)
        if process is not None:
            late |= (m.process == number) & (m.slice <= process.last_slice)
    return late


def _carried(state: State, m: Moves, head: Bools) -> tuple[Ints, Ints, Bools]:
    """Where each move's process stood before this step."""
    numbers = m.process[head].tolist()
    processes = [state.processes.get(number) for number in numbers]
    counts = np.diff(np.append(np.flatnonzero(head), len(m)))
    position = np.array([p.position - 1 if p and p.position >= 0 else -1 for p in processes], np.int64)
    op = np.array([p.last_op if p else -1 for p in processes], np.int64)
    known = np.array([bool(p and p.position_known) for p in processes], bool)
    return np.repeat(position, counts), np.repeat(op, counts), np.repeat(known, counts)


def _settle_positions(state: State, m: Moves, head: Bools, ok: Bools, dropped: Bools) -> None:
    heads = np.flatnonzero(head)
    ends = np.append(heads[1:], len(m))
    for a, b in zip(heads.tolist(), ends.tolist(), strict=True):
        process = state.processes.get(int(m.process[a]))
        if process is None:
            continue
        process.subscribed = bool(m.subscribed[b - 1])
        process.last_slice = int(m.slice[b - 1])
        told = np.flatnonzero((m.assigned[a:b] >= 0) | (m.f[a:b] == CLOSE))
        if len(told):
            process.assigned = bool(m.assigned[a + told[-1]] == 1 and m.f[a + told[-1]] != CLOSE)
        elif ok[a:b].any():
            process.assigned = True
        moved = np.flatnonzero(ok[a:b] | dropped[a:b])
        if len(moved):
            final = a + int(moved[-1])
            process.position = -1 if dropped[final] else int(m.last[final]) + 1
            process.position_known = bool(m.known[final] & 2)
            process.last_op = int(m.op[final])
            process.moved = max(process.moved, int(m.at[final]))


def _log_start_at(state: State, moves: Moves, at: Ints) -> Ints:
    """The log start at each of these times of a finished history, as the first observation after it tells."""
    seen = np.flatnonzero(moves.low >= 0)
    if not len(seen):
        return np.full(len(at), state.log_start, np.int64)
    times, lows = moves.at[seen], np.maximum(np.maximum.accumulate(moves.low[seen]), state.log_start)
    return np.asarray(lows[np.minimum(np.searchsorted(times, at, side="left"), len(seen) - 1)])


def note_log_start(state: State, listings: Listings, end: int) -> None:
    """What listings made after the steps tell of the log start at the time of each of them. Steps of which no listing
    can tell, because nobody knows by how much the clocks differ, are not waited for longer than `AWAITED`."""
    waiting = state.transitions = take(
        state.transitions, (state.transitions.awaits == 0) | (state.transitions.at > end - AWAITED)
    )
    if not len(waiting) or not len(listings):
        return
    first = listings.after(state, waiting.at, waiting.boot)
    told = (waiting.awaits == 1) & (first >= 0)
    waiting.low = np.where(told, np.maximum(waiting.low, listings.low[np.maximum(first, 0)]), waiting.low)
    waiting.awaits = np.where(told, 0, waiting.awaits)


def judge_steps(state: State, frontier: int, decided_at: Callable[[int], int], report: Report) -> None:
    """Decide the transitions that the settled frontier has passed; `decided_at` tells when it passed an offset."""
    pending = state.transitions
    ripe = (np.maximum(pending.first, pending.previous) < frontier) & (pending.awaits == 0)
    if not ripe.any():
        return
    decided = take(pending, ripe)
    state.transitions = take(pending, ~ripe)
    index, first, previous, sure = places(state, decided.first, decided.previous)
    below = sure & (first <= previous)
    over = sure & intervals.touched(index.start, index.end, np.maximum(previous + 1, decided.low), first)
    # Others saw something where a reader went over it: did it vanish, or come late? Whatever its index is.
    low = np.maximum(decided.previous + 1, decided.low)
    unlike = (decided.subscribed == 0) & intervals.touched(state.index.start, state.index.end, low, decided.first)
    for i in np.flatnonzero(unlike).tolist():
        report.recheck(int(low[i]), int(decided.first[i]), int(decided.process[i]))
    for i in np.flatnonzero(below).tolist():
        at = decided_at(int(decided.previous[i]))
        _report_step("nonmonotonic-poll", decided, i, f"went back from offset {previous[i]} to {first[i]}", at, report)
        if decided.first[i] == 0 and decided.previous[i] > 0 and not decided.internal[i]:
            _report_step("spurious-zero-offset", decided, i, f"was at offset {previous[i]} and polled 0", at, report)
    for i in np.flatnonzero(over).tolist():
        at = decided_at(int(decided.first[i]))
        start, stop = max(int(previous[i]) + 1, int(decided.low[i])), int(first[i])
        known, some = _values_between(state, start, stop)
        held = intervals.intersect(np.array([start]), np.array([stop]), index.start, index.end)
        known = max(known, int((held[1] - held[0]).sum()))  # the log may have forgotten what the index still knows
        _report_step(
            "poll-skip", decided, i, f"went from offset {previous[i]} to {first[i]} over {known} known values",
            at, report, {"skipped": some},
        )  # fmt: skip


def places(state: State, first: Ints, previous: Ints) -> tuple[Spans, Ints, Ints, Bools]:
    """For steps from `previous` to `first`: the offsets that have an index, both ends at the last places of their
    values, and whether both have an index. A value that stands at several offsets counts at the last of them, unless
    that is unclear or was seen at read_uncommitted alone; an offset with several values concludes nothing."""
    index = state.index
    stood = first, previous
    if len(state.moved.offset):
        gone = intervals.merge(state.moved.offset, state.moved.offset + state.moved.length)
        index = Spans(*intervals.subtract(index.start, index.end, *gone))
        first, previous = _at_last_place(state, first), _at_last_place(state, previous)
    sure = np.ones(len(first), bool)
    if len(state.unclear.start):
        index = Spans(*intervals.subtract(index.start, index.end, state.unclear.start, state.unclear.end))
        for offset in stood:
            sure &= ~intervals.touched(state.unclear.start, state.unclear.end, offset, offset + 1)
    for offset, original in zip((first, previous), stood, strict=True):
        sure &= (offset == original) | intervals.touched(index.start, index.end, offset, offset + 1)
    return index, first, previous, sure


def needed_from(state: State) -> int:
    """The offset from which the log must be kept: what is not settled, and what undecided steps went over."""
    pending = state.transitions
    if not len(pending):
        return state.settled
    return min(state.settled, int(np.maximum(pending.previous + 1, pending.low).min()))


def _at_last_place(state: State, offset: Ints) -> Ints:
    mapped = offset.copy()
    for start, length, last in zip(state.moved.offset, state.moved.length, state.moved.last, strict=True):
        inside = (offset >= start) & (offset < start + length)
        mapped[inside] = np.maximum(mapped[inside], last + offset[inside] - start)
    return mapped


def _values_between(state: State, low: int, high: int) -> tuple[int, list[dict[str, int]]]:
    """How many values the log has at the offsets [low, high), and the first few of them."""
    log = state.log
    start, end = np.maximum(log.offset, low), np.minimum(log.offset + log.length, high)
    found: list[dict[str, int]] = []
    for i in np.flatnonzero(start < end).tolist():
        if len(found) >= SKIPPED_TOLD:
            break
        for offset in range(int(start[i]), min(int(end[i]), int(start[i]) + SKIPPED_TOLD - len(found))):
            seq = int(log.seq[i] + offset - log.offset[i])
            found.append({"offset": offset, "writer": int(log.writer[i]), "seq": seq})
    return int(np.maximum(end - start, 0).sum()), found


def duplicate_in(state: State, steps: Transitions | SendSteps, i: int) -> dict[str, str]:
    """Where an end of the step is a value with several offsets: how bad that duplicate is, for the policy."""
    moved = state.moved
    for offset in (steps.first[i], steps.previous[i]):
        stands = (moved.offset <= offset) & (offset < moved.offset + moved.length)
        stands |= (moved.last <= offset) & (offset < moved.last + moved.length)
        if stands.any():
            writers = moved.writer[stands].tolist()
            return {"duplicate": "warning" if all(w in state.not_idempotent for w in writers) else "critical"}
    return {}


def _report_step(
    anomaly: str, steps: Transitions, i: int, what: str, at: int, report: Report, more: dict[str, object] | None = None
) -> None:
    process, op = int(steps.process[i]), int(steps.op[i])
    internal = bool(steps.internal[i])
    report.add(
        f"int-{anomaly}" if internal else anomaly,
        (process, op, int(steps.first[i])) if internal else (process, op),
        f"process {process} {what}",
        at=at,
        evidence={
            "process": process,
            "op": op,
            "previous_op": int(steps.previous_op[i]),
            "previous_offset": int(steps.previous[i]),
            "offset": int(steps.first[i]),
            **(more or {}),
        },
        context={"mode": "subscribe" if steps.subscribed[i] else "assign"} | duplicate_in(report.state, steps, i),
    )
