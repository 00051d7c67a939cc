"""Who is waited for before it is judged what a group was told: all that may have committed for it, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from rules.kept.state import Hole
from rules.settling.gate import EVERYBODY, Gate, Who
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.committed.committed_offsets import (
    OBSERVER,
    READER,
    VERDICTS,
    commit,
    foreign,
    later,
    lost,
    on,
    read,
    regression,
)
from tests.rules.committed.test_committed_offsets import went_back
from tests.rules.committed.test_unknown_commits import listed
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import START, History, Store, number, singly
from tests.rules.whole import live, whole


def of_three(h: History) -> None:
    """A writer, a reader of another group and a member of this one have told what they are."""
    h.start("w", writer=str(number("w")))
    h.start("s", **{"group.id": "other"})
    h.start("m", **{"group.id": "g"})


@pytest.mark.parametrize(
    ("hung", "judged"), [("w", True), ("s", True), ("m", False), ("x", False), ("j", False), ("k", False)]
)
def test_only_who_may_commit_for_the_group_is_waited_for(hung: str, judged: bool) -> None:
    """Its call has been open since before the read; of `x` it is not known yet what it is, nor of `j`, of which only
    that it joined another group is known, nor of `k`, which names none."""
    h = History()
    of_three(h)
    h.row("x", "position", position_after=3)
    h.row("j", "subscribe", group="other", mode="subscribe", assigned=False)
    h.row("k", "commit", committed=3, group="")
    hidden = h.row(hung, "position", position_after=3)
    h.rows.remove(hidden)
    went_back(h)
    later(h)
    store = live(row_by_row, 60)(h)
    assert len(whole(store, VERDICTS)) == (3 if judged else 0)
    store.feed([hidden])
    h.rows.clear()
    h.mark(1.0)
    store.feed(h.rows)
    expected = [
        foreign(70, 100, 0.022, to=OBSERVER),
        lost(100, 70, 0.022, to=OBSERVER, after=0.003),
        regression(100, 70, 0.022),
    ]
    assert whole(store, VERDICTS) == expected


@pytest.mark.parametrize(
    ("process", "start", "end", "found"),
    [
        ("m", 0.0, 20.0, False),
        ("m", 10.009, 20.0, False),
        ("m", 0.0, 10.0, True),
        ("m", 13.0, 20.0, True),
        ("w", 0.0, 20.0, True),
        ("s", 0.0, 20.0, True),
        ("x", 0.0, 20.0, False),
    ],
)
def test_a_hole_leaves_open_what_it_touches(
    process: str, start: float, end: float, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process that may commit for the group, between the two that contradict each other: 10.00x s and 12.00x s."""
    hole = Hole(number(process), micros(START) + int(start * 1e6), micros(START) + int(end * 1e6), 0, 1, 0)

    def holes(gate: Gate, since: int, until: int, who: Who = EVERYBODY, boot: int = -1) -> list[Hole]:
        return [hole] if hole.start <= until and since < hole.end else []

    monkeypatch.setattr(Gate, "holes", holes)
    h = History()
    of_three(h)
    h.time = 10.0
    commit(h, 50)
    commit(h, 100)
    read(h, 100, by="o")
    h.time = 12.0
    read(h, 70, by="o")
    later(h)
    assert {one.anomaly for one in whole(live(row_by_row)(h), VERDICTS)} == (set(VERDICTS) if found else set())


@pytest.mark.parametrize(("members", "found"), [([], 0), ([5, 15], 0), ([5], 1)])
def test_a_group_of_which_no_member_is_known_is_waited_for(members: list[int], found: int) -> None:
    """The observer is told what it commits; its members' host has not been heard of for two minutes."""
    h = History()
    read(h, 5, by="o")
    read(h, 15, by="o")
    h.mark()
    later(h)
    late = History()
    if members:
        late.row("m", "start", settings={"group.id": "g"}, invoked=h.at(0), completed=h.at(0))
    for offset in members:
        commit(late, offset, by="m", invoked=h.at(0.001), completed=h.at(0.001))
    store = live(row_by_row, 120)(h)
    assert whole(store, VERDICTS) == []
    late.time = h.time
    late.mark()
    store.feed(late.rows)
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert len(whole(store, VERDICTS)) == found


@pytest.mark.parametrize(("committed", "found"), [(15, 0), (14, 1)])
def test_a_member_that_nobody_has_heard_of_may_have_begun_on_a_host_that_is_late(committed: int, found: int) -> None:
    """Its host tells that the member before it has closed, and then nothing for two minutes."""
    h, there = History(), History()
    there.row("m", "start", settings={"group.id": "g"})
    commit(there, 5, by="m")
    there.row("m", "close")
    closed = there.at(0.01)
    there.row("its committer", "mark", marks=[Mark(number("m"), 3, closed, closed)], invoked=closed, completed=closed)
    h.time = 0.01
    read(h, 5, by="o")
    h.time = 10.0
    read(h, 15, by="o")
    later(h)
    store = Store()
    store.feed(there.rows)
    for _ in range(40):
        h.mark(3.0)
    for row in singly(h.rows):
        store.feed(row)
    assert whole(store, VERDICTS) == []
    late = History()
    late.row("m2", "start", settings={"group.id": "g"}, invoked=h.at(8), completed=h.at(8))
    commit(late, committed, by="m2", invoked=h.at(9), completed=h.at(9))
    now = h.at(h.time)
    late.row("its committer", "mark", marks=[Mark(number("m2"), 2, now)], invoked=now, completed=now)
    store.feed(late.rows)
    h.rows.clear()
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert len(whole(store, VERDICTS)) == found


def test_what_a_group_was_told_is_judged_after_its_last_member_is_over_and_forgotten() -> None:
    """Somebody of whom it is not known what it is has told nothing for a minute."""
    h = History()
    h.row("r", "start", settings={"group.id": "g"})
    h.observe(end=1000)
    h.row("somebody", "position", position_after=3)
    h.mark()
    commit(h, 5)
    read(h, 15)
    h.row("r", "close")
    closed = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(READER, 4, closed, closed)], invoked=closed, completed=closed)
    h.processes = ["o", "observer"]
    for i in range(80):
        commit(h, i, by="o", group="other")
        h.observe(end=1000)
        h.mark(1.0)
    store = row_by_row(h)
    assert whole(store, VERDICTS) == []
    h.rows = []
    h.processes.append("somebody")
    for _ in range(3):
        h.mark(1.0)
    store.feed(h.rows)
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == [("foreign-commit", ("g", 15))]


@pytest.mark.slow
@pytest.mark.parametrize(("dropped_at", "soon"), [(100, True), (65, True), (55, False)])
def test_a_member_that_was_lost_long_before_the_commit_is_not_waited_for(dropped_at: int, soon: bool) -> None:
    """Its host went down at 20 with its journal, and came back at 30. What it had asked for until then has landed half
    a minute later, or never will."""
    h = History()

    def now(boot: str) -> dict[str, Any]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    def mark(boot: str, *processes: str) -> None:
        marks = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in processes]
        h.row("its committer", "mark", marks=marks, **now(boot))

    h.row("m", "start", settings={"group.id": "g"}, **now("first"))
    commit(h, 1, by="m", **now("first"))
    for second in range(1, 140):
        h.time = second
        if second < 20:
            mark("first", "m")
        if second >= 30:
            commit(h, 1000 + second, **now("second"))
            read(h, 1000 + second - (second == dropped_at), **now("second"))
            h.row("observer", "offsets", log_start=0, log_end=5000, last_stable=5000, **now("second"))
            mark("second", "r", "observer")
    said = whole(row_by_row(h), VERDICTS)
    committed = 1000 + dropped_at
    assert [(one.anomaly, one.subject) for one in said] == (
        [("lost-commit", ("g", committed, committed - 1))] if soon else []
    )


@pytest.mark.slow
@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize(("ends", "read_at"), [("", 90), ("lost", 90), ("lost", 200), ("closed", 90)])
def test_a_member_that_is_over_holds_the_partition_no_longer(ends: str, read_at: int, compared: bool) -> None:
    """Lost, it never said that it let go. Who holds the partition since may live on its host, which is late. By how
    much the clock of that host is ahead is not known, unless they are `compared`: then the group's log is awaited."""
    h = History()
    slices = h._slices

    def now(boot: str) -> dict[str, Any]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    h.row("other", "start", settings={"writer": "1"}, **now("there"))
    h.row("o", "start", settings={"writer": "2"}, **now("here"))
    h.row("m", "start", settings={"group.id": "g"}, **now("there"))
    h.row("m", "subscribe", assigned=True, mode="subscribe", group="g", **now("there"))
    commit(h, 5, by="m", **now("there"))
    h.send("m", 0, 1, at=0, **now("there"))
    h.poll("o", [("m", 0, 1, 0)], **now("here"))
    if compared:
        h.send("o", 0, 1, at=1, **now("here"))
        h.poll("m", [("o", 0, 1, 1)], **now("there"))
    for second in range(1, read_at + 60):
        h.time = second
        if second == 5 and ends == "closed":
            h.row("m", "close", **now("there"))
        over = second == 5 and ends
        if second <= 5 or not ends:
            ended = h.at(second) if over else None
            told = Mark(number("m"), slices[number("m"), 0], h.at(second), ended, lost=ends == "lost" and second == 5)
            others = [Mark(number("other"), 1, h.at(second))]
            h.row("its committer", "mark", marks=[told, *others], **now("there"))
        if second in (82, read_at):
            read(h, 5 if second == 82 else 15, by="o", **now("here"))
        h.row("observer", "offsets", log_start=0, log_end=100, last_stable=100, **now("here"))
        marks = [Mark(number(p), slices[number(p), 0], h.at(h.time)) for p in ("o", "observer")]
        h.row("committer", "mark", marks=marks, **now("here"))
    found = [(one.anomaly, one.subject) for one in whole(row_by_row(h), VERDICTS)]
    assert found == ([] if ends or not compared else [("foreign-commit", ("g", 15))])


@pytest.mark.parametrize("at_once", [False, True])
def test_the_next_boot_of_a_host_delays_and_excuses_nothing(at_once: bool) -> None:
    """Nobody knows how the clocks of two boots of one host differ, and yet which of them came first."""
    h = History()

    def now(boot: str) -> dict[str, Any]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    for boot, member, begins in (("first", "r", 1), ("second", "q", 60)):
        for second in range(begins, begins + 40):
            h.time = second
            commit(h, 1000 + second, by=member, **now(boot))
            read(h, 1000 + second - (second == 25), by=member, **now(boot))
            h.row(f"{boot} o", "offsets", log_start=0, log_end=5000, last_stable=5000, **now(boot))
            told = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in (member, f"{boot} o")]
            h.row("its committer", "mark", marks=told, **now(boot))
    store = row_by_row(h) if not at_once else Store()
    if at_once:
        store.feed(h.rows)
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == [("lost-commit", ("g", 1025, 1024))]


def test_how_far_others_are_behind_decides_nothing() -> None:
    """All commits after 1049 are dropped. Half of what is told of them waits for another host, and is here."""
    h = History()
    h.start("s")
    slow: list[Slice] = []
    for second in range(1, 100):
        h.time = second + 0.8
        commit(h, 1000 + second)
        h.time = second + 1.2
        read(h, 1000 + min(second, 49))
        h.observe(end=5000)
        h.processes = ["r", "observer"]
        h.mark()
        told = [Mark(number("s"), 1, h.at(h.time))]
        slow.append(h.row("slow", "mark", marks=told, invoked=h.at(h.time), completed=h.at(h.time)))
    behind = Store()
    behind.feed([row for row in h.rows if row not in slow[75:]])
    behind.feed(slow[75:])
    expected = [("lost-commit", ("g", 1000 + second, 1049)) for second in range(50, 100)]
    for store in (row_by_row(h), behind):
        said = [(one.anomaly, one.subject) for one in whole(store, VERDICTS)]
        assert said == expected[: len(said)] and len(said) > 35


def test_nobody_went_back_while_a_log_is_missing() -> None:
    """A process whose log never completes may have asked for it."""
    h = History()
    commit(h, 100)
    hidden = h.row("q", "commit", committed=70, group="g")
    h.row("q", "position", position_after=3)
    read(h, 100)
    read(h, 70)
    for _ in range(70):
        h.mark(20.0)
    h.rows.remove(hidden)
    assert whole(row_by_row(h), VERDICTS) == []


@pytest.mark.slow
@pytest.mark.parametrize(("behind", "told"), [(0, True), (40, True), (52, False)])
def test_a_hole_whose_end_nobody_can_compare_yet_is_waited_for(behind: int, told: bool) -> None:
    """A member of another host was lost with its journal, which the next boot tells, by a clock that is so far behind.
    By 100 records tell how far: then it is known whether it may have committed between 58 and the read after it."""
    h, store = History(), Store()

    def now(boot: str, off: int = 0) -> dict[str, Any]:
        h.time += 0.004
        ms = round((h.time - off) * 1000)
        return {"invoked": h.at(h.time - off - 0.003), "completed": h.at(h.time - off), **on(boot, ms - 3, ms)}

    def mark(committer: str, when: dict[str, Any], off: int, *processes: str, more: tuple[Mark, ...] = ()) -> None:
        marks = [Mark(number(p), h._slices[number(p), 0], h.at(h.time - off)) for p in processes]
        h.row(committer, "mark", marks=[*marks, *more], **when)

    h.row("m", "start", settings={"group.id": "g"}, **now("first"))
    h.row("m", "subscribe", assigned=True, mode="subscribe", group="g", **now("first"))
    for process in ("q", "observer"):
        h.row(process, "start", settings={"writer": process}, **now("here"))
    for second in range(1, 140):
        h.time, there = second, ("second", behind)
        if second < 5:
            mark("theirs", now("first"), 0, "m")
        if second == 8 + behind:
            h.row("p", "start", settings={"writer": "p"}, **now(*there))
            over = Mark(number("m"), 2, h.at(4), h.at(8), lost=True)
            mark("theirs", now(*there), behind, "p", more=(over,))
        if second == 100:
            h.send("p", 0, 1, at=5000, **now(*there))
            h.poll("q", [("p", 0, 1, 5000)], **now("here"))
            h.send("q", 0, 1, at=5001, **now("here"))
            h.poll("p", [("q", 0, 1, 5001)], **now(*there))
        if second > 8 + behind:
            mark("theirs", now(*there), behind, "p")
        commit(h, 1000 + second, **now("here"))
        read(h, 1000 + second - (second == 58), **now("here"))
        listed(h, 5000, **now("here"))
        mark("ours", now("here"), 0, "r", "q", "observer")
        store.feed(h.rows)
        h.rows.clear()
        if second == 98:
            assert whole(store, VERDICTS) == []
    found = [(one.anomaly, one.subject) for one in whole(store, VERDICTS)]
    assert found == ([("lost-commit", ("g", 1058, 1057))] if told else [])
