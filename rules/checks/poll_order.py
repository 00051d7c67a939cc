"""`poll-skip`, `nonmonotonic-poll` and their internal forms: a reader must go on right after where it was.

What counts is the *index*, the offset with the holes removed: transaction markers and aborted records occupy offsets
and are no skip. So a step over offsets is a skip only if the log is known to hold a value between, and that is decided
once the offsets are settled. Where a process stands is told by `rules.settling.positions`.
Inside one operation, of any outcome, consecutive records must follow each other likewise (`int-poll-skip`,
`int-nonmonotonic-poll`), unless a rebalance fell into it.

A value that stands at several offsets counts at the last of them; an offset with several values concludes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs, irregulars
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.report import Report
from rules.kept.state import State, Transitions, concat, take
from rules.settling.listings import Listings
from rules.settling.positions import known_from, log_start_at
from rules.settling.window import duplicate_in, indexed
from rules.vocabulary.objectives import SECOND

SKIPPED_TOLD: Final = 10
"""Values that a skip's evidence lists; its message says how many there are."""
AWAITED: Final = 3_600 * SECOND
"""For so long a step waits to be told where the log started."""


@dataclass(slots=True)
class Steps:
    """`inside`: steps inside operations whose time has not come; `pending`: those whose offsets are not settled, or
    that wait for the log start. No more than the open window has runs: of a window that overflows, they go as well."""

    inside: Transitions = field(default_factory=Transitions)
    pending: Transitions = field(default_factory=Transitions)


def arrive(own: Steps, new: News) -> None:
    """Note the steps inside new operations."""
    own.inside = concat(own.inside, inside(new.columns, new.committed))


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


def fold(own: Steps, passage: Passage) -> None:
    """Take the steps whose time has come, and decide those that the settled frontier has passed."""
    new = concat(passage.steps, _ripe_inside(own, passage))
    if len(new):
        pending = concat(own.pending, new)
        own.pending = take(pending, np.lexsort((pending.op, pending.process)))  # neighbours alike are written shorter
    if not len(own.pending):
        return
    if passage.advance is None or passage.listings is None:
        _judge(own, passage.state, FOREVER, lambda _: int(passage.at[-1]), passage.report)
    else:
        _note_log_start(own, passage.state, passage.listings, passage.end)
        _judge(own, passage.state, passage.state.settled, passage.advance.settled_at, passage.report)


def _ripe_inside(own: Steps, passage: Passage) -> Transitions:
    """Steps inside operations whose time has come await their verdict with the others."""
    steps, state = own.inside, passage.state
    if passage.advance is None:
        moves = take(passage.moves, np.argsort(passage.moves.at, kind="stable"))
        steps.low = np.maximum(steps.low, log_start_at(passage.log_start_before, moves, steps.at))
        steps.awaits = np.zeros(len(steps), np.int64)
        own.inside = Transitions()
        return steps
    ripe = steps.at <= state.tick
    if not ripe.any():
        return Transitions()
    steps, own.inside = take(steps, ripe), take(steps, ~ripe)
    steps.low = np.maximum(steps.low, known_from(state, passage.advance, steps.at))
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


def _judge(
    own: Steps, state: State, frontier: int, decided_at: Callable[[int], int], report: Report
) -> None:  # fmt: skip
    """Decide the transitions that the settled frontier has passed; `decided_at` tells when it passed an offset."""
    pending = own.pending
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


def needed_from(own: Steps, state: State) -> int:
    """The offset from which the log must be kept: what is not settled, and what undecided steps went over."""
    pending = own.pending
    if not len(pending):
        return state.settled
    return min(state.settled, int(np.maximum(pending.previous + 1, pending.low).min()))


def give_up_below(own: Steps, offset: int) -> None:
    """Steps that end below this offset can be judged no more: what they went over has been forgotten."""
    own.pending = take(own.pending, np.maximum(own.pending.first, own.pending.previous) >= offset)


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
        context={"mode": "subscribe" if steps.subscribed[i] else "assign"}
        | duplicate_in(report.state, int(steps.first[i]), int(steps.previous[i])),
    )


CHECK: Final = Check("poll-order", Steps, arrive=arrive, fold=fold)
