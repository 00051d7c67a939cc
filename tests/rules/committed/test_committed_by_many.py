"""Groups of which more hosts and members are heard of than are kept."""

from __future__ import annotations

import numpy as np
import pytest

from rules.checks.committed import kept_commits
from rules.checks.committed.commit_rows import DONE, NEVER, Commits, Holds, Reads
from rules.checks.committed.kept_commits import DOMAINS, Committed, Floors
from rules.kept.report import Report
from rules.kept.state import Hole, Process, State
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from tests.rules.committed.committed_offsets import commit
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History
from tests.rules.whole import whole

HOSTS = 40
"""More than boots that are over are kept."""


@pytest.mark.parametrize("living", [HOSTS, 3], ids=["they live", "they are over"])
def test_what_was_committed_on_each_host_is_known_while_somebody_lives_there(living: int) -> None:
    """What one of its members committed explains what is told instead of another host's commit. Of hosts that are over
    the last are remembered."""
    n = np.arange(HOSTS)
    same = np.ones(HOSTS, np.int64)
    own = Committed(
        groups=["", "g"],
        commits=Commits(same, n, n * 10 + 1, n * 10, n * 10, n * 10 + 1, n, same * DONE, n, same * NEVER),
        floors=Floors(same, n, n * 10, n),
    )
    state = State(processes={number: Process(first=0, boot=number) for number in range(living)})
    kept_commits.forget(own, Report(Place("c", "t", 0), state, Objectives()), set(), (NEVER, -1))
    kept = [*range(living), *range(max(living, HOSTS - DOMAINS), HOSTS)]
    assert own.commits.domain.tolist() == own.floors.domain.tolist() == kept


def holding(rows: list[tuple[int, int, int]], *living: int, until: int, most: int) -> tuple[list[list[int]], State]:
    """What is left of [process, at, holds] where all is here `until` then, and no read waits."""
    process, at, holds = np.array(rows, np.int64).T
    own = Committed(groups=["", "g"], holds=Holds(np.ones(len(rows), np.int64), process, at, holds, process * 0 - 1))
    state = State(processes={number: Process(first=0) for number in living})
    report = Report(Place("c", "t", 0), state, Objectives())
    kept_commits.forget(own, report, set(), (NEVER, until))
    left = own.holds
    assert len(left) <= most
    return [list(one) for one in zip(left.process.tolist(), left.at.tolist(), left.holds.tolist(), strict=True)], state


def test_what_says_the_same_again_is_no_change_of_who_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rebalance tells each member again what it holds."""
    monkeypatch.setattr(kept_commits, "HOLDS_KEPT", 3)
    told = [(number, at, number % 2) for at in range(1, 50) for number in (1, 2)]
    left, state = holding(told, 1, 2, until=100, most=2)
    assert left == [[1, 1, 1], [2, 1, 0]]
    assert not state.dropped


def test_of_too_many_changes_of_who_holds_the_oldest_go_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_commits, "HOLDS_KEPT", 4)
    told = [(number, 10 * at + number, at % 2) for at in range(1, 5) for number in (9, 2)]
    left, state = holding(told, 2, 9, until=-1, most=4)
    assert left == [[2, 32, 1], [9, 39, 1], [2, 42, 0], [9, 49, 0]]
    assert state.dropped["changes of who holds the partition"][0] == 4


@pytest.mark.parametrize("groups", [4, 8], ids=["room", "too many"])
def test_that_more_groups_commit_than_are_followed_is_told(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_commits, "GROUPS", 4)
    h = History()
    for i in range(groups):
        commit(h, i, by=f"p{i}", group=f"g{i}")
    for _ in range(3):
        h.mark(1.0)
    told = [one.subject for one in whole(row_by_row(h), ["window-overflow"]) if one.event == "opened"]
    assert told == ([("commits and readings of further groups",)] if groups > 4 else [])


def test_the_number_of_a_group_that_is_gone_is_given_again() -> None:
    groups = ["", None, "g"]
    assert [kept_commits.number_of_group(groups, name) for name in ("g", "h", "i", "h")] == [2, 1, 3, 1]


G, OTHER, HERE, THERE = 1, 2, 0, 1


@pytest.mark.parametrize(
    ("lower", "floor", "spoiled"),
    [
        ((G, HERE, 20), None, 20),
        ((G, THERE, 20), None, NEVER),  # by another clock nobody knows when that was
        ((OTHER, HERE, 20), None, NEVER),
        ((G, HERE, 5), None, NEVER),  # it was over before
        (None, (G, HERE, 100), -1),
        (None, (G, THERE, 100), NEVER),
        (None, (OTHER, HERE, 100), NEVER),
        (None, (G, HERE, 9), NEVER),
    ],
)
def test_since_when_a_lower_commit_may_have_taken_its_place(
    lower: tuple[int, int, int] | None, floor: tuple[int, int, int] | None, spoiled: int
) -> None:
    """`lower`, `floor`: (group, clock, when) of one that asked for less, and of the last that is forgotten. The commit
    of 100 was invoked at 10."""
    made = [(G, HERE, 10, 100), *([(*lower, 50)] if lower else [])]
    group, domain, at, offset = np.array(made, np.int64).T.copy()
    same = np.ones(len(made), np.int64)
    own = Committed(
        commits=Commits(group, domain, at + 1, at, at, at + 1, offset, same * DONE, same, same * NEVER),
        floors=Floors(*(np.array([value], np.int64) for value in (*floor, 200))) if floor else Floors(),
    )
    kept_commits.spoil(own)
    assert int(own.commits.spoiled[0]) == spoiled


def test_when_members_let_go_that_never_said_so() -> None:
    """Those that are over hold nothing from where their logs end, or from when they took hold."""
    living, closed, lost, let_go = 1, 2, 3, 4
    told = [(living, 10, 1), (closed, 11, 0), (closed, 20, 1), (lost, 12, 1), (let_go, 13, 1), (let_go, 30, 0)]
    process, at, holds = np.array(told, np.int64).T.copy()
    state = State(
        processes={living: Process(first=0), closed: Process(first=0, next=3, closes_at=3)},
        holes=[list(Hole(lost, 40, 50, 1, 1, 60)), list(Hole(closed, 15, 16, 1, 1, 60))],
    )
    said = kept_commits.let_go_unsaid(Holds(np.ones(6, np.int64), process, at, holds, process * 0 - 1), state)
    assert [*zip(said.process.tolist(), said.at.tolist(), said.holds.tolist(), strict=True)] == [
        (closed, 20, 0),
        (lost, 40, 0),
    ]


MADE = [(1, 10, DONE), (2, 15, DONE), (3, 20, DONE), (4, 26, DONE), (5, 25, 0), (6, 30, 0), (7, 40, 0), (100, 50, 0)]
"""(when, offset, kind) of the group's commits: 25 may have taken the place of 26, and nobody was answered since."""


@pytest.mark.parametrize(
    ("since", "late", "most", "kept"),
    [
        (-1, False, 9, [10, 20, 40, 50]),
        (5, False, 9, [10, 15, 20, 26, 25, 30, 40, 50]),  # a verdict waits that rests on them
        (-1, True, 9, [10, 15, 20, 26, 25, 30, 40, 50]),
        (-1, True, 3, [25, 30, 40, 50]),
        (-1, False, 2, [20, 40, 50]),
    ],
)
def test_which_commits_are_kept(
    since: int, late: bool, most: int, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest, the newest that certainly stood, what was told of it, and what log time has not come to."""
    monkeypatch.setattr(kept_commits, "COMMITS_KEPT", 1)
    monkeypatch.setattr(kept_commits, "WAITING_KEPT", most)
    at, offset, kind = np.array(MADE, np.int64).T.copy()
    same = np.ones(len(at), np.int64)
    told = np.array([(G, HERE, 10), (OTHER, HERE, 15), (G, THERE, 15)], np.int64).T.copy()
    when = np.full(3, 8)
    own = Committed(
        groups=["", "g", "other"],
        commits=Commits(same * G, same * HERE, at, at, at, at, offset, kind, same, same * NEVER),
        told=Reads(told[0], told[1], when, when, when, when, told[2], when, when, when),
        pending=[[90, "lost-commit", [], "", {}, 9, G, HERE, since, 1, 8, -1]],
    )
    state = State(processes={1: Process(first=0, boot=HERE)})
    kept_commits.forget(own, Report(Place("c", "t", 0), state, Objectives()), {G} if late else set(), (50, 50))
    assert own.commits.offset.tolist() == kept


@pytest.mark.parametrize(("most", "left"), [(6, [1, 2, 3, 4, 5, 6, 9]), (5, [1, 4, 5, 6, 9]), (3, [4, 5, 6, 9])])
def test_of_too_many_readings_those_go_that_say_the_same_again(
    most: int, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the one before and the one after them; then the oldest, and that is told. The last is still to come."""
    monkeypatch.setattr(kept_commits, "WAITING_KEPT", most)
    at, offset = np.array([1, 2, 3, 4, 5, 6, 9]), np.array([5, 5, 5, 5, 7, 7, 7])
    same = np.ones(len(at), np.int64)
    own = Committed(groups=["", "g"], waiting=Reads(same, same, at, at, at, at, offset, same, same, same))
    state = State(tick=8)
    kept_commits.forget(own, Report(Place("c", "t", 0), state, Objectives()), set(), (8, 8))
    assert own.waiting.at.tolist() == left
    assert [*state.dropped] == (["readings of committed offsets"] if most == 3 else [])
