"""The evidence gate: is everything here that a verdict from absence rests on?

One question for all checks, asked per span of log time and for those processes whose log matters (readers for a loss,
the writer for a phantom, all that commit for an offset): *not yet*, *complete*, or *unverifiable*.

- *complete*: whatever each of them invoked through the end of the span is here, without a hole that the span touches.
- *unverifiable*: it is here, but for an interval of some process that touches the span and will never be here.
- *not yet*: somebody's log has not come that far. It may, whatever the delay: who asked waits.

A process's log may be here in parts. What lies between two rows of its that are here had completed by the second of
them, and what it did before its host was booted anew was over by then: neither concerns what was sent later. A span of
time is told by the clock of one boot, and a process is asked by its own, which is ahead of the other's by no more than
the measured bound (`rules.settling.clocks`). Or an earlier boot of the same host has come past the time that is asked
for: what the later one did came after it. Where neither is known nothing is concluded; only the clock of one that
is not known to have polled anything here, and so has nothing by which to compare it, is taken as it is, unless the
question is `strict`.

An operation that is open for long is awaited where it may still bring what is missing. Where only what had completed
counts (has this reader moved?), `told` asks for that alone, and an open operation holds nobody up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np

from rules.arrays.intervals import Bools, Ints
from rules.kept.state import NEVER, Hole, Host, Process, State
from rules.settling import clocks
from rules.settling.boots import boots_after, boots_around
from rules.settling.clocks import UNKNOWN
from rules.settling.completeness import GIVEN_UP, LATE
from rules.vocabulary.objectives import SECOND

APART: Final = 60 * SECOND
"""Further apart than this clocks are not taken to be where nobody knows, at the ends of what is missing: else one lost
journal would spoil everything after it. Nor are the clocks of two boots of one host."""


Times = int | Ints


class Evidence(Enum):
    NOT_YET = 0
    COMPLETE = 1
    UNVERIFIABLE = 2


@dataclass(frozen=True, slots=True)
class Who:
    """Whose log matters: those that `picks` picks, and holes in which somebody `reads`, or `writes`. `strict`: one
    whose clock cannot be compared is never known to be here, also if it has not polled anything. `newcomers`: on
    a host that is late, and of whose boot no life is known, some may have begun: for `GIVEN_UP` it is waited for.
    `successors`: so may others on a host where one that has read is over, and no other one is known to live."""

    picks: Callable[[int, Process], bool]
    reads: bool = True
    writes: bool = True
    strict: bool = False
    newcomers: bool = False
    successors: bool = False


EVERYBODY = Who(lambda number, process: True)
READERS = Who(lambda number, process: process.may_read, writes=False, successors=True)
"""Those that may poll here, and those of which it is not known yet whether they do."""
WRITERS = Who(lambda n, process: (process.writes or not process.reads) and not process.is_elsewhere, reads=False)
"""Those that may send here, and those of which it is not known yet what they do."""
OBSERVERS = Who(lambda n, process: not (process.reads or process.writes or process.is_elsewhere))
"""Those that may ask where the log starts and ends, and those of which it is not known yet what they do. Who says that
it reads and sends in other topics is none of all these: it may hang there for long."""


def only(number: int) -> Who:
    """One process alone."""
    return Who(lambda other, process: other == number)


def _is_all(process: Process, stop: int) -> bool:
    """Is the process over, with nothing of its log at or above slice `stop`?"""
    return process.lost_by < 0 <= process.closes_at <= stop


@dataclass(frozen=True)
class Gate:
    """The answers for one partition, as its state stands when it is asked first."""

    state: State
    finished: bool = False
    """Nothing more will come, and nothing is missing."""
    _through: dict[tuple[Who, bool], int] = field(default_factory=dict)

    def ask(self, start: int, end: int, who: Who = EVERYBODY, boot: int = -1) -> Evidence:
        """Is everything here that was invoked in [start, end] of log time, of those that `who` picks? `boot`: by whose
        clock."""
        if self.finished:
            return Evidence.COMPLETE
        if not self._is_here(start, end, who, boot):
            return Evidence.NOT_YET
        return Evidence.UNVERIFIABLE if self.holes(start, end, who, boot) else Evidence.COMPLETE

    def complete(self, start: Ints, end: Ints, who: Who = EVERYBODY, boot: int = -1) -> Bools:
        """The same for many spans: of which is it `COMPLETE`?"""
        if self.finished:
            return np.ones(len(start), bool)
        return np.asarray(self._is_here(start, end, who, boot)) & ~self.missing(start, end, who, boot)

    def missing(self, start: Ints, end: Ints, who: Who = EVERYBODY, boot: int = -1) -> Bools:
        """In which of these spans is something missing for good, whether the rest is here or not?"""
        found = np.zeros(len(start), bool)
        for hole in self._holes(who):
            low, high = self._touching(hole, who, boot)
            found |= (low <= end) & (high > start)
        return found

    @cached_property
    def _living(self) -> list[tuple[int, Process, int, int]]:
        """(number, process, known through, told through) of those that are not over, with all of their log here."""
        known = ((n, process, process.known_through) for n, process in self.state.processes.items())
        return [(n, process, through, process.told_through) for n, process, through in known if through != NEVER]

    def _is_here(self, start: Times, end: Times, who: Who, boot: int) -> bool | Bools:
        known: bool | Bools = end <= self.state.now
        last = max(end.tolist(), default=-1) if isinstance(end, np.ndarray) else int(end)
        for host in self._silent_boots if who.newcomers else self._left_by_readers if who.successors else ():
            clock, late = host.boots[-1][0] if host.boots else -1, self.state.now - host.now
            if late <= GIVEN_UP:
                known &= end + (self.apart if late > LATE else self.ahead)(clock, boot) <= host.now
        for number, process, through, _ in self._living:
            if last <= through and (process.boot == boot or process.boot < 0 or boot < 0):
                continue  # whether it is one of those or not
            if not (known if isinstance(known, bool) else known.any()):
                break
            if who.picks(number, process):
                known &= self._has_come(process, through, start, end, who, boot)
        return known

    def _has_come(self, process: Process, through: int, start: Times, end: Times, who: Who, boot: int) -> bool | Bools:
        """Is everything here that this one, known `through` a time, invoked in [start, end] of `boot`'s time?"""
        by_another = 0 <= process.boot != boot >= 0
        ahead = 0
        if by_another:
            strict = who.strict or process.assigned or process.position >= 0 or process.last_op >= 0
            ahead = self.ahead(process.boot, boot, strict=strict)
        until = end + ahead
        here = until <= through
        if here is True:
            return here
        if by_another:
            here |= self._over_before(process.boot, end, boot)
        if process.over_by >= 0:
            here |= process.over_by < start - self.apart(boot, process.over_boot)
        if process.ahead:
            since = start - self.apart(boot, process.boot)
            for _, stop, at, later in process.ahead:
                here |= (at < since) & (until <= (NEVER if _is_all(process, stop) else later))
        return here

    def _over_before(self, begun: int, end: Times, boot: int) -> bool | Bools:
        """Was this time over when the boot `begun` began, because an earlier boot of its host had come as far?"""
        over: bool | Bools = end < 0
        for earlier, later, reached in self._reached:
            if begun in later:
                over |= end + self.ahead(earlier, boot, strict=True) <= reached
        return over

    @cached_property
    def _reached(self) -> list[tuple[int, set[int], int]]:
        """(boot, the later ones of its host, how far its clock is known to have come) of those that others followed.
        When marks were told, and that it closed, may be told by the clock of a later one, which found its journal."""
        came: dict[int, int] = {}
        for process in self.state.processes.values():
            if process.boot >= 0:
                came[process.boot] = max(came.get(process.boot, -1), process.through)
        later = {boot: boots_after(self.state, boot) for boot in came}
        return [(boot, later[boot], at) for boot, at in came.items() if later[boot]]

    @cached_property
    def _silent_boots(self) -> list[Host]:
        """The hosts of whose newest boot nobody is known to live."""
        living = {(process.host, process.boot) for _, process, _, _ in self._living}
        hosts = self.state.hosts.items()
        return [host for number, host in hosts if (number, host.boots[-1][0] if host.boots else -1) not in living]

    @cached_property
    def _left_by_readers(self) -> list[Host]:
        """The hosts at work where somebody has read who ended in order, and nobody of the newest boot is known to read
        any more. Where nobody lives, the probes were stopped, or the topic deleted."""
        state, living = self.state, [(n, process) for n, process, *_ in self._living if process.closes_at < 0]
        at_work = {process.host for _, process in living}
        reading = {(process.host, process.boot) for n, process in living if READERS.picks(n, process)}
        read = {process.host for process in state.processes.values() if process.reads and not process.lost}
        return [
            host
            for number, host in state.hosts.items()
            if number in at_work and (host.reads or number in read)
            if (number, host.boots[-1][0] if host.boots else -1) not in reading
        ]

    def comparable(self, who: Who, boot: int) -> bool:
        """Is it known by how much the clocks of all that `who` picks, and that live, are ahead of this one at most?"""
        return all(self.ahead(p.boot, boot, strict=True) < UNKNOWN for n, p, _, _ in self._living if who.picks(n, p))

    def ahead(self, one: int, other: int, *, strict: bool = False) -> int:
        """By how much one clock is ahead of another at most; 0 where nobody knows, or `UNKNOWN` if that is `strict`."""
        if one < 0 or other < 0 or one == other:
            return 0
        bound = clocks.ahead(self.state, one, other)
        return bound if strict or bound < UNKNOWN else 0

    def told(self, start: int, end: int, who: Who = EVERYBODY) -> Evidence:
        """The same, for what had completed in [start, end]."""
        if self.finished:
            return Evidence.COMPLETE
        if self.told_through(who) < end:
            return Evidence.NOT_YET
        return Evidence.UNVERIFIABLE if self.holes(start, end, who) else Evidence.COMPLETE

    def known_through(self, who: Who = EVERYBODY) -> int:
        """The log time through which all that `who` picks invoked is here."""
        return NEVER if self.finished else self._least(who, told=False)

    def _least(self, who: Who, *, told: bool) -> int:
        """The log time through which all is here of those; it is asked again and again of the same."""
        through = self._through.get((who, told))
        if through is None:
            through = self.state.now
            for number, process, known, done in self._living:
                time = done if told else known
                if time < through and who.picks(number, process):
                    through = time
            self._through[who, told] = through
        return through

    def read_through(self) -> int:
        """The log time through which all that readers did is here, but for what is missing before later rows of theirs
        or has no journal any more."""
        through = self.state.now
        for number, process, known, _ in self._living:
            if known < through and READERS.picks(number, process) and not process.is_gone:
                ahead = [NEVER if _is_all(process, one[1]) else one[3] for one in process.ahead]
                through = min(through, max([known, *ahead]))
        return through

    def told_through(self, who: Who = EVERYBODY) -> int:
        """The log time through which all that those had completed is here."""
        return NEVER if self.finished else self._least(who, told=True)

    def holes(self, start: int, end: int, who: Who = EVERYBODY, boot: int = -1) -> list[Hole]:
        """The intervals that touch [start, end] for which something is missing for good, of those that `who` picks;
        `boot`: by whose clock."""
        found = []
        for hole in self._holes(who):
            low, high = self._touching(hole, who, boot)
            if low <= end and high > start:
                found.append(hole)
        return found

    def missing_through(self, start: int, end: int, who: Who = EVERYBODY) -> int:
        """Through when in [start, end] something is missing for good of those that `who` picks, and that went on after
        that; -1 where nothing is."""
        spans = [self._touching(hole, who, -1) for hole in self._holes(who) if hole.went_on]
        return max((min(high, end) for low, high in spans if low <= end and high > start), default=-1)

    def _holes(self, who: Who) -> Iterator[Hole]:
        for entry in self.state.holes:
            hole = Hole(*entry)
            if not ((hole.reads and who.reads) or (hole.writes and who.writes)):
                continue
            process = self.state.processes.get(hole.process)
            if hole.process < 0 or who.picks(hole.process, process if process is not None else Process()):
                yield hole

    def _touching(self, hole: Hole, who: Who, boot: int) -> tuple[int, int]:
        """The earliest and the latest that it can have begun and ended, by that clock."""
        end = hole.read_by if hole.read_by >= 0 and not who.writes else hole.end
        if 0 <= hole.boot != hole.end_boot >= 0:  # it ended with its boot, before anything was done in the next one
            end = min(end, clocks.first_done(self.state, hole.end_boot) - 1)
        return hole.start - self.apart(hole.boot, boot), end + self.apart(boot, hole.end_boot)

    def apart(self, one: int, other: int) -> int:
        """By how much one clock is ahead of another at most, for the ends of what is missing. Where nobody knows, by as
        much as the clock of another boot of either host, and `APART`; and so much more than it is at least, as records
        tell that went the other way."""
        bound = self.ahead(one, other, strict=True)
        if bound < UNKNOWN:
            return bound
        pairs = [(one, other)]
        pairs += [(boot, other) for boot in boots_around(self.state, one)]
        pairs += [(one, boot) for boot in boots_around(self.state, other)]
        bound = min(self.ahead(*pair, strict=True) for pair in pairs)
        least = max(-self.ahead(*reversed(pair), strict=True) for pair in pairs)
        return max(bound if bound < UNKNOWN else 0, least) + APART
