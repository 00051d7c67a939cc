"""Which values of a transaction are absent: a reader passed their place, and nobody polled them.

Part of `rules.checks.transaction_outcomes`. A run's place is settled at some tick of log time (`due`); the first
listing of the log start after it says whether retention may have taken the run before it was read. Then its values are
absent where a reader in assign mode passed them and no ok operation polled them until then, once everybody's log is
complete from the transaction's first request to that listing (`rules.settling.gate`). What no such reader has passed
goes on waiting, and so does everything while somebody's log may still come.

A run that was acknowledged without an offset lies somewhere between the log end before it was sent and the one after
the next life of its transactional id began, since that life's `init_transactions` ends what an earlier one left open,
and the broker refuses what it sends later (`rules.settling.log_ends`). It is absent where one stretch of passes covers
all of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, INFO, OK
from rules.arrays.intervals import Bools, Ints
from rules.checks.losses import split_by_time
from rules.checks.transaction_runs import ABSENT, UNKNOWN, WAITING, Outcomes, Written
from rules.kept.check import Passage
from rules.kept.chunks import values
from rules.kept.codec import concat, take
from rules.settling import log_ends, transactional_ids
from rules.settling.gate import Evidence, reading


@dataclass(frozen=True, slots=True)
class Absent:
    """Values [seq, end) of the run in row `row` are absent, as it was known at log time `at`."""

    row: int
    seq: Ints
    end: Ints
    at: int


def find_places(own: Outcomes, passage: Passage, ripe: Bools) -> None:
    """Learn where the runs that were acknowledged without an offset lie, if they lie anywhere."""
    rows, state, grace = own.written, passage.state, passage.report.objectives.grace
    for i in np.flatnonzero(ripe & (rows.offset < 0) & (rows.txn >= 0) & ((rows.low < 0) | (rows.high < 0))).tolist():
        if rows.low[i] < 0:
            rows.low[i] = log_ends.end_before(state, int(rows.invoked[i]) - grace)
        over = _over(own, passage, i)
        end = log_ends.end_after(state, over + grace) if over >= 0 else -1
        if end >= 0:
            rows.high[i] = max(int(rows.low[i]), end)


def _over(own: Outcomes, passage: Passage, i: int) -> int:
    """The log time after which nothing of row `i` is appended any more, -1 while that is unknown."""
    rows = own.written
    process, op, name = int(rows.process[i]), int(rows.op[i]), int(rows.name[i])
    if rows.type[i] != INFO:
        return int(rows.at[i])
    if name < 0:
        return -1
    calls = transactional_ids.initialised(passage.state, own.names[name])
    times = [one.completed for one in calls if one.invoked > rows.invoked[i] and one.process != process]
    # The same process began another transaction of that id: the coordinator had ended this one.
    went_on = (rows.name == name) & (rows.process == process) & (rows.op > op) & (rows.type == OK)
    times += rows.at[went_on].tolist()
    return min(times, default=-1)


def note_settled(own: Outcomes, passage: Passage, ripe: Bools) -> None:
    """Learn at which tick the places of the waiting runs were settled."""
    rows, advance = own.written, passage.advance
    settled = ripe & (rows.high >= 0) & (rows.due < 0)
    if advance is None:
        rows.due[settled] = passage.at[-1]
        return
    settled &= rows.high <= passage.state.settled
    new = np.flatnonzero(settled)
    index = np.minimum(np.searchsorted(advance.settled, rows.high[new] - 1, side="right"), len(advance.at) - 1)
    tick = np.where(rows.high[new] <= advance.before, -1, advance.at[index])
    rows.due[new] = np.maximum(rows.at[new], tick)


def shown_late(own: Outcomes, passage: Passage) -> Bools:
    """The runs of which a value was polled after its offset was settled, and before it could be called absent."""
    rows = own.written
    found = np.zeros(len(rows), bool)
    if passage.advance is None or not len(passage.polls):
        return found
    _, late = split_by_time(passage.polls, passage.advance)
    mine = np.flatnonzero(np.isin(rows.writer, late.writer) & (rows.due >= 0)) if len(late) else intervals.EMPTY
    when, _ = listed_after(passage, rows)
    for i in mine.tolist():
        hit = (late.writer == rows.writer[i]) & (late.seq < rows.seq[i] + rows.length[i])
        hit &= rows.seq[i] < late.seq + late.length
        found[i] = bool((hit & ((late.at <= when[i]) | (when[i] < 0))).any())
    return found


def judge(own: Outcomes, passage: Passage, candidates: Bools) -> list[Absent]:
    """What is absent of the candidates. Sets the rows' `fate`, and splits those that were passed in part."""
    rows = own.written
    when, start = listed_after(passage, rows)
    state = passage.state
    asked = candidates & (rows.due >= 0) & (when >= 0) & (rows.fate == WAITING)
    start = np.maximum(start, rows.low)
    nowhere = asked & (rows.offset < 0) & (rows.low >= rows.high)  # the log did not grow while it could be appended
    rows.fate[nowhere] = ABSENT
    below = asked & ~nowhere & (start >= rows.high)
    rows.fate[below] = UNKNOWN
    asked &= ~below & ~nowhere & intervals.touched(state.passed.start, state.passed.end, start, rows.high)
    chosen = np.flatnonzero(asked)
    if not len(chosen):
        return []
    whole = passage.gate.ask(int(rows.invoked[chosen].min()), int(when[chosen].max()), reading)
    found: list[Absent] = []
    rest: list[Written] = []
    for i in chosen.tolist():
        at = int(when[i])
        evidence = whole
        if whole is not Evidence.COMPLETE:
            evidence = passage.gate.ask(int(rows.invoked[i]), at, reading)
        if evidence is Evidence.UNVERIFIABLE:
            rows.fate[i] = UNKNOWN
        if evidence is not Evidence.COMPLETE:
            continue
        one = (_placed if rows.offset[i] >= 0 else _unplaced)(rows, passage, i, int(start[i]), at, rest)
        if one is not None:
            found.append(one)
    for piece in rest:
        own.written = concat(own.written, piece)
    return found


def listed_after(passage: Passage, rows: Written) -> tuple[Ints, Ints]:
    """For each row the time of the first listing of the log start after it was settled, and the log start as it was
    known then; -1 where none has come."""
    moves, before = passage.moves, passage.log_start_before
    if passage.finished:
        return np.full(len(rows), int(passage.at[-1])), np.full(len(rows), passage.state.log_start)
    seen = np.flatnonzero(moves.low >= 0)
    if not len(seen):
        return np.full(len(rows), -1, np.int64), np.full(len(rows), before, np.int64)
    times, lows = moves.at[seen], np.maximum(np.maximum.accumulate(moves.low[seen]), before)
    index = np.searchsorted(times, rows.due, side="right")
    there = np.minimum(index, len(seen) - 1)
    return np.where(index < len(seen), times[there], -1), lows[there]


def _placed(rows: Written, passage: Passage, i: int, start: int, at: int, rest: list[Written]) -> Absent | None:
    """What is absent of a run at known offsets, of which [start, high) is above the log start."""
    passed, high, shift = passage.state.passed, int(rows.high[i]), int(rows.seq[i] - rows.offset[i])
    whole = np.array([start]), np.array([high])
    covered = intervals.intersect(*whole, passed.start, passed.end)
    open_start, open_end = intervals.subtract(*whole, *covered)
    rows.fate[i] = ABSENT
    for a, b in zip(open_start.tolist(), open_end.tolist(), strict=True):
        rest.append(_piece(rows, i, a, b, at))
    lost = _unpolled(rows, passage, i, covered[0] + shift, covered[1] + shift, at)
    return Absent(i, *lost, at) if len(lost[0]) else None


def _unplaced(rows: Written, passage: Passage, i: int, start: int, at: int, rest: list[Written]) -> Absent | None:
    """A run at an unknown offset of [start, high) is absent as a whole, or waits."""
    passed, low, high = passage.state.passed, np.array([start]), rows.high[i : i + 1]
    if not intervals.contained(passed.start, passed.end, low, high)[0]:
        rows.due[i] = at
        return None
    seq, end = rows.seq[i : i + 1], rows.seq[i : i + 1] + rows.length[i : i + 1]
    lost = _unpolled(rows, passage, i, seq, end, at)
    rows.fate[i] = ABSENT
    return Absent(i, *lost, at)


def _piece(rows: Written, i: int, start: int, end: int, due: int) -> Written:
    """The part of row `i` that stands at these offsets, waiting for another listing."""
    piece = take(rows, slice(i, i + 1))
    piece = type(piece)(*[getattr(piece, name).copy() for name in piece.__slots__])
    piece.seq[0] += start - rows.offset[i]
    piece.offset[0] = piece.low[0] = start
    piece.length[0] = end - start
    piece.high[0], piece.due[0], piece.fate[0] = end, due, WAITING
    return piece


def _unpolled(rows: Written, passage: Passage, i: int, start: Ints, end: Ints, at: int) -> tuple[Ints, Ints]:
    """Of these values of row `i`'s writer, those that no ok operation polled up to log time `at`."""
    writer, polls = int(rows.writer[i]), passage.polls
    lost = passage.chunks.lacking("polled", (np.full(len(start), writer, np.int64), start, end))
    late = (polls.writer == writer) & (polls.at <= at)
    if late.any():
        of_late = values(polls.writer[late], polls.seq[late], polls.length[late])
        lost = intervals.subtract_grouped(lost, of_late)
    return lost[1], lost[2]


def below_log_start(rows: Written, log_start: int) -> Bools:
    """Runs of certain outcome that retention has taken."""
    return (rows.type <= FAIL) & (rows.high >= 0) & (rows.high <= log_start)
