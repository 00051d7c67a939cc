"""The highest offset that was known of a partition, and since when: what was acknowledged, or polled.

"Since when" is a time of one clock domain (`rules.settling.clocks.domains`), in steps of `STEP`: of what completed
within one of them, none counts before its end. A domain is a boot, a number of `State.boot_names`, -1 for none.

A row that recovery wrote for a process that died has no time at which it ended: it completes when it was invoked, as
far as its row tells, and may have polled long after. What it polled is known from when the process was closed, if that
was on the same boot, and else never. Whatever says `process-died` or `host-lost`, or completes as it is invoked without
an outcome, is such a row.

State: `Tops`, at most `STEPS_KEPT` of each domain; `Recovered`, dead processes that are not forgotten yet, at most
`RECOVERED_KEPT`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rules.arrays.columns import CLOSE, INFO, Runs
from rules.arrays.intervals import EMPTY, Bools, Ints, distinct
from rules.checks.sequence_loss import rows_with
from rules.kept.check import News
from rules.kept.codec import Table, concat, take
from rules.settling.clocks import domains

STEP: Final = 50_000
"""Microseconds; in nanoseconds a thousand times as many."""
STEPS_KEPT: Final = 4096
RECOVERED_KEPT: Final = 64
DEAD: Final = ("process-died", "host-lost")
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
class Clocks:
    """The new rows' times by their own clocks: the boot, and the steps in which they began and ended (-1: the row does
    not say)."""

    domain: Ints
    invoked: Ints
    completed: Ints


def clocks(new: News) -> Clocks:
    """When the new rows began and ended."""
    names, domain, invoked, completed = domains(new.columns)
    size = np.array([STEP * 1000 if name else STEP for name in names], np.int64)[domain]
    return Clocks(
        new.columns.boot, np.where(invoked < 0, -1, invoked // size), np.where(completed < 0, -1, completed // size)
    )


def safely_acknowledged(new: News) -> Runs:
    """The new runs that were acknowledged with an offset by more than their leader, as far as is known.

    Without idempotence a write may be acknowledged by its leader alone, and lost with it as promised. Of a process
    whose first row is not here it is not known yet what it is."""
    runs = new.acknowledged
    runs = runs.take(runs.offset >= 0)
    writer, state = new.columns.process[runs.row], new.state
    begun = [n for n in distinct(writer).tolist() if n in state.processes and state.processes[n].next]
    return runs.take(np.isin(writer, begun) & ~np.isin(writer, state.not_idempotent_processes))


def learn(tops: Tops, recovered: Recovered, new: News, clock: Clocks, acknowledged: Runs) -> tuple[Tops, Recovered]:
    """Both with what the new rows know; `acknowledged` as above."""
    polled = new.polled.take(new.polled.offset >= 0)
    dead = _of_the_dead(new)
    if dead.any() or len(recovered):
        late = dead[polled.row]
        tops, recovered = _wait_for_the_close(tops, recovered, new, clock, polled.take(late))
        polled = polled.take(~late)
    row = np.concatenate((acknowledged.row, polled.row))
    top = np.concatenate((acknowledged.offset + acknowledged.length, polled.offset + polled.length)) - 1
    timed = clock.completed[row] >= 0
    row, top = row[timed], top[timed]
    return raised(tops, Tops(clock.domain[row], clock.completed[row], top)), recovered


def _of_the_dead(new: News) -> Bools:
    """Which new rows recovery wrote."""
    columns = new.columns
    unknown: Bools = new.fresh & (columns.type == INFO)
    if not unknown.any():
        return unknown
    _, _, invoked, completed = domains(columns)
    found: Bools = unknown & (completed <= invoked) & (columns.f != CLOSE)
    found[rows_with(columns, DEAD, unknown)] = True
    return found


def _wait_for_the_close(
    tops: Tops, recovered: Recovered, new: News, clock: Clocks, polled: Runs
) -> tuple[Tops, Recovered]:
    columns = new.columns
    closed = np.flatnonzero(_of_the_dead(new) & (columns.f == CLOSE) & (clock.completed >= 0))
    told = Recovered(
        columns.process[polled.row],
        clock.domain[polled.row],
        np.full(len(polled), -1),
        polled.offset + polled.length - 1,
    )
    ends = Recovered(columns.process[closed], clock.domain[closed], clock.completed[closed], np.full(len(closed), -1))
    waiting = concat(concat(recovered, told), ends)
    known, left = [], []
    for process, domain in {*zip(waiting.process.tolist(), waiting.domain.tolist(), strict=True)}:
        own = (waiting.process == process) & (waiting.domain == domain)
        step, top = int(waiting.step[own].max()), int(waiting.top[own].max())
        if step >= 0 and top >= 0:
            known.append((domain, step, top))
        if process in new.state.processes:
            left.append((process, domain, step, top))
    found = Tops(*np.array(known, np.int64).reshape(-1, 3).T)
    return raised(tops, found), Recovered(*np.array(sorted(left)[-RECOVERED_KEPT:], np.int64).reshape(-1, 4).T)


def raised(tops: Tops, new: Tops) -> Tops:
    """With what is new: of each domain only what is higher than all that was known before it."""
    if not len(new):
        return tops
    both = concat(tops, new)
    order = np.lexsort((-both.top, both.step, both.domain))
    both = take(both, order)
    keep = np.ones(len(both), bool)
    heads = np.flatnonzero(np.diff(both.domain, prepend=-2))
    for head, end in zip(heads.tolist(), [*heads[1:].tolist(), len(both)], strict=True):
        highest = np.maximum.accumulate(both.top[head:end])
        keep[head + 1 : end] = highest[1:] > highest[:-1]
        if np.count_nonzero(keep[head:end]) > STEPS_KEPT:
            kept = head + np.flatnonzero(keep[head:end])
            keep[kept[: len(kept) // 2]] = False  # what is higher was known later, and is known all the same
    return take(both, keep)


def known_before(tops: Tops, domain: Ints, step: Ints) -> Ints:
    """The highest offset known before the step began in the domain, -1 for none: for each of the entries."""
    found = np.full(len(step), -1, np.int64)
    for number in distinct(domain).tolist():
        own, asked = tops.domain == number, domain == number
        at = np.searchsorted(tops.step[own], step[asked], side="left") - 1
        if own.any():
            found[asked] = np.where(at < 0, -1, tops.top[own][np.maximum(at, 0)])
    return found


def forgotten_before(tops: Tops, domain: int, step: int) -> Tops:
    """Only the last one of those that were known in the domain before the step: later questions need no other."""
    old = np.flatnonzero((tops.domain == domain) & (tops.step < step))
    if len(old) < 2:
        return tops
    keep = np.ones(len(tops), bool)
    keep[old[:-1]] = False
    return take(tops, keep)
