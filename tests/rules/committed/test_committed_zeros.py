"""`spurious-zero-offset` of committed offsets where a member's log comes late, is given up, or is lost."""

from __future__ import annotations

import pytest

from rules.vocabulary.slices import Mark
from tests.rules.committed.test_zero_offsets import Fed, commit, committed, read
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number, singly
from tests.rules.whole import Told, whole


def after_a_lost_log(h: History, *, lost: bool, again: bool) -> None:
    """Member `s` of the group lives for half a minute, and what it did from second 10 on is lost. The offset reads 0
    from second 40 on, for hours; or it is committed once more, and reads 0 long after that."""
    h.row("s", "start", kind="reader", settings={"group.id": "g"})
    h.assign("s", f="subscribe")
    commit(h)
    for second in (5, 10, 20, 30, *range(40, 9_000, 120)):
        h.time = second
        if again and second == 2_440:
            commit(h, 7)
        if second >= 40 and not (again and second < 8_000):
            read(h)
        h.observe(end=9)
        marks = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in h.processes if p != "s"]
        over = h.at(30) if second >= 30 else None
        if second < 60:
            marks.append(Mark(number("s"), 2, h.at(min(second, 10 if lost else 30)), over, lost=lost and second >= 30))
        h.row("committer", "mark", marks=marks, invoked=h.at(h.time), completed=h.at(h.time))


@pytest.mark.parametrize("fed", [row_by_row, at_once])
@pytest.mark.parametrize(
    ("lost", "again", "told"),
    [(False, False, [committed(5, 40.002)]), (True, False, []), (True, True, [committed(7, 8_080.002)])],
    ids=["nothing_is_lost", "lost", "committed_again"],
)
def test_what_may_have_been_asked_for_in_a_log_that_is_lost_explains_a_zero_for_good(
    lost: bool, again: bool, told: list[Told], fed: Fed
) -> None:
    h = History()
    after_a_lost_log(h, lost=lost, again=again)
    assert whole(fed(h), ["spurious-zero-offset"]) == told


@pytest.mark.parametrize("waits", [60, 700], ids=["late", "given_up"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("offset", [0, 7])
def test_a_zero_waits_for_a_member_s_late_log_also_where_it_was_given_up(offset: int, before: bool, waits: int) -> None:
    """It had asked for 0; or for 7, and nobody else for more."""
    h, store = History(), Store()
    h.row("s", "start", kind="reader", settings={"group.id": "g"})
    h.assign("s", f="subscribe")
    if before:
        commit(h)
    h.row("s", "commit", committed=offset, group="g")
    late = h.rows[-1]
    read(h)
    for _ in range(0, waits, 10):
        h.mark(10.0)
    for row in singly([row for row in h.rows if row is not late]):
        store.feed(row)
    assert whole(store, ["spurious-zero-offset"]) == []
    for rows in ([late], [h.mark(1.0)], [h.mark(1.0)]):
        store.feed(rows)
    told = [committed(7, 0.010 if before else 0.008)]
    assert whole(store, ["spurious-zero-offset"]) == (told if offset else [])
