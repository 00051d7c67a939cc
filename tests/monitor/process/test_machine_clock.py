"""The clock by which findings are counted, whatever is done to the machine's."""

from datetime import UTC, datetime, timedelta

import pytest

from monitor.process.machine_clock import MachineClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Machine:
    def __init__(self) -> None:
        self.wall, self.mono = NOON, 5.0
        self.clock = MachineClock(lambda: self.wall, lambda: self.mono)

    def after(self, seconds: float, *, set_by: float = 0.0) -> float:
        """What the clock says then, in seconds since noon; the machine's is set meanwhile."""
        self.mono += seconds
        self.wall += timedelta(seconds=seconds + set_by)
        return (self.clock() - NOON).total_seconds()


def test_it_never_goes_back_and_is_right_again_after_twice_the_time() -> None:
    machine = Machine()
    assert machine.after(1) == 1
    assert machine.after(1, set_by=-90) == 1.5
    assert [machine.after(20) for _ in range(9)] == [11.5, 21.5, 31.5, 41.5, 51.5, 61.5, 71.5, 81.5, 92]
    assert machine.after(1, set_by=-0.05) == pytest.approx(92.95), "brought right little by little"
    assert machine.after(1, set_by=3600) == pytest.approx(3693.95), "it is set ahead as well"


def test_it_goes_on_from_what_was_counted_before() -> None:
    machine = Machine()
    machine.clock.not_before(NOON + timedelta(seconds=90))
    assert machine.after(1) == 90.5
    machine.clock.not_before(NOON)
    assert machine.after(1) == 91
