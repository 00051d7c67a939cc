"""What observers tell of a log's ends, as steps in time, and when nobody could see any."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from rules.arrays.columns import OFFSETS, POLL
from rules.checks.ends import watermarks
from rules.checks.ends.watermarks import Observed, Sight
from rules.kept.check import FOREVER
from rules.kept.state import Moves, Spans


def rows(*told: tuple[int, int, int], f: int = OFFSETS) -> Moves:
    """(when, last stable offset, log end), -1 for what is not told; the log begins at 0."""
    at, stable, end = np.array(told, np.int64).reshape(-1, 3).T.copy()
    columns = {field.name: np.full(len(at), -1, np.int64) for field in fields(Moves)}
    low = np.where(np.maximum(stable, end) >= 0, 0, -1)
    return Moves(**columns | {"at": at, "stable": stable, "end": end, "low": low, "f": np.full(len(at), f)})


def look(own: Observed, *told: tuple[int, int, int]) -> Sight:
    return own.look(rows(*told), Spans(np.array([0]), np.array([1000])))


def test_what_can_be_read_is_beyond_an_offset_once_it_was_seen_there() -> None:
    own = Observed()
    assert not look(own).beyond(0, 0)
    assert own.look(rows((5, 9, 9), f=POLL), Spans()).marks.at.tolist() == []
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
