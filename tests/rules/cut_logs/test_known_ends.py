"""How far the log was known to reach, and by when: kept where it is more, and within a bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rules.arrays.intervals import Ints
from rules.checks.ends import known_ends
from rules.checks.ends.known_ends import STEPS_KEPT, Listings, Tops


def ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def test_what_is_known_is_kept_only_where_it_is_more_and_within_its_bound() -> None:
    tops = known_ends.raised(Tops(), Tops(*(ints(c) for c in ([7, 7, 7, 3], [5, 6, 9, 1], [4, 4, 8, 1]))))
    assert (tops.domain.tolist(), tops.step.tolist(), tops.top.tolist()) == ([3, 7, 7], [1, 5, 9], [1, 4, 8])
    known, since = known_ends.known_before(tops, ints([7, 7, 7, 3, 5]), ints([5, 6, 10, 2, 9]))
    assert (known.tolist(), since.tolist()) == ([-1, 4, 8, 1, -1], [-1, 5, 9, 1, -1])
    many = ints(range(STEPS_KEPT + 1))
    every = known_ends.raised(Tops(), Tops(many * 0, many, many))
    assert len(every) == STEPS_KEPT + 1
    kept = known_ends.bounded(every, Listings())
    assert len(kept) <= STEPS_KEPT
    assert kept.top[-1] == STEPS_KEPT
    waiting = Listings(ints([0, 0, 0]), ints([0, 0, 9]), ints([0, 100, 50]), ints([1, 1, 1]), ints([0, 100, 50]))
    beside = known_ends.bounded(every, waiting)
    assert beside.top.tolist() == [99, *kept.top.tolist()]


def test_of_what_is_known_the_last_one_before_each_step_is_kept() -> None:
    tops = Tops(ints([3, 3, 3, 3, 7, 7]), ints([1, 2, 5, 9, 1, 2]), ints([1, 2, 5, 9, 1, 2]))
    kept = known_ends.forgotten_before(tops, 3, 9)
    assert (kept.domain.tolist(), kept.step.tolist()) == ([3, 3, 7, 7], [5, 9, 1, 2])
