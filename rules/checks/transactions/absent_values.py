"""Which values of a transaction are absent: a reader passed their place, and nobody polled them.

Part of `transaction_outcomes`. A run may be called absent where a reader in assign mode went over its place while that
lay above the log start (`rules.settling.listings`), once the grace after that is over (`due`) and the log of everybody
who may have polled it is here past that time, without a hole. What no such reader has gone over goes on waiting, and so
does everything while somebody's log may still come.

A run that was acknowledged without an offset lies somewhere between the log end before it was sent and the one after
the next life of its transactional id began, since that life's `init_transactions` ends what an earlier one left open,
and the broker refuses what it sends later (`rules.settling.listed_ends`). It is absent where one stretch of what
readers passed covers all of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import INFO, OK
from rules.arrays.intervals import EMPTY, Bools, Ints, indices
from rules.checks.transactions.transaction_runs import ABSENT, LATE, UNKNOWN, WAITING, Outcomes, Written
from rules.kept.check import Passage
from rules.kept.codec import concat, names, take
from rules.kept.state import NEVER, Spans, State
from rules.settling import listed_ends, passes, transactional_ids
from rules.settling.clocks import ahead
from rules.settling.frontier import TICK
from rules.settling.gate import READERS, Evidence


@dataclass(frozen=True, slots=True)
class Absent:
    """Values [seq, end) of the run in row `row` are absent, as it was known at log time `at`."""

    row: int
    seq: Ints
    end: Ints
    at: int


def find_places(own: Outcomes, state: State, ripe: Bools) -> None:
    """Learn where the runs that were acknowledged without an offset lie, if they lie anywhere."""
    rows = own.written
    for i in indices(ripe & (rows.offset < 0) & (rows.txn >= 0) & (rows.high < 0)).tolist():
        if rows.low[i] < 0:
            rows.low[i] = listed_ends.end_before(state, int(rows.invoked[i]), int(rows.boot[i]))
        over, boot = _over(own, state, i)
        end = listed_ends.end_after(state, over, boot) if over >= 0 else -1
        if end >= 0:
            rows.high[i] = max(int(rows.low[i]), end)


def _over(own: Outcomes, state: State, i: int) -> tuple[int, int]:
    """The time, by the clock of which boot, after which nothing of row `i` is appended any more; -1 while unknown."""
    rows = own.written
    process, boot, name = int(rows.process[i]), int(rows.boot[i]), int(rows.name[i])
    if rows.type[i] != INFO:
        return int(rows.at[i]), boot
    if name < 0:
        return -1, -1
    times = []
    for one in transactional_ids.initialised(state, own.names[name]):
        its = state.boot_names.index(one.boot) if one.boot in state.boot_names else -1
        later = one.invoked - int(rows.invoked[i]) > ahead(state, its, boot)
        if one.process != process and later:
            times.append((one.completed, its))
    # The same process began another transaction of that id: the coordinator had ended this one.
    went_on = (rows.name == name) & (rows.process == process) & (rows.op > rows.op[i]) & (rows.type == OK)
    times += [(at, boot) for at in rows.at[went_on].tolist()]
    return min(times, default=(-1, -1))


def suspect(own: Outcomes, passage: Passage, among: Bools, returned: int) -> None:
    """Readers went over these places, proven at these times: say from when on what lies there may be called absent. The
    first of them counts, whichever is known first. Runs that were passed in part are split. `returned`: so many of the
    last rows have not been asked for in each step."""
    grace, passed, proven = passage.report.objectives.grace, passage.state.passed, passage.proven
    if passage.finished:  # where nobody proves what was above the log start, the last one known counts
        passed = take(passed, passed.end > passage.state.log_start)
        passed.start = np.maximum(passed.start, passage.state.log_start)
    rows = own.written
    wanted = among & ((rows.due < 0) | (np.arange(len(rows)) >= len(rows) - returned)) & (rows.high >= 0)
    known = passes.by_time(passage.state, passed, rows.low[wanted], rows.high[wanted])
    wanted = among & _is_later(rows, int(proven.at.min(initial=NEVER)), grace)
    places = intervals.merge(rows.low[wanted], rows.high[wanted])
    concerned = intervals.touched(*places, proven.start, proven.end)
    new = [(at, take(proven, proven.at == at)) for at in intervals.each(proven.at[concerned])]
    every: list[tuple[int, passes.Timed]] = [*known, *new]
    for at, went in every:
        among = np.append(among, np.ones(len(own.written) - len(among), bool))
        _stamp(own, passage.state, among, went, at, grace)
    _stamp_unplaced(own, passage, grace)


def _is_later(rows: Written, at: int, grace: int, of: Ints | None = None) -> Bools:
    """Which (`of` these) may be called absent only later than if they had been passed by `at`, as far as is known."""
    columns = rows.due, rows.at, rows.fate, rows.high
    due, ended, fate, high = columns if of is None else (column[of] for column in columns)
    later: Bools = (due > np.maximum(ended, at) + grace) & (fate == WAITING)
    return (high >= 0) & ((due < 0) | later)


def _stamp(own: Outcomes, state: State, among: Bools, went: passes.Timed, at: int, grace: int) -> None:
    if not len(went.start):
        return
    rows, given_again = own.written, state.given_again
    # Each tick went over a small part of what many ticks have brought: of the others nothing more is asked.
    placed = indices(among & (rows.offset >= 0) & (rows.low < went.end.max()) & (rows.high > went.start.min()))
    placed = placed[_is_later(rows, at, grace, placed)]
    if not len(placed):
        return
    again = intervals.touched(given_again.start, given_again.end, rows.low[placed], rows.high[placed])
    again |= rows.shown[placed] == LATE
    _stamp_over(own, placed[~again], Spans(*intervals.merge(went.start, went.end)), at, grace)
    for i in placed[again].tolist():  # where offsets were given again, or a hole was filled, what came after counts
        rows, one = own.written, np.array([i])
        place, sent = (int(rows.low[i]), int(rows.high[i])), (int(rows.invoked[i]), int(rows.boot[i]))
        filled, by = bool(rows.shown[i] == LATE), at
        if filled:  # `at` may be when the first went over the hole
            there = (went.start < place[1]) & (went.end > place[0])
            by = max(at, -(-int(went.until[there].max(initial=-1)) // TICK) * TICK)
        _stamp_over(own, one, passes.over(state, went, place, sent, filled=filled), by, grace)


def _stamp_over(own: Outcomes, placed: Ints, spans: Spans, at: int, grace: int) -> None:
    rows = own.written
    low, high = rows.low[placed], rows.high[placed]
    inside = intervals.contained(spans.start, spans.end, low, high)
    whole = placed[inside]
    rows.due[whole] = np.maximum(rows.at[whole], at) + grace
    part = placed[~inside & intervals.touched(spans.start, spans.end, low, high)]
    for i in part.tolist():
        low, high = rows.low[i : i + 1], rows.high[i : i + 1]
        within = intervals.intersect(low, high, spans.start, spans.end)
        outside = intervals.subtract(low, high, *within)
        over, rest = _pieces(rows, i, *within), _pieces(rows, i, *outside)
        over.due[:] = max(int(rows.at[i]), at) + grace
        own.written = concat(concat(own.written, take(over, slice(1, None))), rest)
        for name in names(Written):  # the first piece takes the row's place
            getattr(own.written, name)[i] = getattr(over, name)[0]
        rows = own.written


def _stamp_unplaced(own: Outcomes, passage: Passage, grace: int) -> None:
    rows, passed, proven = own.written, passage.state.passed, passage.proven
    waiting = (rows.offset < 0) & (rows.txn >= 0) & (rows.high >= 0) & (rows.due < 0)
    given_again = passage.state.given_again
    again = intervals.touched(given_again.start, given_again.end, rows.low, rows.high)
    rows.due[waiting & (rows.low >= rows.high)] = 0  # the log did not grow while it could be appended: it is nowhere
    for i in indices(waiting & (rows.low < rows.high)).tolist():
        low, high = rows.low[i : i + 1], rows.high[i : i + 1]
        place, sent = (int(low[0]), int(high[0])), (int(rows.invoked[i]), int(rows.boot[i]))
        new = [(at, take(proven, proven.at == at)) for at in intervals.each(proven.at)]
        known: list[tuple[int, passes.Timed]] = [*passes.by_time(passage.state, passed, low, high), *new]
        start, end = EMPTY, EMPTY
        for at, went in sorted(known, key=lambda one: one[0]):
            # What was passed before it was sent holds something else, unless the log was cut meanwhile.
            over = passes.over(passage.state, went, place, sent) if again[i] else went
            start, end = np.append(start, over.start), np.append(end, over.end)
            if intervals.contained(*intervals.merge(start, end), low, high)[0]:
                rows.due[i] = max(int(rows.at[i]), at) + grace
                break


def _pieces(rows: Written, i: int, start: Ints, end: Ints) -> Written:
    """The parts of row `i` that stand at these offsets."""
    pieces = take(rows, np.full(len(start), i))
    pieces.seq += start - pieces.offset
    pieces.offset, pieces.length = start, end - start
    pieces.low, pieces.high = start.copy(), end.copy()
    return pieces


def judge(own: Outcomes, passage: Passage, among: Bools, touched: Bools) -> tuple[Ints, list[Absent]]:
    """What is absent of these rows, as the rows of which that is all, and what it is of the others. Sets their `fate`.
    `touched`: of which rows anything was polled."""
    rows, gate, state = own.written, passage.gate, passage.state
    retained = among & (rows.due < 0) & (rows.high >= 0) & (rows.high <= state.log_start)
    rows.fate[retained & (rows.fate == WAITING)] = UNKNOWN
    due = indices(among & (rows.due >= 0) & (rows.due <= passage.end) & (rows.fate == WAITING))
    complete = np.zeros(len(due), bool)
    for boot in intervals.each(rows.boot[due]):
        its = due[rows.boot[due] == boot]
        complete[rows.boot[due] == boot] = gate.complete(rows.invoked[its], rows.due[its], READERS, boot)
    for i in due[~complete].tolist():
        if gate.ask(int(rows.invoked[i]), int(rows.due[i]), READERS, int(rows.boot[i])) is Evidence.UNVERIFIABLE:
            rows.fate[i] = UNKNOWN
    absent = due[complete]
    rows.fate[absent] = ABSENT
    # Where the whole transaction is here, nothing of it was seen, and it was not indefinite, nobody asks.
    asked = (rows.alone[absent] == 0) | (rows.shown[absent] != 0) | (rows.type[absent] == INFO)
    asked &= rows.offset[absent] >= 0
    of, partly = absent[asked], touched[absent[asked]]
    found = []
    for i, at in zip(of[partly].tolist(), known_at(rows, of[partly], passage).tolist(), strict=True):
        writer, low, high = int(rows.writer[i]), int(rows.seq[i]), int(rows.seq[i] + rows.length[i])
        lost = passage.chunks.lacking("polled", (np.array([writer]), np.array([low]), np.array([high])))
        if len(lost[0]):
            found.append(Absent(i, lost[1], lost[2], at))
    return of[~partly], found


def known_at(rows: Written, of: Ints, passage: Passage) -> Ints:
    """As of which log time it is known that values `of` these rows are absent."""
    if passage.finished:
        return np.full(len(of), passage.at[-1])
    return -(-rows.due[of] // TICK) * TICK


def all_of(rows: Written, of: Ints, passage: Passage) -> Iterator[Absent]:
    """These rows, of which everything is absent."""
    for i, at in zip(of.tolist(), known_at(rows, of, passage).tolist(), strict=True):
        yield Absent(i, rows.seq[i : i + 1], rows.seq[i : i + 1] + rows.length[i], at)
