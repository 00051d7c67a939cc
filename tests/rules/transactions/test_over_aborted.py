"""A reader that leaves out what was aborted is right, also where others are shown it: what it is told of is explained
by that read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.vocabulary.finding import identity
from tests.rules.conditions.liveness_of import at_once, away_after_seconds, away_in_the_midst, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import in_any_way, whole

R, W = number("r"), number("w")
EXPLAINED = identity("G1a", "c", "t", 0, (W, 1))
ABORTED = ", aborted ones, which others were shown"
Fed = Callable[[History], Store]


def left_out(h: History, *, aborted: int, inside: bool = False) -> None:
    """Of five records those in the middle are `aborted`, the others committed, and reader r leaves the middle out."""
    h.assign("r")
    h.assign("s")
    h.send("w", 0, 1, at=0)
    h.txn("t", sends=[("w", 1, aborted, None)], type="fail", txn=1)
    if aborted < 3:
        h.send("w", 1 + aborted, 3 - aborted, at=1 + aborted)
    h.send("w", 4, 1, at=4)
    if inside:
        h.poll("r", [("w", 0, 1, 0), ("w", 4, 1, 4)])
        return
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 4, 1, 4)])


def goes_on(h: History, end: int = 5) -> None:
    for _ in range(8):
        h.observe(end=end)
        h.mark(1.0)


def skips(store: Store) -> list[tuple[str, str, str | None]]:
    return [(one.anomaly, one.message, one.implied_by) for one in whole(store, ["poll-skip", "int-poll-skip"])]


@pytest.mark.parametrize("inside", [False, True])
@in_any_way()
def test_what_others_are_shown_of_an_aborted_transaction_explains_who_leaves_it_out(fed: Fed, inside: bool) -> None:
    h = History()
    left_out(h, aborted=3, inside=inside)
    h.poll("s", [("w", 0, 5, 0)])
    goes_on(h)
    words = f"process {R} went from offset 0 to 4 over 3 known values{ABORTED}"
    assert skips(fed(h)) == [("int-poll-skip" if inside else "poll-skip", words, EXPLAINED)]


@in_any_way()
def test_what_was_committed_is_no_less_left_out_for_it(fed: Fed) -> None:
    h = History()
    left_out(h, aborted=2)
    h.poll("s", [("w", 0, 5, 0)])
    goes_on(h)
    assert skips(fed(h)) == [("poll-skip", f"process {R} went from offset 0 to 4 over 3 known values", None)]


@in_any_way()
def test_what_nobody_was_shown_is_left_out_by_all(fed: Fed) -> None:
    h = History()
    left_out(h, aborted=3)
    h.poll("s", [("w", 0, 1, 0), ("w", 4, 1, 4)])
    goes_on(h)
    assert skips(fed(h)) == []


@pytest.mark.parametrize("committed", [False, True])
@in_any_way()
def test_more_values_than_are_named(fed: Fed, committed: bool) -> None:
    """The last of them may be another's."""
    h = History()
    h.assign("r")
    h.assign("s")
    h.send("w", 0, 1, at=0)
    h.txn("t", sends=[("w", 1, 12, None)], type="fail", txn=1)
    h.send("v" if committed else "w", 13, 1, at=13)
    h.send("w", 14, 1, at=14)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 14, 1, 14)] if committed else [("w", 13, 2, 13)])
    h.poll("s", [("w", 0, 13, 0), ("v" if committed else "w", 13, 1, 13), ("w", 14, 1, 14)])
    goes_on(h, end=15)
    number, words, why = (13, "", None) if committed else (12, ABORTED, EXPLAINED)
    first = 14 if committed else 13
    told = f"process {R} went from offset 0 to {first} over {number} known values{words}"
    assert skips(fed(h)) == [("poll-skip", told, why)]


@pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds, away_in_the_midst])
def test_what_turns_out_to_be_aborted_later_explains_nothing_that_was_told(fed: Fed) -> None:
    """A transaction that ends half a minute later: until then it was as good as committed."""
    h = History()
    h.assign("r")
    h.assign("s")
    h.send("w", 0, 1, at=0)
    h.send("w", 4, 1, at=4)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 4, 1, 4)])
    h.poll("s", [("w", 0, 5, 0)])
    for _ in range(30):
        h.observe(end=5)
        h.mark(1.0)
    h.txn("t", sends=[("w", 1, 3, None)], type="fail", txn=1, invoked=h.at(0.0))
    goes_on(h)
    assert skips(fed(h)) == [("poll-skip", f"process {R} went from offset 0 to 4 over 3 known values", None)]
