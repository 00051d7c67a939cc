"""`stuck-consumer`: a reader has not moved for the liveness objective, and there is more to read, or nobody can see.

A reader that polled records, of any outcome, moved. One that did not is stuck in three cases, each counted from when
it moved last:

- *known*: the log is known to hold a value at or past its position, acknowledged or polled by somebody, and below what
  it may read: the last stable offset for read_committed, the log end for read_uncommitted. Transaction markers, aborted
  records and what lies below the log start are no such values.
- *stands*: it logs its own position, which runs past markers and aborted records, and a `position` row says that it
  still stands there a liveness objective after what it may read had gone past it.
- *blind*: for that long no watermark could be read either, although somebody asked: a consumer polls a dead cluster
  without a word.

Where a reader began is not logged. Until it has polled, it counts as standing at the highest offset known when it took
the partition: what is acknowledged later lies ahead of it. Processes that write transactions are left out: their polls
wait for their transactions, and what they wait for shows in `stuck-producer`.

All of it is judged tick by tick in log time, so that a condition that opens and closes inside one catch-up batch is
reported as it would have been live. State: nine numbers a reader that holds the partition.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from itertools import pairwise
from typing import Final

import numpy as np

from rules.arrays.columns import OFFSETS, OK, POLL, POSITION, TXN
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling.frontier import FOREVER, forgets
from rules.vocabulary.objectives import Objectives

NAME: Final = "stuck-consumer"
READERS: Final = "readers"
SIGHT: Final = "sight"
TRANSACTING: Final = "transacting"


@dataclass(slots=True)
class Reader:
    """One that holds the partition. Times are -1 where unknown: `known`: since when the value `ahead` is readable;
    `passed`: since when what it may read is past its position; `confirmed`: since when a position row proves it."""

    process: int
    position: int
    own: int  # 1: `position` is what it said itself, and not merely where the log ended when it began
    uncommitted: int
    moved: int
    known: int = -1
    ahead: int = -1
    passed: int = -1
    confirmed: int = -1


@dataclass(slots=True)
class Sight:
    """What the observers saw: when a watermark was read last, what it said, and since when none could be."""

    at: int = -1
    stable: int = -1
    end: int = -1
    blind: int = -1


@dataclass(slots=True)
class _Watermarks:
    """The watermarks of this step and the last before it, and the times during which nobody saw any."""

    at: Ints
    stable: Ints  # highest so far
    end: Ints
    gaps: list[tuple[int, int]]  # (last seen, seen again), FOREVER for not yet
    low_at: Ints
    low: Ints  # the log start, highest so far

    def gone(self, offset: int) -> tuple[int, int]:
        """When the log start had gone past this offset, and to where; FOREVER if it has not."""
        index = int(np.searchsorted(self.low, offset, side="right"))
        return (int(self.low_at[index]), int(self.low[index])) if index < len(self.low) else (FOREVER, -1)

    def end_after(self, time: int) -> int:
        """The log's end as observed first from this time on, -1 while it has not been."""
        index = int(np.searchsorted(self.at, time))
        return int(self.end[index]) if index < len(self.at) else -1

    def past(self, offset: int, uncommitted: int) -> int:
        """When what can be read had gone past this offset; -1 if it has not."""
        values = self.end if uncommitted else self.stable
        index = int(np.searchsorted(values, offset, side="right"))
        return int(self.at[index]) if index < len(values) else -1


@dataclass(slots=True)
class _Steps:
    """What readers did, by process: the columns of `Moves` that matter here."""

    process: Ints
    f: Ints
    type: Ints
    at: Ints
    assigned: Ints
    last: Ints
    known: Ints
    after: Ints

    @classmethod
    def of(cls, moves: Moves, rows: Ints) -> _Steps:
        return cls(*(getattr(moves, column.name)[rows] for column in fields(cls)))


@dataclass(slots=True)
class _Held:
    """When one reader was stuck, and why: (from, until, evidence)."""

    spells: list[tuple[int, int, dict[str, object]]] = field(default_factory=list)


def follow_readers(state: State, at: Ints, moves: Moves, objectives: Objectives, report: Report) -> None:
    """Go through the ticks `at` with the moves up to the last of them, in canonical order (time, process, slice)."""
    seen = _look(state, moves)
    end, limit = int(at[-1]), objectives.liveness
    readers = {entry[0]: Reader(*entry) for entry in state.notes.get(READERS, [])}
    rows = np.flatnonzero(moves.f != OFFSETS)
    own = _Steps.of(moves, rows[np.argsort(moves.process[rows], kind="stable")])
    heads = np.flatnonzero(np.diff(own.process, prepend=-1))
    ends = np.append(heads, len(own.at))[1:]
    bounds = {int(own.process[a]): (a, b) for a, b in zip(heads.tolist(), ends.tolist(), strict=True)}
    transacting = set(state.notes.get(TRANSACTING, []))
    polled = (own.f == POLL) | (own.f == TXN)
    plain = bool(polled.all())
    dropped = np.zeros(len(polled), bool) if plain else forgets(own)
    for process in sorted({*readers, *bounds}):
        a, b = bounds.get(process, (0, 0))
        if process in transacting or (process not in state.processes and not b - a):
            readers.pop(process, None)
            _tell(state, process, at, _Held(), report)
            continue
        reader, held = readers.pop(process, None), _Held()
        i = a
        while i < b:
            j = _brisk(reader, own, polled, i, b, limit) if reader is not None else i
            if reader is not None and j > i:
                if f"{NAME}:{process}" in state.open_conditions:
                    _weigh(state, reader, int(own.at[i]), seen, limit, held)
                _go_on(reader, own, i, j)
                i = j
            else:
                reader = _next(state, reader, own, i, bool(dropped[i]), bool(polled[i]), seen, limit, held)
                i += 1
        if reader is not None:
            _weigh(state, reader, FOREVER, seen, limit, held)
            readers[process] = reader
        _tell(state, process, at, held, report)
    state.notes[READERS] = [list(astuple(r)) for r in readers.values() if r.process in state.processes]
    for key in [k for k in state.open_conditions if k.startswith(NAME)]:
        number = int(key.partition(":")[2])
        if number not in readers:
            report.condition(NAME, False, "", at=end, evidence={"process": number}, subject=(number,))


def _brisk(reader: Reader, own: _Steps, polled: Bools, i: int, b: int, limit: int) -> int:
    """Where the polls end, from the i-th move on, between which it never paused for as long as the objective."""
    pauses = np.diff(own.at[i:b], prepend=reader.moved) >= limit
    ends = np.flatnonzero(~polled[i:b] | pauses)
    return i + int(ends[0]) if len(ends) else b


def _go_on(reader: Reader, own: _Steps, a: int, b: int) -> None:
    """Many polls without a pause: only where they end counts."""
    good = np.flatnonzero((own.type[a:b] == OK) & (np.maximum(own.after[a:b], own.last[a:b]) >= 0))
    reader.moved = int(own.at[b - 1])
    reader.known = reader.passed = reader.confirmed = -1
    if len(good):
        i = a + int(good[-1])
        reader.position, reader.own = _position(own, i), 1
        reader.uncommitted = int(own.known[i]) >> 2


def _position(own: _Steps, i: int) -> int:
    return int(own.after[i]) if own.after[i] >= 0 else int(own.last[i]) + 1


def _next(
    state: State, reader: Reader | None, own: _Steps, i: int, dropped: bool, polled: bool, seen: _Watermarks,
    limit: int, held: _Held,
) -> Reader | None:  # fmt: skip
    """One move. Returns where the reader is after it, None where it does not hold the partition."""
    time, process = int(own.at[i]), int(own.process[i])
    if dropped:
        if reader is not None:
            _weigh(state, reader, time, seen, limit, held)
        return None
    uncommitted = int(own.known[i]) >> 2
    if own.f[i] == POSITION:
        if reader is None or own.after[i] != reader.position or not reader.own:
            if reader is not None:
                _weigh(state, reader, time, seen, limit, held)
            return Reader(process, int(own.after[i]), 1, uncommitted, time)
        _weigh(state, reader, time, seen, limit, held, confirmed=True)
        return reader
    if polled:
        if reader is not None:
            _weigh(state, reader, time, seen, limit, held)
        if own.type[i] == OK:
            return Reader(process, _position(own, i), 1, uncommitted, time)
        if reader is None:
            return None
        return Reader(process, reader.position, reader.own, uncommitted, time)
    if reader is None and own.assigned[i] == 1:
        return Reader(process, -1, 0, uncommitted, time)
    return reader


def _weigh(
    state: State, reader: Reader, until: int, seen: _Watermarks, limit: int, held: _Held, *, confirmed: bool = False
) -> None:
    """Note since when the reader, which has not moved until then, is stuck. `confirmed`: it said so at that time."""
    evidence = {"process": reader.process, "position": reader.position, "moved": reader.moved}
    if reader.position < 0:
        reader.position = seen.end_after(reader.moved)
    if reader.position >= 0 and not confirmed:
        _weigh_known(state, reader, until, seen, limit, held)
    if reader.own:
        if reader.passed < 0:
            since = seen.past(max(reader.position, state.log_start), reader.uncommitted)
            reader.passed = max(since, reader.moved) if since >= 0 else -1
        if confirmed and reader.passed >= 0 and reader.confirmed < 0 and until - reader.passed >= limit:
            reader.confirmed = until
    if confirmed:
        return
    if reader.confirmed >= 0:
        held.spells.append((reader.confirmed, until, {**evidence, "why": "stands"}))
    for lost, back in seen.gaps:
        held.spells.append((max(lost, reader.moved) + limit, min(until, back), {**evidence, "why": "blind"}))


def _weigh_known(state: State, reader: Reader, until: int, seen: _Watermarks, limit: int, held: _Held) -> None:
    """A known value ahead proves it, until the log start goes past that value; then the next one may."""
    floor = max(reader.position, state.log_start)
    while True:
        if reader.known < 0 or reader.ahead < floor:
            reader.known, index = -1, state.index
            i = int(np.searchsorted(index.end, floor, side="right"))
            if i == len(index.end):
                return
            ahead = max(floor, int(index.start[i]))
            since = seen.past(ahead, reader.uncommitted)
            if since < 0:
                return
            reader.known, reader.ahead = max(since, reader.moved), ahead
        gone, start = seen.gone(reader.ahead)
        evidence = {"process": reader.process, "position": reader.position, "moved": reader.moved, "why": "known"}
        held.spells.append((reader.known + limit, min(until, gone), {**evidence, "readable": reader.ahead}))
        if gone >= until:
            return
        floor = start


def _tell(state: State, process: int, at: Ints, held: _Held, report: Report) -> None:
    """Open and close the reader's condition at the ticks at which it changes."""
    was = f"{NAME}:{process}" in state.open_conditions
    spells = [s for s in held.spells if s[0] < s[1] and s[0] <= at[-1]]
    if not spells and not was:
        return
    holds: Bools = np.zeros(len(at), bool)
    bounds = [(int(np.searchsorted(at, s[0])), int(np.searchsorted(at, s[1])), s) for s in spells]
    for first, last, _ in bounds:
        holds[first:last] = True
    for t in np.flatnonzero(np.diff(holds, prepend=was)).tolist():
        spell = next((s for first, last, s in bounds if first <= t < last), None)
        evidence = dict(spell[2]) if spell else {"process": process}
        report.condition(
            NAME,
            bool(holds[t]),
            f"process {process} has not moved from offset {evidence.get('position')}"
            + (", and no watermark can be read" if evidence.get("why") == "blind" else ", and there is more to read"),
            at=int(at[t]),
            since=spell[0] if spell else None,
            evidence=evidence,
            subject=(process,),
        )


def _look(state: State, moves: Moves) -> _Watermarks:
    """Take in the observers' rows: watermarks as steps in time, and spells without any."""
    before = Sight(*state.notes.get(SIGHT, []))
    rows = np.flatnonzero(moves.f == OFFSETS)
    seeing = (moves.stable[rows] >= 0) | (moves.end[rows] >= 0)
    some = rows[seeing]
    blind = moves.at[rows[~seeing]]
    times = moves.at[some]
    gaps: list[tuple[int, int]] = []
    after = Sight(before.at, before.stable, before.end, before.blind)
    if len(blind) or before.blind >= 0:
        edges = [before.at, *times.tolist(), FOREVER]
        for left, right in pairwise(edges):
            inside = blind[(blind > left) & (blind <= right)]
            first = int(inside[0]) if len(inside) else before.blind if left == before.at else -1
            if first >= 0:
                gaps.append((left if left >= 0 else first, right))
            after.blind = first
    if len(some):
        after.at = int(times[-1])
        after.stable = max(before.stable, int(moves.stable[some].max()))
        after.end = max(before.end, int(moves.end[some].max()))
    state.notes[SIGHT] = list(astuple(after))
    lows = rows[moves.low[rows] >= 0]
    old = EMPTY if before.at < 0 else np.array([before.at], np.int64)
    return _Watermarks(
        np.concatenate((old, times)),
        np.maximum.accumulate(np.concatenate((old * 0 + before.stable, moves.stable[some]))),
        np.maximum.accumulate(np.concatenate((old * 0 + before.end, moves.end[some]))),
        gaps,
        moves.at[lows],
        np.maximum.accumulate(moves.low[lows]),
    )
