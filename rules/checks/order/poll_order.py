"""`poll-skip`, `nonmonotonic-poll` and their internal forms: a reader must go on right after where it was.

What counts is the *index*, the offset with the holes removed: transaction markers and aborted records occupy offsets
and are no skip. So a step over offsets is a skip only if the log is known to hold a value between, and that is decided
once the offsets are settled. Where a process stands is told by `rules.settling.positions`.
Inside one operation, of any outcome, consecutive records must follow each other likewise (`int-poll-skip`,
`int-nonmonotonic-poll`), unless a rebalance fell into it.

A rebalance moves a reader, so that what a subscribed one skips is allowed, unless its own client says that it stood
where its last poll had left it: then the group had left the partition to it all the time.

A value that stands at several offsets counts at the last of them, as far as these were known when the step was decided;
an offset with several values concludes nothing. Of what had been settled when a reader came by, as an audit does, order
that follows only from that is not told: the duplicate is.

A log that was cut gives offsets again: who had gone over one before has not skipped what was sent there after that
(`rules.settling.given_again`). A value counts whose send has not come, once all is here that was done until then.

What a host tells of that has been away for long comes when the offsets are settled: a step over a hole, or over values
of which nobody knows when they were sent, waits for the log of everybody, up to when it was judged, and is a skip if
that tells of a value there after all.

A step back over a place where the log was cut is one, whatever has been written there since. That the log was cut may
be known later than the step is judged: one from or to an offset with several values, or with one that stands twice,
waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Columns, Runs, irregulars
from rules.arrays.intervals import EMPTY, Bools, Ints, each, indices
from rules.checks.ends import log_ends
from rules.checks.order import known_later
from rules.checks.order.poll_steps import (
    explained,
    over_a_cut,
    over_aborted,
    place_of,
    report_back,
    report_step,
    step_of,
    values_between,
)
from rules.checks.records import phantom_reads
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.chunks import values
from rules.kept.codec import Table, names
from rules.kept.report import Report
from rules.kept.state import Moved, Places, State, Transitions, concat, take
from rules.settling import given_again
from rules.settling.completeness import LATE
from rules.settling.frontier import spread
from rules.settling.gate import APART, OBSERVERS, WRITERS, Gate
from rules.settling.listings import Listings
from rules.settling.positions import known_from, log_start_at
from rules.settling.window import indexed, known_by, merged
from rules.vocabulary.objectives import SECOND

MOVED: Final = 1
"""`Transitions.subscribed` of a step in which a rebalance may have moved the reader: it proves nothing of the log."""
AWAITED: Final = 3_600 * SECOND
"""For so long a step waits, once it is here, to be told where the log started, if all is here that observers did."""
TURNED_KEPT: Final = 1_024
"""Steps back that wait to be told of a cut; of more, the newest."""
CUT_TOLD: Final = 600 * SECOND
"""Where the log was cut is known so long after it was polled from again, once all is here that was done until then."""
BLANK_KEPT: Final = 8_192
"""Steps over nothing known that wait for somebody's log; of more, the first over each place, the newest of these."""
SHOWN_KEPT: Final = 1_024
"""Runs of values that some of those went over; of more, the highest."""


@dataclass(slots=True)
class Shown(Table):
    """Runs of values at their offsets that steps went over which wait; `writer` is -1 where it has been forgotten. A
    step counts them that was judged at `since` or later."""

    offset: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Steps:
    """`inside`: steps inside operations whose time has not come; `pending`: those whose offsets are not settled, or
    that wait for the log start. No more than the open window has runs: of a window that overflows, they go as well.
    `blank`: those that went over nothing of which it was known, when they were judged (here `awaits`), that it was
    there, while somebody's log had not come so far; at most `BLANK_KEPT`. `shown`: what has turned out to stand there,
    at most `SHOWN_KEPT` runs. `turned`: steps back that count only where the log was cut, judged at `awaits` when
    nobody had told of that; at most `TURNED_KEPT`. `later` and `sends`: see `known_later` and
    `rules.settling.given_again`."""

    inside: Transitions = field(default_factory=Transitions)
    pending: Transitions = field(default_factory=Transitions)
    blank: Transitions = field(default_factory=Transitions)
    shown: Shown = field(default_factory=Shown)
    later: known_later.Later = field(default_factory=known_later.Later)
    turned: Transitions = field(default_factory=Transitions)
    sends: given_again.Sends = field(default_factory=given_again.Sends)


def arrive(own: Steps, new: News) -> None:
    """Note the steps inside new operations, and what now stands where others were judged to have gone over nothing."""
    own.inside = concat(own.inside, inside(new.columns, new.committed))
    given_again.note(own.sends, new, phantom_reads.unsent_in(new.state))
    if len(new.committed) and not new.finished:
        own.later = known_later.note(own.later, new)
    if len(own.blank) and not new.finished:
        acknowledged, committed = (runs.take(runs.offset >= 0) for runs in (new.acknowledged, new.committed))
        _show(own, new, acknowledged, np.zeros(len(acknowledged), np.int64))
        # A poll counts that was made before the step was judged, and none that was made later, as by an audit.
        _show(own, new, committed, new.columns.completed[committed.row])


def _show(own: Steps, new: News, runs: Runs, since: Ints) -> None:
    """These values are placed: note those that steps went over which wait, and were judged at `since` or later."""
    over = intervals.touched(*intervals.merge(*_gone_over(own.blank)), runs.offset, runs.offset + runs.length)
    if over.any():
        runs, since = _only_here(new, runs.take(over), since[over])
        _keep_shown(own, Shown(runs.offset, runs.writer, runs.seq, runs.length, since), new.report)


def _keep_shown(own: Steps, new: Shown, report: Report) -> None:
    """Of what is shown again, the first time counts."""
    both = concat(own.shown, new)
    columns = both.since, both.length, both.seq, both.writer, both.offset
    both = take(both, np.lexsort(columns))
    same = np.ones(max(len(both) - 1, 0), bool)
    for column in (both.length, both.seq, both.writer, both.offset):
        same &= column[1:] == column[:-1]
    shown = take(both, np.append(True, ~same)[: len(both)])
    own.shown = report.last(shown, SHOWN_KEPT, "values that steps went over")


def _gone_over(steps: Transitions) -> tuple[Ints, Ints]:
    """The offsets [low, high) that each of these steps went over and that count."""
    low = np.maximum(steps.previous + 1, steps.low)
    return low, np.maximum(steps.first, low)


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
        columns.process[rows],
        columns.subscribed[rows].astype(np.int64),
        columns.op[rows],
        columns.completed[rows],
        polled.offset[at + 1],
        end[at] - 1,
        columns.op[rows],
        columns.log_start[rows],
        np.ones(len(at), np.int64),
        np.ones(len(at), np.int64),
        columns.boot[rows],
    )


def fold(own: Steps, passage: Passage) -> None:
    """Take the steps whose time has come, and decide those that the settled frontier has passed."""
    new = concat(passage.steps, _ripe_inside(own, passage))
    if len(new):
        new.awaits = np.where(new.awaits == 1, passage.end, new.awaits)
        pending = concat(own.pending, new)
        own.pending = take(pending, np.lexsort((pending.op, pending.process)))  # neighbours alike are written shorter
    if len(own.blank):
        _judge_blank(own, passage)
    if len(own.turned):
        _judge_turned(own, passage)
    if passage.advance is None or passage.listings is None:
        if len(own.pending):
            _judge(own, passage, FOREVER, lambda _: int(passage.at[-1]))
        return
    if len(own.pending):
        _note_log_start(own, passage, passage.listings)
        _judge(own, passage, passage.state.settled, passage.advance.settled_at)
    own.later = known_later.after(own.later, passage.end)


def _judge_blank(own: Steps, passage: Passage) -> None:
    """Decide the steps that waited of which it is known now that they went over a value, and those for which all is
    here."""
    blank, shown, report = own.blank, own.shown, passage.report
    waits: Bools = blank.awaits > _told_by_all(passage)
    low, high = _gone_over(blank)
    skips = np.zeros(len(blank), bool)
    touched = intervals.touched(*intervals.merge(shown.offset, shown.offset + shown.length), low, high)
    if touched.any():  # of most of them nothing new is known, and they may be many
        news = given_again.may_be_sent_to(own.sends, shown.writer, low, high)
        news |= blank.awaits <= passage.gate.known_through(WRITERS)
        waits |= touched & ~news
        touched &= news
    for j in indices(touched).tolist():
        mine = (shown.offset < high[j]) & (shown.offset + shown.length > low[j]) & (shown.since <= blank.awaits[j])
        if not mine.any():
            continue
        places, _ = merged(Places(*(getattr(shown, name)[mine] for name in ("offset", "writer", "seq", "length"))))
        held = intervals.merge(np.maximum(places.offset, low[j]), np.minimum(places.offset + places.length, high[j]))
        seen = _seen(own, passage, places, held, (int(blank.at[j]), int(blank.boot[j])))
        waits[j] |= seen.unsure and not _all_sent(passage, int(blank.awaits[j]))
        skips[j] = seen.sure or (seen.unsure and not waits[j])
        if skips[j]:
            known, some = values_between(places, *seen.counted)
            at = int(blank.awaits[j])
            step = step_of(blank, j, known_by(passage.state.moved, at))
            step, why = over_aborted(step, places, seen.counted, known, at, report)
            what = f"went from offset {blank.previous[j]} to {blank.first[j]} over {known} known values{why}"
            report_step("poll-skip", step, what, at, report, {"skipped": some})
            if blank.subscribed[j] != MOVED:
                report.recheck(int(low[j]), int(high[j]), int(blank.process[j]))
    own.blank = take(blank, waits & ~skips)
    left = intervals.merge(*_gone_over(own.blank))
    own.shown = take(shown, intervals.touched(*left, shown.offset, shown.offset + shown.length))


class _Seen(NamedTuple):
    """Of offsets that a step went over, those that count. Does any value count there of which it is known when it was
    sent (`sure`), or not known (`unsure`)?"""

    counted: tuple[Ints, Ints]
    sure: bool
    unsure: bool


def _seen(own: Steps, passage: Passage, places: Places, held: tuple[Ints, Ints], step: tuple[int, int]) -> _Seen:
    """What counts of the offsets `held`, merged, at which `places` stand, for a step at this (time, boot)."""
    state = passage.state
    sends = given_again.sends_to(own.sends, places, int(held[0][0]), int(held[1][-1]))
    unseen = given_again.unseen_by(state, sends, *step)
    if passage.finished and len(unseen[0]):
        unseen = intervals.subtract(*unseen, *_polled_by(passage, step[0]))
    counted = intervals.subtract(*held, *unseen)
    known = intervals.merge(sends.start, sends.end)
    cuts = _cuts_before(state, step[0])
    for span, told in cuts:
        # What a cut took away stands there no more, whatever has been written there since.
        lost = (sends.start < span[1]) & (sends.end > span[0]) & (sends.invoked < told)
        others = intervals.merge(sends.start[~lost], sends.end[~lost])
        gone = intervals.intersect(*intervals.merge(sends.start[lost], sends.end[lost]), *span)
        counted = intervals.subtract(*counted, *intervals.subtract(*gone, *others))
    unsure = intervals.subtract(*counted, *known)
    for span in [(state.given_again.start, state.given_again.end), *(span for span, _ in cuts)]:
        if len(unsure[0]) and len(span[0]):
            again = intervals.intersect(*unsure, *span)
            counted, unsure = intervals.subtract(*counted, *again), intervals.subtract(*unsure, *again)
    sure = intervals.intersect(*counted, *known)
    return _Seen(counted, len(sure[0]) > 0, len(unsure[0]) > 0)


def _cuts_before(state: State, at: int) -> list[tuple[tuple[Ints, Ints], int]]:
    """The cuts of the log before this time, by whatever clock: the offsets whose values each took away, and by when
    these had been sent."""
    cuts = state.checks.get(log_ends.CHECK.name)
    if cuts is None or not len(cuts.gone):
        return []
    doubt, gone = spread(state), cuts.gone
    every = zip(gone.again.tolist(), gone.known.tolist(), gone.at.tolist(), strict=True)
    return [
        ((np.array([again]), np.array([known + 1])), told + doubt) for again, known, told in every if at > told - doubt
    ]


def _polled_by(passage: Passage, at: int) -> tuple[Ints, Ints]:
    """The offsets that had been polled by then, merged: what stood there was there, whatever a file says of when it was
    sent."""
    start, end = [], []
    for polls in (passage.polls, passage.uncommitted):
        own = take(polls, polls.at <= at)
        start.append(own.offset)
        end.append(own.offset + own.length)
    return intervals.merge(np.concatenate(start), np.concatenate(end))


def _all_sent(passage: Passage, until: int) -> bool:
    """Is everything here that was sent until then? What has not come of it never will."""
    return passage.finished or passage.gate.known_through(WRITERS) >= until


def _told_by_all(passage: Passage) -> int:
    """What was known by this log time is told by everybody's log, by whichever clock. A host that is late and whose
    clock nobody can compare may have been far ahead."""
    known = passage.gate.known_through()
    doubt = APART if passage.state.now - known > LATE else 0
    return known - spread(passage.state, doubt)


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


def _note_log_start(own: Steps, passage: Passage, listings: Listings) -> None:
    """What listings made after the steps tell of the log start at the time of each of them. Steps of which no listing
    can tell, because nobody knows by how much the clocks differ, are not waited for longer than `AWAITED`."""
    waiting = own.pending
    if not waiting.awaits.any():
        return
    waiting.awaits = np.where(waiting.awaits == 1, waiting.at, waiting.awaits)  # as it was kept once
    if len(listings):
        first = listings.after(passage.state, waiting.at, waiting.boot, np.maximum(waiting.first, waiting.previous))
        told = (waiting.awaits > 0) & (first >= 0)
        waiting.low = np.where(told, np.maximum(waiting.low, listings.low[np.maximum(first, 0)]), waiting.low)
        waiting.awaits = np.where(told, 0, waiting.awaits)
        # What is not asked for any more is written as nothing.
        waiting.low = np.where(told & (waiting.low <= waiting.previous), 0, waiting.low)
    overdue = (waiting.awaits > 0) & (waiting.awaits <= passage.end - AWAITED)
    if overdue.any():
        overdue &= waiting.awaits <= passage.gate.known_through(OBSERVERS) - AWAITED
        own.pending = take(waiting, ~overdue)


def _judge(own: Steps, passage: Passage, frontier: int, decided_at: Callable[[int], int]) -> None:
    """Decide the transitions that the settled frontier has passed; `decided_at` tells when it passed an offset."""
    pending, state = own.pending, passage.state
    ripe = (np.maximum(pending.first, pending.previous) < frontier) & (pending.awaits == 0)
    cut_at = over_a_cut(state, pending)
    ripe |= (cut_at >= 0) & (pending.first < frontier)  # what the log start was then says nothing of a step back
    if not ripe.any():
        return
    cut_at, decided, own.pending = cut_at[ripe], take(pending, ripe), take(pending, ~ripe)
    until = _moved_until(passage, decided, decided_at)
    for time in each(until):
        mine = until == time
        _decide(own, passage, take(decided, mine), cut_at[mine], known_by(state.moved, time), decided_at)


def _moved_until(passage: Passage, steps: Transitions, decided_at: Callable[[int], int]) -> Ints:
    """By when at the latest it has to be known that a value stands further on, too, to count in each of these steps:
    when they are decided, or would have been, had they come in time. A finished history knows all."""
    times = np.unique(passage.state.moved.known)
    if passage.advance is None or not len(times):
        return np.full(len(steps), FOREVER, np.int64)
    decided = [decided_at(offset) for offset in np.maximum(steps.first, steps.previous).tolist()]
    objectives = passage.report.objectives
    until = np.minimum(steps.at + objectives.liveness + objectives.grace, np.array(decided, np.int64))
    return np.append(times, -1)[times.searchsorted(until, side="right") - 1]


def _decide(
    own: Steps, passage: Passage, decided: Transitions, cut_at: Ints, moved: Moved, decided_at: Callable[[int], int]
) -> None:
    """Decide these transitions, in which those values have `moved`; `cut_at` as `over_a_cut` tells it."""
    state, report = passage.state, passage.report
    index, first, previous, sure = indexed(state, moved, decided.first, decided.previous)
    cut, back = cut_at >= 0, decided.first < decided.previous
    for i in indices(cut).tolist():
        report_back(step_of(decided, i, moved), int(cut_at[i]), report)
    sure &= ~cut
    below = sure & (first <= previous)
    if passage.advance is not None:  # the order of what was settled long before, as an audit reads it, is known no more
        below &= back | (decided.low <= decided.previous)
    over = sure & intervals.touched(index.start, index.end, np.maximum(previous + 1, decided.low), first)
    # Others saw something where a reader went over it: did it vanish, or come late? Whatever its index is.
    low = np.maximum(decided.previous + 1, decided.low)
    bare = intervals.touched(state.index.start, state.index.end, low, decided.first)
    for i in indices((decided.subscribed != MOVED) & bare).tolist():
        report.recheck(int(low[i]), int(decided.first[i]), int(decided.process[i]))
    for i in indices(below).tolist():
        step, at = step_of(decided, i, moved), decided_at(int(decided.previous[i]))
        report_back(step, at, report, int(previous[i]), int(first[i]))
    waits = np.zeros(len(decided), bool)
    for i in indices(over).tolist():
        start, stop = max(int(previous[i]) + 1, int(decided.low[i])), int(first[i])
        at = decided_at(int(decided.first[i]))
        span = np.array([start]), np.array([stop])
        held = intervals.intersect(*span, index.start, index.end)
        if len(own.later) and passage.advance is not None:
            held = intervals.subtract(*held, *known_later.than(own.later, at))
            over[i] = len(held[0]) > 0
            if not over[i]:
                continue
        log = take(state.log, (state.log.offset < stop) & (state.log.offset + state.log.length > start))
        seen = _seen(own, passage, log, held, (int(decided.at[i]), int(decided.boot[i])))
        over[i] = seen.sure or (seen.unsure and _all_sent(passage, at))
        waits[i] = seen.unsure and not over[i]
        if waits[i]:
            _keep_shown(own, _shown(log, seen.counted), report)
        elif over[i]:
            known, some = values_between(log, *seen.counted)
            known = max(known, int((seen.counted[1] - seen.counted[0]).sum()))  # the log may have forgotten some
            step = step_of(decided, i, moved)
            end, begin = place_of(step.previous, previous[i]), place_of(step.first, first[i])
            if not bare[i]:
                step = explained(step, report)
            step, why = over_aborted(step, log, seen.counted, known, at, report)
            what = f"went from offset {end} to {begin} over {known} known values{why}"
            report_step("poll-skip", step, what, at, report, {"skipped": some})
    if passage.advance is not None:
        left = sure & ~below & ~over
        _keep_blank(own, passage, take(decided, left), waits[left], decided_at)
        turned = take(decided, back & ~below & ~cut)
        if len(turned):
            turned.awaits = np.array([decided_at(offset) for offset in turned.previous.tolist()], np.int64)
            own.turned = report.last(concat(own.turned, turned), TURNED_KEPT, "steps back")


def _judge_turned(own: Steps, passage: Passage) -> None:
    """Decide the steps back of which it is known by now that the log was cut between, and those for which all is
    here."""
    cut_at = over_a_cut(passage.state, own.turned)
    for i in indices(cut_at >= 0).tolist():
        step = step_of(own.turned, i, known_by(passage.state.moved, int(own.turned.awaits[i])))
        report_back(step, int(cut_at[i]), passage.report)
    told = _told_by_all(passage) + passage.report.objectives.grace
    waits = (cut_at < 0) & (own.turned.awaits + CUT_TOLD > told) & (not passage.finished)
    own.turned = take(own.turned, waits)


def _shown(log: Places, spans: tuple[Ints, Ints]) -> Shown:
    """What stands at these offsets, as far as the log has not forgotten it."""
    parts = []
    for low, high in zip(*spans, strict=True):
        here = take(log, (log.offset < high) & (log.offset + log.length > low))
        cut = np.maximum(low - here.offset, 0)
        length = np.minimum(here.length, high - here.offset) - cut
        parts.append(Places(here.offset + cut, here.writer, here.seq + cut, length))
        bare = intervals.subtract(
            np.array([low]), np.array([high]), *intervals.merge(parts[-1].offset, parts[-1].offset + length)
        )
        none = np.full(len(bare[0]), -1, np.int64)
        parts.append(Places(bare[0], none, none, bare[1] - bare[0]))
    found = Places(*(np.concatenate([getattr(part, name) for part in parts]) for name in names(Places)))
    return Shown(found.offset, found.writer, found.seq, found.length, np.zeros(len(found), np.int64))


def _keep_blank(
    own: Steps, passage: Passage, steps: Transitions, waits: Bools, decided_at: Callable[[int], int]
) -> None:
    """These went over nothing of which it is known that it was there. Keep those of which somebody's log may tell
    otherwise, and those that `waits` picks."""
    if not len(steps):
        return
    here, grace = _told_by_all(passage), passage.report.objectives.grace
    if passage.gate.known_through() >= passage.state.now - grace:
        here += grace  # nobody is late, and what had been done by the last tick is here, whatever is under way
    if here >= passage.end and not waits.any():
        return
    steps.awaits = np.array([decided_at(offset) for offset in steps.first.tolist()], np.int64)
    low, high = _gone_over(steps)
    wanted = waits | ((steps.awaits > here) & (low < high))
    own.blank = _bounded(concat(own.blank, take(steps, wanted)), passage.report)


def _bounded(blank: Transitions, report: Report) -> Transitions:
    """Of too many, one of those that went over the same offsets, and of these the newest."""
    if len(blank) > BLANK_KEPT:
        low, high = _gone_over(blank)
        order = np.lexsort((blank.at, high, low))
        first = np.ones(len(blank), bool)
        first[order[1:]] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
        blank = take(blank, first)
    return report.last(blank, BLANK_KEPT, "steps over nothing known")


def needed_from(own: Steps, state: State) -> int:
    """The offset from which the log must be kept: what is not settled, and what undecided steps went over."""
    pending = own.pending
    if not len(pending):
        return state.settled
    return min(state.settled, int(np.maximum(pending.previous + 1, pending.low).min()))


def forget_sends(own: Steps, gate: Gate, offset: int) -> None:
    """The log is kept from this offset on now, and the index for those whose rows come late (`State.index_from`)."""
    asked = intervals.merge(own.shown.offset, own.shown.offset + own.shown.length)
    given_again.forget_below(own.sends, gate, offset, asked)


def give_up_below(own: Steps, offset: int) -> None:
    """Steps that end below this offset can be judged no more: what they went over has been forgotten."""
    own.pending = take(own.pending, np.maximum(own.pending.first, own.pending.previous) >= offset)


CHECK: Final = Check("poll-order", Steps, arrive=arrive, fold=fold)
