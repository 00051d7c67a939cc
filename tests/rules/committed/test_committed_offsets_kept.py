"""What is kept of what groups committed: bounded, and asked for by the same times as it is judged by."""

from __future__ import annotations

import pytest

from rules.checks.committed import kept_commits
from rules.step import HELD
from rules.vocabulary.slices import Mark
from tests.known import known
from tests.rules.committed.committed_offsets import (
    OBSERVER,
    RULES,
    VERDICTS,
    commit,
    foreign,
    later,
    lost,
    on,
    read,
)
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import whole


def test_which_offsets_were_committed_is_remembered_in_bitmaps_and_forgotten_below_the_log_start() -> None:
    """An offset below is not called foreign: nobody knows any more who asked for it."""
    h = History()
    for i in range(450):
        commit(h, i * 1000)
        if i % 50 == 49:
            h.observe(start=max(0, i * 1000 - 70_000), end=1 << 20)
            h.mark(1.0)
    h.mark(1.0)
    store = row_by_row(h)
    (kept,) = store.stored.values()
    names = sorted(name for name in kept.chunks if name.startswith("commits."))
    assert [int(name.rpartition(".")[2]) for name in names] == [5, 6]
    h.rows.clear()
    read(h, 5000)
    read(h, 375_500)
    read(h, 374_000)
    later(h)
    for _ in range(3):
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    assert {(one.anomaly, one.subject) for one in whole(store, ("foreign-commit",))} == {
        ("foreign-commit", ("g", 375_500))
    }


def test_what_is_kept_is_bounded() -> None:
    """Hours of a group's life, of commits that nobody answers, and of many groups, whose names go with them."""
    store = Store()
    sizes = []
    h = History()
    for hour in range(6):
        for i in range(300):
            n = hour * 300 + i
            commit(h, 10 * n, by="r")
            read(h, 10 * n, by="r")
            read(h, 10 * n, by="o")
            commit(h, 10 * n + 5, by="q", type="info", group=f"of-{n}")
            if i % 5 == 4:
                h.observe(start=10 * n, end=10 * n + 10)
                h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
        sizes.append(len(known(next(iter(store.stored.values())).hot)))
    assert max(sizes[2:]) < 1.2 * sizes[1]
    assert whole(store, VERDICTS) == []


def marked(h: History, at: int) -> None:
    """All that both processes have done is here, at `at` milliseconds of the boot's clock."""
    now = h.at(at / 1000)
    marks = [Mark(number(who), h._slices[number(who), 0], now) for who in ("r", "o")]
    h.row("committer", "mark", marks=marks, invoked=now, completed=now, **on("b", at, at))


def test_a_commit_that_only_the_wall_clock_puts_before_a_read_explains_nothing() -> None:
    """What a step asks of the store rests on the same times as its verdict: the bitmaps of the group are there."""
    h, store = History(), Store()
    h.start("r", **{"group.id": "g"})
    h.start("o")
    commit(h, 50, invoked=h.at(1.0), completed=h.at(1.01), **on("b", 1000, 1010))
    read(h, 50, by="o", invoked=h.at(1.5), completed=h.at(1.51), **on("b", 1500, 1510))
    marked(h, 3000)
    store.feed(h.rows)
    fed = len(h.rows)
    read(h, 70, by="o", invoked=h.at(4.0), completed=h.at(4.01), **on("b", 4000, 4010))
    commit(h, 70, invoked=h.at(-50.0), completed=h.at(-49.0), **on("b", 5000, 5010))
    marked(h, 8000)
    store.feed(h.rows[fed:])
    fed = len(h.rows)
    seen = h.at(30.0)
    h.row("o", "offsets", log_start=0, log_end=100, invoked=seen, completed=seen, **on("b", 30_000, 30_000))
    marked(h, 31_000)
    store.feed(h.rows[fed:])
    assert whole(store, RULES) == [foreign(70, 50, 4.01, to=OBSERVER)]


@pytest.mark.parametrize("lower", [False, True])
def test_what_is_forgotten_of_later_commits_takes_nothing_from_an_earlier_one(lower: bool) -> None:
    """Aborted transactions went on from an acknowledged commit, and are not kept; then the group is told nothing, or
    what one of them would have committed."""
    h, store = History(), Store()
    commit(h, 31)
    for offset in (43, 32, 113, 20 if lower else 114):
        commit(h, offset, type="fail")
    for n in range(400):
        commit(h, n, by="q", group="other")
        read(h, n, by="q", group="other")
        if n % 100 == 99:
            h.mark(1.0)
            store.feed(h.rows)
            h.rows.clear()
    read(h, 20 if lower else None)
    asked = h.time
    later(h)
    for _ in range(3):
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    told = whole(store, VERDICTS)
    after = told[0].evidence["after_s"] if told else 0.0
    assert told == ([] if lower else [lost(31, None, round(asked, 3), after=after)])


@pytest.mark.parametrize("guilty", [True, False])
def test_what_log_time_has_not_come_to_is_no_backlog(guilty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is read again: log time is a quarter of an hour behind what has come. One of the first offsets that
    the observer was told is one that nobody committed, and what is told after that is more than may wait."""
    monkeypatch.setattr(kept_commits, "WAITING_KEPT", 16)
    h, store = History(), Store()
    store.store.held = HELD
    commit(h, 5)
    h.mark(1.0)
    read(h, 3 if guilty else 5, by="o")
    for i in range(200):
        commit(h, 10 + i)
        read(h, 10 + i, by="o")
        later(h, 1.0)
        if i % 2:
            h.mark(0.1)
        if i % 40 == 0:
            store.feed(h.rows)
            h.rows.clear()
    for _ in range(12):
        h.mark(100.0)
        h.observe(end=1000)
    store.feed(h.rows)
    store.settle()
    told = whole(store, VERDICTS)
    expected = {("foreign-commit", ("g", 3)), ("lost-commit", ("g", 5))} if guilty else set()
    assert {(one.anomaly, one.subject[:2]) for one in told} == expected
    dropped = {one.subject for one in whole(store, ["window-overflow"])}
    assert ("readings of committed offsets",) not in dropped
