"""When what stands at an offset was sent: a log that is cut gives its offsets again.

A reader's step over an offset tells nothing of a value that was sent there after it. So the sends are remembered of
what readers' steps may still be judged by, and a value counts for a step unless it was certainly sent later, by the
clock of one boot or by the measured bound of two (`rules.settling.clocks`). Where the log is known to have given
offsets again (`State.given_again`) it is the other way round: there a value counts only if it had certainly been sent.

An acknowledgement tells where a value stands. What an indefinite operation sent, or one that was told no offset, is
found by its value, where that was polled or stands above the settled frontier, or was polled and settled before the row
came that tells of its sending, and has waited for that since (`rules.checks.records.phantom_reads`).

State: sends above the settled frontier and above what undecided steps went over; below, for readers whose rows come
late, those alone that were made a second or more after one to a higher offset, with the earliest of these, and those
of which it is not known yet whether they were, because not all is here that was sent before them. Of more than `EXACT`
the older half are joined where they are neighbours of one second; at most `KEPT`. Of those without an offset the newest
`EXACT`. What was sent after the last tick is beside these bounds, as all is that waits for its time: no step of that
time is judged yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Runs
from rules.arrays.intervals import EMPTY, Bools, Ints, among, distinct, indices
from rules.kept.check import News
from rules.kept.codec import Table, concat, take
from rules.kept.state import NEVER, Places, Polls, State
from rules.settling.clocks import UNKNOWN, ahead
from rules.settling.frontier import spread
from rules.settling.gate import WRITERS, Gate
from rules.vocabulary.objectives import SECOND

EXACT: Final = 256
KEPT: Final = 2048
"""Where a log was cut, and that is known, a value of whose sending nothing is remembered is no skip; where it was not,
it stood there before any reader went by."""


@dataclass(slots=True)
class Sent(Table):
    """Offsets [start, end) that were given to what was sent at `invoked`, by the clock of `boot`."""

    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Unplaced(Table):
    """Values that were sent where nobody knows, or not surely."""

    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Sends:
    """See the module. `forgotten`: below this offset not all sends are remembered that were known."""

    placed: Sent = field(default_factory=Sent)
    unplaced: Unplaced = field(default_factory=Unplaced)
    forgotten: int = 0


def note(own: Sends, new: News, unsent: Polls) -> None:
    """Remember what new rows sent, and what they show of where it stands. `unsent`: what was polled before of which no
    send was known."""
    if len(new.sent):
        _note_sent(own, new, unsent)
    if len(own.unplaced):
        _place(own, own.unplaced, new.committed, new.state.settled)


def _note_sent(own: Sends, new: News, unsent: Polls) -> None:
    acknowledged, unplaced = new.acknowledged, new.indefinite
    if len(acknowledged) and int(acknowledged.offset.min()) < 0:
        unplaced = Runs.concat(unplaced, acknowledged.take(acknowledged.offset < 0))
        acknowledged = acknowledged.take(acknowledged.offset >= 0)
    columns, row = new.columns, acknowledged.row
    if len(row):
        start = acknowledged.offset
        own.placed = concat(
            own.placed, Sent(start, start + acknowledged.length, columns.invoked[row], columns.boot[row])
        )
    if len(unplaced):
        row = unplaced.row
        made = Unplaced(unplaced.writer, unplaced.seq, unplaced.length, columns.invoked[row], columns.boot[row])
        own.unplaced = concat(own.unplaced, made)
        _place(own, made, unsent, new.state.settled)
        if not new.finished:
            passed = indices(own.unplaced.invoked <= new.state.tick)
            newest = passed[own.unplaced.invoked[passed].argsort(kind="stable")[-EXACT:]]
            own.unplaced = take(
                own.unplaced, np.sort(np.append(newest, indices(own.unplaced.invoked > new.state.tick)))
            )


def _place(own: Sends, unplaced: Unplaced, polled: Runs | Polls, settled: int) -> None:
    """Where values were polled below the settled frontier, nothing but the index tells that something stands there:
    remember when these were sent, of those of which nobody was told where."""
    below = (polled.offset >= 0) & (polled.offset < settled)
    if below.any():
        places = Places(*(column[below] for column in (polled.offset, polled.writer, polled.seq, polled.length)))
        own.placed = concat(own.placed, _sent_there(unplaced, places))


def forget_below(own: Sends, gate: Gate, offset: int, asked: tuple[Ints, Ints]) -> None:
    """All steps below this offset are decided, but those that wait for the sends of the offsets `asked`, merged, and
    those of readers whose rows come late: the index is kept for them, and what is no part of it is forgotten."""
    state = gate.state
    own.forgotten = limit = max(own.forgotten, offset)
    placed = own.placed
    if not len(placed):
        return
    keep = placed.end > limit
    if not keep.all():
        if len(asked[0]):
            keep |= intervals.touched(*asked, placed.start, placed.end)
        if state.index_from < limit:
            wanted = _sent_again(placed, state) | (placed.invoked > gate.known_through(WRITERS) - spread(state))
            keep |= (placed.end > state.index_from) & wanted
        own.placed = placed = take(placed, keep)
    passed = placed.invoked <= state.tick
    if passed.sum() > EXACT:
        own.placed = concat(_joined(take(placed, passed)), take(placed, ~passed))


def _sent_again(placed: Sent, state: State) -> Bools:
    """Which were certainly sent a second or more after something at a higher offset, and the earliest of what stands
    above each of these: without it nobody would know it of them any more."""
    placed_at = placed.start.argsort(kind="stable")
    boot, invoked = placed.boot[placed_at], placed.invoked[placed_at]
    boots, wanted = distinct(boot).tolist(), np.zeros(len(placed), bool)
    for sender in boots:
        by_its_clock = np.full(len(placed), NEVER, np.int64)
        for other in boots:
            bound = ahead(state, sender, other)
            if bound < UNKNOWN:
                by_its_clock[boot == other] = invoked[boot == other] + bound
        earliest = np.minimum.accumulate(np.append(by_its_clock, NEVER)[::-1])[::-1][1:]
        again = (boot == sender) & (invoked - earliest >= SECOND)
        if again.any():
            wanted |= again
            earlier = indices(by_its_clock < earliest)  # than all that stands above them
            wanted[earlier[earlier.searchsorted(indices(again), side="right")]] = True
    found = np.empty(len(placed), bool)
    found[placed_at] = wanted
    return found


def _joined(placed: Sent) -> Sent:
    """The older half with neighbours joined that one boot sent within a second: as if all had been sent at first."""
    old = placed.invoked <= np.partition(placed.invoked, len(placed) // 2)[len(placed) // 2]
    rest, placed = take(placed, ~old), take(placed, old)
    second = placed.invoked // SECOND
    order = np.lexsort((placed.start, second, placed.boot))
    placed, second = take(placed, order), second[order]
    near = (placed.end[:-1] == placed.start[1:]) & (placed.boot[1:] == placed.boot[:-1]) & (second[1:] == second[:-1])
    first = np.append(0, indices(~near) + 1)
    last = np.append(first[1:], len(placed)) - 1
    made = Sent(placed.start[first], placed.end[last], np.minimum.reduceat(placed.invoked, first), placed.boot[first])
    both = concat(made, rest)
    return both if len(both) <= KEPT else take(both, np.sort(both.invoked.argsort(kind="stable")[-KEPT:]))


def sends_to(own: Sends, places: Places, low: int, high: int) -> Sent:
    """The sends of what stands at the offsets [low, high), as far as they are known; `places`: which values those
    are."""
    placed = take(own.placed, (own.placed.start < high) & (own.placed.end > low))
    if len(own.unplaced) and len(places):
        return concat(placed, _sent_there(own.unplaced, places))
    return placed


def _sent_there(waiting: Unplaced, places: Places) -> Sent:
    """What of these stands at these places."""
    found = Sent()
    waiting = take(waiting, _overlap(waiting, places))
    for i in range(len(waiting)):
        seq, length = int(waiting.seq[i]), int(waiting.length[i])
        here = take(places, places.writer == waiting.writer[i])
        start = np.maximum(here.seq, seq) + here.offset - here.seq
        end = np.minimum(here.seq + here.length, seq + length) + here.offset - here.seq
        made = Sent(start, end, *(np.full(len(start), one[i]) for one in (waiting.invoked, waiting.boot)))
        found = concat(found, take(made, start < end))
    return found


def _overlap(waiting: Unplaced, places: Places) -> Bools:
    """Which of these may have sent what stands at the places: by writer, between the lowest and the highest number."""
    found = np.zeros(len(waiting), bool)
    for writer in distinct(places.writer).tolist():
        seq, length = (column[places.writer == writer] for column in (places.seq, places.length))
        own = (waiting.writer == writer) & (waiting.seq < (seq + length).max())
        found |= own & (waiting.seq + waiting.length > seq.min())
    return found


def may_be_sent_to(own: Sends, writers: Ints, low: Ints, high: Ints) -> Bools:
    """To which of the offsets [low, high) something may have been sent of which it is known when; `writers`: of what
    stands there."""
    placed = own.placed
    found = intervals.touched(*intervals.merge(placed.start, placed.end), low, high)
    return found | bool(among(own.unplaced.writer, writers).any())


def unseen_by(state: State, sends: Sent, at: int, boot: int) -> tuple[Ints, Ints]:
    """What of these was sent too late for a step at this time of this boot, as far as is known: merged offsets."""
    sooner, later = np.empty((2, len(sends)), np.int64)
    for sender in distinct(sends.boot).tolist():
        own = sends.boot == sender
        sooner[own], later[own] = ahead(state, boot, sender), ahead(state, sender, boot)
    again = intervals.touched(state.given_again.start, state.given_again.end, sends.start, sends.end)
    late = np.where(again, at - sends.invoked < sooner, sends.invoked - at > later)
    if not late.any():
        return EMPTY, EMPTY
    found = intervals.merge(sends.start[late], sends.end[late])
    return intervals.subtract(*found, *intervals.merge(sends.start[~late], sends.end[~late]))
