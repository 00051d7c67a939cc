"""The wall clock of a host is set while it works: what its marks tell of other times is by that clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

from probes.clock import SystemClock
from rules.vocabulary.slices import Slice
from tests.rules.conditions.liveness_of import at_once, away_after_seconds, back, delayed, events, row_by_row
from tests.rules.conditions.test_stuck_writers import born
from tests.rules.histories import START, History, Store
from tests.rules.settling.test_late_evidence import Hosts

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SET = 50.0
"""The second at which it is set first."""


class Set(Hosts):
    """One host whose wall clock is set: [second, by how many seconds]; `time` is the true one."""

    def __init__(self, *steps: tuple[float, float]) -> None:
        super().__init__(one=("w", "v", "r", "o"))
        self.steps = steps

    def wall(self, at: datetime) -> datetime:
        return at + timedelta(seconds=sum(by for second, by in self.steps if (at - START).total_seconds() >= second))

    def row(self, process: str, f: Any, **more: Any) -> Slice:
        made = super().row(process, f, **more)
        made.boot = "boot"
        made.mono_invoked, made.mono_completed = (
            (at - START) // MICROSECOND * 1000 for at in (made.invoked, made.completed)
        )
        made.marks = [mark._replace(through=self.wall(mark.through)) for mark in made.marks]
        made.invoked, made.completed = self.wall(made.invoked), self.wall(made.completed)
        return made


def works(h: Set, seconds: int, *, hangs: bool = False) -> Set:
    """A record a second, polled at once; v has an operation open from just before the first step on (`hangs`)."""
    born(h, "w", "writer-1")
    born(h, "v", "writer-2")
    h.assign("r")
    for i in range(seconds):
        if hangs and i == SET - 1:
            h.open["v"] = h.time
        h.send("w", i, 1, at=i)
        h.poll("r", [("w", i, 1, i)])
        h.row("o", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1)
        h.second()
    return h


STEPS = [
    [(SET, 40.0)],
    [(SET, -40.0)],
    [(SET, 300.0)],
    [(SET, -300.0)],
    [(SET, 100.0), (SET + 60, -100.0)],
    [(SET, -100.0), (SET + 60, 100.0)],
    [(SET, 100.0), (SET + 60, -150.0)],
]


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds, back, lambda h: delayed(h, 3)])
def test_a_clock_that_is_set_accuses_nobody(fed: Callable[[History], Store], steps: list[tuple[float, float]]) -> None:
    told = {one.anomaly for one in fed(works(Set(*steps), 200)).findings}
    # Our own probes follow no clock that is set back, and after two steps through it nothing tells what is still open.
    stuck = {"stuck-producer"} if steps in STEPS[-2:] else set()
    assert told <= {"evidence-late"} | stuck, "no violation, and nobody is stuck"


@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_who_sends_seldom_is_not_stuck_when_a_clock_that_is_ahead_is_set_further_ahead(
    fed: Callable[[History], Store],
) -> None:
    """What marks had told by the clock before, in the same step, was right."""
    h = Set((120.0, 3.0), (150.0, 87.0))
    born(h, "w", "writer-1")
    h.send("w", 0, 1, at=0)
    h.assign("r")
    for _ in range(180):
        h.row("o", "offsets", log_start=0, log_end=1, last_stable=1)
        h.second()
    assert {one.anomaly for one in fed(h).findings} <= {"unseen"}


@pytest.mark.long
@pytest.mark.parametrize("by", [-40.0, -100.0])
def test_a_host_whose_clock_was_set_back_is_late_for_as_long_and_no_longer(by: float) -> None:
    told = events(row_by_row(works(Set((SET, by)), 300)), "evidence-late")
    assert {event for event, _, _ in told} == {"opened", "closed"}
    assert max(second for event, _, second in told if event == "closed") == pytest.approx(SET - by, abs=12)


def test_what_was_open_when_it_was_set_back_is_waited_for_all_the_same() -> None:
    h = works(Set((SET, -40.0)), 200, hangs=True)
    store = row_by_row(h)
    (summary,) = [stepped.summary for stepped in store.last.values()]
    assert summary["checked_through"] <= START + timedelta(seconds=SET)
    assert {event for event, _, _ in events(store, "evidence-late")} == {"opened", "closed"}, "the others are not late"


class Ours(Set):
    """The same as our probes and committers log it, whose own clock is not set back; at the seconds `again` they are
    started anew, and go on with it."""

    def __init__(self, *steps: tuple[float, float], again: tuple[float, ...] = ()) -> None:
        super().__init__(*steps)
        self.true, self.again = START, list(again)
        self.clock = self._clock()

    def _clock(self) -> SystemClock:
        return SystemClock(lambda: self._ns(super(Ours, self).wall(self.true)), lambda: self._ns(self.true), "boot")

    def _ns(self, at: datetime) -> int:
        return (at - EPOCH) // MICROSECOND * 1000

    def wall(self, at: datetime) -> datetime:
        if self.again and (at - START).total_seconds() >= self.again[0]:
            self.again.pop(0)
            said, mono = self.clock.both()
            self.true = max(self.true, at)
            self.clock = self._clock()
            self.clock.follow(said, mono)
        self.true = max(self.true, at)
        return self.clock.now() - (self.true - at)


Fed = Callable[[History], Store]


def late(h: History) -> Store:
    return delayed(h, 3)


@cache
def untouched(fed: Fed) -> list[tuple[str, str, int]]:
    """What is told of the same probes where nobody sets their clock."""
    return [(f.anomaly, f.event, f.at) for f in fed(works(Ours(), 200)).findings]


TWICE = [[(SET, -120.0), (SET + 33, -120.0)], [(SET, -600.0), (SET + 90, -60.0)]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fed", "again", "steps"),
    [
        *((row_by_row, again, steps) for again in ((), (SET + 20, SET + 70)) for steps in (STEPS[3], STEPS[6], *TWICE)),
        (late, (SET + 20,), TWICE[1]),
    ],
)
def test_the_clock_of_our_probes_is_set_and_nobody_hears_of_it(
    fed: Fed, again: tuple[float, ...], steps: list[tuple[float, float]]
) -> None:
    told = fed(works(Ours(*steps, again=again), 200)).findings
    assert [(f.anomaly, f.event, f.at) for f in told] == untouched(fed)
    assert {f.anomaly for f in told} <= {"evidence-late"}, "of the first second, where all comes late"
