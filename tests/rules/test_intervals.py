"""Intervals in groups: the same answers as sets give, however far apart their bounds lie."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from rules.arrays.intervals import (
    Ints,
    contained_grouped,
    merge_grouped,
    newest,
    subtract_grouped,
    touched_grouped,
)

Group = tuple[Ints, Ints, Ints]
FAR = {"near": 1, "far": 2**46, "as far as 64 bits allow": 2**62 // 12}
GROUPS = {"few": np.array([3, 5, 8]), "any": np.array([-(2**63), -1, 0, 7, 2**62, 2**63 - 1])}


def some(dice: random.Random, groups: Ints, number: int) -> Group:
    """Intervals between 0 and 12."""
    bounds = [sorted(dice.sample(range(13), 2)) for _ in range(number)]
    start, end = np.array(bounds, np.int64).reshape(-1, 2).T
    return np.array([dice.choice(groups.tolist()) for _ in range(number)], np.int64), start, end


def points(of: Group) -> set[tuple[int, int]]:
    return {(g, i) for g, a, b in zip(*(c.tolist() for c in of), strict=True) for i in range(a, b)}


def apart(of: Group, by: int) -> Group:
    return of[0], of[1] * by, of[2] * by


def near(of: Group, by: int) -> Group:
    assert all((column % by == 0).all() for column in of[1:])
    return of[0], of[1] // by, of[2] // by


def is_merged(of: Group) -> bool:
    listed = zip(*(column.tolist() for column in of), strict=True)
    return all(g < h or (g == h and b < c) for (g, _, b), (h, c, _) in pairwise(listed))


@pytest.mark.parametrize("by", FAR.values(), ids=FAR)
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_grouped_intervals_are_sets(groups: Ints, by: int) -> None:
    dice = random.Random(1)
    for _ in range(100):
        of, other = (some(dice, groups, dice.randrange(9)) for _ in range(2))
        both = [merge_grouped(*apart(one, by)) for one in (of, other)]
        for one, merged in zip((of, other), both, strict=True):
            assert points(near(merged, by)) == points(one)
            assert is_merged(merged)
        left = subtract_grouped(both[0], both[1])
        assert points(near(left, by)) == points(of) - points(other)
        asked = some(dice, groups, 5)
        group, low, high = apart(asked, by)
        held = contained_grouped(*both[0], group, low, high).tolist()
        met = touched_grouped(apart(of, by), group, low, high).tolist()
        for i in range(5):
            wanted = points((asked[0][i : i + 1], asked[1][i : i + 1], asked[2][i : i + 1]))
            assert held[i] == (wanted <= points(of))
            assert met[i] == bool(wanted & points(of))


def test_the_newest_are_kept_and_all_that_nobody_could_judge_yet() -> None:
    at = np.array([5, 1, 9, 3, 7, 11], np.int64)
    assert newest(at, 2, 6).tolist() == [True, False, True, True, True, True]
    assert newest(at, 3, 6).tolist() == [True] * 6
    assert newest(at, 2, 2**62).tolist() == [False, False, True, False, False, True]
    assert newest(at, 2, 0).tolist() == [True] * 6
    assert newest(at[:0], 2, 0).tolist() == []
