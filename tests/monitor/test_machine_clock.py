"""The clock by which findings are counted, whatever is done to the machine's."""

from datetime import UTC, datetime, timedelta

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


def test_it_goes_on_where_the_machines_is_set_back_and_follows_it_ahead() -> None:
    machine = Machine()
    assert machine.after(1) == 1
    assert machine.after(1, set_by=-3600) == 2
    assert machine.after(10) == 12
    assert machine.after(1, set_by=3599) == 13, "it is a second behind, still"
    assert machine.after(1, set_by=3601) == 14 + 3600
    assert machine.after(1, set_by=-0.05) == 15 + 3600 - 0.05, "brought right little by little"


def test_it_goes_on_from_what_was_counted_before() -> None:
    machine = Machine()
    machine.clock.not_before(NOON + timedelta(seconds=90))
    assert machine.after(0.5) == 90.5
    machine.clock.not_before(NOON)
    assert machine.after(0.5) == 91
    assert machine.after(100) == 191, "ahead by as much for as long as it runs"
