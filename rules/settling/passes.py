"""What readers in assign mode went over, and when they did last.

A value that is not polled may be called lost once a reader has gone over its place. Offsets are given once, so that
whoever went over one did so after it was given; but after a log was cut its offsets are given again, and who went over
them before has said nothing of what stands there now. So a pass tells its time, and one that was certainly over before
a value was sent does not count for that value. It also proves the cut, as does a listed log end below what had been
passed: from there on a pass counts only where it certainly came after. So does one of another host at an offset that
holds two values: it was given twice, and who went over it by a clock that tells no more may have gone over the other
one. Everywhere else a pass counts unless the opposite is proven, since clocks of two hosts tell no more than their
measured bound (`rules.settling.clocks`), and old passes are remembered with coarse times.

A value is missed from when its place was passed first, whether it was known by then or not. So a pass tells that, too.

State: the stretches of `State.passed`. Readers go on where they were, so they touch; beyond `EXACT` of them the older
half is joined by pairs, each saying between which times its parts were passed, and since when. And the offsets that
were given again or twice, until the log start has passed them.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import Bools, Ints, among, distinct, each, indices, some
from rules.kept.state import NEVER, Moves, Outstanding, Proven, Spans, State, Went, concat, take
from rules.settling.boots import boots_after, boots_before
from rules.settling.clocks import UNKNOWN, ahead

EXACT: Final = 96
KEPT: Final = 4096
"""Readers go straight on, and begin anew where they were or at the start: as many stretches that do not touch are not
made. What stands in those that are forgotten is lost when a reader goes over it again, as the audit reader does."""
SEVERAL: Final = -2
"""No boot's clock: a stretch whose parts were passed by several."""


class Timed(Protocol):
    """Stretches of offsets and when they were passed: `Went`, or `Proven`."""

    start: Ints
    end: Ints
    since: Ints
    until: Ints
    boot: Ints


def remember(state: State, proven: Proven) -> None:
    """Keep what readers went over now. These are facts whatever becomes of the log start; of more than `KEPT` stretches
    the lowest are forgotten."""
    if not len(proven):
        return
    known = state.passed
    first = int(known.end.searchsorted(proven.start.min(), side="right"))  # those before are left as they are
    new = Went(proven.start, proven.end, proven.since, proven.until, proven.boot, proven.at)
    state.passed = concat(take(known, slice(first)), _laid_over(state, take(known, slice(first, None)), new))
    if len(state.passed) > EXACT:
        state.passed = take(_joined(state.passed), slice(-KEPT, None))


def _laid_over(state: State, known: Went, new: Went) -> Went:
    """The offsets of both, cut wherever a pass begins or ends: of each the last pass counts, as each reader's own clock
    tells it (of two at one time the newer row), or the order of its host's boots, and of the first its time."""
    both = concat(known, new)
    edges = distinct(np.concatenate((both.start, both.end)))
    low, high = edges.searchsorted(both.start), edges.searchsorted(both.end)
    order = _in_order(state, both).argsort(kind="stable")
    count = (high - low)[order]
    row = np.repeat(order, count)
    piece = np.arange(len(row)) + np.repeat(low[order] - (count.cumsum() - count), count)
    last = np.full(len(edges), -1, np.int64)
    last[piece] = row  # what is assigned last stays
    first = np.full(len(edges), NEVER, np.int64)
    np.minimum.at(first, piece, both.first[row])
    covered = indices(last >= 0)
    laid = take(both, last[covered])
    laid.start, laid.end, laid.first = edges[covered], edges[covered + 1], first[covered]
    return laid


def _in_order(state: State, went: Went) -> Ints:
    """Numbers by which they come one after the other: when each was over, before whatever a later boot of its host
    did."""
    boots = each(went.boot)
    if len(boots) < 2:
        return went.until
    until = went.until.copy()
    for boot in boots:
        later = among(went.boot, list(boots_after(state, boot)))
        if some(later):
            own = went.boot == boot
            until[own] = np.minimum(until[own], went.since[later].min() - 1)
    return until


def _joined(known: Went) -> Went:
    """Neighbours of the older half by pairs, where they touch."""
    old = known.until <= np.partition(known.until, len(known) // 2)[len(known) // 2]
    pair = (known.end[:-1] == known.start[1:]) & old[:-1] & old[1:]
    run = np.arange(len(pair)) - np.maximum.accumulate(np.where(pair, -1, np.arange(len(pair))))
    first = indices(pair & (run % 2 == 1))
    second = first + 1
    made = take(known, first)
    made.end = known.end[second]
    made.since, made.until = np.minimum(made.since, known.since[second]), np.maximum(made.until, known.until[second])
    made.first = np.minimum(made.first, known.first[second])
    made.boot = np.where(made.boot == known.boot[second], made.boot, SEVERAL)
    rest = np.ones(len(known), bool)
    rest[first] = rest[second] = False
    whole = concat(take(known, rest), made)
    return take(whole, whole.start.argsort(kind="stable"))


def timeless(spans: Spans) -> Went:
    """What was passed in a finished history: who went over an offset did so after it was given, whenever that was."""
    size = len(spans)
    late, ever = np.full(size, NEVER, np.int64), np.full(size, -1, np.int64)
    return Went(spans.start, spans.end, late, late, np.full(size, SEVERAL, np.int64), ever)


def by_time(state: State, went: Went, low: Ints, high: Ints) -> list[tuple[int, Went]]:
    """What was passed of these places before they were known, and by when it had been: the first come first. Where
    offsets were given again, who came first may have gone over what stood there before: there the last counts."""
    own = intervals.touched(*intervals.merge(low, high), went.start, went.end)
    if not own.any():
        return []
    went, given_again = take(went, own), state.given_again
    again = intervals.touched(given_again.start, given_again.end, went.start, went.end)
    by = np.where(again & (went.first >= 0), went.since, went.first)
    return [(at, take(went, by == at)) for at in each(by)]


def before(state: State, passes: Timed, sent: int, boot: int) -> Bools:
    """Which passes were certainly over before `sent`, by the clock of `boot`."""
    return _bound(state, passes, boot, to=True) < sent - passes.until


def after(state: State, passes: Timed, sent: int, boot: int) -> Bools:
    """Which certainly came after it."""
    return _bound(state, passes, boot, to=False) <= passes.since - sent


def _bound(state: State, passes: Timed, boot: int, *, to: bool) -> Ints:
    """By how much the clock of `boot` is ahead of that of each pass at most, or (not `to`) the other way round. Of two
    boots of one host no clock tells which came first."""
    found = np.zeros(len(passes.boot), np.int64)
    if not some(passes.boot != boot):
        return found
    sooner = boots_before(state, boot) if to else boots_after(state, boot)
    for other in each(passes.boot):
        bound = ahead(state, boot, other) if to else ahead(state, other, boot)
        found[passes.boot == other] = -NEVER if other in sooner else bound
    found[found >= UNKNOWN] = NEVER
    return found


def over(state: State, passes: Timed, place: tuple[int, int], sent: tuple[int, int], *, filled: bool = False) -> Spans:
    """What of the offsets `place`, [low, high), was passed after `sent`, (time, boot). `filled`: what stands there was
    shown then, and had been passed as a hole before."""
    own = (passes.start < place[1]) & (passes.end > place[0])
    if ((state.given_again.start < place[1]) & (state.given_again.end > place[0])).any():
        counts = own & after(state, passes, *sent)
    else:
        counts = own & ~before(state, passes, *sent)
        if filled or ((state.given_twice.start < place[1]) & (state.given_twice.end > place[0])).any():
            counts &= (passes.boot == sent[1]) | after(state, passes, *sent)
    return Spans(*intervals.merge(passes.start[counts], passes.end[counts]))


def note_given_again(state: State, proven: Proven, sent: Outstanding, moves: Moves) -> Spans:
    """Notice that the log was cut: what was `sent`, or listed as the log's end, lies where readers had certainly passed
    before; and which offsets hold two values. Returns the offsets of which either is new."""
    found = [
        spans
        for went in (state.passed, proven)
        if len(went)
        for spans in (_sent_again(state, went, sent), _listed_below(state, went, moves))
        if spans is not None
    ]
    new = Spans(*intervals.merge(*np.array(sorted(found), np.int64).T)) if found else Spans()
    start, end = intervals.subtract(*_sides(state.unclear), *_sides(state.given_twice))
    twice = Spans(start[end > state.log_start], end[end > state.log_start])
    state.given_again = _with(state.given_again, new, state.log_start)
    state.given_twice = _with(state.given_twice, twice, state.log_start)
    return _with(new, twice, -1)


def _with(known: Spans, new: Spans, log_start: int) -> Spans:
    """Both, as far as the log still has them; the newest `KEPT`."""
    if not len(new):
        return known
    start, end = intervals.merge(np.append(known.start, new.start), np.append(known.end, new.end))
    kept = end > log_start
    return Spans(start[kept][-KEPT:], end[kept][-KEPT:])


def _sides(spans: Spans) -> tuple[Ints, Ints]:
    return spans.start, spans.end


def _sent_again(state: State, went: Timed, sent: Outstanding) -> tuple[int, int] | None:
    """Was something sent, by its clock, after its place had been passed?"""
    top = int(went.end.max())
    asked = take(sent, (sent.offset >= 0) & (sent.offset < top))
    if not len(asked):
        return None
    lowest = []
    for boot in each(asked.boot):
        own = take(asked, asked.boot == boot)
        own = take(own, own.offset.argsort(kind="stable"))
        over = went.until + np.minimum(_bound(state, went, boot, to=True), UNKNOWN)
        low, high = own.offset.searchsorted(went.start), own.offset.searchsorted(went.end)
        rows = indices(low < high)
        if not len(rows) or int(own.invoked.max()) <= int(over[rows].min()):
            continue
        spans = np.stack((low[rows], high[rows]), axis=1).ravel()
        newest = np.maximum.reduceat(np.append(own.invoked, -NEVER), spans)[::2]
        for i in rows[newest > over[rows]].tolist():
            again = own.invoked[low[i] : high[i]] > over[i]
            lowest.append(int(own.offset[low[i] + again.argmax()]))
    return (min(lowest), top) if lowest else None


def _listed_below(state: State, went: Timed, moves: Moves) -> tuple[int, int] | None:
    """Did a listing tell a log end, by its clock, below what had been passed before it was asked for?"""
    top = int(went.end.max())
    rows = indices((moves.end >= 0) & (moves.end < top))
    if not len(rows):
        return None
    lowest = []
    for boot in each(moves.boot[rows]):
        own = rows[moves.boot[rows] == boot]
        over = went.until + np.minimum(_bound(state, went, boot, to=True), UNKNOWN)
        order = over.argsort(kind="stable")
        highest = np.maximum.accumulate(went.end[order])
        known = np.searchsorted(over[order], moves.invoked[own], side="left") - 1
        below = (known >= 0) & (highest[np.maximum(known, 0)] > moves.end[own])
        lowest += moves.end[own][below].tolist()
    return (min(lowest), top) if lowest else None
