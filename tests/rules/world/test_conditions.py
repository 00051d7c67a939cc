"""Conditions in worlds of hosts: whose clocks differ, and who is slow or stops."""

from __future__ import annotations

import pytest

from rules.vocabulary.finding import Finding
from tests.rules.world import delivery
from tests.rules.world.engine import Checker
from tests.rules.world.kernel import SECOND
from tests.rules.world.probes import Habits, Silence
from tests.rules.world.world import HostPlan, Plan, World

PERIOD = 47 * SECOND
"""Longer than the liveness objective: a reader has nothing to do in between."""


def two_hosts(skew: int, *silences: Silence) -> World:
    """The second host has a reader of its own, and a clock that is so many seconds ahead."""
    here, there = HostPlan("h0", {}), HostPlan("h1", {}, skew=skew * SECOND)
    here.probes |= {
        "w1": Habits("writer", period=PERIOD),
        "r1": Habits("reader"),
        "observer": Habits("observer"),
    }
    there.probes |= {"n1": Habits("reader", silences=list(silences))}
    return World(Plan(7, 300 * SECOND, [here, there])).run()


def conditions(world: World) -> list[Finding]:
    checker = Checker()
    for step in delivery.by_time(world.appends, 2 * SECOND):
        checker.feed(step.rows)
    assert checker.violations == []
    return [said.finding for said in checker.conditions]


def reader(world: World) -> int:
    (process,) = {life.process for life in world.lives if life.name == "n1"}
    return process


@pytest.mark.long
@pytest.mark.parametrize("skew", [0, 20, 70, -70])
def test_a_reader_with_nothing_to_read_is_not_stuck_whatever_its_clock_says(skew: int) -> None:
    said = conditions(two_hosts(skew))
    assert [f.message for f in said if f.anomaly.startswith("stuck")] == []
    late = [f for f in said if f.anomaly == "evidence-late"]
    if abs(skew) < 30:
        assert late == []
    else:
        (one,) = late
        assert (one.evidence["hold"], round(one.evidence["behind_s"])) == ("clock", 70)


@pytest.mark.long
@pytest.mark.parametrize("skew", [0, 20, 70, -70])
def test_a_reader_that_stops_is_found_whatever_its_clock_says(skew: int) -> None:
    world = two_hosts(skew, Silence(130 * SECOND, 260 * SECOND))
    said = [f for f in conditions(world) if f.anomaly == "stuck-consumer"]
    assert [(f.event, f.subject) for f in said] == [("opened", (reader(world),)), ("closed", (reader(world),))]
