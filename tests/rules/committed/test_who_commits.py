"""Who may have committed what a group is told, and when: its members, those of whom nobody knows what they are, and
whoever committed it by another clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from rules.checks.committed import commit_verdicts
from rules.checks.committed.commit_rows import DONE, NEVER, NO_BOOT, Commits, Members
from rules.checks.committed.commit_verdicts import committing, concerned, nobody_committed_elsewhere, nothing_is_missing
from rules.checks.committed.kept_commits import Committed, Floors
from rules.kept.state import Hole, Process, State
from rules.settling.clocks import UNKNOWN
from rules.settling.gate import Evidence

ANY, G, OTHER = 0, 1, 2
HERE, THERE, ELSEWHERE = 0, 1, 2
"""The clocks of three hosts."""
MEMBER, READER_THERE, OBSERVER, OBSERVER_THERE, OTHERS, READER_OF_OTHERS, WRITER, UNHEARD = range(1, 9)
MEMBERS = [
    (MEMBER, G, 0, HERE),
    (READER_THERE, G, 1, THERE),
    (READER_THERE, OTHER, 0, THERE),
    (OBSERVER, ANY, 1, HERE),
    (OBSERVER, G, 1, HERE),
    (OBSERVER_THERE, ANY, 1, THERE),
    (OTHERS, OTHER, 0, HERE),
    (READER_OF_OTHERS, OTHER, 0, HERE),
    (READER_OF_OTHERS, OTHER, 1, HERE),
    (WRITER, ANY, 0, HERE),
]


def members() -> Committed:
    return Committed(groups=["", "g", "other"], members=Members(*np.array(MEMBERS, np.int64).T.copy()))


def test_who_may_commit_for_a_group() -> None:
    """Its members, and those that have not told what they are."""
    may = committing(members(), G)
    assert [one for one in range(1, 9) if may(one)] == [MEMBER, UNHEARD]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [(HERE, [MEMBER, OBSERVER, UNHEARD]), (NO_BOOT, [MEMBER, READER_THERE, OBSERVER, OBSERVER_THERE, UNHEARD])],
)
def test_whose_log_is_waited_for(domain: int, expected: list[int]) -> None:
    """Those that may commit for it, and those that tell of it by this clock."""
    who = concerned(members(), G, State(boot_names=["a", "b"]), domain)
    assert [one for one in range(1, 9) if who.picks(one, Process(first=0, boot=HERE))] == expected


def test_nobody_of_a_later_boot_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_verdicts, "boots_after", lambda state, boot: {ELSEWHERE})
    who = concerned(members(), G, State(), HERE)
    assert [who.picks(MEMBER, Process(first=0, boot=boot)) for boot in (HERE, ELSEWHERE)] == [True, False]


# Who committed it by another clock

SINCE, UNTIL = 100_000_000, 110_000_000
APART = {THERE: 5_000_000, ELSEWHERE: 1_000_000}
"""How far the clocks of the others are from this one, at most."""


class Made(NamedTuple):
    """A commit, of 50 for the group unless it says otherwise, by process 7 at that time."""

    at: int
    domain: int = THERE
    group: int = G
    offset: int = 50
    process: int = 7


class Forgotten(NamedTuple):
    """Commits that are forgotten: the last one's time, and the highest offset."""

    completed: int
    domain: int = THERE
    group: int = G
    highest: int = 50


MEANWHILE, BEFORE, LONG_BEFORE, AFTER = SINCE + 1_000_000, SINCE - 2_000_000, SINCE - 20_000_000, UNTIL + 6_000_000
CASES: list[tuple[str, list[Made], list[Forgotten], Evidence]] = [
    ("nobody", [], [], Evidence.COMPLETE),
    ("by this clock", [Made(MEANWHILE, HERE)], [], Evidence.COMPLETE),
    ("meanwhile", [Made(MEANWHILE)], [], Evidence.UNVERIFIABLE),
    ("perhaps meanwhile", [Made(BEFORE)], [], Evidence.UNVERIFIABLE),
    ("before", [Made(BEFORE, ELSEWHERE)], [], Evidence.COMPLETE),
    ("after", [Made(AFTER)], [], Evidence.COMPLETE),
    ("another offset", [Made(MEANWHILE, offset=60)], [], Evidence.COMPLETE),
    ("another group", [Made(MEANWHILE, group=OTHER)], [], Evidence.COMPLETE),
    ("by one that was over", [Made(MEANWHILE, process=9)], [], Evidence.COMPLETE),
    ("before, and another offset", [Made(LONG_BEFORE), Made(MEANWHILE, offset=60)], [], Evidence.COMPLETE),
    ("before, by both clocks", [Made(LONG_BEFORE), Made(BEFORE, ELSEWHERE)], [], Evidence.COMPLETE),
    ("forgotten", [], [Forgotten(MEANWHILE)], Evidence.UNVERIFIABLE),
    ("forgotten before", [], [Forgotten(LONG_BEFORE)], Evidence.COMPLETE),
    ("forgotten, less than that", [], [Forgotten(MEANWHILE, highest=49)], Evidence.COMPLETE),
    ("forgotten, of another group", [], [Forgotten(MEANWHILE, group=OTHER)], Evidence.COMPLETE),
    ("forgotten before, by both clocks", [], [Forgotten(LONG_BEFORE), Forgotten(BEFORE, ELSEWHERE)], Evidence.COMPLETE),
    (
        "forgotten before, and of another group",
        [],
        [Forgotten(LONG_BEFORE), Forgotten(MEANWHILE, group=OTHER)],
        Evidence.COMPLETE,
    ),
]


def elsewhere(
    made: list[Made],
    forgotten: list[Forgotten],
    monkeypatch: pytest.MonkeyPatch,
    *,
    domain: int = HERE,
    known: bool = True,
    done: int = UNTIL,
) -> Evidence:
    """`known`: are the clocks compared? `done`: when the first of this boot's operations had; before it was `THERE`."""
    monkeypatch.setattr(commit_verdicts, "ahead", lambda state, one, other: APART[one or other] if known else UNKNOWN)
    monkeypatch.setattr(commit_verdicts, "boots_after", lambda state, boot: set())
    monkeypatch.setattr(commit_verdicts, "boots_before", lambda state, boot: {THERE})
    monkeypatch.setattr(commit_verdicts, "first_done", lambda state, boot: done)
    monkeypatch.setattr(commit_verdicts, "_over_before", lambda passage, time, boot: [9])
    at, there, group, offset, process = np.array(made, np.int64).reshape(-1, 5).T
    completed, domains, groups, highest = np.array(forgotten, np.int64).reshape(-1, 4).T
    same = np.ones(len(made), np.int64)
    own = Committed(
        groups=["", "g", "other"],
        commits=Commits(group, there, at, at, at, at, offset, same * DONE, process, same * NEVER),
        floors=Floors(groups, domains, completed, highest),
    )
    passage: Any = SimpleNamespace(state=State())
    return nobody_committed_elsewhere(own, passage, (G, domain), 50, (SINCE, UNTIL))


@pytest.mark.parametrize(("made", "forgotten", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_who_committed_it_elsewhere(
    made: list[Made], forgotten: list[Forgotten], expected: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert elsewhere(made, forgotten, monkeypatch) is expected


def test_that_is_not_known_yet_by_clocks_that_nobody_has_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert elsewhere([Made(LONG_BEFORE)], [], monkeypatch, known=False) is Evidence.NOT_YET
    both = [Made(LONG_BEFORE), Made(MEANWHILE, ELSEWHERE)]
    assert elsewhere(both, [], monkeypatch, known=False) is Evidence.NOT_YET


@pytest.mark.parametrize(
    ("domain", "done", "expected"),
    [
        (HERE, SINCE - 31_000_000, Evidence.COMPLETE),
        (HERE, SINCE - 29_000_000, Evidence.UNVERIFIABLE),
        (NO_BOOT, SINCE - 31_000_000, Evidence.UNVERIFIABLE),
    ],
)
def test_the_boot_before_is_over_when_something_was_done_in_this_one(
    domain: int, done: int, expected: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it had asked for has landed since."""
    monkeypatch.setitem(APART, NO_BOOT, APART[THERE])
    assert elsewhere([Made(MEANWHILE)], [], monkeypatch, domain=domain, done=done) is expected


@pytest.mark.parametrize(
    ("process", "apart", "expected"),
    [(MEMBER, 5, Evidence.UNVERIFIABLE), (MEMBER, UNKNOWN, Evidence.NOT_YET), (OTHERS, 5, Evidence.COMPLETE)],
)
def test_what_is_missing_of_a_log_matters_where_its_process_may_commit(
    process: int, apart: int, expected: Evidence
) -> None:
    hole = Hole(process, SINCE, UNTIL, 0, 1, 0)
    gate = SimpleNamespace(holes=lambda *_: [hole], ahead=lambda *_, strict: apart)
    passage: Any = SimpleNamespace(gate=gate, state=State())
    assert nothing_is_missing(members(), passage, (G, HERE), (SINCE, UNTIL)) is expected


def test_who_was_over_by_a_reboot() -> None:
    """A second before, where the clocks are known to half a second; not a quarter."""
    over = {
        1: Process(first=0, over_by=SINCE - 1_000_000, over_boot=THERE),
        2: Process(first=0, over_by=SINCE - 250_000, over_boot=THERE),
        3: Process(first=0),
    }
    gate = SimpleNamespace(ahead=lambda *_, strict: 500_000)
    passage: Any = SimpleNamespace(gate=gate, state=State(processes=over))
    assert commit_verdicts._over_before(passage, SINCE, HERE) == [1]
