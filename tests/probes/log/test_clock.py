from datetime import timedelta

import pytest

from probes.clock import LEAD, SystemClock, boot_id, stamped
from rules.vocabulary.times import from_micros, micros


class Host:
    """A host's clocks, set by hand."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_700_000_000_000_000_000, 5_000_000_000

        self.waits: dict[int, float] = {}
        """Seconds for which a thread is kept waiting after its `n`th reading of a clock, from now on."""
        self._readings = 0

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self._read("wall"), lambda: self._read("mono"), "boot")

    def keep_waiting(self, waits: dict[int, float]) -> None:
        self.waits, self._readings = waits, 0

    def _read(self, which: str) -> int:
        read: int = getattr(self, which)
        self._readings += 1
        self.pass_(self.waits.get(self._readings, 0.0))
        return read

    def pass_(self, seconds: float, wall: float | None = None) -> None:
        self.mono += round(seconds * 1e9)
        self.wall += round((seconds if wall is None else wall) * 1e9)


def test_follows_the_hosts_clock_forward() -> None:
    host = Host()
    clock = host.clock()
    assert clock.now() == from_micros(host.wall // 1000)
    host.pass_(1, wall=3600)
    assert clock.now() == from_micros(host.wall // 1000)


def test_set_back_it_goes_on_as_if_nothing_had_happened() -> None:
    host = Host()
    clock = host.clock()
    before = clock.now()
    host.pass_(2, wall=-10)
    assert clock.now() == before + timedelta(seconds=2)
    host.pass_(200)
    assert clock.now() == before + timedelta(seconds=202)
    host.pass_(1, wall=-1200)
    assert clock.now() == before + timedelta(seconds=203)
    host.pass_(1, wall=7200)
    assert clock.now() == from_micros(host.wall // 1000), "set forward beyond that, it is the host's again"


def test_whoever_goes_on_where_another_ended_goes_on_with_its_clock() -> None:
    host = Host()
    before, at = host.clock().now(), host.mono
    host.pass_(5, wall=-60)
    clock = host.clock()
    clock.follow(before, at)
    assert clock.now() == before + timedelta(seconds=5)
    clock.follow(before, at)
    host.pass_(2)
    assert clock.now() == before + timedelta(seconds=7)
    other_boot = host.clock()
    other_boot.follow(before, None)
    assert other_boot.now() == before
    host.pass_(3)
    assert other_boot.now() == before + timedelta(seconds=3)


def test_who_follows_a_clock_that_is_not_ahead_keeps_the_hosts() -> None:
    host = Host()
    before, at = host.clock().now(), host.mono
    host.pass_(5, wall=7)
    clock = host.clock()
    clock.follow(before, at)
    assert clock.now() == from_micros(host.wall // 1000)
    clock.follow(clock.now() + timedelta(milliseconds=50), host.mono)
    assert clock.now() == from_micros(host.wall // 1000), "as two readings of one clock differ"


def test_further_ahead_than_brokers_like_it_goes_on_and_records_are_stamped_with_less() -> None:
    host = Host()
    clock = host.clock()
    before = clock.now()
    host.pass_(1, wall=-3600)
    assert clock.now() == before + timedelta(seconds=1)
    host.pass_(3700)
    assert clock.now() == before + timedelta(seconds=3701), "as fast as any"
    of_host = host.wall // 1000
    assert stamped(micros(clock.now()), lambda: host.wall) == of_host + LEAD
    assert stamped(of_host + LEAD - 1, lambda: host.wall) == of_host + LEAD - 1


def test_never_goes_back_over_any_jumps() -> None:
    host = Host()
    clock = host.clock()
    said = clock.now()
    for seconds, wall in [(0.01, -0.02), (0.1, -5), (0, -1), (3, 0), (1, 100), (0.5, -200), (1, 1), (0, 0)]:
        host.pass_(seconds, wall)
        assert clock.now() >= said
        said = clock.now()


@pytest.mark.parametrize("waits", [{1: 0.4}, {2: 0.4}, {1: 0.4, 4: 0.4, 8: 3.0}, {1: 2.0, 2: 2.0}])
def test_both_are_read_at_once_however_long_the_thread_is_kept_waiting_in_between(waits: dict[int, float]) -> None:
    host = Host()
    clock = host.clock()
    apart = host.wall - host.mono
    host.keep_waiting(waits)
    said, mono = clock.both()
    assert micros(said) * 1000 - mono == apart
    assert clock.now() == from_micros(host.wall // 1000), "and it is not ahead from there on"


def test_where_they_cannot_be_read_at_once_those_count_that_were_nearest_to_it() -> None:
    host = Host()
    clock = host.clock()
    apart = host.wall - host.mono
    host.keep_waiting({n: 0.02 if n == 13 else 0.05 for n in range(1, 100, 3)})
    said, mono = clock.both()
    assert micros(said) * 1000 - mono == apart + 20_000_000


def test_boot_is_the_same_for_every_clock_of_this_host() -> None:
    assert boot_id() == boot_id() == SystemClock().boot != ""
