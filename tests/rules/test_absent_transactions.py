"""When a transaction may be called absent that died without an acknowledgement: what a transform reflected with it is
then not reflected (`eos-violation`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from rules.vocabulary.slices import Mark, Slice
from tests.rules.histories import START, Store, number
from tests.rules.test_transforms import missing
from tests.rules.transform_pair import Pair
from tests.rules.whole import whole


def at(p: Pair, seconds: float, wait: int) -> None:
    p.time = seconds - 1
    p.wait(wait)


def died(*, shown: bool, begun: bool = True, other: str = "") -> Pair:
    """Operation 1 of x reflects inputs 4 and 5 and dies in the second minute. A later life reflects those that follow
    in the third; readers come in the fourth, and are shown its outputs, or not. (Of the log's end one listing a minute
    is kept.) An earlier life, and an operation before, say nothing of when it ended."""
    p = Pair()
    p.begun("a")
    if other:
        p.outputs.assign(other)
    p.feed(0, 10)
    p.transform(0, 0, 4, 0, read=False)
    at(p, 60, 2)
    p.transform(1, 4, 2, None, "info")
    at(p, 120, 2)
    at(p, 132, 2)
    if begun:
        p.begun("y")
    p.transform(3, 6, 4, 12, process="y", read=False)
    at(p, 180, 2)
    p.outputs.poll("q", [("o", 0, 4, 0), *([("o", 910, 2, 6)] if shown else []), ("o", 12, 4, 12)])
    p.feed(10, 1)
    p.transform(4, 10, 1, 20, process="y")
    p.wait(14)
    return p


def fed(p: Pair) -> Store:
    store = Store()
    for first in range(0, len(p.rows), 20):
        store.feed(p.rows[first : first + 20])
    return store


def test_it_was_committed_by_the_next_life() -> None:
    assert whole(fed(died(shown=True)), ["eos-violation"]) == []


def test_it_was_aborted_by_the_next_life() -> None:
    assert whole(fed(died(shown=False)), ["eos-violation"]) == missing(144.0, 4, 5)


@pytest.mark.parametrize("shown", [True, False])
def test_nobody_has_ended_it(shown: bool) -> None:
    """The other process has another transactional id, for all that is known."""
    assert whole(fed(died(shown=shown, begun=False)), ["eos-violation"]) == []


def with_hole(rows: Sequence[Slice], process: str, start: int, end: int) -> list[Slice]:
    """A life that was over at second `end`; what it did from `start` on is lost."""
    found = []
    for row in rows:
        marks = [mark for mark in row.marks if mark.process != number(process)]
        if len(marks) < len(row.marks):
            second = (row.completed - START).total_seconds()
            over = Mark(number(process), 1, START + timedelta(seconds=start), START + timedelta(seconds=end), lost=True)
            marks = [*row.marks] if second < start else [*marks, over] if second >= end else marks
            row = replace(row, marks=marks)
        found.append(row)
    return found


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("hole", [(184, 188), (196, 200)], ids=["innocent", "guilty"])
def test_the_grace_counts_from_the_pass_also_where_its_place_is_known_later(hole: tuple[int, int], late: bool) -> None:
    """Readers pass the place at second 181. `s` may have been shown the outputs within the grace after that. What tells
    where they stand at the most, that the next life had begun, comes before the pass or after it."""
    p = died(shown=False, other="s")
    p.wait(20)
    rows = with_hole(p.rows, "s", *hole)
    began = [row for row in rows if row.process == number("y") and row.f == "init" and row.topic == "out"]
    store, soon = Store(), [row for row in rows if not late or row not in began]
    for first in range(0, len(soon) - 20, 20):
        store.feed(soon[first : min(first + 20, len(soon) - 20)])
    if late:
        store.feed(began)
    store.feed(soon[-20:])
    assert whole(store, ["eos-violation"]) == (missing(144.0, 4, 5) if hole[0] > 192 else [])
