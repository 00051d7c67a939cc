"""What a clock that is set ahead now and then had said before, by the clock as it is now."""

import pytest

from probes.log.commits.clock_steps import ClockSteps

SECOND = 1_000_000


def read(*readings: tuple[float, float]) -> ClockSteps:
    """A clock that was read when it said so, at that time of the monotonic clock; in seconds."""
    steps = ClockSteps()
    for wall, mono in readings:
        steps.read(round(wall * SECOND), round(mono * SECOND))
    return steps


@pytest.mark.parametrize(
    ("said", "by_now"),
    [
        (1_001.0, 1_091.0),
        (1_002.9, 1_092.9),  # it was set after that
        (1_092.5, 1_092.5),  # by the new clock, before it was read
        (1_093.0, 1_093.0),
        (1_094.0, 1_094.0),
    ],
)
def test_what_was_said_before_it_was_set_was_as_much_later(said: float, by_now: float) -> None:
    steps = read((1_001, 1), (1_002, 2), (1_093, 3), (1_094, 4))
    assert steps.as_now(round(said * SECOND)) == round(by_now * SECOND)


def test_each_time_that_it_was_set_counts() -> None:
    steps = read((1_001, 1), (1_012, 2), (1_013, 3), (1_034, 4))
    assert [steps.as_now(said * SECOND) // SECOND for said in (1_000, 1_012, 1_033, 1_034)] == [
        1_030,
        1_032,
        1_033,
        1_034,
    ]


def test_of_what_may_be_by_either_clock_the_earlier_counts() -> None:
    """It was set by less than what passes between two readings: an operation may have begun after that."""
    steps = read((1_001, 1), (1_002.4, 2))
    assert steps.as_now(1_001_300_000) == 1_001_700_000
    assert steps.as_now(1_001_500_000) == 1_001_500_000


def test_nothing_is_made_of_how_readings_tremble_and_before_it_was_read() -> None:
    assert ClockSteps().as_now(5) == 5
    assert read((1_001, 1), (1_002.05, 2), (1_003, 3)).as_now(1_001_000_000) == 1_001_000_000
