"""Which load of a coordinator ended first, as the brokers of either version log it."""

from __future__ import annotations

import pytest

from monitor.drill.drills.coordinators import first_to_end

BEGINS = (
    "[2026-11-29 02:02:23,901] INFO [GroupCoordinator id=3] Scheduling loading of metadata from {} with epoch {} (x)\n"
)
ENDS = (
    "[2026-11-29 02:02:25,957] INFO [GroupCoordinator id=3] Finished loading of metadata from {} with epoch {}"
    " in 2054ms where 1ms was spent in the scheduler. Loaded 200010 records which total to 12691 bytes. (x)\n"
)
OLD_BEGINS = (
    "[2026-11-29 02:03:58,652] INFO [GroupMetadataManager brokerId=2] Scheduling loading of offsets and group metadata"
    " from {} for epoch {} (x)\n"
)
OLD_ENDS = (
    "[2026-11-29 02:04:00,226] INFO [GroupMetadataManager brokerId=2] Finished loading offsets and group metadata"
    " from {} in 1571 milliseconds for epoch {}, of which 203 milliseconds was spent in the scheduler. (x)\n"
)
UNLOADS = (
    "[2026-11-29 02:02:23,706] INFO [GroupCoordinator id=3] Scheduling unloading of metadata for {} with epoch {} (x)\n"
)
HERE = "__consumer_offsets-0"


@pytest.mark.parametrize(("begins", "ends"), [(BEGINS, ENDS), (OLD_BEGINS, OLD_ENDS)], ids=["4.3.1", "3.8.1"])
def test_a_load_that_ended_in_the_next_one_is_told_from_one_that_did_not(begins: str, ends: str) -> None:
    both = begins.format(HERE, 2) + UNLOADS.format(HERE, "OptionalInt[3]") + begins.format(HERE, 4)
    assert first_to_end(both) is None
    assert first_to_end(both + ends.format(HERE, 2) + ends.format(HERE, 4)) == (2, 4)
    assert first_to_end(both + ends.format(HERE, 4)) == (4, 4)


@pytest.mark.parametrize(("begins", "ends"), [(BEGINS, ENDS), (OLD_BEGINS, OLD_ENDS)], ids=["4.3.1", "3.8.1"])
def test_what_ended_before_the_newest_began_is_not_looked_at(begins: str, ends: str) -> None:
    log = begins.format(HERE, 2) + ends.format(HERE, 2) + begins.format(HERE, 4)
    assert first_to_end(log) is None
    assert first_to_end(log + ends.format("__consumer_offsets-01", 2)) is None
    assert first_to_end(log + ends.format(HERE, 4)) == (4, 4)


def test_an_empty_log_tells_nothing() -> None:
    assert first_to_end("") is None
