"""Runs of transactions that wait for long, apart from those that are looked at in each step.

Part of `transaction_outcomes`. While the log of somebody who may have polled, or of a later life that may have fenced,
is not here, and as long as nobody reads, every transaction waits, and none may be forgotten. Beyond those that are
looked at in each step the oldest go into *parcels*: chunks of some `RUNS` runs, whole operations, as they are. A parcel
is taken back, all of it, in the step that brings a poll of a value from where its runs lie, in the one after readers
have gone over their places for the first time, and else in its turn: every `EVERY` of log time some of them, so that
each has been in every `ROUND`. What is still undecided then goes into another one. So a verdict is told some minutes
later, and is the same.

State: one entry of each writer, and transactional id, of each parcel, and at most `KEPT` parcels. Of more, the oldest
is dropped, which is told (`rules.kept.dropped`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import INFO
from rules.arrays.intervals import Bools, Ints, among, distinct, each, indices
from rules.checks.transactions import given_up
from rules.checks.transactions.transaction_evidence import note_next
from rules.checks.transactions.transaction_runs import WAITING, Aside, Outcomes, Parcel, Written, parcel_name, parcel_of
from rules.kept import codec
from rules.kept.check import Asked, Passage
from rules.kept.chunks import chunk_names
from rules.kept.codec import concat, take
from rules.vocabulary.objectives import SECOND

RUNS: Final = 512
KEPT: Final = 1_024
EVERY: Final = 10 * SECOND
ROUND: Final = 160 * SECOND
WANTED_KEPT: Final = 16
"""So many parcels are taken back at once because readers have gone over them; the others in their turn."""


def needs(own: Outcomes, asked: Asked, kept: tuple[int, int]) -> set[str]:
    """The parcels that will be taken back, what is asked of their runs, and those that may be made: where there may be
    more than `kept` runs, certain ones and indefinite ones."""
    aside, names, back = own.aside, set(), 0
    if len(aside):
        wanted = take(aside, among(aside.parcel, _due(own, asked)))
        names = {
            *map(parcel_name, each(wanted.parcel)),
            *chunk_names(wanted.writer, wanted.low, wanted.high - wanted.low),
        }
        back = int(wanted.runs.sum())
    sent = asked.columns.sent
    most = len(own.written) + len(sent) + back
    if back:
        names |= given_up.new_parts(own, most)
    if most <= min(kept):
        return names
    unsure = np.count_nonzero(own.written.type == INFO) + np.count_nonzero(asked.columns.type[sent.row] == INFO)
    if most > kept[0] or unsure > kept[1] or back:
        names.update(parcel_name(own.parcels + i) for i in range(most // RUNS + 2))
    return names


def _due(own: Outcomes, asked: Asked) -> Ints:
    """The parcels that are to be taken back."""
    aside, polls, polled = own.aside, asked.state.polls, asked.columns.polled
    due = [np.array(own.wanted, np.int64)]
    if len(polls) or len(polled):
        writer, seq, length = (np.append(getattr(polls, n), getattr(polled, n)) for n in ("writer", "seq", "length"))
        seen = intervals.merge_grouped(writer, seq, seq + length)
        due.append(aside.parcel[intervals.touched_grouped(seen, aside.writer, aside.low, aside.high)])
    passed = asked.state.tick - own.visited
    if passed >= EVERY:
        parcels = distinct(aside.parcel)
        due.append(parcels[: -(-len(parcels) * passed // ROUND)])
    return distinct(np.concatenate(due))


def take_back(own: Outcomes, passage: Passage) -> int:
    """Put the runs of the parcels that were asked for to the end of those that wait; how many these are."""
    if not len(own.aside):
        return 0
    parcels = each(own.aside.parcel)
    here = [parcel for parcel in parcels if passage.chunks.declares(parcel_name(parcel))]
    if parcels[0] in here:
        own.visited = int(passage.at[0])  # what the step's other ticks pass counts for the next one
    before = len(own.written)
    for parcel in here:
        one = parcel_of(passage.chunks.blob(parcel_name(parcel)))
        own.names += [name for name in one.names if name not in own.names]
        numbers = np.array([*(own.names.index(name) for name in one.names), -1], np.int64)
        one.rows.name = numbers[one.rows.name]
        own.written = concat(own.written, one.rows)
        passage.chunks.put(parcel_name(parcel), None)
    own.aside = take(own.aside, ~among(own.aside.parcel, here))
    own.wanted = [parcel for parcel in own.wanted if parcel not in here]
    return len(own.written) - before


def put_aside(own: Outcomes, passage: Passage, chosen: Ints) -> None:
    """Make parcels of these rows, given in the order of their times, as far as it was known that some may be made. Runs
    of one operation stay together."""
    gone = np.zeros(len(own.written), bool)
    for part in _parts(take(own.written, chosen)):
        if not passage.chunks.declares(parcel_name(own.parcels)):
            break
        rows = take(own.written, chosen[part])
        note_next(rows, own.written)
        gone[chosen[part]] = True
        _make(own, passage, rows)
    if gone.any():
        rows, own.written = take(own.written, gone), take(own.written, ~gone)
        note_next(own.written, rows)
        _bound(own, passage)


def _parts(rows: Written) -> Iterator[slice]:
    """Parts of some `RUNS` rows that do not divide an operation."""
    ends = indices((np.diff(rows.process) != 0) | (np.diff(rows.op) != 0)) + 1
    start = 0
    while start < len(rows):
        after = ends[ends >= start + RUNS]
        end = int(after[0]) if len(after) else len(rows)
        yield slice(start, end)
        start = end


def _make(own: Outcomes, passage: Passage, rows: Written) -> None:
    used = [number for number in each(rows.name) if number >= 0]
    stored = take(rows, slice(None))
    stored.name = np.where(rows.name < 0, -1, np.searchsorted(used, rows.name)).astype(np.int64)
    parcel = Parcel(stored, [own.names[number] for number in used])
    passage.chunks.put(parcel_name(own.parcels), codec.dump(parcel, {}, {}))
    (writers, names), which = np.unique(np.stack((rows.writer, rows.name)), axis=1, return_inverse=True)
    which = which.ravel()

    def least(of: Ints) -> Ints:
        found = np.full(len(writers), 2**62, np.int64)
        np.minimum.at(found, which, of)
        return found

    open_: Bools = (rows.due < 0) & (rows.fate == WAITING) & (rows.shown == 0)
    own.aside = concat(
        own.aside,
        Aside(
            np.full(len(writers), own.parcels),
            writers,
            names,
            least(rows.process),
            least(rows.invoked),
            least(rows.seq),
            -least(-(rows.seq + rows.length)),
            least(rows.low),
            -least(-rows.high),
            np.bincount(which, minlength=len(writers)),
            -least(-open_.astype(np.int64)),
            -least(-(rows.type == INFO).astype(np.int64)),
            np.full(len(writers), rows.at.max()),
        ),
    )
    own.parcels += 1


def _bound(own: Outcomes, passage: Passage) -> None:
    """Drop the oldest parcels of too many."""
    parcels = distinct(own.aside.parcel)
    if len(parcels) <= KEPT:
        return
    until = own.aside.until[own.aside.parcel.searchsorted(parcels)]
    gone = parcels[until.argsort(kind="stable")[: len(parcels) - KEPT]]
    over = among(own.aside.parcel, gone)
    passage.report.drop("transactions", int(own.aside.runs[over].sum()))
    for parcel in gone.tolist():
        passage.chunks.put(parcel_name(parcel), None)
    own.aside = take(own.aside, ~over)


def wake(own: Outcomes, passage: Passage) -> None:
    """Note which parcels readers have gone over now, where that is new to some of their runs."""
    aside, proven = own.aside, passage.proven
    if not len(aside) or not len(proven):
        return
    passed = intervals.merge(proven.start, proven.end)
    touched = (aside.open == 1) & (aside.low_offset < aside.high_offset)
    touched &= intervals.touched(*passed, aside.low_offset, aside.high_offset)
    own.wanted = sorted({*own.wanted, *each(aside.parcel[touched])} & {*each(aside.parcel)})[:WANTED_KEPT]
