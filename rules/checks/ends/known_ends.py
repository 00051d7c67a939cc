"""Where the log ends, as its leader lists it, beside the highest offset that was known by then.

Known is what was acknowledged, also in a transaction that was aborted then, or polled, and "by then" is by one clock
domain (`rules.settling.clocks.domains`): a boot, a number of `State.boot_names`, -1 for none. Its time is taken in
steps of `STEP`: of what completed within one of them, none counts before its end. A listing is `due` once the log of
all whose clock it is has come so far; an operation that is open for long tells nothing of that time, and is not waited
for. What a hole hides is not known: less follows, and nothing false.

A row that recovery wrote for a process that died has no time at which it ended: it completes when it was invoked, as
far as its row tells, and may have polled long after. What it polled is known from when the process was closed, if that
was on the same boot, and else never. Whatever says `process-died` or `host-lost`, or completes as it is invoked without
an outcome, is such a row.

It finds nothing itself. Those that follow are told of new rows what was safely acknowledged (`News.safe`), and as time
passes which listings are due (`Passage.due`). While rows are missing, for ten minutes where they never come, what is
known only grows: listings that are short of what is known already are told with those around them (`Passage.early`).

State: `Tops` since the last listing that was due, at most `STEPS_KEPT` of each domain beside those that the listings
since ask for, and what one step brings: a file's history, or a long backlog, comes in one; these listings, at most
`LISTINGS_KEPT` beside those that log time has not come to; `Recovered`, dead processes that are not forgotten yet; what
was acknowledged to processes whose first row is not here, at most `HELD_KEPT` rows. What is dropped of these is told
(`rules.kept.dropped`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import CLOSE, FAIL, INFO, OFFSETS, OK, TXN, Runs
from rules.arrays.intervals import EMPTY, Bools, Ints, among, each, heads, indices, newest, some
from rules.checks.order.sequence_loss import rows_with
from rules.kept.check import Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.settling.clocks import domains
from rules.settling.gate import Who
from rules.vocabulary.slices import DIED

STEP: Final = 10_000
"""Microseconds; in nanoseconds a thousand times as many."""
STEPS_KEPT: Final = 4096
LISTINGS_KEPT: Final = 4096
HELD_KEPT: Final = 8192
"""For ten minutes, until the row that is missing is given up, of three writers that send five times a second."""
DEAD: Final = (DIED, "host-lost")
"""The errors of rows that recovery writes."""


@dataclass(slots=True)
class Tops(Table):
    """The highest offset known at the end of a step of the domain's clock; ascending in both within a domain."""

    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    top: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Recovered(Table):
    """What a dead process had polled (`top`) and when it was closed (`step`), in whatever order the two come; -1 for
    what is not there yet."""

    process: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    top: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Acknowledged(Table):
    """Offsets [start, end) that `process` was acknowledged, in steps of the domain's clock."""

    process: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    completed: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Listings(Table):
    """Ends that were listed: `at` in log time, invoked in a step of the domain's clock, and `done` in one."""

    at: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)
    step: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)
    done: Ints = field(default_factory=lambda: EMPTY)


class Listing(NamedTuple):
    """One of them, and the highest offset known before it was invoked, -1 for none, and the step since which that was
    known, -1 where nobody can say."""

    at: int
    domain: int
    step: int
    end: int
    known: int
    done: int
    since: int = -1


@dataclass(slots=True)
class KnownEnds:
    """`tops`, `recovered`: what was known; `waiting`: the listings that are not due yet; `held`: what was
    acknowledged to processes of which it is not known yet what they are."""

    held: Acknowledged = field(default_factory=Acknowledged)
    tops: Tops = field(default_factory=Tops)
    recovered: Recovered = field(default_factory=Recovered)
    waiting: Listings = field(default_factory=Listings)


@dataclass(slots=True)
class Clocks:
    """The new rows' times by their own clocks: the boot, and the steps in which they began and ended (-1: the row does
    not say)."""

    domain: Ints
    invoked: Ints
    completed: Ints


def arrive(own: KnownEnds, new: News) -> None:
    """Note what the new rows knew and listed, and tell what is now known to be safely acknowledged."""
    new.safe = _take_in(own, new)


def _take_in(own: KnownEnds, new: News) -> Acknowledged:
    columns = new.columns
    listed = new.where(OFFSETS)
    listed = listed[(columns.log_end[listed] >= 0) & (columns.type[listed] != FAIL)]
    if not len(listed) and not len(new.sent) and not len(new.polled) and not len(own.recovered) and not len(own.held):
        return Acknowledged()
    _bound_listings(own, new)  # not what a step of much brings
    own.tops = bounded(own.tops, own.waiting)
    clock = _clocks(new)
    dead = _of_the_dead(new)
    acknowledged = _safely_acknowledged(own, new, clock, dead)
    _learn(own, new, clock, acknowledged, dead)
    listed = listed[clock.invoked[listed] >= 0]
    if len(listed):
        more = Listings(
            columns.completed[listed],
            clock.domain[listed],
            clock.invoked[listed],
            columns.log_end[listed],
            np.maximum(clock.completed[listed], clock.invoked[listed]),
        )
        own.waiting = concat(own.waiting, more)
    return acknowledged


def _bound_listings(own: KnownEnds, new: News) -> None:
    if len(own.waiting) > LISTINGS_KEPT:
        kept = newest(own.waiting.at, LISTINGS_KEPT, new.state.tick)
        new.report.drop("ends of the log that were listed", len(kept) - int(kept.sum()))
        own.waiting = take(own.waiting, kept)


def fold(own: KnownEnds, passage: Passage) -> None:
    """Tell the listings that can be judged now, in the order of their times; they wait no more."""
    passage.due = _due(own, passage)
    if len(own.waiting):
        passage.early = _early(own, passage.end)


def _early(own: KnownEnds, end: int) -> list[Listing]:
    """By the clocks by which one of them is short already, the listings up to the end that wait for rows."""
    waiting = take(own.waiting, own.waiting.at <= end)
    if not len(waiting):
        return []
    known, _ = known_before(own.tops, waiting.domain, waiting.step)
    short = each(waiting.domain[waiting.end <= known])
    return _in_order(own, take(waiting, among(waiting.domain, short))) if short else []


def _in_order(own: KnownEnds, listings: Listings) -> list[Listing]:
    listings = take(listings, np.lexsort((listings.end, listings.step, listings.domain, listings.at)))
    known, since = known_before(own.tops, listings.domain, listings.step)
    columns = (listings.at, listings.domain, listings.step, listings.end, known, listings.done, since)
    return [Listing(*entry) for entry in zip(*(column.tolist() for column in columns), strict=True)]


def _due(own: KnownEnds, passage: Passage) -> list[Listing]:
    waiting = own.waiting
    ripe = waiting.at <= passage.end
    awaited = passage.gate.told_through() < passage.end  # of anybody: mostly of nobody
    for boot in each(waiting.domain[ripe]) if awaited else ():
        told = passage.gate.told_through(by_the_clock_of(boot))
        ripe &= (waiting.domain != boot) | (waiting.at <= told) | passage.finished
    if not some(ripe):
        return []
    listings, own.waiting = take(waiting, ripe), take(waiting, ~ripe)
    due = _in_order(own, listings)
    for domain in each(listings.domain):
        own.tops = forgotten_before(own.tops, domain, int(listings.step[listings.domain == domain].max()))
    return due


def by_the_clock_of(boot: int) -> Who:
    """Those whose boot it is, and those of which it is not known yet."""
    return Who(lambda number, process: process.boot in (boot, -1))


def _clocks(new: News) -> Clocks:
    """When the new rows began and ended."""
    names, domain, invoked, completed = domains(new.columns)
    size = np.array([STEP * 1000 if name else STEP for name in names], np.int64)[domain]
    return Clocks(
        new.columns.boot, np.where(invoked < 0, -1, invoked // size), np.where(completed < 0, -1, completed // size)
    )


def _safely_acknowledged(own: KnownEnds, new: News, clock: Clocks, dead: Bools) -> Acknowledged:
    """What more than the leader has, as far as is known: without idempotence a write may be acknowledged by its leader
    alone, and lost with it as promised. A process's first row tells which it is."""
    runs, state, completed = _acknowledged(new), new.state, clock.completed
    row = runs.row
    if some(dead):
        completed = np.where(dead, -1, completed)
    found = Acknowledged(
        new.columns.process[row],
        clock.domain[row],
        clock.invoked[row],
        completed[row],
        runs.offset,
        runs.offset + runs.length,
    )
    found = concat(own.held, found)
    writers = each(found.process)
    weak = [n for n in writers if n in state.not_idempotent_processes]
    unknown = [n for n in writers if n in state.processes and not state.processes[n].next]
    if not unknown and not weak:
        own.held = Acknowledged()
        return found
    waits = among(found.process, unknown)
    own.held = new.report.last(take(found, waits), HELD_KEPT, "acknowledgements of writers that are not known yet")
    return take(found, ~waits & ~among(found.process, weak))


def _acknowledged(new: News) -> Runs:
    """What has an offset because its records were acknowledged: in a transaction each is by itself, whatever becomes of
    the transaction, and stands in the log."""
    runs, columns = new.acknowledged, new.columns
    ended_otherwise = (columns.f == TXN) & (columns.type != OK)
    if len(new.sent) != len(runs) and some(ended_otherwise):
        runs = new.sent.take((columns.type[new.sent.row] == OK) | ended_otherwise[new.sent.row])
    return runs.take(runs.offset >= 0)


def _learn(own: KnownEnds, new: News, clock: Clocks, acknowledged: Acknowledged, dead: Bools) -> None:
    """Raise the tops by what the new rows know."""
    polled = new.polled.take(new.polled.offset >= 0)
    if some(dead) or len(own.recovered):
        late = dead[polled.row]
        _wait_for_the_close(own, new, clock, polled.take(late))
        polled = polled.take(~late)
    found = Tops(
        np.concatenate((acknowledged.domain, clock.domain[polled.row])),
        np.concatenate((acknowledged.completed, clock.completed[polled.row])),
        np.concatenate((acknowledged.end, polled.offset + polled.length)) - 1,
    )
    own.tops = raised(own.tops, take(found, found.step >= 0))


def _of_the_dead(new: News) -> Bools:
    """Which new rows recovery wrote."""
    columns = new.columns
    unknown: Bools = new.fresh & (columns.type == INFO)
    if not some(unknown):
        return unknown
    _, _, invoked, completed = domains(columns)
    found: Bools = unknown & (completed <= invoked) & (columns.f != CLOSE)
    found[rows_with(columns, DEAD, unknown)] = True
    return found


def _wait_for_the_close(own: KnownEnds, new: News, clock: Clocks, polled: Runs) -> None:
    columns = new.columns
    closed = indices(_of_the_dead(new) & (columns.f == CLOSE) & (clock.completed >= 0))
    row, end = polled.row, polled.offset + polled.length
    told = Recovered(columns.process[row], clock.domain[row], np.full(len(row), -1), end - 1)
    ends = Recovered(columns.process[closed], clock.domain[closed], clock.completed[closed], np.full(len(closed), -1))
    waiting = concat(concat(own.recovered, told), ends)
    known, left = [], []
    for process, domain in {*zip(waiting.process.tolist(), waiting.domain.tolist(), strict=True)}:
        mine = (waiting.process == process) & (waiting.domain == domain)
        step, top = int(waiting.step[mine].max()), int(waiting.top[mine].max())
        if step >= 0 and top >= 0:
            known.append((domain, step, top))
        if process in new.state.processes:
            left.append((process, domain, step, top))
    own.tops = raised(own.tops, Tops(*np.array(known, np.int64).reshape(-1, 3).T))
    own.recovered = Recovered(*np.array(sorted(left), np.int64).reshape(-1, 4).T)


def raised(tops: Tops, new: Tops) -> Tops:
    """With what is new: of each domain only what is higher than all that was known before it."""
    if not len(new):
        return tops
    both = concat(tops, new)
    both = take(both, np.lexsort((-both.top, both.step, both.domain)))
    keep = np.ones(len(both), bool)
    begins = heads(both.domain).tolist()
    for head, end in zip(begins, [*begins[1:], len(both)], strict=True):
        highest = np.maximum.accumulate(both.top[head:end])
        keep[head + 1 : end] = highest[1:] > highest[:-1]
    return take(both, keep)


def bounded(tops: Tops, waiting: Listings) -> Tops:
    """Of each domain the later half where they are many, and what is asked for by the listings that are `waiting`, for
    minutes where a row is missing: what is higher was known later, and is known all the same."""
    if len(tops) <= STEPS_KEPT:
        return tops
    keep = np.ones(len(tops), bool)
    begins = heads(tops.domain).tolist()
    for head, end in zip(begins, [*begins[1:], len(tops)], strict=True):
        if end - head > STEPS_KEPT:
            keep[head : head + (end - head) // 2] = False
            asked = waiting.step[waiting.domain == tops.domain[head]]
            before = tops.step[head:end].searchsorted(asked, side="left") - 1
            keep[head + before[before >= 0]] = True
    return take(tops, keep)


def known_before(tops: Tops, domain: Ints, step: Ints) -> tuple[Ints, Ints]:
    """The highest offset known before the step began in the domain, and the step since which it was, -1 for none: for
    each of the entries."""
    found, since = np.full(len(step), -1, np.int64), np.full(len(step), -1, np.int64)
    for number in each(domain):
        own, asked = indices(tops.domain == number), domain == number
        if len(own):
            at = tops.step[own].searchsorted(step[asked], side="left") - 1
            last = own[np.maximum(at, 0)]
            found[asked] = np.where(at < 0, -1, tops.top[last])
            since[asked] = np.where(at < 0, -1, tops.step[last])
    return found, since


def forgotten_before(tops: Tops, domain: int, step: int) -> Tops:
    """Only the last one of those that were known in the domain before the step: later questions need no other."""
    old = indices((tops.domain == domain) & (tops.step < step))
    if len(old) < 2:
        return tops
    keep = np.ones(len(tops), bool)
    keep[old[:-1]] = False
    return take(tops, keep)


CHECK: Final = Check("known-ends", KnownEnds, arrive=arrive, fold=fold)
