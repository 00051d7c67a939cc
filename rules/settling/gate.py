"""The evidence gate: is everything here that a verdict from absence rests on?

One question for all checks, asked per span of log time and for those processes whose log matters (readers for a loss,
the writer for a phantom, all that commit for an offset): *not yet*, *complete*, or *unverifiable* for an interval.

- *complete*: the log of each of them is here through the end of the span, without a hole that the span touches.
- *unverifiable*: it is here, but for an interval of some process that touches the span and will never be here.
- *not yet*: somebody's log has not come that far. It may, whatever the delay: who asked waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rules.kept.state import Process, State


class Evidence(Enum):
    NOT_YET = 0
    COMPLETE = 1
    UNVERIFIABLE = 2


class Hole(NamedTuple):
    """Of `process`, what it did in [start, end) of log time is missing for good."""

    process: int
    start: int
    end: int
    reads: int  # 1: it may have polled in it
    writes: int  # 1: it may have sent or committed in it


Who = Callable[[int, Process], bool]


def everybody(number: int, process: Process) -> bool:
    return True


def reading(number: int, process: Process) -> bool:
    """Those that may poll here, and those of which it is not known yet whether they do."""
    return process.reads or not process.next


@dataclass(frozen=True, slots=True)
class Gate:
    """The answers for one partition, as its state stands."""

    state: State
    finished: bool = False
    """Nothing more will come, and nothing is missing."""

    def ask(self, start: int, end: int, who: Who = everybody) -> Evidence:
        """Is everything here that happened in [start, end] of log time, of all processes that `who` picks?"""
        if self.finished:
            return Evidence.COMPLETE
        for number, process in self.state.processes.items():
            if not process.complete and process.known_through < end and who(number, process):
                return Evidence.NOT_YET
        if self.holes(start, end, who):
            return Evidence.UNVERIFIABLE
        return Evidence.COMPLETE

    def holes(self, start: int, end: int, who: Who = everybody) -> list[Hole]:
        """The intervals for which something is missing for good, of those that `who` picks."""
        found = []
        for entry in self.state.holes:
            hole = Hole(*entry)
            if hole.start <= end and start < hole.end:
                found.append(hole)
        return found
