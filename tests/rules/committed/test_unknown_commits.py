"""Committed offsets where something is not known: what a member did last, or by how much its clock is ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rules.checks.committed import unknown_commits
from rules.checks.committed.invoked_commits import InvokedCommits, Newly, add, certainly_never, write
from rules.checks.committed.unknown_commits import Unknown, UnknownCommits, may_hold
from rules.kept.chunks import Chunks
from rules.kept.state import NEVER, State
from rules.settling.gate import Gate
from rules.vocabulary.slices import Mark, Slice
from tests.rules.committed.committed_offsets import VERDICTS, commit, on, read
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number, without
from tests.rules.whole import whole


def in_steps(h: History) -> Callable[[str], dict[str, Any]]:
    """Times of operations, one after the other, by the clock of a boot."""

    def now(boot: str) -> dict[str, Any]:
        h.time += 0.004
        ms = round(h.time * 1000)
        return {"invoked": h.at(h.time - 0.003), "completed": h.at(h.time), **on(boot, ms - 3, ms)}

    return now


def listed(h: History, end: int, by: str = "observer", **when: Any) -> None:
    h.row(by, "offsets", log_start=0, log_end=end, last_stable=0, **when)


def vouched(h: History, *processes: str) -> list[Mark]:
    return [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in processes]


@pytest.mark.parametrize(
    ("told", "lost_one", "known_at", "foreign"),
    [
        *((305, {"group.id": "g"}, known_at, False) for known_at in (30, 80, 125)),
        *((455, {"group.id": "g"}, known_at, True) for known_at in (30, 80, 125)),
        *((305, {"writer": "1"}, known_at, True) for known_at in (30, 125)),
    ],
)
@pytest.mark.slow
def test_what_a_member_that_was_lost_may_have_committed_is_nobody_s_invention(
    told: int, lost_one: dict[str, str], known_at: int, foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host went down at 20 with its journal, and came back at 30, when the log's end was 400: the one that was lost
    cannot have asked for more, and not for anything if it is no member; also where that is known only later. However
    often it is told, it needs no more room than one."""
    monkeypatch.setattr(unknown_commits, "KEPT", 1)
    h = History()
    now = in_steps(h)
    h.row("m", "start", settings=lost_one, **now("first"))
    h.row("the first observer", "start", settings={"writer": "2"}, **now("first"))
    for second in range(1, 160):
        h.time, boot = second, "first" if second < 20 else "second"
        if second < 10:
            if "group.id" in lost_one:
                commit(h, 100 + 10 * second, by="m", **now(boot))
            listed(h, 100 + 10 * second, "the first observer", **now(boot))
            h.row("its committer", "mark", marks=vouched(h, "m", "the first observer"), **now(boot))
        if second == 30:
            h.row("q", "start", settings={"writer": "3"}, **now(boot))
        if second >= 30:
            h.poll("q", [], **now(boot))  # which tells nothing of the log's end
            commit(h, 100 + 10 * second, **now(boot))
            read(h, told if second == 130 else 100 + 10 * second, **now(boot))
            listed(h, 100 + 10 * second, **now(boot))
            over = [Mark(number("m"), h._slices[number("m"), 0], h.at(9), h.at(30), lost=True)]
            known = vouched(h, "q", "r", "observer") + (over if second >= known_at else [])
            h.row("its committer", "mark", marks=known, **now(boot))
    said = [(one.anomaly, one.subject) for one in whole(row_by_row(h), VERDICTS)]
    lost = ("lost-commit", ("g", 1400, told))
    nobody_s = [("foreign-commit", ("g", told)), lost, ("offset-regression", ("g", 1390, told))]
    assert said == (nobody_s if foreign else [lost])


@pytest.mark.parametrize(("read_at", "foreign"), [(30, True), (80, False)])
def test_what_a_member_did_in_a_hole_was_not_committed_before_it(read_at: int, foreign: bool) -> None:
    """What it did from 50 to 60 is missing for good, as all is judged at once."""
    h = History()
    now = in_steps(h)
    h.row("m", "start", settings={"group.id": "g"}, **now("boot"))
    for second in range(1, 120):
        h.time = second
        commit(h, 100 + 10 * second, **now("boot"))
        read(h, 355 if second == read_at else 100 + 10 * second, **now("boot"))
        listed(h, 100 + 10 * second, **now("boot"))
        over = h.at(60) if second >= 60 else None
        own = Mark(number("m"), 1, h.at(min(second, 50)), over, lost=second >= 60)
        h.row("its committer", "mark", marks=[*vouched(h, "r", "observer"), own], **now("boot"))
    store = Store()
    store.feed(h.rows)
    said = {one.anomaly for one in whole(store, VERDICTS)}
    assert ("foreign-commit" in said) == foreign
    assert "lost-commit" in said


def test_of_what_was_missing_longest_ago_only_the_highest_offset_is_remembered() -> None:
    gate = Gate(State())
    assert [may_hold(UnknownCommits(to=50), offset, 0, -1, lambda _: True, gate) for offset in (50, 51)] == [
        True,
        False,
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("committed", "compared", "soon", "told"),
    [
        ([1059], True, False, True),
        ([1059], False, False, False),
        ([1058], False, True, True),
        # The first ones are forgotten: of these the highest is known, and when they were over.
        ([1059, *range(8)], True, False, True),
        ([1059, *range(8)], False, False, False),
        ([1058, *range(8)], False, True, True),
    ],
)
def test_a_lost_commit_waits_for_what_tells_how_far_a_member_s_clock_is_ahead(
    committed: list[int], compared: bool, soon: bool, told: bool
) -> None:
    """The member on the other host committed as much long before; by its clock alone nobody knows that. Where it
    committed something else, its clock does not matter."""
    h, late = History(), list[Slice]()
    now = in_steps(h)
    for offset in committed:
        commit(h, offset, by="s", **now("there"))
    h.row("s", "close", **now("there"))
    ended = h.at(h.time)
    for process, boot in (("z", "there"), ("p", "there"), ("q", "here")):
        h.row(process, "start", settings={"writer": "1"}, **now(boot))
    for second in range(1, 120):
        h.time = second
        commit(h, 1000 + second, **now("here"))
        read(h, 1000 + second - (second == 60), **now("here"))
        listed(h, 5000, **now("here"))
        if second == 5:
            late.append(h.send("p", 0, 1, at=5000, **now("there")))
            late.append(h.poll("q", [("p", 0, 1, 5000)], **now("here")))
            late.append(h.send("q", 0, 1, at=5001, **now("here")))
            late.append(h.poll("p", [("q", 0, 1, 5001)], **now("there")))
        for boot, living in (("here", ("r", "observer", "q")), ("there", ("z", "p"))):
            marks = vouched(h, *living)
            marks += [Mark(number("s"), len(committed) + 1, ended, ended)] if boot == "there" else []
            h.row(f"the committer {boot}", "mark", marks=marks, **now(boot))
    at = len(h.rows)
    h.time = 121
    h.row("the committer here", "mark", **now("here"))
    rows, more = without(h.rows[:at], late), h.rows[at:]
    h.rows = rows
    store = row_by_row(h)
    lost = [("lost-commit", ("g", 1060, 1059))]
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == (lost if soon else [])
    store.feed([*(late if compared else []), *more])
    assert [(one.anomaly, one.subject) for one in whole(store, VERDICTS)] == (lost if told else [])


@pytest.mark.parametrize("written", [False, True], ids=["pending", "written"])
def test_what_a_group_was_asked_to_commit_says_nothing_of_another_group_or_offset(written: bool) -> None:
    own, chunks, names = InvokedCommits(), Chunks({}, None), ["", "g", "h"]
    asked = [(1, 5), (1, 70_005), (2, 9)]
    add(own, Newly(*np.array([(group, offset, 0, -1) for group, offset in asked], np.int64).T))
    if written:
        assert write(own, chunks, names, np.zeros(len(asked), bool)) == 0
    known = [
        (group, offset)
        for group in (1, 2)
        for offset in (5, 9, 70_005, 70_005 % 65_536, 65_536 + 5)
        if not certainly_never(own, chunks, group, offset, names, lambda since, domain: True)
    ]
    assert known == asked


@pytest.mark.parametrize("kept", [3, 2], ids=["room", "too many"])
def test_of_too_many_holes_those_are_forgotten_that_leave_least_unknown(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is one after which nobody has listed the log's end: any offset may have been committed in it."""
    monkeypatch.setattr(unknown_commits, "KEPT", kept)
    tops = np.array([NEVER, 5, 9])
    any_three = np.arange(3)
    own = UnknownCommits(holes=Unknown(any_three, any_three, any_three, any_three, any_three, tops))
    unknown_commits._bound(own)
    assert (own.to, own.holes.top.tolist()) == ((-1, [NEVER, 5, 9]) if kept == 3 else (5, [NEVER, 9]))
