"""Which rows say what a group committed, was told, and who its members are: those beside them say nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.checks.committed import invoked_commits, kept_commits
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
    on,
    read,
    regression,
)
from tests.rules.committed.test_committed_to_members import join
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, finished, live, whole

S = number("s")


def nothing_committed(h: History) -> None:
    """A transaction of the group that only wrote here is no commit of less."""
    commit(h, 50)
    commit(h, 100)
    h.txn("t", sends=[("t", 0, 1, 0)], txn=1, group="g")
    read(h, 50)


def committed_when_nobody_knows(h: History) -> None:
    """A row that names its boot, and no time of it, comes before or after any other."""
    commit(h, 100, boot="a")
    read(h, 50, **on("a", 5, 6))


def went_on_elsewhere(h: History) -> None:
    """What its transaction had polled to, where it asked for another offset, is none that anybody may be told."""
    h.txn("t", polls=[("w", 0, 1, 69)], type="fail", txn=1, committed=70, group="g", position_after=90)
    commit(h, 100)
    read(h, 90)


def none_to_one_that_was_told_something_before_it_joined(h: History) -> None:
    """It became a member after the commit."""
    read(h, None, by="s")
    commit(h, 100)
    join(h, "s")
    read(h, None, by="s")


def assigned_without_a_group(h: History) -> None:
    """In mode `assign` nobody else can be given the partition."""
    commit(h, 100)
    h.row("r", "assign", group="g", mode="assign", assigned=True)
    read(h, 115)


def held_while_a_row_does_not_say_so(h: History) -> None:
    join(h, "r")
    commit(h, 100)
    h.row("r", "subscribe", group="g", mode="subscribe", type="fail")
    h.poll("r", [], mode="subscribe", position_after=100)
    read(h, 115)


def beside_a_host_that_names_its_boot(h: History) -> None:
    h.send("w", 0, at=0, **on("a", 1, 2))
    commit(h, 50)
    commit(h, 100)
    read(h, 50)


def told_in_no_time(h: History) -> None:
    """As by a clock of milliseconds: what it is told itself is nothing that was told before."""
    commit(h, 100)
    read(h, 100, by="o")
    h.time += 0.001
    read(h, 70, by="o", invoked=h.at(h.time), completed=h.at(h.time))


def told_too_much_after_something_from_before(h: History) -> None:
    """What is excused is only what was told first."""
    read(h, 500, by="o")
    commit(h, 520)
    read(h, 530, by="o")


def while_one_that_never_held_it_closes(h: History) -> None:
    h.assign("r", f="subscribe", group="g")
    commit(h, 100)
    h.row("z", "close")
    read(h, 115)


def told_the_old_one_again(h: History) -> None:
    """By the same coordinator, which does not know of the commit; what it told meanwhile was the old one as well."""
    commit(h, 50)
    commit(h, 100)
    for _ in range(3):
        read(h, 50, by="o")


def told_more_before_the_group_went_back(h: History) -> None:
    """That it had known of more says nothing of a commit that came later."""
    commit(h, 200)
    read(h, 200, by="o")
    commit(h, 40)
    commit(h, 100)
    read(h, 40, by="o")


CASES: list[tuple[Callable[[History], None], list[Told]]] = [
    (nothing_committed, [lost(100, 50, 0.008, after=0.003)]),
    (committed_when_nobody_knows, []),
    (went_on_elsewhere, [lost(100, 90, 0.006), foreign(90, 100, 0.006)]),
    (none_to_one_that_was_told_something_before_it_joined, [lost(100, None, 0.01, to=S, after=0.005)]),
    (assigned_without_a_group, [foreign(115, 100, 0.006)]),
    (held_while_a_row_does_not_say_so, [foreign(115, 100, 0.012)]),
    (beside_a_host_that_names_its_boot, [lost(100, 50, 0.008)]),
    (
        told_in_no_time,
        [
            lost(100, 70, 0.005, to=OBSERVER, after=0.003),
            foreign(70, 100, 0.005, to=OBSERVER),
            regression(100, 70, 0.005),
        ],
    ),
    (told_too_much_after_something_from_before, [foreign(530, 520, 0.006, to=OBSERVER)]),
    (while_one_that_never_held_it_closes, [foreign(115, 100, 0.008)]),
    (told_the_old_one_again, []),
    (told_more_before_the_group_went_back, []),
]


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once), finished], ids=["row_by_row", "at_once", "finished"])
@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_which_rows_count(build: Callable[[History], None], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    found = whole(fed(h), VERDICTS if expected else RULES)
    assert found == in_order(expected, fed is finished)


@pytest.mark.parametrize("fed", [live(row_by_row), finished], ids=["row_by_row", "finished"])
def test_a_zero_after_more_was_told_is_spurious_and_nothing_else(fed: Fed) -> None:
    h = History()
    commit(h, 100)
    read(h, 100)
    read(h, 0)
    later(h)
    assert [one.anomaly for one in whole(fed(h), RULES)] == ["spurious-zero-offset"]


def test_what_is_known_by_itself_is_not_looked_for_where_it_was_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest commits are; what a step asks the store for is what it will want."""
    monkeypatch.setattr(invoked_commits, "PENDING", 2)
    h, store = History(), Store()
    for offset in (100, 110, 120, 130):
        commit(h, offset)
    for _ in range(2):
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    read(h, 110)
    asked = round(h.time, 3)
    later(h)
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    (told,) = whole(store, VERDICTS)
    assert told == lost(130, 110, asked, after=told.evidence["after_s"])


def test_groups_that_are_not_followed_are_none_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them was told is nothing that another had been told before."""
    monkeypatch.setattr(kept_commits, "GROUPS", 1)
    h = History()
    for group, offset in (("g", 5), ("one", 100), ("another", 70)):
        commit(h, 5, by=group, group=group)
        read(h, offset, by="o", group=group)
    read(h, 3, by="o")
    later(h)
    assert whole(finished(h), VERDICTS) == in_order(
        [
            lost(5, 3, 0.014, to=OBSERVER, by=number("g"), after=0.011),
            foreign(3, 5, 0.014, to=OBSERVER),
            regression(5, 3, 0.014),
        ],
        True,
    )


def test_what_groups_that_are_not_followed_commit_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what they committed long ago, which is written into bitmaps."""
    monkeypatch.setattr(kept_commits, "GROUPS", 1)
    monkeypatch.setattr(invoked_commits, "PENDING", 2)
    h, store = History(), Store()
    commit(h, 100)
    for offset in range(110, 120):
        commit(h, offset, by="another", group="another")
    for _ in range(2):
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    read(h, 115)
    asked = round(h.time, 3)
    later(h)
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert whole(store, VERDICTS) == [foreign(115, 100, asked)]
