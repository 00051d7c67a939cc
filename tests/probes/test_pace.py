"""One operation every so often; what an outage held up does not come as a flood."""

from __future__ import annotations

from probes.workloads.pace import Pace
from tests.probes.log.lives import StillClock


def test_an_operation_is_due_at_once_and_then_every_interval() -> None:
    clock = StillClock()
    pace = Pace(clock, 0.5)
    pace.start()
    assert pace.wait() == 0.0
    assert pace.wait() == 0.5
    clock.tick(0.4)
    assert round(pace.wait(), 6) == 0.1
    clock.tick(0.1)
    assert pace.wait() == 0.0
    assert pace.wait() == 0.5


def test_after_an_outage_two_operations_are_made_up_for() -> None:
    clock = StillClock()
    pace = Pace(clock, 0.5)
    pace.start()
    clock.tick(60)
    assert [pace.wait() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
