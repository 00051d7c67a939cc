"""A group's reader to which the group leaves a partition goes on in it like one in assign mode; one that a rebalance
may have moved need not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.policy import severity
from tests.rules.cut_logs.test_audit import explained, subjects
from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, in_any_way, whole

Fed = Callable[[History], Store]
NAMES = ("poll-skip", "nonmonotonic-poll")
G, R, W = number("g"), number("r"), number("w")


def group_reads(h: History, first: int, last: int, before: int | None, **more: Any) -> None:
    records = [("w", first, last + 1 - first, first)] if first <= last else []
    h.poll("g", records, mode="subscribe", position_before=before, position_after=last + 1, **more)


def begun(h: History) -> None:
    """Reader r, in assign mode, polls everything; the group's reader has polled offsets 0 to 4."""
    h.start("g")
    h.start("r")
    h.assign("r")
    h.row("g", "assign", assigned=True, mode="subscribe")
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)], position_before=0, position_after=10)
    h.mark(1.0)
    group_reads(h, 0, 4, None)
    h.mark(1.0)


def ended(h: History) -> None:
    for _ in range(15):
        h.observe(end=10)
        h.mark(1.0)


@in_any_way(file=False)
def test_what_it_is_not_given_it_was_not_given(fed: Fed) -> None:
    h = History()
    begun(h)
    group_reads(h, 8, 9, 5)
    ended(h)
    store = fed(h)
    skipped = [{"offset": offset, "writer": W, "seq": offset} for offset in (5, 6, 7)]
    (told,) = whole(store, NAMES)
    assert told._replace(at=0.0, decidable=None) == Told(
        "poll-skip",
        (G, 3),
        f"process {G} went from offset 4 to 8 over 3 known values",
        {"process": G, "op": 3, "previous_op": 2, "previous_offset": 4, "offset": 8, "skipped": skipped},
        0.0,
        context={"mode": "subscribe", "held": "true"},
    )
    assert severity("poll-skip", told.context) == "critical"
    assert subjects(explained(h, store)) == {("vanished-record", (offset, W, offset)) for offset in (5, 6, 7)}


def rebalanced(h: History) -> None:
    """It is taken away and given back: another has read on meanwhile."""
    h.row("g", "revoke", assigned=False, mode="subscribe")
    h.row("g", "assign", assigned=True, mode="subscribe")
    group_reads(h, 8, 9, None)


def moved_in_the_call(h: History) -> None:
    group_reads(h, 8, 9, None, rebalanced=True)


def unsaid(h: History) -> None:
    """Its client does not say where it stood."""
    group_reads(h, 8, 9, None)


def set_forward(h: History) -> None:
    """It stood elsewhere than its last poll had left it."""
    group_reads(h, 8, 9, 8)


@in_any_way(file=False)
@pytest.mark.parametrize("how", [rebalanced, moved_in_the_call, unsaid, set_forward])
def test_where_a_rebalance_may_have_moved_it(how: Callable[[History], None], fed: Fed) -> None:
    h = History()
    begun(h)
    how(h)
    ended(h)
    store = fed(h)
    assert {severity(one.anomaly, one.context) for one in whole(store, NAMES)} <= {"allowed"}
    assert subjects(explained(h, store)) == set()


@in_any_way(file=False)
def test_what_retention_has_taken_it_is_not_given(fed: Fed) -> None:
    h = History()
    begun(h)
    h.observe(start=8, end=10)
    group_reads(h, 8, 9, 5)
    for _ in range(3):
        h.observe(start=8, end=10)
        h.mark(1.0)
    store = fed(h)
    assert whole(store, NAMES) == []
    assert subjects(explained(h, store)) == set()


@in_any_way(file=False)
@pytest.mark.parametrize("held", [True, False])
def test_who_is_given_again_what_it_had(held: bool, fed: Fed) -> None:
    """Nobody has set it back, or somebody may have."""
    h = History()
    begun(h)
    group_reads(h, 2, 9, 5 if held else None)
    ended(h)
    (told,) = whole(fed(h), NAMES)
    assert (told.anomaly, severity(told.anomaly, told.context)) == (
        "nonmonotonic-poll",
        "critical" if held else "allowed",
    )


@in_any_way(file=False)
def test_markers_are_no_skip(fed: Fed) -> None:
    """Nobody has polled anything there."""
    h = History()
    begun(h)
    group_reads(h, 5, 9, 5)
    h.send("w", 10, 1, at=12)
    h.poll("r", [("w", 10, 1, 12)], position_before=10, position_after=13)
    h.poll("g", [("w", 10, 1, 12)], mode="subscribe", position_before=10, position_after=13)
    for _ in range(3):
        h.observe(end=13)
        h.mark(1.0)
    store = fed(h)
    assert whole(store, NAMES) == []
    assert subjects(explained(h, store)) == set()
