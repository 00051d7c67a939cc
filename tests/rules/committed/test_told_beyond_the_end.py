"""`foreign-commit` of a group whose partition nobody of this log held for a moment: somebody else may have held it, and
have committed what lies in the log. What lies beyond its end nobody can have read, whoever was a member.

An admin sets a group's offsets while it has no member. So they are told to members that were thrown out and came
back, and let go of everything in between.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.committed.committed_offsets import (
    OBSERVER,
    RULES,
    VERDICTS,
    Fed,
    commit,
    foreign,
    in_order,
    later,
    lost,
    read,
)
from tests.rules.committed.test_unknown_commits import in_steps, listed, vouched
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, number
from tests.rules.whole import Told, in_any_way, whole


def thrown_out(h: History) -> None:
    """The reader of a subscribed group learns by its commit of 120 that it is a member no longer, and is one again."""
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    read(h, 100, by="o")
    h.observe(end=118)
    commit(h, 120, type="info", error="UNKNOWN_MEMBER_ID")
    h.assign("r", f="revoke", assigned=False, group="g")
    h.row("r", "assign", assigned=True, mode="subscribe", group="g")


def told(h: History, offset: int, end: int) -> None:
    """The observer and the reader are told this offset, and the log's end is listed by the next request."""
    read(h, offset, by="o")
    read(h, offset)
    h.observe(end=end)


def set_beyond_the_end(h: History) -> None:
    thrown_out(h)
    told(h, 220, 125)


def set_right_beyond_the_end(h: History) -> None:
    """Who has read everything commits the log's end itself."""
    thrown_out(h)
    told(h, 126, 125)


def set_for_who_takes_over(h: History) -> None:
    """The reader crashes, and its next life is handed the partition after a while."""
    thrown_out(h)
    h.row("r", "close", type="info", error="_CRASHED")
    h.row("s", "subscribe", assigned=False, mode="subscribe", group="g")
    h.time += 2.0
    h.observe(end=123)
    h.row("s", "assign", assigned=True, mode="subscribe", group="g")
    read(h, 220, by="s")
    h.observe(end=125)


def set_again_when_the_log_is_longer(h: History) -> None:
    """To the same offset: that is the same finding, and by then somebody else may have committed it."""
    thrown_out(h)
    told(h, 220, 125)
    commit(h, 230)
    h.observe(end=300)
    h.assign("r", f="revoke", assigned=False, group="g")
    h.row("r", "assign", assigned=True, mode="subscribe", group="g")
    read(h, 220, by="o")
    h.observe(end=300)


def set_again_while_it_is_held(h: History) -> None:
    """What somebody else may have committed before nobody can have committed now."""
    thrown_out(h)
    told(h, 125, 125)
    commit(h, 130)
    read(h, 125)


def set_again_while_that_is_not_told_yet(h: History) -> None:
    """To the same offset, and this time the reader holds the partition. It is one finding."""
    thrown_out(h)
    told(h, 220, 125)
    commit(h, 230)
    h.time += 5.0
    read(h, 220)
    for _ in range(12):
        h.mark(1.0)
        h.observe(end=125)


def set_again_when_that_was_told(h: History) -> None:
    thrown_out(h)
    told(h, 220, 125)
    for _ in range(12):
        h.mark(1.0)
        h.observe(end=125)
    commit(h, 230)
    read(h, 220)


def set_before_a_mark(h: History) -> None:
    """The log is complete up to the read before the listing is here that tells how high the end was."""
    thrown_out(h)
    read(h, 220, by="o")
    for _ in range(3):
        h.mark(1.0)
    h.observe(end=125)


def its_own_refused_commit(h: History) -> None:
    """It was refused, says the answer; what the broker did nobody knows."""
    thrown_out(h)
    told(h, 120, 110)


def of_somebody_who_held_it_meanwhile(h: History) -> None:
    thrown_out(h)
    told(h, 125, 125)


def of_another_member_whose_rows_come_later(h: History) -> None:
    """By a transform of the group, in a transaction."""
    thrown_out(h)
    early = h.at(h.time)
    told(h, 220, 125)
    h.txn("t", polls=[("w", 0, 1, 219)], txn=1, invoked=early, committed=220, group="g")


def in_a_log_that_was_cut(h: History) -> None:
    """It had been as long as that once."""
    h.observe(end=220)
    thrown_out(h)
    told(h, 220, 125)


def of_somebody_else_before_a_mark(h: History) -> None:
    thrown_out(h)
    read(h, 125, by="o")
    for _ in range(3):
        h.mark(1.0)
    h.observe(end=125)


def where_the_end_is_listed_later(h: History) -> None:
    """By then the log has grown beyond it."""
    thrown_out(h)
    read(h, 220, by="o")
    read(h, 220)


GUILTY = [
    (set_beyond_the_end, [foreign(220, 100, 0.016, to=OBSERVER)]),
    (set_right_beyond_the_end, [foreign(126, 100, 0.016, to=OBSERVER)]),
    (set_for_who_takes_over, [foreign(220, 100, 2.024, to=number("s"))]),
    (set_again_when_the_log_is_longer, [foreign(220, 100, 0.016, to=OBSERVER)]),
    (set_again_while_that_is_not_told_yet, [foreign(220, 100, 0.016, to=OBSERVER), lost(230, 220, 5.024, after=5.001)]),
    (set_again_when_that_was_told, [foreign(220, 100, 0.016, to=OBSERVER), lost(230, 220, 12.072)]),
    (set_before_a_mark, [foreign(220, 100, 0.016, to=OBSERVER)]),
    (set_again_while_it_is_held, [lost(130, 125, 0.024), foreign(125, 130, 0.024)]),
]
INNOCENT = [
    its_own_refused_commit,
    of_somebody_who_held_it_meanwhile,
    of_another_member_whose_rows_come_later,
    in_a_log_that_was_cut,
    of_somebody_else_before_a_mark,
    where_the_end_is_listed_later,
]


@in_any_way()
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), VERDICTS) == in_order(expected, fed.__name__ == "finished")


@in_any_way()
@pytest.mark.parametrize("build", INNOCENT, ids=lambda build: build.__name__)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), RULES) == []


@pytest.mark.parametrize(("offset", "found"), [(220, True), (125, False)])
def test_how_high_the_end_was_is_known_when_all_is_here_at_last(offset: int, found: bool) -> None:
    """What another member has done meanwhile is awaited for longer than listings are kept."""
    h = History()
    h.start("m", **{"group.id": "g"})
    hidden = h.row("m", "position", position_after=3)
    h.rows.remove(hidden)
    thrown_out(h)
    at = h.time + 0.002
    told(h, offset, 125)
    for second in range(100):
        h.time += 1.0
        h.observe(end=125 + 10 * second)
        h.mark()
    store = row_by_row(h)
    assert whole(store, VERDICTS) == []
    store.feed([hidden])
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    expected = foreign(offset, 100, round(at, 3), to=OBSERVER)
    assert whole(store, VERDICTS) == ([expected] if found else [])


@pytest.mark.parametrize(("lists", "found"), [("here", True), ("there", False)])
def test_a_listing_by_a_clock_that_nobody_can_compare_tells_nothing(lists: str, found: bool) -> None:
    """By its own clock it was asked for after the read."""
    h = History()
    now = in_steps(h)
    for process, boot in (("o", "here"), ("observer", lists)):
        h.row(process, "start", settings={"writer": process}, **now(boot))
    h.row("r", "subscribe", assigned=True, mode="subscribe", group="g", **now("here"))
    commit(h, 100, **now("here"))
    read(h, 100, by="o", **now("here"))
    h.row("r", "revoke", assigned=False, mode="subscribe", group="g", **now("here"))
    h.row("r", "assign", assigned=True, mode="subscribe", group="g", **now("here"))
    for second in range(1, 40):
        h.time = second
        if second == 2:
            read(h, 220, by="o", **now("here"))
        listed(h, 125 + second, **now(lists))
        h.row("the committer here", "mark", marks=vouched(h, "r", "o"), **now("here"))
        h.row("the committer", "mark", marks=vouched(h, "observer"), **now(lists))
    expected = [foreign(220, 100, 2.004, to=OBSERVER)]
    assert whole(row_by_row(h), VERDICTS) == (expected if found else [])


def test_log_time_may_be_behind_what_is_here_already() -> None:
    """The partition has been observed for the grace time, and the log is complete to the moment after the read."""
    h = History()
    thrown_out(h)
    read(h, 220, by="o")
    read_at = round(h.time, 3)
    h.time = 5.0
    h.observe(end=125)
    later(h)
    now = h.time
    for h.time in (1.0, 2.0, 3.0):
        h.mark()
    h.time = now
    expected = foreign(220, 100, read_at, to=OBSERVER)
    store = row_by_row(h)
    assert whole(store, VERDICTS) == []
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert whole(store, VERDICTS) == [expected]
