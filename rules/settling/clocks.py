"""The clocks of hosts: what a boot's times mean, and by how much two boots' clocks may differ.

**Within a boot** time is that of the monotonic clock. The log time of a row is the base of its boot plus its monotonic
time, so that a wall clock that is set, ahead for a while or back, moves nothing. The base is what the first mark of
that boot tells: its wall time less its monotonic time. Rows without a boot, or of a boot that no mark has told of yet,
keep the time that they give. Marks tell of other times by the wall clock: where that was ahead lately, and is so no
more, by as much less. Where it is behind, they may tell of times from before it was set back, until what they tell is
later than that.

**Between boots** order in real time is concluded only by a measured bound. A record that one boot sent at its time s
was polled by another at its time p: the first was before the second, so the reader's clock is ahead of the sender's by
less than p - s. The least such difference bounds it from one side, records that go the other way from the other side;
clocks drift, so what was measured earlier bounds it less. A listing sees records too: one whose end lies above the
offset that a record was given came after that record was sent. That counts where records are appended ever higher: a
log that was cut gives offsets again, and what was listed before tells nothing of a record that took one of them. So
sends to an offset below one that the same boot was given before do not count, and a listing shows no more than those
that its host listed later, which must be here as far as it can have listed before the record was sent. Two bounds, one
from each side, by which each clock would be behind the other are none: one of them is wrong, and nobody knows which.
Where two boots exchanged nothing, a third that did with both bounds them. A bound that is not known concludes nothing.

State: one entry for each ordered pair of boots that exchanged records, and the newest `SIGHTINGS_KEPT` sends, polls and
listings each, only where a partition knows more than one boot; `HELD_SIGHTINGS` where log time is held back, since what
saw a record may come as much later than it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rules.arrays.columns import FEW, MARK, OFFSETS, STEADY, Columns, Runs, integers
from rules.arrays.intervals import Bools, Ints, each, indices
from rules.kept.state import NEVER, Clocks, Process, Sightings, State, concat, take
from rules.settling.boots import boots_after, boots_before
from rules.vocabulary.objectives import SECOND

SIGHTINGS_KEPT: Final = 256
"""Of a host that was away for long the bound is measured when it is back, by what it sees then: an hour of drift is two
seconds."""
HELD_SIGHTINGS: Final = 1 << 14
DRIFT: Final = 2_000
"""Of so many seconds two clocks drift apart by less than one, also while one of them is brought right little by little.
Where log time is held back, what was measured in the end counts for what was done as much earlier."""
UNHEARD: Final = 30 * SECOND
"""So long log time waits for a host."""
ASTRAY_FOR: Final = 40 * SECOND
"""For so long after a wall clock was ahead, marks may tell of times by what it said then."""
ALWAYS: Final = 2**60
"""A wall clock that was set more than once: what marks tell of may be by any of its times."""
UNKNOWN: Final = 2**61
"""More than any two clocks differ: no bound is known."""


def domains(columns: Columns) -> tuple[list[str], Ints, Ints, Ints]:
    """(names, domain of each row, invoked, completed) in the domain's own time: nanoseconds of a boot's monotonic
    clock; rows without a boot share one domain, "", in microseconds. Computed once for the same columns."""
    if columns.domains is None:
        columns.domains = _domains(columns)
    found: tuple[list[str], Ints, Ints, Ints] = columns.domains
    return found


def _domains(columns: Columns) -> tuple[list[str], Ints, Ints, Ints]:
    if not columns.tells("boot"):
        return [""], np.zeros(len(columns), np.int64), columns.invoked, columns.completed
    if len(columns) < FEW:
        told = [name or "" for name in columns.arrays["boot"].to_pylist()]
        number = {name: i for i, name in enumerate(dict.fromkeys(told))}
        names, domain = list(number), np.array([number[name] for name in told], np.int64)
    else:
        encoded = pc.dictionary_encode(pc.fill_null(columns.arrays["boot"], ""))
        names, domain = encoded.dictionary.to_pylist(), np.asarray(encoded.indices.to_numpy(), np.int64)
        number = {name: i for i, name in enumerate(names)}
    invoked, completed = (integers(columns.arrays[name]) for name in ("mono_invoked", "mono_completed"))
    if "" in number:
        has_boot = domain != number[""]
        invoked = np.where(has_boot, invoked, columns.invoked)
        completed = np.where(has_boot, completed, columns.completed)
    return names, domain, invoked, completed


def set_times(state: State, columns: Columns) -> None:
    """Number the rows' boots (`columns.boot`), and put `invoked` and `completed` into log time."""
    names, domain, invoked, completed = domains(columns)
    if names == [""]:
        return
    numbers = [_number(state, name) for name in names]
    columns.boot = np.array(numbers, np.int64)[domain]
    _learn_bases(state, columns, completed)
    for code, boot in enumerate(numbers):
        own = invoked[(domain == code) & (invoked >= 0)]
        if boot >= 0 and len(own):
            state.begun[boot] = min(state.begun[boot], int(own.min()) // 1000)
            state.done[boot] = max(state.done[boot], int(completed[domain == code].max()) // 1000)
    bases = np.array([*state.bases, -1], np.int64)[columns.boot]
    told = (bases >= 0) & (invoked >= 0) & (completed >= invoked)
    if told.any():
        columns.invoked = np.where(told, bases + invoked // 1000, columns.invoked)
        wall, columns.completed = columns.completed, np.where(told, bases + completed // 1000, columns.completed)
        _note_astray(state, columns, columns.completed - wall)
        _note_set_back(state, columns, np.where(told, columns.completed - wall, 0), told)


def _note_astray(state: State, columns: Columns, shift: Ints) -> None:
    """Note by how much the wall clock of each boot was ahead of log time lately, one time that it was set after the
    other: `shift` is log time less wall time. What marks had told before it was set further ahead was right."""
    off = (shift < -STEADY) & (columns.boot >= 0)
    if not off.any() and not any(least for least, _ in state.astray):
        return
    columns.astray = np.zeros(len(columns), np.int64)
    for boot in each(columns.boot[columns.boot >= 0]):
        mine = indices(columns.boot == boot)
        mine = mine[columns.completed[mine].argsort(kind="stable")]
        for part in np.split(mine, indices(np.abs(np.diff(shift[mine])) > STEADY) + 1):
            at = int(columns.completed[part[-1]])
            known, until = state.astray[boot]
            if off[part[0]]:
                least = int(shift[part].min())
                known, until = (min(least, known) if at <= until else least), max(until, at + ASTRAY_FOR)
                state.astray[boot] = known, until
            columns.astray[part] = np.where(columns.completed[part] <= until, known, 0)


def _note_set_back(state: State, columns: Columns, shift: Ints, told: Bools) -> None:
    """Note by how much the wall clock of each boot is behind, by its newest row, and since when it is."""
    if not any(by for by, _ in state.set_back) and not (np.abs(shift) > STEADY).any():
        return
    for boot in each(columns.boot[told]):
        mine = told & (columns.boot == boot)
        newest = int(shift[mine][columns.completed[mine].argmax()])
        known, since = state.set_back[boot]
        if abs(newest - known) > STEADY:
            others = mine & (np.abs(shift - newest) > STEADY)
            after = mine & (columns.completed > columns.completed[others].max(initial=-1))
            begun = int(columns.completed[after].min())
            state.set_back[boot] = newest, begun if since < 0 and newest > 0 else ALWAYS
    columns.set_back = np.array([*(since for _, since in state.set_back), ALWAYS], np.int64)[columns.boot]
    columns.set_back[columns.set_back < 0] = ALWAYS


def told_later(state: State, boot: int, time: int) -> int:
    """The log time of what a later boot tells of a time in this one: its wall clock may have been ahead then."""
    if boot < 0:
        return time
    least, until = state.astray[boot]
    return time + least if time + least <= until else time


def _number(state: State, name: str) -> int:
    if not name:
        return -1
    if name not in state.boot_names:
        state.boot_names.append(name)
        state.bases.append(-1)
        state.begun.append(UNKNOWN)
        state.done.append(-1)
        state.tops.append((0, -1))
        state.astray.append((0, -1))
        state.set_back.append((0, -1))
    return state.boot_names.index(name)


def first_done(state: State, boot: int) -> int:
    """The log time of the first that is known to have been done in a boot; `UNKNOWN` where nobody knows."""
    base, begun = state.bases[boot], state.begun[boot]
    return base + begun if base >= 0 and begun < UNKNOWN else UNKNOWN


def _last_done(state: State, boot: int) -> int:
    """The log time of the last that is known to have been done in a boot; -1 where nobody knows."""
    base, done = state.bases[boot], state.done[boot]
    return base + done if base >= 0 and done >= 0 else -1


def _learn_bases(state: State, columns: Columns, mono: Ints) -> None:
    if min(state.bases) >= 0:
        return
    rows = indices(columns.where(MARK) & (columns.boot >= 0) & (mono >= 0))
    for row in rows[np.argsort(mono[rows], kind="stable")].tolist():
        if state.bases[int(columns.boot[row])] < 0:
            state.bases[int(columns.boot[row])] = int(columns.completed[row]) - int(mono[row]) // 1000


def ahead(state: State, reader: int, sender: int) -> int:
    """By how much the clock of boot `reader` is ahead of that of `sender`, at most, in microseconds; `UNKNOWN` where no
    record tells. An event at s of `sender` was before one at p of `reader` if p - s is more."""
    if reader == sender:
        return 0
    known = state.clocks
    pairs = zip(known.sender.tolist(), known.reader.tolist(), strict=True)
    bounds = dict(zip(pairs, known.least.tolist(), strict=True))
    best = bounds.get((sender, reader), UNKNOWN)
    # A third bounds both better where what one sent was old already when the other began to read.
    for (one, third), bound in bounds.items():
        if one == sender and third != reader:
            through = bounds.get((third, reader), UNKNOWN)
            if through < UNKNOWN:  # a third clock that is behind would make less of it
                best = min(best, bound + through)
    other = bounds.get((reader, sender), UNKNOWN)
    return UNKNOWN if best + other < -SECOND else best


def measure(state: State, columns: Columns, sent: Runs, polled: Runs, *, finished: bool = False) -> None:
    """Learn from records that one boot sent and another polled, or listed. `sent`, `polled`: the new rows' runs;
    `finished`: no further row will ever come."""
    new = _sightings(columns, sent.take(columns.boot[sent.row] >= 0), columns.invoked)
    if not len(columns) or (len(state.boot_names) < 2 and not state.held):
        _ever_higher(state, new)  # who saw this may be heard of later
        return
    kept = HELD_SIGHTINGS if state.held else SIGHTINGS_KEPT
    sends, known = _newest(state.sightings, kept), polled.take(columns.boot[polled.row] >= 0)
    polls = concat(_newest(state.seen, kept), _sightings(columns, _last_of_each(known), columns.completed))
    _meet(state, concat(sends, new), polls)
    sends = concat(sends, _ever_higher(state, new))
    listings = concat(_newest(state.ends, kept), _listings(columns))
    later = _listed_later(state, listings)
    listings.offset = np.minimum(listings.offset, later)
    _meet_listings(state, sends, take(listings, later < NEVER), all_known=finished)
    # What was sent, and what saw it, come with different appends, and either may come first.
    state.sightings, state.seen, state.ends = (_newest(one, kept) for one in (sends, polls, listings))


def _newest(sightings: Sightings, kept: int) -> Sightings:
    if len(sightings) <= kept:
        return sightings
    return take(sightings, sightings.at.argsort(kind="stable")[-kept:])


def _listings(columns: Columns) -> Sightings:
    """Log ends that observers listed, as `offset`."""
    rows = indices(columns.where(OFFSETS) & (columns.log_end >= 0) & (columns.boot >= 0))
    none = np.full(len(rows), -1, np.int64)
    return Sightings(none, none, none, columns.completed[rows], columns.boot[rows], columns.log_end[rows])


def _listed_later(state: State, listings: Sightings) -> Ints:
    """The lowest end that the host of each listing listed later, in this boot or another one; `NEVER` while it has
    not."""
    lowest = np.full(len(listings), NEVER, np.int64)
    for boot in each(listings.boot):
        mine = indices(listings.boot == boot)
        mine = mine[listings.at[mine].argsort(kind="stable")]
        after = boots_after(state, boot)
        least = min((int(listings.offset[listings.boot == later].min(initial=NEVER)) for later in after), default=NEVER)
        lowest[mine] = np.minimum.accumulate(np.append(listings.offset[mine][1:], least)[::-1])[::-1]
    return lowest


def _ever_higher(state: State, sends: Sightings) -> Sightings:
    """The same without the offsets that are given again: those below the highest that their boot, or another one before
    that time, was given."""
    sends.offset = sends.offset.copy()  # it is the rows' own
    given = sends.offset + sends.length
    for boot in each(sends.boot):
        mine = indices(sends.boot == boot)
        mine = mine[sends.at[mine].argsort(kind="stable")]
        top, since = state.tops[boot]
        before = np.maximum.accumulate(np.append(0, given[mine]))[:-1]
        before = np.maximum(before, np.where(sends.at[mine] >= since, top, 0))
        sends.offset[mine[(sends.offset[mine] >= 0) & (sends.offset[mine] < before)]] = -1
        if int(given[mine].max()) > top:
            state.tops[boot] = int(given[mine].max()), int(sends.at[mine[given[mine].argmax()]])
    for boot in each(sends.boot) if len(state.tops) > 1 else ():
        for top, since in _tops_before(state, boot):
            sends.offset[(sends.boot == boot) & (sends.at > since) & (sends.offset < top)] = -1
    return sends


def _tops_before(state: State, boot: int) -> Iterator[tuple[int, int]]:
    """The highest that other boots were given, each with the time by the clock of this one since when it had been."""
    earlier = boots_before(state, boot)
    for other, (top, at) in enumerate(state.tops):
        if other != boot and at >= 0:
            bound = -UNKNOWN if other in earlier else ahead(state, boot, other)
            if bound < UNKNOWN:
                yield top, at + bound + SECOND  # an append takes its time


def _last_of_each(runs: Runs) -> Runs:
    """The last run of each writer in each row: what was sent last bounds best."""
    if not len(runs):
        return runs
    order = np.lexsort((runs.seq, runs.writer, runs.row))
    row, writer = runs.row[order], runs.writer[order]
    last = np.append((row[1:] != row[:-1]) | (writer[1:] != writer[:-1]), True)
    return runs.take(order[last])


def _sightings(columns: Columns, runs: Runs, time: Ints) -> Sightings:
    return Sightings(runs.writer, runs.seq, runs.length, time[runs.row], columns.boot[runs.row], runs.offset)


def _meet(state: State, sends: Sightings, polls: Sightings) -> None:
    """Bound the clocks by each poll whose send is known."""
    if not len(sends) or not len(polls):
        return
    order = np.lexsort((sends.seq, sends.writer))
    writers, writer = np.unique(np.concatenate((sends.writer, polls.writer)), return_inverse=True)
    width = int(max((sends.seq + sends.length).max(), (polls.seq + polls.length).max())) + 1
    if len(writers) * width >= 2**62:
        return
    key = writer[: len(sends)][order] * width + sends.seq[order]
    last = polls.seq + polls.length - 1
    at = key.searchsorted(writer[len(sends) :] * width + last, side="right") - 1
    sender = order[np.maximum(at, 0)]
    found = (at >= 0) & (sends.writer[sender] == polls.writer) & (last < sends.seq[sender] + sends.length[sender])
    other = found & (sends.boot[sender] != polls.boot)
    for i in indices(other).tolist() if int(other.sum()) < 64 else _tightest(sends, polls, sender, other):
        _bound(state, int(sends.boot[sender[i]]), int(polls.boot[i]), int(polls.at[i]), int(sends.at[sender[i]]))


def settle(state: State) -> None:
    """All rows are here that log time was held back for: what waited for them is measured."""
    _meet_listings(state, state.sightings, state.ends, all_known=True)


def _meet_listings(state: State, sends: Sightings, listings: Sightings, *, all_known: bool = False) -> None:
    """Bound the clocks by each listing whose end lies above the offset of a send that is known."""
    if not len(listings):
        return
    for sender in each(sends.boot):
        listed = take(listings, listings.boot != sender)
        own = take(sends, (sends.boot == sender) & (sends.offset >= 0))
        own = take(own, np.lexsort((own.offset, own.at)))
        highest = np.maximum.accumulate(own.offset + own.length)
        own = take(own, own.offset >= np.append(-1, highest[:-1])[: len(own)])
        # Offsets go up with the times now: of the records that a listing shows, the last was sent last.
        last = own.offset.searchsorted(listed.offset, side="left") - 1
        listed, last = take(listed, last >= 0), last[last >= 0]
        gap = listed.at - own.at[last]
        for reader in each(listed.boot):
            if sender in boots_after(state, reader):
                continue  # nothing was sent before it had been over
            mine = indices(listed.boot == reader)
            if not all_known:
                mine = mine[_none_to_come(state, listings, reader, sender, listed.at[mine], own.at[last[mine]])]
            if not len(mine):
                continue
            mine = mine[gap[mine] >= _least(state, sender, reader)]
            for i in _telling(gap[mine], listed.at[mine], mine) if len(mine) else ():
                _bound(state, sender, reader, int(listed.at[i]), int(own.at[last[i]]))


def _none_to_come(state: State, listings: Sightings, reader: int, sender: int, listed: Ints, sent: Ints) -> Bools:
    """Which of these pairs no lower end contradicts any more: one that `reader` listed before the record was sent may
    be still to come, as long as not all is here that it listed until then. Where nobody knows when that was by its
    clock, it is waited for as long as log time waits for a host."""
    apart = ahead(state, reader, sender)
    if apart == UNKNOWN and state.held:
        return np.zeros(len(sent), bool)
    here = [_done_through(one) for one in state.processes.values() if one.boot == reader and not one.complete]
    told = min(here) if here and not state.held else int(listings.at[listings.boot == reader].max()) - state.held
    return listed + UNHEARD <= told if apart == UNKNOWN else sent + max(apart, 0) <= told


def _done_through(process: Process) -> int:
    """All that it had done by then is here."""
    return max([process.marked, *(at for slices, _, at in process.marks if slices <= process.next)])


def _least(state: State, sender: int, reader: int) -> int:
    """By how much the clock of `reader` is ahead of that of `sender`, at least, as the boots before that one tell: it
    began after all that was done in them, by clocks that are compared with that of `reader`."""
    least = -UNKNOWN
    for earlier in boots_before(state, sender):
        at = _last_done(state, earlier)
        bound, begun = ahead(state, earlier, reader), first_done(state, sender)
        if at >= 0 and bound < UNKNOWN and begun < UNKNOWN:
            least = max(least, at - bound - begun - SECOND)
    return least


def _tightest(sends: Sightings, polls: Sightings, sender: Ints, other: Bools) -> list[int]:
    """Of many, those that bound each pair of boots best."""
    rows = indices(other)
    pair = sends.boot[sender[rows]] * (1 << 20) + polls.boot[rows]
    gap, at = polls.at[rows] - sends.at[sender[rows]], polls.at[rows]
    own = [indices(pair == one) for one in each(pair)]
    return [i for mine in own for i in _telling(gap[mine], at[mine], rows[mine])]


def _telling(gap: Ints, at: Ints, rows: Ints) -> set[int]:
    """Of one pair's, the row that bounds best as of the newest, and the newest, which tells until when."""
    return {int(rows[np.argmin(gap - at // DRIFT)]), int(rows[np.argmax(at)])}


def _bound(state: State, sender: int, reader: int, polled: int, sent: int) -> None:
    known, least = state.clocks, polled - sent + state.held // DRIFT
    own = indices((known.sender == sender) & (known.reader == reader))
    if not len(own):
        made = Clocks(*(np.array([value], np.int64) for value in (sender, reader, polled, least)))
        state.clocks = concat(known, made)
        return
    i = int(own[0])
    was, before = int(known.at[i]), int(known.least[i])
    newest = max(was, polled)
    known.least[i] = min(before + (newest - was) // DRIFT, least + (newest - polled) // DRIFT)
    known.at[i] = newest
