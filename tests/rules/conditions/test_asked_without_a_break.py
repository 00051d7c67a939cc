"""`cluster-unreachable` of a host that stood still: time in which it asked nobody does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.checks.conditions.reachability import Side
from rules.vocabulary.objectives import SECOND
from tests.rules.conditions.test_standstills import FEEDS, by_appends
from tests.rules.histories import History, Store, number, without
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.whole import Told, whole

EAST, WEST = "observer of east", "observer of west"
NAME = "cluster-unreachable"
SILENT = {"leader": "3", "silent": "3", "brokers": "1,2,3"}
QUESTION = 2.5
"""Seconds after which a question is given up."""


class Two(Hosts):
    """Hosts `east` and `west`, each of a run and with an observer, which asks again when it was answered, or gave up.
    `asked`: since when a question is under way."""

    def __init__(self) -> None:
        super().__init__(east=(EAST,), west=(WEST, "another observer of west"))
        self.observer = WEST
        self.asked: dict[str, float] = {}

    def go(self, seconds: int, *, east: bool = True, west: bool | None = True) -> None:
        """Who is answered, and who is not; `west` None: nobody there asks."""
        for _ in range(seconds):
            for name, fine in ((EAST, east), (self.observer, west)):
                if fine is not None:
                    self._turn(name, fine)
            self.second()

    def _turn(self, name: str, fine: bool) -> None:
        if fine:
            self.told(name)
        elif name not in self.asked:
            self.asked[name] = self.time
        elif self.time - self.asked[name] >= QUESTION:
            self.gives_up(name)

    def told(self, name: str) -> None:
        self.asked.pop(name, None)
        self._of(name, log_start=0, log_end=2, last_stable=2)

    def gives_up(self, name: str) -> None:
        self._of(name, type="info", error="_TIMED_OUT", settings=SILENT, invoked=self.at(self.asked.pop(name)))

    def _of(self, name: str, f: str = "offsets", **more: Any) -> None:
        self.row(name, f, **more).run = name.rsplit(" ", 1)[1]

    def stands_still(self, seconds: int, *, east: bool = True) -> None:
        """Host `west`, in the middle of what it waits for."""
        self.silent.add("west")
        self.go(seconds, east=east, west=None)
        self.silent.clear()

    def killed(self) -> None:
        self._of(self.observer, "close", type="info", error="_CRASHED")
        self.asked.clear()


def told(store: Store) -> list[Told]:
    """`since` in seconds of the history."""
    found = whole(store, [NAME])
    return [one._replace(evidence={}) if one.event == "closed" else one for one in found]


def since(one: Told) -> float:
    """Since when, in seconds of the history: it is decidable a liveness objective later."""
    return round((one.at if one.decidable is None else one.decidable) - 30, 3)


def opened_and_closed(store: Store) -> list[tuple[str, tuple[int | str, ...], float]]:
    return [(one.event, one.subject, round(one.at)) for one in told(store)]


# Innocent


def killed_when_it_wakes(h: Two) -> None:
    """A broker is killed, the host is stopped 3 s later, and its probes are killed when they go on: the question that
    was under way is given up."""
    h.go(10)
    h.go(2, west=False)
    h.stands_still(50)
    h.gives_up(WEST)
    h.go(2, west=False)
    h.killed()
    h.go(40, west=None)


def answered_when_it_wakes(h: Two) -> None:
    h.go(10)
    h.go(2, west=False)
    h.stands_still(50)
    h.gives_up(WEST)
    h.go(40)


def between_two_questions(h: Two) -> None:
    """None was under way: the next one is given up as well, and then it is answered."""
    h.go(10)
    h.go(8, west=False)
    assert WEST not in h.asked
    h.stands_still(50)
    h.go(8, west=False)
    h.go(40)


def soon_after_it_began(h: Two) -> None:
    """A life ends in order, another one begins 13 s later, asks once in vain, and stands still for 26 s: half a minute
    after the last answer it stands there."""
    h.go(10)
    h._of(WEST, "close")
    h.go(13, west=None)
    h.observer = "another observer of west"
    h.go(5, west=False)
    h.stands_still(26)
    h.gives_up(h.observer)
    h.go(40)


def for_a_moment(h: Two) -> None:
    """It is not answered for 19 s, and stands still for 20 s."""
    h.go(10)
    h.go(18, west=False)
    assert WEST in h.asked
    h.stands_still(20)
    h.gives_up(WEST)
    h.go(40)


def long_after_it_gave_up(h: Two) -> None:
    """Between two questions, after 19 s without an answer."""
    h.go(10)
    h.go(20, west=False)
    assert WEST not in h.asked
    h.stands_still(27)
    h.go(40)


def unheard(h: Two) -> None:
    """Nothing comes from its host for more than a minute, and log time goes on: nobody knows what it does."""
    h.go(10)
    h.go(20, west=False)
    h.stands_still(80)


def back_before_the_others(h: Two) -> None:
    """Nobody is answered for 60 s. The host stands still in the middle of that, and for longer."""
    h.go(10)
    h.go(42, east=False, west=False)
    h.stands_still(18, east=False)
    h.stands_still(20)
    h.gives_up(WEST)
    h.go(40)


@pytest.mark.long
@FEEDS
@pytest.mark.parametrize(
    "build",
    [
        killed_when_it_wakes,
        answered_when_it_wakes,
        between_two_questions,
        soon_after_it_began,
        for_a_moment,
        long_after_it_gave_up,
        unheard,
    ],
)
def test_time_in_which_the_host_stood_still_does_not_count(
    build: Callable[[Two], None], fed: Callable[[History], Store]
) -> None:
    h = Two()
    build(h)
    assert told(fed(h)) == []


@FEEDS
def test_who_stands_still_when_the_others_are_back_is_not_cut_off_alone(fed: Callable[[History], Store]) -> None:
    h = Two()
    back_before_the_others(h)
    assert opened_and_closed(fed(h)) == [("opened", (), 40), ("closed", (), 70)]


# Guilty


def message(seconds: int) -> str:
    return f"no request of run west to broker 3 (of 1, 2, 3) has been answered for {seconds} s, those of run east are"


@FEEDS
def test_who_runs_and_is_not_answered_is_told_in_time(fed: Callable[[History], Store]) -> None:
    h = Two()
    h.go(10)
    h.go(32, west=False)
    (one,) = told(fed(h))
    assert (one.message, one.at, since(one)) == (message(31), 40.0, 9.076)


@FEEDS
def test_that_nobody_is_answered_is_told_in_time_though_one_host_stands_still(fed: Callable[[History], Store]) -> None:
    """The other one asks on."""
    h = Two()
    h.go(10)
    h.go(2, east=False, west=False)
    h.stands_still(50, east=False)
    h.gives_up(WEST)
    h.go(5, east=False, west=False)
    h.go(5)
    assert opened_and_closed(fed(h)) == [("opened", (), 40), ("closed", (), 67)]


@FEEDS
@pytest.mark.parametrize("pending", [True, False])
def test_who_is_not_answered_either_when_it_goes_on_is_told_since_then(
    pending: bool, fed: Callable[[History], Store]
) -> None:
    h = Two()
    h.go(10)
    h.go(10 if pending else 8, west=False)
    h.stands_still(50)
    if pending:
        h.gives_up(WEST)
    began = h.time
    h.go(36, west=False)
    (one,) = told(fed(h))
    assert one.message.startswith("no request of run west to broker 3 (of 1, 2, 3) has been answered for 3")
    assert began - 0.1 < since(one) < began + 0.2
    assert began + 30 < one.at < began + 32


@FEEDS
def test_what_was_told_before_it_stood_still_holds_until_it_is_answered(fed: Callable[[History], Store]) -> None:
    h = Two()
    h.go(10)
    h.go(40, west=False)
    h.stands_still(50)
    h.go(10, west=False)
    h.go(5)
    assert opened_and_closed(fed(h)) == [("opened", ("west",), 40), ("closed", ("west",), 111)]


def test_who_was_unheard_and_asked_in_vain_all_the_time_is_told_when_its_log_comes() -> None:
    """Its committer could not append for a minute."""
    h = Two()
    h.go(10)
    h.silent.add("west")
    before = len(h.rows)
    h.go(60, west=False)
    late = [row for row in h.rows[before:] if row.process == number(WEST)]
    h.rows = without(h.rows, late) + late
    h.silent.clear()
    h.go(5, west=False)
    (one,) = told(by_appends(h))
    assert since(one) < 11


def test_while_another_host_asks_nobody_begins_anew() -> None:
    """Of all together: one host's question took a minute, and another's took two seconds each."""
    side = Side(answered=0)
    for second in range(3, 60, 3):
        side.ask(second * SECOND, (second - 2) * SECOND, 1, {"run": "east"})
    side.ask(58 * SECOND, -SECOND, 2, {"run": "west"})
    assert (side.since, side.unanswered, side.runs, side.spells) == (0, 58 * SECOND, ["east", "west"], [])


def test_a_break_ends_what_was_asked_before_and_is_remembered() -> None:
    side = Side(answered=SECOND)
    side.ask(4 * SECOND, 2 * SECOND, 1, {"run": "east"})
    side.ask(19 * SECOND, 17 * SECOND, 1, {"run": "east"})
    assert (side.since, side.spells) == (SECOND, [])
    side.ask(34 * SECOND + 1, 32 * SECOND, 2, {"run": "west"})
    assert (side.since, side.runs, side.spells) == (32 * SECOND, ["west"], [[SECOND, -1, 19 * SECOND]])
    side.ask(50 * SECOND + 2, 33 * SECOND, 2, {"run": "west"})
    assert (side.since, len(side.spells)) == (50 * SECOND + 2, 2)
