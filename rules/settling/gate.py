"""The evidence gate: is everything here that a verdict from absence rests on?

One question for all checks, asked per span of log time and for those processes whose log matters (readers for a loss,
the writer for a phantom, all that commit for an offset): *not yet*, *complete*, or *unverifiable*.

- *complete*: whatever each of them invoked through the end of the span is here, without a hole that the span touches.
- *unverifiable*: it is here, but for an interval of some process that touches the span and will never be here.
- *not yet*: somebody's log has not come that far. It may, whatever the delay: who asked waits.

An operation that is open for long is awaited where it may still bring what is missing. Where only what had completed
counts (has this reader moved?), `told` asks for that alone, and an open operation holds nobody up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rules.kept.state import NEVER, Process, State


class Evidence(Enum):
    NOT_YET = 0
    COMPLETE = 1
    UNVERIFIABLE = 2


class Hole(NamedTuple):
    """Of `process` (-1: of several), what it did in [start, end) of log time is missing for good."""

    process: int
    start: int
    end: int
    reads: int  # 1: it may have polled in it
    writes: int  # 1: it may have sent or committed in it
    known: int  # since when, in log time


@dataclass(frozen=True, slots=True)
class Who:
    """Whose log matters: those that `picks` picks, and holes in which somebody `reads`, or `writes`."""

    picks: Callable[[int, Process], bool]
    reads: bool = True
    writes: bool = True


EVERYBODY = Who(lambda number, process: True)
READERS = Who(lambda number, process: process.reads or not process.next, writes=False)
"""Those that may poll here, and those of which it is not known yet whether they do."""


def only(number: int) -> Who:
    """One process alone."""
    return Who(lambda other, process: other == number)


@dataclass(frozen=True, slots=True)
class Gate:
    """The answers for one partition, as its state stands."""

    state: State
    finished: bool = False
    """Nothing more will come, and nothing is missing."""

    def ask(self, start: int, end: int, who: Who = EVERYBODY) -> Evidence:
        """Is everything here that was invoked in [start, end] of log time, of those that `who` picks?"""
        if self.finished:
            return Evidence.COMPLETE
        if self.known_through(who) < end:
            return Evidence.NOT_YET
        return Evidence.UNVERIFIABLE if self.holes(start, end, who) else Evidence.COMPLETE

    def told(self, start: int, end: int, who: Who = EVERYBODY) -> Evidence:
        """The same, for what had completed in [start, end]."""
        if self.finished:
            return Evidence.COMPLETE
        if self.told_through(who) < end:
            return Evidence.NOT_YET
        return Evidence.UNVERIFIABLE if self.holes(start, end, who) else Evidence.COMPLETE

    def known_through(self, who: Who = EVERYBODY) -> int:
        """The log time through which all that `who` picks invoked is here."""
        if self.finished:
            return NEVER
        through = self.state.now
        for number, process in self.state.processes.items():
            if process.known_through < through and who.picks(number, process):
                through = process.known_through
        return through

    def told_through(self, who: Who = EVERYBODY) -> int:
        """The log time through which all that those had completed is here."""
        if self.finished:
            return NEVER
        through = self.state.now
        for number, process in self.state.processes.items():
            told = process.told_through
            if told < through and who.picks(number, process):
                through = told
        return through

    def holes(self, start: int, end: int, who: Who = EVERYBODY) -> list[Hole]:
        """The intervals that touch [start, end] for which something is missing for good, of those that `who` picks."""
        found = []
        for entry in self.state.holes:
            hole = Hole(*entry)
            if (
                hole.start > end
                or hole.end <= start
                or not ((hole.reads and who.reads) or (hole.writes and who.writes))
            ):
                continue
            process = self.state.processes.get(hole.process)
            if hole.process < 0 or who.picks(hole.process, process if process is not None else Process()):
                found.append(hole)
        return found
