"""Groups of which more hosts and members are heard of than are kept."""

from __future__ import annotations

import numpy as np
import pytest

from rules.checks import kept_commits
from rules.checks.commit_rows import DONE, NEVER, Commits, Holds
from rules.checks.kept_commits import DOMAINS, Committed, Floors
from rules.kept.report import Report
from rules.kept.state import Process, State
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from tests.rules.committed_offsets import commit
from tests.rules.histories import History
from tests.rules.liveness_of import row_by_row
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
