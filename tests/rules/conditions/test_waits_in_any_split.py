"""What waits on a cluster that is away, and begins and ends while the checks catch up, is told as it was live."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.kept.outages import cause_id
from tests.rules.conditions.liveness_of import at_once
from tests.rules.conditions.test_unreachable import answered, told, unanswered
from tests.rules.histories import History, Store
from tests.rules.splits import WAYS

STUCK = ("stuck-consumer", "stuck-producer")
AWAY = cause_id("cluster-unreachable", "c")
FED = pytest.mark.parametrize(
    "fed", [way for name, way in WAYS.items() if name != "interleaved"], ids=[n for n in WAYS if n != "interleaved"]
)
"""Rows that come late are waited for: what is told meanwhile is told of what is known by then."""


def an_outage(few: int) -> History:
    """Nobody is answered for 36 s, and right after that too few replicas are in sync for `few` seconds: since the first
    was silent, as it is known then."""
    h = History()
    settings = {"replicas_on": "1,2,3", "in_sync": "1,2,3", "led_by": "1", "min_insync": "2"}
    h.row("observer", "offsets", log_start=0, log_end=0, last_stable=0, settings=settings)
    first = answered(h, 10)
    unanswered(h, 36, silent="1,2,3", brokers="1,2,3")
    if few:
        h.row("observer", "offsets", log_start=0, log_end=10, last_stable=10, settings=settings | {"in_sync": "1"})
        first = answered(h, few, first=first)
        h.row("observer", "offsets", log_start=0, log_end=first, last_stable=first, settings=settings)
    answered(h, 30, first=first)
    return h


@pytest.mark.parametrize("few", [0, 3], ids=["all back", "too few at first"])
@FED
def test_a_reader_that_waited_on_it_is_told_of_and_explained(fed: Callable[[History], Store], few: int) -> None:
    assert [one for one in told(fed(an_outage(few))) if one[1] in STUCK] == [
        ("opened", "stuck-consumer", 40, AWAY),
        ("closed", "stuck-consumer", 47, AWAY),
    ]


@pytest.mark.parametrize("few", [0, 3], ids=["all back", "too few at first"])
def test_it_is_explained_however_much_is_caught_up_on_at_once(few: int) -> None:
    """An outage is remembered for ten minutes from when the step begins."""
    h = an_outage(few)
    for _ in range(60):
        h.row("observer", "offsets", log_start=0, log_end=50, last_stable=50)
        h.poll("r", [])
        h.mark(12.0)
    assert [one for one in told(at_once(h)) if one[1] == "stuck-consumer"][:2] == [
        ("opened", "stuck-consumer", 40, AWAY),
        ("closed", "stuck-consumer", 47, AWAY),
    ]


@pytest.mark.parametrize("seconds", [20, 8], ids=["it goes on", "it has begun just now"])
@FED
def test_a_life_that_goes_on_as_stuck_is_not_once_it_has_got_beyond_its_beginning(
    fed: Callable[[History], Store], seconds: int
) -> None:
    """It sends nothing here: its marks alone show that it has nothing open."""
    h = History()
    h.start("before", name="one", writer="1")
    h.send("before", 0, at=100)
    since = h.at(h.time)
    pass_by(h, 35)
    h.send("before", 1, type="info", error="_MSG_TIMED_OUT", invoked=since)
    h.row("before", "close", type="info", error="_TIMED_OUT")
    h.start("after", name="one", writer="2")
    pass_by(h, seconds)
    found = [(event, at) for event, name, at, _ in told(fed(h)) if name == "stuck-producer"]
    assert found == [("opened", 35), ("closed", 45)][: 2 if seconds == 20 else 1]


def pass_by(h: History, seconds: int) -> None:
    for _ in range(seconds):
        h.row("observer", "offsets", log_start=0, log_end=200, last_stable=200)
        h.mark(1.0)
