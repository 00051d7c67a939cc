"""`poll-skip`, `nonmonotonic-poll` and their internal forms: a reader must go on right after where it was.

What counts is the *index*, the offset with the holes removed: transaction markers and aborted records occupy offsets
and are no skip. So a step over offsets is a skip only if the log is known to hold a value between, and that is decided
once the offsets are settled. Where a process stands is told by `rules.settling.positions`.
Inside one operation, of any outcome, consecutive records must follow each other likewise (`int-poll-skip`,
`int-nonmonotonic-poll`), unless a rebalance fell into it.

A value that stands at several offsets counts at the last of them; an offset with several values concludes nothing.

What a host tells of that has been away for long comes when the offsets are settled: a step over a hole waits for the
log of everybody, up to when it was judged, and is a skip if that tells of a value there after all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs, irregulars
from rules.arrays.intervals import Ints, indices
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.chunks import values
from rules.kept.report import Report
from rules.kept.state import Places, State, Transitions, concat, take
from rules.settling.completeness import LATE
from rules.settling.frontier import spread
from rules.settling.gate import APART
from rules.settling.listings import Listings
from rules.settling.positions import known_from, log_start_at
from rules.settling.window import duplicate_in, indexed
from rules.vocabulary.objectives import SECOND

SKIPPED_TOLD: Final = 10
"""Values that a skip's evidence lists; its message says how many there are."""
AWAITED: Final = 3_600 * SECOND
"""For so long a step waits to be told where the log started."""
BLANK_KEPT: Final = 2_048
"""Steps over nothing known that wait for somebody's log; of more, the newest."""


@dataclass(slots=True)
class Steps:
    """`inside`: steps inside operations whose time has not come; `pending`: those whose offsets are not settled, or
    that wait for the log start. No more than the open window has runs: of a window that overflows, they go as well.
    `blank`: those that went over nothing that was known when they were judged (`at`), while somebody's log had not come
    so far; at most `BLANK_KEPT`."""

    inside: Transitions = field(default_factory=Transitions)
    pending: Transitions = field(default_factory=Transitions)
    blank: Transitions = field(default_factory=Transitions)


def arrive(own: Steps, new: News) -> None:
    """Note the steps inside new operations, and what now stands where others were judged to have gone over nothing."""
    own.inside = concat(own.inside, inside(new.columns, new.committed))
    if len(own.blank) and not new.finished:
        acknowledged, committed = (runs.take(runs.offset >= 0) for runs in (new.acknowledged, new.committed))
        _fill(own, new, acknowledged, np.zeros(len(acknowledged), np.int64))
        # A poll counts that all would have waited for, and none that was made later, as by an audit.
        apart = new.report.objectives.grace - spread(new.state)
        _fill(own, new, committed, new.columns.invoked[committed.row] + apart)


def _fill(own: Steps, new: News, runs: Runs, since: Ints) -> None:
    """These values are placed: tell the steps that went over one of them, and were judged at `since` or later."""
    blank = own.blank
    low, high = np.maximum(blank.previous + 1, blank.low), blank.first
    over = intervals.touched(*intervals.merge(low, high), runs.offset, runs.offset + runs.length)
    if not over.any():
        return
    runs, since = _only_here(new, runs.take(over), since[over])
    told = np.zeros(len(blank), bool)
    for i in range(len(runs)):
        one = runs.take(slice(i, i + 1))
        mine = (one.offset[0] < high) & (low < one.offset[0] + one.length[0]) & ~told
        mine &= blank.at >= since[i]
        for j in indices(mine).tolist():
            known, some = _values_between(one, int(low[j]), int(high[j]))
            what = f"went from offset {blank.previous[j]} to {blank.first[j]} over {known} known values"
            _report_step("poll-skip", _one(blank, j), what, int(blank.at[j]), new.report, {"skipped": some})
            if not blank.subscribed[j]:
                new.report.recheck(int(low[j]), int(high[j]), int(blank.process[j]))
        told |= mine
    own.blank = take(blank, ~told)


def _only_here(new: News, runs: Runs, since: Ints) -> tuple[Runs, Ints]:
    """The parts of these, placed below the settled frontier, whose values stand nowhere else: the others have another
    index."""
    left = new.chunks.lacking("placed", values(runs.writer, runs.seq, runs.length))
    places, parts, times = new.placed.places, [], []
    for i in range(len(runs)):
        mine = left[0] == runs.writer[i]
        part = intervals.intersect(
            runs.seq[i : i + 1], (runs.seq + runs.length)[i : i + 1], left[1][mine], left[2][mine]
        )
        other = (places.writer == runs.writer[i]) & (places.offset - places.seq != runs.offset[i] - runs.seq[i])
        copies = intervals.merge(places.seq[other], (places.seq + places.length)[other])
        start, end = intervals.subtract(*part, *copies)
        each = runs.take(np.full(len(start), i))
        parts.append(Runs(each.row, each.writer, start, each.offset + start - each.seq, end - start))
        times.append(np.full(len(start), since[i]))
    return Runs.concat(*parts), np.concatenate(times)


def inside(columns: Columns, polled: Runs) -> Transitions:
    """The steps between the runs of each new poll, read_committed, that are not plainly consecutive."""
    before, after = slice(None, -1), slice(1, None)
    end = polled.offset + polled.length
    steps = (polled.row[before] == polled.row[after]) & (end[before] != polled.offset[after])
    steps &= ~columns.rebalanced[polled.row[before]]
    steps &= (polled.offset[before] >= 0) & (polled.offset[after] >= 0)
    at = indices(steps)
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


def fold(own: Steps, passage: Passage) -> None:
    """Take the steps whose time has come, and decide those that the settled frontier has passed."""
    new = concat(passage.steps, _ripe_inside(own, passage))
    if len(new):
        pending = concat(own.pending, new)
        own.pending = take(pending, np.lexsort((pending.op, pending.process)))  # neighbours alike are written shorter
    if len(own.blank):
        own.blank = take(own.blank, own.blank.at > _told_by_all(passage))
    if not len(own.pending):
        return
    if passage.advance is None or passage.listings is None:
        _judge(own, passage, FOREVER, lambda _: int(passage.at[-1]))
    else:
        _note_log_start(own, passage.state, passage.listings, passage.end)
        _judge(own, passage, passage.state.settled, passage.advance.settled_at)


def _told_by_all(passage: Passage) -> int:
    """What was settled by this log time is known from everybody's log: it had been written, at the latest, the grace
    time before, by whichever clock. A host that is late and whose clock nobody can compare may have been far ahead."""
    known = passage.gate.known_through()
    doubt = APART if passage.state.now - known > LATE else 0
    return known + passage.report.objectives.grace - spread(passage.state, doubt)


def _ripe_inside(own: Steps, passage: Passage) -> Transitions:
    """Steps inside operations whose time has come await their verdict with the others."""
    steps, state = own.inside, passage.state
    if passage.advance is None:
        moves = take(passage.moves, passage.moves.at.argsort(kind="stable"))
        steps.low = np.maximum(steps.low, log_start_at(passage.log_start_before, moves, steps.at))
        steps.awaits = np.zeros(len(steps), np.int64)
        own.inside = Transitions()
        return steps
    ripe = steps.at <= state.tick
    if not ripe.any():
        return Transitions()
    steps, own.inside = take(steps, ripe), take(steps, ~ripe)
    low = known_from(state, passage.advance, steps.at, steps.boot, steps.previous)
    steps.low = np.maximum(steps.low, low)
    return steps


def _note_log_start(own: Steps, state: State, listings: Listings, end: int) -> None:
    """What listings made after the steps tell of the log start at the time of each of them. Steps of which no listing
    can tell, because nobody knows by how much the clocks differ, are not waited for longer than `AWAITED`."""
    waiting = own.pending = take(own.pending, (own.pending.awaits == 0) | (own.pending.at > end - AWAITED))
    if not len(waiting) or not len(listings):
        return
    first = listings.after(state, waiting.at, waiting.boot)
    told = (waiting.awaits == 1) & (first >= 0)
    waiting.low = np.where(told, np.maximum(waiting.low, listings.low[np.maximum(first, 0)]), waiting.low)
    waiting.awaits = np.where(told, 0, waiting.awaits)
    # What is not asked for any more is written as nothing.
    waiting.at, waiting.boot = np.where(told, 0, waiting.at), np.where(told, 0, waiting.boot)
    waiting.low = np.where(told & (waiting.low <= waiting.previous + 1), 0, waiting.low)


def _judge(own: Steps, passage: Passage, frontier: int, decided_at: Callable[[int], int]) -> None:
    """Decide the transitions that the settled frontier has passed; `decided_at` tells when it passed an offset."""
    pending, state, report = own.pending, passage.state, passage.report
    ripe = (np.maximum(pending.first, pending.previous) < frontier) & (pending.awaits == 0)
    if not ripe.any():
        return
    decided = take(pending, ripe)
    own.pending = take(pending, ~ripe)
    index, first, previous, sure = indexed(state, decided.first, decided.previous)
    below = sure & (first <= previous)
    over = sure & intervals.touched(index.start, index.end, np.maximum(previous + 1, decided.low), first)
    # Others saw something where a reader went over it: did it vanish, or come late? Whatever its index is.
    low = np.maximum(decided.previous + 1, decided.low)
    unlike = (decided.subscribed == 0) & intervals.touched(state.index.start, state.index.end, low, decided.first)
    for i in indices(unlike).tolist():
        report.recheck(int(low[i]), int(decided.first[i]), int(decided.process[i]))
    for i in indices(below).tolist():
        at = decided_at(int(decided.previous[i]))
        _report_step(
            "nonmonotonic-poll", _one(decided, i), f"went back from offset {previous[i]} to {first[i]}", at, report
        )
        if decided.first[i] == 0 and decided.previous[i] > 0 and not decided.internal[i]:
            _report_step(
                "spurious-zero-offset", _one(decided, i), f"was at offset {previous[i]} and polled 0", at, report
            )
    for i in indices(over).tolist():
        at = decided_at(int(decided.first[i]))
        start, stop = max(int(previous[i]) + 1, int(decided.low[i])), int(first[i])
        known, some = _values_between(state.log, start, stop)
        held = intervals.intersect(np.array([start]), np.array([stop]), index.start, index.end)
        known = max(known, int((held[1] - held[0]).sum()))  # the log may have forgotten what the index still knows
        what = f"went from offset {previous[i]} to {first[i]} over {known} known values"
        _report_step("poll-skip", _one(decided, i), what, at, report, {"skipped": some})
    if passage.advance is not None:
        _keep_blank(own, passage, take(decided, sure & ~below & ~over), decided_at)


def _keep_blank(own: Steps, passage: Passage, steps: Transitions, decided_at: Callable[[int], int]) -> None:
    """These went over nothing that is known. Keep those of which somebody's log may tell otherwise."""
    here = _told_by_all(passage) if len(steps) else passage.end
    if here >= passage.end:
        return
    steps.at = np.array([decided_at(offset) for offset in steps.first.tolist()], np.int64)
    wanted = (steps.at > here) & (np.maximum(steps.previous + 1, steps.low) < steps.first)
    own.blank = take(concat(own.blank, take(steps, wanted)), slice(-BLANK_KEPT, None))


def needed_from(own: Steps, state: State) -> int:
    """The offset from which the log must be kept: what is not settled, and what undecided steps went over."""
    pending = own.pending
    if not len(pending):
        return state.settled
    return min(state.settled, int(np.maximum(pending.previous + 1, pending.low).min()))


def give_up_below(own: Steps, offset: int) -> None:
    """Steps that end below this offset can be judged no more: what they went over has been forgotten."""
    own.pending = take(own.pending, np.maximum(own.pending.first, own.pending.previous) >= offset)


def _values_between(log: Places | Runs, low: int, high: int) -> tuple[int, list[dict[str, int]]]:
    """How many values the log has at the offsets [low, high), and the first few of them."""
    start, end = np.maximum(log.offset, low), np.minimum(log.offset + log.length, high)
    found: list[dict[str, int]] = []
    for i in indices(start < end).tolist():
        if len(found) >= SKIPPED_TOLD:
            break
        for offset in range(int(start[i]), min(int(end[i]), int(start[i]) + SKIPPED_TOLD - len(found))):
            seq = int(log.seq[i] + offset - log.offset[i])
            found.append({"offset": offset, "writer": int(log.writer[i]), "seq": seq})
    return int(np.maximum(end - start, 0).sum()), found


class _Step(NamedTuple):
    """One entry of `Transitions`: from the record at `previous` to the one at `first`."""

    process: int
    op: int
    first: int
    previous: int
    previous_op: int
    subscribed: bool
    internal: bool


def _one(steps: Transitions, i: int) -> _Step:
    return _Step(
        int(steps.process[i]), int(steps.op[i]), int(steps.first[i]), int(steps.previous[i]),
        int(steps.previous_op[i]), bool(steps.subscribed[i]), bool(steps.internal[i]),
    )  # fmt: skip


def _report_step(
    anomaly: str, step: _Step, what: str, at: int, report: Report, more: dict[str, object] | None = None
) -> None:
    report.add(
        f"int-{anomaly}" if step.internal else anomaly,
        (step.process, step.op, step.first) if step.internal else (step.process, step.op),
        f"process {step.process} {what}",
        at=at,
        evidence={
            "process": step.process,
            "op": step.op,
            "previous_op": step.previous_op,
            "previous_offset": step.previous,
            "offset": step.first,
            **(more or {}),
        },
        context={"mode": "subscribe" if step.subscribed else "assign"}
        | duplicate_in(report.state, step.first, step.previous),
    )


CHECK: Final = Check("poll-order", Steps, arrive=arrive, fold=fold)
