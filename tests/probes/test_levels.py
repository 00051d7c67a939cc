"""Latencies in buckets: nothing is lost, and both views of one count agree."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.levels import ANYWHERE, CLASSIC, FIRST_INDEX, SCHEMA, Latencies, Levels, Tries

PLACE = ("t", "1")
SECONDS = st.lists(st.floats(0, 1000, allow_nan=False), max_size=50)


def observed(*seconds: float) -> Latencies:
    latencies = Latencies()
    latencies.observe(list(seconds))
    return latencies


@given(SECONDS)
def test_each_border_has_counted_what_took_at_most_that(seconds: list[float]) -> None:
    classic = observed(*seconds).classic
    assert [border for border, _ in classic] == [*(2.0**power for power in CLASSIC), math.inf]
    assert classic == [(border, sum(one <= border for one in seconds)) for border, _ in classic]


@given(SECONDS)
def test_a_native_bucket_holds_what_lies_between_its_borders(seconds: list[float]) -> None:
    schema, zero_threshold, zero, first, counts = observed(*seconds).native
    assert zero == sum(one <= zero_threshold for one in seconds)
    assert zero + sum(counts) == len(seconds)
    growth = 2 ** (2**-schema)
    for index, count in enumerate(counts[:-1], first):
        low, high = growth ** (index - 1), growth**index
        sure = sum(low * 1.000001 < one <= high * 0.999999 for one in seconds)
        possible = sum(low * 0.999999 < one <= high * 1.000001 for one in seconds)
        assert sure <= count <= possible


@pytest.mark.parametrize(("seconds", "border"), [(0.25, 0.25), (0.2500001, 0.5), (64.0, 64.0), (2.0**-9, 2.0**-9)])
def test_a_border_belongs_to_the_bucket_below(seconds: float, border: float) -> None:
    assert min(le for le, count in observed(seconds).classic if count) == border


def test_what_is_out_of_range_is_counted_all_the_same() -> None:
    latencies = observed(-1.0, 0.0, 1e-9, 100.0, 1e6)
    assert latencies.classic[0] == (2.0 ** CLASSIC[0], 3)
    assert latencies.classic[-2:] == [(64.0, 3), (math.inf, 5)]
    assert latencies.native[2:4] == (3, FIRST_INDEX)
    assert latencies.seconds == pytest.approx(1e6 + 100), "a clock that went back takes nothing away"
    assert SCHEMA == 3


def test_levels_of_several_probes_are_one_and_a_copy_stays_as_it_is() -> None:
    one, other = Levels(), Levels()
    one.took("produce", [0.1, 0.2], PLACE)
    one.tried("produce", 10, 1, 100.0, PLACE)
    other.took("produce", 0.3, PLACE)
    other.tried("produce", 5, 5, 200.0, PLACE)
    other.tried("end-to-end", 0, 0, 300.0, PLACE, late=1)
    before = one.copy()
    one.add(pickle.loads(pickle.dumps(other)))  # from a process of its own
    assert one.latencies["produce", PLACE].classic[-1] == (math.inf, 3)
    assert one.latencies["produce", PLACE].seconds == pytest.approx(0.6)
    assert one.tries["produce", PLACE] == Tries(15, 6)
    assert one.tries["end-to-end", PLACE] == Tries(0, 0, 1)
    assert one.succeeded == {"produce": 100.0, "end-to-end": 300.0}, "failures alone are no success"
    assert before.tries == {("produce", PLACE): Tries(10, 1)}
    assert before.latencies["produce", PLACE].classic[-1] == (math.inf, 2)


def test_what_has_not_happened_yet_is_told_as_nothing() -> None:
    levels = Levels.empty()
    assert (
        {operation for operation, _ in levels.latencies}
        == {operation for operation, _ in levels.tries}
        == set(ANYWHERE)
    )
    assert not any(one.counts.any() or one.seconds for one in levels.latencies.values())
    assert not levels.succeeded


def test_few_are_counted_as_many_are() -> None:
    """At the borders of the buckets, between them, beyond the first and the last, and below zero."""
    borders = [2.0 ** (power / 8) for power in range(-14 * 8, 8 * 8)]
    values = [-1.0, 0.0, *borders, *(border * 1.01 for border in borders)]
    one_by_one, at_once = Latencies(), Latencies()
    for value in values:
        one_by_one.observe([value])
    at_once.observe(np.array(values))
    assert one_by_one.counts.tolist() == at_once.counts.tolist() and sum(at_once.counts) == len(values)
    assert one_by_one.seconds == pytest.approx(at_once.seconds)
