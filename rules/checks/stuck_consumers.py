"""`stuck-consumer`: a reader has not moved for the liveness objective, and there is more to read, or nobody can see.

A reader that polled records, of any outcome, moved. One that did not is stuck in three cases, each counted from when
it moved last:

- *known*: the log is known to hold a value at or past its position, acknowledged or polled by somebody, and below what
  it may read: the last stable offset for read_committed, the log end for read_uncommitted. Transaction markers, aborted
  records and what lies below the log start are no such values.
- *stands*: it logs its own position, which runs past markers and aborted records, and a `position` row says that it
  still stands there a liveness objective after it had to move. For read_committed that is when the last stable offset
  has reached an earlier log end, at which it was past the position already: whatever stands between was ended by then,
  and its markers, which a reader goes past, lie below. The last stable offset alone proves nothing: what it has passed
  may be aborted, with a marker that lies above it while another transaction is open.
- *blind*: for that long no watermark could be read either, although somebody asked: a consumer polls a dead cluster
  without a word.

Where a reader began is not logged. Until it has polled, it counts as standing at the highest offset known when it took
the partition: what is acknowledged later lies ahead of it. Processes that write transactions are left out: their polls
wait for their transactions, and what they wait for shows in `stuck-producer`.

All of it is judged tick by tick in log time, so that a condition that opens and closes inside one catch-up batch is
reported as it would have been live. Each reader is judged as far as its own log and the observers' is here, and no
further: one that is late goes through its ticks later, and holds back nobody else. Where a part of its log is missing
for good, it may have moved there: it counts as having moved at the end of it, to where nobody knows. Where its host
stood still, or it broke off (`rules.settling.standstills`), it counts as having moved at the end of that, to where it
was. What observers on another host saw counts from when it had certainly been by the reader's clock, where the
difference has been measured (`rules.settling.clocks`).

Its name is told where its start row tells one, and the error in which its polls ended since it moved last, if any.

State: ten numbers for each reader that holds the partition, and the last error of its polls; while one is late, its
moves (`WAITING_KEPT`: what is more counts as having gone on) and the watermarks since then
(`rules.checks.watermarks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays.columns import INIT, OFFSETS, OK, POLL, POSITION, TXN
from rules.arrays.intervals import EMPTY, Bools, Ints, each, heads, indices
from rules.checks.watermarks import Observed, Sight
from rules.kept.check import FOREVER, Check, News, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling import clocks, standstills
from rules.settling.frontier import TICK, TICKS_AT_ONCE, forgets
from rules.settling.gate import Who, only
from rules.vocabulary.objectives import SECOND

NAME: Final = "stuck-consumer"
WAITING_KEPT: Final = 4096
BRIEF: Final = 5 * SECOND
_BEGUN, _WENT_ON = -1, -2
"""The functions of steps that stand for the end of what is missing of a reader's log, and for the end of a time
in which it tried nothing."""


@dataclass(slots=True)
class Reader:
    """One that holds the partition. Times are -1 where unknown: `known`: since when the value `ahead` can be read;
    `bound`: the log end when what it may read was first past its position; `passed`: since when it had to move;
    `confirmed`: since when a position row proves that it did not. `judged`: the tick that it was judged at last."""

    position: int
    own: int  # 1: `position` is what it said itself, and not merely where the log ended when it began
    uncommitted: int
    moved: int
    known: int = -1
    ahead: int = -1
    bound: int = -1
    passed: int = -1
    confirmed: int = -1
    judged: int = -1


@dataclass(slots=True)
class Steps(Table):
    """What readers did: the columns of `Moves` that matter here."""

    process: Ints = field(default_factory=lambda: EMPTY)
    slice: Ints = field(default_factory=lambda: EMPTY)
    f: Ints = field(default_factory=lambda: EMPTY)
    type: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    assigned: Ints = field(default_factory=lambda: EMPTY)
    last: Ints = field(default_factory=lambda: EMPTY)
    known: Ints = field(default_factory=lambda: EMPTY)
    after: Ints = field(default_factory=lambda: EMPTY)

    @classmethod
    def of(cls, moves: Moves, rows: Ints) -> Steps:
        return cls(*(getattr(moves, column.name)[rows] for column in fields(cls)))

    def where(self, i: int) -> int:
        """The position after the i-th step."""
        return int(self.after[i]) if self.after[i] >= 0 else int(self.last[i]) + 1


@dataclass(slots=True)
class Consumers:
    """`transacting`, `observing`: living processes that write transactions, that read watermarks. `observed`: what the
    latter read, since the tick that the latest reader was judged at. `waiting`: what late readers did beyond what is
    known of them."""

    readers: dict[int, Reader] = field(default_factory=dict, metadata={"of": Reader})
    transacting: list[int] = field(default_factory=list)
    observing: list[int] = field(default_factory=list)
    observed: Observed = field(default_factory=Observed)
    waiting: Steps = field(default_factory=Steps)
    errors: list[list[Any]] = field(default_factory=list)  # [process, when, error]: the last of its polls that had one


class _Spell(NamedTuple):
    """From when until when a reader was stuck, and why."""

    start: int
    end: int
    evidence: dict[str, Any]


def arrive(own: Consumers, new: News) -> None:
    """Learn which of the living processes write transactions, which observe, and how readers' polls fail."""
    own.transacting = _with(own.transacting, new, INIT, TXN)
    own.observing = _with(own.observing, new, OFFSETS)
    columns = new.columns
    polled = new.where(POLL)
    for row in polled[columns.type[polled] != OK].tolist():
        error = columns.table["error"][row].as_py()
        known = next((entry for entry in own.errors if entry[0] == columns.process[row]), None)
        if error is None or (known is not None and known[1] > columns.completed[row]):
            continue
        if known is not None:
            own.errors.remove(known)
        own.errors.append([int(columns.process[row]), int(columns.completed[row]), error])


def _with(known: list[int], new: News, *functions: int) -> list[int]:
    rows = new.where(*functions)
    more = {*each(new.columns.process[rows])} - {*known} if len(rows) else ()
    return sorted(number for number in {*known, *more} if number in new.state.processes) if more else known


def fold(own: Consumers, passage: Passage) -> None:
    """Go through the ticks with the moves up to the last of them, each reader as far as its log is here."""
    state, report = passage.state, passage.report
    sight = own.observed.look(passage.moves, state.index)
    steps = _in_order(own, passage.moves)
    first = heads(steps.process)
    begun = first.tolist()
    bounds = dict(zip(steps.process[first].tolist(), pairwise([*begun, len(steps)]), strict=True))
    errors = {number: (when, error) for number, when, error in own.errors}
    transacting, waiting = set(own.transacting), np.zeros(len(steps), bool)
    observed = passage.gate.told_through(Who(lambda number, process: number in own.observing or not process.next))
    stuck = any(key.startswith(NAME) for key in state.open_conditions)
    brisk = _brisk(own, steps, bounds, report.objectives.liveness) if not stuck else {}
    for process in sorted({*own.readers, *bounds}):
        a, b = bounds.get(process, (0, 0))
        if process in transacting or (process not in state.processes and a == b):
            own.readers.pop(process, None)
            continue
        ahead = _ahead(state, process, own.observed.boot)
        walk = _Walk(
            process, own.readers.pop(process, None), state, sight.by(ahead), report.objectives.liveness,
            passage.log_start_before, _name(state, process), *errors.get(process, (-1, "")),
        )  # fmt: skip
        until = walk.known_through(passage, observed + ahead)
        ripe = a + int(steps.at[a:b].searchsorted(until, side="right"))
        waiting[ripe:b] = True
        at = walk.ticks(passage, steps.at[a:ripe], until)
        went = not walk.holes and not walk.stood
        if walk.reader is not None and ripe == b and process in brisk and went:
            _go_on(walk.reader, steps, b - 1, brisk[process])
            walk.weigh(walk.over)
        elif ripe == a and went:
            walk.weigh(walk.over)
        else:
            walk.go(take(steps, slice(a, ripe)))
        if walk.reader is not None:
            walk.look_ahead()
            walk.reader.judged = max(walk.reader.judged, until)
            own.readers[process] = walk.reader
        if len(at) and (walk.spells or stuck):
            _tell(walk, at, report)
    _close_rest(own, passage, set(steps.process[waiting].tolist()))
    own.waiting = _bounded(own, take(steps, waiting))
    own.readers = {number: reader for number, reader in own.readers.items() if number in state.processes}
    own.errors = [entry for entry in own.errors if entry[0] in state.processes]
    late = [*(reader.judged for reader in own.readers.values()), *own.waiting.at.tolist()]
    own.observed.forget(min([passage.end, *late]))


def _name(state: State, number: int) -> str:
    known = state.processes.get(number)
    return known.name if known is not None and known.name else f"process {number}"


def _ahead(state: State, number: int, observer: int) -> int:
    """By how much the reader's clock is ahead of the observer's, at most; 0 where that has not been measured."""
    process = state.processes.get(number)
    if process is None or observer < 0 or process.boot in (-1, observer):
        return 0
    bound = clocks.ahead(state, process.boot, observer)
    return 0 if bound >= clocks.UNKNOWN else bound


def _in_order(own: Consumers, moves: Moves) -> Steps:
    """What readers did, those that waited and the new moves, by process and in the order of time."""
    rows = indices(moves.f != OFFSETS)
    steps = Steps.of(moves, rows)
    if not len(own.waiting):
        return take(steps, steps.process.argsort(kind="stable"))
    steps = concat(own.waiting, steps)
    return take(steps, np.lexsort((steps.slice, steps.at, steps.process)))


def _brisk(own: Consumers, steps: Steps, bounds: dict[int, tuple[int, int]], limit: int) -> dict[int, int]:
    """Those readers that only polled, and never paused for as long as the objective: the last step that tells where
    each stands, -1 for none. Nearly all readers, nearly always."""
    if not len(steps) or len(own.waiting):
        return {}
    first = np.array([a for a, _ in bounds.values()], np.int64)
    before = np.concatenate(([0], steps.at[:-1]))
    before[first] = [own.readers[p].moved if p in own.readers else -(2**62) for p in bounds]
    stopped = ((steps.f != POLL) & (steps.f != TXN)) | (steps.at - before >= limit)
    told = np.where((steps.type == OK) & (np.maximum(steps.after, steps.last) >= 0), np.arange(len(steps)), -1)
    slow, last = np.logical_or.reduceat(stopped, first), np.maximum.reduceat(told, first)
    return {p: at for p, was, at in zip(bounds, slow.tolist(), last.tolist(), strict=True) if not was}


def _bounded(own: Consumers, waiting: Steps) -> Steps:
    """What waits, as far as there is room. Of polls in a row the last of each few seconds is enough. Where that is too
    much all the same, the oldest are no longer waited for: the readers had gone on by then."""
    if len(waiting) <= WAITING_KEPT:
        return waiting
    told = (waiting.type == OK) & (np.maximum(waiting.after, waiting.last) >= 0)
    row = told & ((waiting.f == POLL) | (waiting.f == TXN))
    same = (waiting.process[1:] == waiting.process[:-1]) & (waiting.at[1:] // BRIEF == waiting.at[:-1] // BRIEF)
    between = np.append(row[:-1] & row[1:] & same, np.zeros(min(len(row), 1), bool))
    waiting = take(waiting, ~between)
    over = np.zeros(len(waiting), bool)
    over[waiting.at.argsort(kind="stable")[: max(0, len(waiting) - WAITING_KEPT)]] = True
    gone, told = take(waiting, over), (waiting.type == OK) & (np.maximum(waiting.after, waiting.last) >= 0)
    for number in each(gone.process):
        mine, reader = indices(over & (waiting.process == number)), own.readers.get(number)
        if reader is not None:
            _go_on(reader, waiting, int(mine[-1]), int(mine[told[mine]].max(initial=-1)))
            reader.judged = max(reader.judged, reader.moved // TICK * TICK)
    return take(waiting, ~over)


def _close_rest(own: Consumers, passage: Passage, late: set[int]) -> None:
    """Nobody is stuck who does not hold the partition any more."""
    for key in [k for k in passage.state.open_conditions if k.startswith(NAME)]:
        number = int(key.partition(":")[2])
        if number not in late and (number not in own.readers or number not in passage.state.processes):
            evidence = {"process": number}
            passage.report.condition(NAME, None, at=passage.end, evidence=evidence, subject=(number,))


@dataclass(slots=True)
class _Walk:
    """One reader's way through what is known of it; `spells`: when it was stuck; `stood`: when it tried nothing."""

    process: int
    reader: Reader | None
    state: State
    sight: Sight
    limit: int
    low: int  # the log start before this step's moves
    name: str
    failed: int  # when a poll of it ended with an error last, -1 for never
    error: str
    spells: list[_Spell] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    stood: list[tuple[int, int]] = field(default_factory=list)

    def known_through(self, passage: Passage, observed: int) -> int:
        """The last tick up to which all that it did is here, or will never be (`holes`), and what was `observed`."""
        process = self.state.processes.get(self.process)
        end = min(passage.end, observed, process.told_through if process is not None else passage.end)
        since = self.reader.judged if self.reader is not None else 0
        for hole in passage.gate.holes(since, end, only(self.process)) if self.state.holes else ():
            if hole.end > end:
                end = max(since, hole.start)
            else:
                self.holes.append((hole.start, hole.end))
        for start, stop in standstills.of_process(self.state, self.process):
            if start < end < stop:
                end = max(since, start)  # until then it cannot be told from one that is stuck
            elif since < stop <= end:
                self.stood.append((start, stop))
        return end // TICK * TICK

    @property
    def over(self) -> int:
        """When its life was over, by its committer, where no row of its own says so; FOREVER while it is not."""
        return min(standstills.over(self.state, self.process), FOREVER)

    def ticks(self, passage: Passage, moved: Ints, until: int) -> Ints:
        """Those that it has not been judged at yet."""
        if self.reader is not None:
            first = self.reader.judged + TICK
        else:
            first = int(min(moved.min(initial=FOREVER) // TICK * TICK, passage.at[0]))
        first = max(first, until - TICKS_AT_ONCE * TICK)
        if first == passage.at[0] and until == passage.end:
            return passage.at
        return np.arange(first, until + 1, TICK, dtype=np.int64)

    def go(self, steps: Steps) -> None:
        """Take these steps, and note when it was stuck meanwhile and since."""
        ends = [(_BEGUN, end) for _, end in self.holes] + [(_WENT_ON, end) for _, end in self.stood]
        ends = [(function, end) for function, end in ends if end <= self.over]
        for function, end in ends:
            begun = (self.process, 0, function, OK, end, -1, -1, -1, -1)
            steps = concat(steps, Steps(*(np.array([value], np.int64) for value in begun)))
        if ends:
            steps = take(steps, steps.at.argsort(kind="stable"))
        polled = (steps.f == POLL) | (steps.f == TXN)
        dropped = np.zeros(len(steps), bool) if polled.all() else forgets(steps)
        watched = f"{NAME}:{self.process}" in self.state.open_conditions
        i = 0
        while i < len(steps):
            j = self._unbroken(steps, polled, i)
            if self.reader is not None and j > i:
                if watched:
                    self.weigh(int(steps.at[i]))
                good = (steps.type[i:j] == OK) & (np.maximum(steps.after[i:j], steps.last[i:j]) >= 0)
                told = indices(good)
                _go_on(self.reader, steps, j - 1, i + int(told[-1]) if len(told) else -1)
                i = j
            else:
                self.step(steps, i, bool(dropped[i]), bool(polled[i]))
                i += 1
        self.weigh(self.over)
        for start, end in self.holes + self.stood:
            self.spells = [part for spell in self.spells for part in _without(spell, start, end)]

    def _unbroken(self, steps: Steps, polled: Bools, i: int) -> int:
        """Where the polls end, from the i-th step on, between which it never paused for as long as the objective."""
        if self.reader is None:
            return i
        pauses = np.diff(steps.at[i:], prepend=self.reader.moved) >= self.limit
        ends = indices(~polled[i:] | pauses)
        return i + int(ends[0]) if len(ends) else len(steps)

    def step(self, steps: Steps, i: int, dropped: bool, polled: bool) -> None:
        """One step: where it is afterwards, None where it does not hold the partition."""
        time, was = int(steps.at[i]), self.reader
        uncommitted = int(steps.known[i]) >> 2
        if steps.f[i] == _BEGUN:
            if was is not None:
                self.weigh(time)
                self._stand(-1, 0, was.uncommitted, time)
        elif steps.f[i] == _WENT_ON:
            if was is not None:
                self.weigh(time)
                self._stand(was.position, was.own, was.uncommitted, time)
        elif dropped:
            self.weigh(time)
            self.reader = None
        elif steps.f[i] == POSITION:
            if was is not None and steps.after[i] == was.position and was.own:
                self.weigh(time, confirmed=True)
            else:
                self.weigh(time)
                self._stand(int(steps.after[i]), 1, uncommitted, time)
        elif polled:
            self.weigh(time)
            if steps.type[i] == OK:
                self._stand(steps.where(i), 1, uncommitted, time)
            elif was is not None:
                self._stand(was.position, was.own, uncommitted, time)
        elif was is None and steps.assigned[i] == 1:
            self._stand(-1, 0, uncommitted, time)

    def _stand(self, position: int, own: int, uncommitted: int, time: int) -> None:
        judged = self.reader.judged if self.reader is not None else -1
        self.reader = Reader(position, own, uncommitted, time, judged=judged)

    def weigh(self, until: int, *, confirmed: bool = False) -> None:
        """Note since when the reader, which has not moved until then, is stuck. `confirmed`: it said so at that
        time."""
        reader = self.reader
        if reader is None:
            return
        if reader.position < 0:
            reader.position = self.sight.end_after(reader.moved)
        if not (self.sight.gaps or self.sight.beyond(max(reader.position, self.low), reader.uncommitted)):
            return
        evidence = {"process": self.process, "position": reader.position, "moved": reader.moved}
        if reader.position >= 0 and not confirmed:
            self._weigh_known(reader, until)
        if reader.own:
            if reader.passed < 0:
                since = self._must_move(reader, max(reader.position, self.low))
                reader.passed = max(since, reader.moved) if since >= 0 else -1
            if confirmed and reader.passed >= 0 and reader.confirmed < 0 and until - reader.passed >= self.limit:
                reader.confirmed = until
        if confirmed:
            return
        if reader.confirmed >= 0:
            self.spells.append(_Spell(reader.confirmed, until, {**evidence, "why": "stands"}))
        for lost, back in self.sight.gaps:
            start = max(lost, reader.moved) + self.limit
            self.spells.append(_Spell(start, min(until, back), {**evidence, "why": "blind"}))

    def _must_move(self, reader: Reader, floor: int) -> int:
        """When whoever stands at `floor` had to move, whatever stands there; -1 if that is not known yet."""
        if reader.uncommitted:
            return self.sight.past(floor, 1)
        if reader.bound < 0:
            reader.bound = self.sight.end_when_past(floor)
        return self.sight.past(reader.bound - 1, 0) if reader.bound >= 0 else -1

    def _readable(self, reader: Reader, floor: int) -> tuple[int, int]:
        """Since when a value ahead of `floor` can be read, and which; -1 where none is known to."""
        found = [self.sight.readable(floor, reader.uncommitted)]
        if reader.ahead >= floor:
            found.append((self.sight.past(reader.ahead, reader.uncommitted), reader.ahead))
        return min((one for one in found if one[0] >= 0), default=(-1, -1))

    def look_ahead(self) -> None:
        """Note a value ahead of the reader while the log is known there, whenever observers will say that it can be
        read."""
        reader, index = self.reader, self.state.index
        if reader is None or reader.position < 0 or reader.ahead >= reader.position:
            return
        if not len(index) or int(index.end[-1]) <= reader.position:
            return
        i = int(index.end.searchsorted(reader.position, side="right"))
        reader.known, reader.ahead = -1, max(reader.position, int(index.start[i]))

    def _weigh_known(self, reader: Reader, until: int) -> None:
        """A known value ahead proves it, until the log start goes past that value; then the next one may."""
        evidence = {"process": self.process, "position": reader.position, "moved": reader.moved, "why": "known"}
        floor = max(reader.position, self.low)
        while True:
            if reader.known < 0 or reader.ahead < floor:
                since, ahead = self._readable(reader, floor)
                if since < 0:
                    return
                reader.known, reader.ahead = max(since, reader.moved), ahead
            gone, start = self.sight.gone(reader.ahead)
            spell = _Spell(reader.known + self.limit, min(until, gone), {**evidence, "readable": reader.ahead})
            self.spells.append(spell)
            if gone >= until:
                return
            floor = start


def _go_on(reader: Reader, steps: Steps, last: int, told: int) -> None:
    """Many polls without a pause: only where they end counts. `told`: the last that tells where it is, -1 for none."""
    reader.moved = int(steps.at[last])
    reader.known = reader.bound = reader.passed = reader.confirmed = -1
    if told >= 0:
        reader.position, reader.own = steps.where(told), 1
        reader.uncommitted = int(steps.known[told]) >> 2


def _without(spell: _Spell, start: int, end: int) -> list[_Spell]:
    """The parts of a spell outside [start, end)."""
    parts = [spell._replace(end=min(spell.end, start)), spell._replace(start=max(spell.start, end))]
    return [part for part in parts if part.start < part.end]


def _tell(walk: _Walk, at: Ints, report: Report) -> None:
    """Open and close the reader's condition at the ticks at which it changes."""
    was = f"{NAME}:{walk.process}" in walk.state.open_conditions
    spells = [s for s in walk.spells if s.start < s.end and s.start <= at[-1]]
    if not spells and not was:
        return
    holds: Bools = np.zeros(len(at), bool)
    bounds = [(int(at.searchsorted(s.start)), int(at.searchsorted(s.end)), s) for s in spells]
    for first, last, _ in bounds:
        holds[first:last] = True
    tell = partial(_tell_at, walk, at, bounds, report)
    for first, last in pairwise([0, *(indices(np.diff(holds)) + 1).tolist(), len(at)]):
        if holds[first]:
            _open(walk, at, range(first, last), tell, report)
        else:
            tell(first, False)


def _open(walk: _Walk, at: Ints, ticks: range, tell: Callable[[int, bool], None], report: Report) -> None:
    """It holds at all of these ticks: open it, at the first at which it does not wait for another condition, and again
    where it outlasts that one."""
    key = f"{NAME}:{walk.process}"
    for t in ticks:
        if key in walk.state.open_conditions:
            break
        tell(t, True)
    if key in walk.state.open_conditions:
        until = report.explained_until(NAME, key)
        t = max(ticks.start, int(at.searchsorted(until)))
        if t < ticks.stop:
            tell(t, True)


def _tell_at(
    walk: _Walk, at: Ints, bounds: list[tuple[int, int, _Spell]], report: Report, t: int, holds: bool
) -> None:  # fmt: skip
    spell = next((s for first, last, s in bounds if first <= t < last), None)
    evidence: dict[str, Any] = dict(spell.evidence) if spell else {"process": walk.process}
    message = f"{walk.name} has not moved from offset {evidence.get('position')}" + (
        ", and no watermark can be read" if evidence.get("why") == "blind" else ", and there is more to read"
    )
    if spell and walk.failed >= evidence["moved"]:
        evidence["error"] = walk.error
        message += f"; its polls end with {walk.error}"
    report.condition(
        NAME,
        message if holds else None,
        at=int(at[t]),
        since=spell.start if spell else None,
        evidence=evidence,
        subject=(walk.process,),
    )


CHECK: Final = Check(
    NAME, Consumers, arrive=arrive, fold=fold, live_only=True, rows=frozenset({INIT, TXN, OFFSETS, "error"})
)
