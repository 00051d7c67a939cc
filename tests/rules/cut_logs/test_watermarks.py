"""What observers tell of a log's ends, as steps in time, and when nobody could see any."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from rules.arrays.columns import OFFSETS, POLL
from rules.checks.conditions.reader_walks import Reader, Walk
from rules.checks.ends import watermarks
from rules.checks.ends.watermarks import Observed, Sight
from rules.kept.check import FOREVER
from rules.kept.state import Moves, Spans, State


def rows(*told: tuple[int, int, int], f: int = OFFSETS) -> Moves:
    """(when, last stable offset, log end), -1 for what is not told; the log begins at 0."""
    at, stable, end = np.array(told, np.int64).reshape(-1, 3).T.copy()
    columns = {field.name: np.full(len(at), -1, np.int64) for field in fields(Moves)}
    low = np.where(np.maximum(stable, end) >= 0, 0, -1)
    return Moves(**columns | {"at": at, "stable": stable, "end": end, "low": low, "f": np.full(len(at), f)})


def looks(own: Observed, *told: tuple[int, int, int]) -> list[tuple[int, Sight]]:
    return own.look(rows(*told), Spans(np.array([0]), np.array([1000])))


def look(own: Observed, *told: tuple[int, int, int]) -> Sight:
    ((since, sight),) = looks(own, *told)
    assert since == -1
    return sight


def test_what_can_be_read_is_beyond_an_offset_once_it_was_seen_there() -> None:
    own = Observed()
    assert not look(own).beyond(0, 0)
    assert [sight.marks.at.tolist() for _, sight in own.look(rows((5, 9, 9), f=POLL), Spans())] == [[]]
    sight = look(own, (10, 5, 8))
    assert [sight.beyond(offset, 0) for offset in (4, 5)] == [True, False]
    assert [sight.beyond(offset, 1) for offset in (7, 8)] == [True, False]


def test_a_last_stable_offset_without_the_logs_end_or_where_the_log_begins_says_nothing() -> None:
    own = Observed()
    sight = look(own, (10, 5, -1), (20, 0, 4), (30, 3, 6))
    assert sight.marks.stable.tolist() == [-1, -1, 3]
    assert sight.marks.end.tolist() == [-1, 4, 6]


@pytest.mark.parametrize("steps", [1, 2, 9], ids=["at once", "in two steps", "row by row"])
def test_a_spell_in_which_nobody_sees_anything_is_between_what_was_seen(steps: int) -> None:
    """From the last that was seen to the next; before the first, from when it was asked in vain."""
    own, none = Observed(), (-1, -1)
    told = [(10, *none), (20, 1, 1), (30, 2, 2), (40, *none), (50, *none), (60, 3, 3), (70, 4, 4), (80, *none)]
    for part in np.array_split(np.array(told), steps):
        sight = look(own, *map(tuple, part.tolist()))
    assert sight.gaps == [(10, 20), (30, 60), (70, FOREVER)]
    assert look(own, (90, 5, 5)).gaps == [(10, 20), (30, 60), (70, 90)]


def test_that_nobody_has_ever_seen_anything_lasts_since_it_was_asked_first() -> None:
    own = Observed()
    assert look(own).gaps == []
    assert look(own, (10, -1, -1), (20, -1, -1)).gaps == [(10, FOREVER)]


def test_what_was_asked_in_vain_by_one_that_comes_late_says_nothing() -> None:
    """Others have seen it since."""
    own = Observed()
    look(own, (10, 1, 1), (30, 2, 2))
    assert look(own, (20, -1, -1), (40, 3, 3)).gaps == []


@pytest.mark.parametrize(
    ("before", "left", "gaps"),
    [(45, [40, 60, 80], [[70, 80]]), (55, [50, 60, 70, 80], [[70, 80]]), (80, [80], [])],
    ids=["too many", "room", "the last"],
)
def test_what_nobody_asks_for_any_more_is_forgotten(
    before: int, left: list[int], gaps: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of it says how it was then. Of too many each other one goes."""
    monkeypatch.setattr(watermarks, "KEPT", 4)
    own = Observed()
    look(own, (5, -1, -1), *((10 * n, n, n) for n in range(1, 8)), (75, -1, -1), (80, 8, 8))
    own.forget(before)
    assert (own.marks.at.tolist(), own.gaps) == (left, gaps)


S = 1_000_000
CUT = [(S, 8, 9), (2 * S, 5, 6), (5 * S, 5, 7), (11 * S, -1, 7), (12 * S, 6, 7), (13 * S, 6, 9), (14 * S, 3, 4)]
"""Seconds 2 to 12 are less than the first: then it is known. What follows is less than that for a moment."""


def seen(sights: list[tuple[int, Sight]]) -> list[tuple[int, list[list[int]]]]:
    marks = [(since, sight.marks) for since, sight in sights]
    return [(at, [(one.at // S).tolist(), one.stable.tolist(), one.end.tolist()]) for at, one in marks]


BEFORE = [[1, 2, 5, 11, 12], [8] * 5, [9] * 5]


@pytest.mark.parametrize("steps", [1, 2, 7], ids=["at once", "in two steps", "row by row"])
def test_a_log_that_ends_lower_for_a_while_was_cut(steps: int) -> None:
    """What was read since the first of the lower ones is what counts of it from then on."""
    own = Observed()
    for part in np.array_split(np.array(CUT), steps):
        sights = looks(own, *map(tuple, part.tolist()))
    assert seen(sights) == [(-1, BEFORE), (12 * S, [[2, 5, 11, 12, 13, 14], [5, 5, 5, 6, 6, 6], [6, 7, 7, 7, 9, 9]])]
    own.forget(12 * S - 1)
    assert len(looks(own)) == 2
    own.forget(12 * S)
    assert [since for since, _ in looks(own)] == [12 * S]


@pytest.mark.parametrize("again", [(8 * S, 8, 9), (8 * S, -1, 9)], ids=["both", "the log end"])
def test_a_log_that_ends_lower_now_and_then_was_not(again: tuple[int, int, int]) -> None:
    own = Observed()
    look(own, *CUT[:3])
    look(own, again)
    assert seen([(-1, look(own, *CUT[3:]))])[0][1][1:] == [[8] * 8, [9] * 8]


def test_a_second_cut_is_known_as_the_first_was() -> None:
    own = Observed()
    sights = looks(own, *CUT, (24 * S, 4, 9), (25 * S, 6, 9), (26 * S, 5, 9), (40 * S, 5, 10))
    assert [since for since, _ in sights] == [-1, 12 * S, 24 * S, 40 * S]
    assert seen(sights)[-1] == (40 * S, [[26, 40], [5, 5], [9, 10]])
    assert [since for since, _ in looks(own)] == [-1, 40 * S], "of what was before, only what was last is kept"


def test_what_comes_late_of_before_a_cut_does_not_count_after_it() -> None:
    own = Observed()
    looks(own, *CUT)
    (_, before), (_, after) = looks(own, (S + 1, 8, 9), (3 * S, 5, 6), (15 * S, 6, 9))
    assert (before.marks.at // S).tolist() == BEFORE[0]
    assert [(after.marks.at // S).tolist(), after.marks.stable.tolist()] == [
        [2, 3, 5, 11, 12, 13, 14, 15],
        [5, 5, 5, 5, 6, 6, 6, 6],
    ]


def test_a_reader_whose_log_comes_later_is_judged_by_what_was_seen_before_the_cut_until_it_has_come_to_that() -> None:
    own = Observed()
    sights = looks(own, *CUT)
    reader = Reader(7, 1, 0, S, passed=S, confirmed=2 * S, judged=4 * S)
    walk = Walk(3, reader, State(), sights, 30 * S, 0, "r", -1, "", False)
    for until, counts in ((11 * S, -1), (12 * S, 12 * S)):
        walk.until = until
        walk.weigh(FOREVER)
        assert walk.sight is dict(sights)[counts]
        assert (reader.passed, reader.confirmed) == ((S, 2 * S) if counts < 0 else (-1, -1))
