"""One reader's way through what is known of it: where it stands, since when, and when it was stuck.

`stuck_consumers` says what counts, and goes it with each reader as far as its log is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from rules.arrays.columns import OK, POLL, POSITION, TXN
from rules.arrays.intervals import EMPTY, Bools, Ints, indices
from rules.checks.ends.watermarks import Sight
from rules.kept.check import FOREVER, Passage
from rules.kept.codec import Table, concat, take
from rules.kept.state import Moves, State
from rules.settling import standstills
from rules.settling.frontier import TICK, TICKS_AT_ONCE, forgets
from rules.settling.gate import only

_BEGUN, _WENT_ON = -1, -2
"""The functions of steps that stand for the end of what is missing of a reader's log, and for the end of a time
in which it tried nothing."""


@dataclass(slots=True)
class Reader:
    """One that holds the partition. Times are -1 where unknown: `known`: since when the value `ahead` can be read;
    `bound`: the log end when what it may read was first past its position; `passed`: since when it had to move;
    `confirmed`: since when a position row proves that it did not. `judged`: the tick that it was judged at last;
    `over`: when its life was over; `host`, `through`, `broke_off`: where, and through when it was at work before that
    (`standstills.Last`). It may be forgotten before it is judged so far, where observers elsewhere are late."""

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
    over: int = -1
    host: int = -1
    through: int = -1
    broke_off: int = -1

    def forget_log(self) -> None:
        """The log was cut: what was known of it does not count."""
        self.known = self.ahead = self.bound = self.passed = self.confirmed = -1

    def remember(self, over: int, last: standstills.Last | None) -> None:
        """Keep when its life was over, and what is known of its end."""
        self.over = over if over < FOREVER else -1
        if last is not None and last.over >= 0:
            self.host, self.through, self.broke_off = last.host, last.through, last.broke_off

    @property
    def last(self) -> standstills.Last | None:
        return standstills.Last(self.host, self.through, self.broke_off, self.over) if self.over >= 0 else None


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

    def tell(self) -> Bools:
        """Which of them tell where the reader is."""
        return np.asarray((self.type == OK) & (np.maximum(self.after, self.last) >= 0))

    def where(self, i: int) -> int:
        """The position after the i-th step."""
        return int(self.after[i]) if self.after[i] >= 0 else int(self.last[i]) + 1


class Spell(NamedTuple):
    """From when until when a reader was stuck, and why."""

    start: int
    end: int
    evidence: dict[str, Any]


@dataclass(slots=True)
class Walk:
    """One reader's way through what is known of it. `sights`: what observers saw of the log, each with the time from
    which that counts (`Observed.look`), and `sight` is the one that counts now; `watched`: is it told to be stuck?
    `spells`: when it was; `stood`: when it tried nothing; `until`: the last tick that it is judged at."""

    process: int
    reader: Reader | None
    state: State
    sights: list[tuple[int, Sight]]
    limit: int
    low: int  # the log start before this step's moves
    name: str
    failed: int  # when a poll of it ended with an error last, -1 for never
    error: str
    watched: bool
    spells: list[Spell] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    stood: list[tuple[int, int]] = field(default_factory=list)
    sight: Sight = field(init=False)
    until: int = -1

    def __post_init__(self) -> None:
        judged = self.reader.judged if self.reader is not None else -1
        counts = [i for i, (at, _) in enumerate(self.sights) if at <= judged]
        first = counts[-1] if counts else 0
        self.sight = self.sights[first][1]
        self.sights = self.sights[first + 1 :]

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
        last = self.reader.last if self.reader is not None else None
        for start, stop in standstills.of_process(self.state, self.process, last):
            if start < end < stop:
                end = max(since, start)  # until then it cannot be told from one that is stuck
            elif since < stop <= end:
                self.stood.append((start, stop))
        self.until = end // TICK * TICK
        return self.until

    @property
    def over(self) -> int:
        """When its life was over, by its committer, where no row of its own says so; FOREVER while it is not."""
        if self.reader is not None and self.reader.over >= 0:
            return self.reader.over
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
        polled, tells = (steps.f == POLL) | (steps.f == TXN), steps.tell()
        dropped = np.zeros(len(steps), bool) if polled.all() else forgets(steps)
        i = 0
        while i < len(steps):
            j = self._unbroken(steps, polled, i)
            if self.reader is not None and j > i:
                if self.watched:
                    self.weigh(int(steps.at[i]))
                told = indices(tells[i:j])
                go_on(self.reader, steps, j - 1, i + int(told[-1]) if len(told) else -1)
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
        judged, over = (self.reader.judged, self.reader.over) if self.reader is not None else (-1, -1)
        self.reader = Reader(position, own, uncommitted, time, judged=judged, over=over)

    def weigh(self, until: int, *, confirmed: bool = False) -> None:
        """Note since when the reader, which has not moved until then, is stuck. `confirmed`: it said so at that
        time."""
        while self.sights and self.sights[0][0] <= min(until, self.until):
            at, sight = self.sights.pop(0)
            self._weigh(at)
            self.sight = sight
            if self.reader is not None:
                self.reader.forget_log()
        self._weigh(until, confirmed=confirmed)

    def _weigh(self, until: int, *, confirmed: bool = False) -> None:
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
            self.spells.append(Spell(reader.confirmed, until, {**evidence, "why": "stands"}))
        for lost, back in self.sight.gaps:
            start = max(lost, reader.moved) + self.limit
            self.spells.append(Spell(start, min(until, back), {**evidence, "why": "blind"}))

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
            spell = Spell(reader.known + self.limit, min(until, gone), {**evidence, "readable": reader.ahead})
            self.spells.append(spell)
            if gone >= until:
                return
            floor = start


def go_on(reader: Reader, steps: Steps, last: int, told: int) -> None:
    """Many polls without a pause: only where they end counts. `told`: the last that tells where it is, -1 for none."""
    reader.moved = int(steps.at[last])
    reader.known = reader.bound = reader.passed = reader.confirmed = -1
    if told >= 0:
        reader.position, reader.own = steps.where(told), 1
        reader.uncommitted = int(steps.known[told]) >> 2


def _without(spell: Spell, start: int, end: int) -> list[Spell]:
    """The parts of a spell outside [start, end)."""
    parts = [spell._replace(end=min(spell.end, start)), spell._replace(start=max(spell.start, end))]
    return [part for part in parts if part.start < part.end]
