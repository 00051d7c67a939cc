"""When a transaction may be called absent that died without an acknowledgement: what a transform reflected with it is
then not reflected (`eos-violation`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from rules.vocabulary.slices import Mark, Slice
from tests.rules.histories import START, Store, number
from tests.rules.transforms.test_transforms import missing
from tests.rules.transforms.transform_pair import Pair, W
from tests.rules.whole import whole


def at(p: Pair, seconds: float, wait: int) -> None:
    p.time = seconds - 1
    p.wait(wait)


def died(
    *,
    shown: bool,
    begun: str = "y",
    other: str = "",
    offset: int | None = None,
    more: Sequence[tuple[str, int, int, int]] = (),
) -> Pair:
    """Operation 1 of x reflects inputs 4 and 5 and dies in the second minute. A later life reflects those that follow
    in the third; readers come in the fourth, and are shown its outputs, or not. (Of the log's end one listing a minute
    is kept.) An earlier life, and an operation before, say nothing of when it ended. The `other` reader comes last."""
    p = Pair()
    p.begun("a")
    if other:
        p.outputs.assign(other)
    p.feed(0, 10)
    p.transform(0, 0, 4, 0, read=False)
    at(p, 60, 2)
    p.transform(1, 4, 2, offset, "info")
    at(p, 120, 2)
    at(p, 132, 2)
    if begun:
        p.begun(begun)
    p.transform(3, 6, 4, 12, process="y", read=False)
    at(p, 180, 2)
    p.outputs.poll("q", [("o", 0, 4, 0), *([("o", 910, 2, 6)] if shown else []), ("o", 12, 4, 12)])
    p.feed(10, 1)
    p.transform(4, 10, 1, 20, process="y")
    p.wait(7)
    if more:
        p.outputs.poll(other, more)
    p.wait(7)
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


@pytest.mark.parametrize("begun", ["", "x"])
@pytest.mark.parametrize("shown", [True, False])
def test_nobody_has_ended_it(shown: bool, begun: str) -> None:
    """The other process has another transactional id, for all that is known. What its own process begins may be a part
    of the operation."""
    assert whole(fed(died(shown=shown, begun=begun)), ["eos-violation"]) == []


def without_an_id(p: Pair) -> Store:
    for row in p.rows:
        if row.process == number("x") and row.op == 11:
            row.transactional_id = None
    return fed(p)


def test_nobody_knows_what_ends_a_transaction_without_an_id() -> None:
    """The only one that is known here is another's."""
    assert whole(without_an_id(died(shown=False)), ["eos-violation"]) == []


@pytest.mark.parametrize(
    ("type", "name", "gone"),
    [("ok", "g-x", True), ("ok", "another", False), ("info", "g-x", False), ("fail", "g-x", False)],
)
def test_its_process_has_begun_another_transaction_of_its_id(type: str, name: str, gone: bool) -> None:
    """Which it can have only where that went well: the coordinator had ended this one."""
    p = Pair()
    p.feed(0, 12)
    p.transform(0, 0, 4, 0, read=False)
    at(p, 60, 2)
    p.transform(1, 4, 2, None, "info")
    at(p, 120, 2)
    at(p, 132, 2)
    p.transform(3, 6, 4, 12, process="y", read=False)
    p.transform(2, 10, 1, 17, type, read=False)
    for row in p.rows:
        if row.process == number("x") and row.op == 12:
            row.transactional_id = name
    at(p, 180, 2)
    p.outputs.poll("q", [("o", 0, 4, 0), ("o", 12, 4, 12), *([("o", 17, 1, 17)] if type == "ok" else [])])
    p.transform(4, 11, 1, 20, process="y")
    p.wait(14)
    told = [one for one in whole(fed(p), ["eos-violation"]) if one.subject != ("missing", "g", W, 10)]
    assert told == (missing(144.0, 4, 5) if gone else [])


@pytest.mark.parametrize("again", [(), (("o", 0, 4, 0), ("o", 12, 4, 12), ("o", 20, 1, 20))], ids=["once", "again"])
def test_who_passes_its_place_again_puts_nothing_off(again: Sequence[tuple[str, int, int, int]]) -> None:
    """The grace is over before the log of the second pass has come so far."""
    p = died(shown=False, other="s", offset=6, more=again)
    assert whole(fed(p), ["eos-violation"]) == missing(144.0, 4, 5)


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


def passed_from(first: int) -> Pair:
    """As `died`, but operation 0 ends between two listings, and who reads the outputs begins at offset `first`. Nothing
    of operation 1 can stand below offset 5, where the log ended before it."""
    p = Pair()
    p.begun("a")
    at(p, 30, 2)
    p.feed(0, 10)
    p.transform(0, 0, 4, 0, read=False)
    at(p, 60, 2)
    p.transform(1, 4, 2, None, "info")
    at(p, 120, 2)
    at(p, 132, 2)
    p.begun("y")
    p.transform(3, 6, 4, 12, process="y", read=False)
    at(p, 180, 2)
    p.outputs.poll("q", [*([("o", first, 1, first)] if first < 12 else []), ("o", 12, 4, 12)])
    return p


def ended(p: Pair) -> Pair:
    p.feed(10, 1)
    p.transform(4, 10, 1, 20, process="y")
    p.wait(14)
    return p


@pytest.mark.parametrize("early", [False, True], ids=["in_order", "early"])
@pytest.mark.parametrize(("first", "gone"), [(3, True), (12, False)])
def test_what_lies_below_its_place_need_not_be_passed(first: int, gone: bool, early: bool) -> None:
    """Whether its row comes in its turn or before those that tell how far the log had grown by then."""
    p = ended(passed_from(first))
    mine = [row for row in p.rows if row.process == number("x") and row.op == 11]
    before = [row for row in p.rows if (row.completed - START).total_seconds() < 32]
    rest = [row for row in p.rows if row not in before and not (early and row in mine)]
    store = Store()
    store.feed([*before, *(mine if early else [])])
    for i in range(0, len(rest), 20):
        store.feed(rest[i : i + 20])
    assert whole(store, ["eos-violation"]) == (missing(144.0, 4, 5) if gone else [])


def test_what_the_log_grew_by_long_after_need_not_be_passed() -> None:
    """Nobody reads for half an hour, of which twenty listings are kept, and then no further than the log had come when
    the next life began."""
    p = passed_from(12)
    for minute in range(4, 34):
        p.output_end = 17 + minute
        at(p, 60 * minute, 2)
    p.outputs.poll("q", [("o", 3, 1, 3), ("o", 12, 4, 12)])
    assert whole(fed(ended(p)), ["eos-violation"]) == missing(144.0, 4, 5)
