"""Committed offsets of other groups, told and committed all around: they change nothing about a group's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.committed import test_committed_offsets, test_foreign_commits
from tests.rules.committed.committed_offsets import RULES, VERDICTS, commit, in_order, later, read
from tests.rules.conditions.liveness_of import at_once
from tests.rules.histories import History
from tests.rules.whole import finished, live, whole

OFFSETS = (15, 50, 70, 100, 110, 115, 500, 520)
"""Those that the cases commit, and are told."""


def others(h: History, offset: int) -> None:
    """One group commits what the case is told, another was told it at first, and a third one commits less and more."""
    commit(h, offset, by="a", group="commits")
    read(h, offset, by="b", group="told at first")
    early = h.at(h.time)
    commit(h, offset + 1000, by="c", group="more")
    commit(h, 1, by="c", group="more", type="info")
    commit(h, 2, by="d", group="more", invoked=early)


GUILTY = test_committed_offsets.GUILTY + test_foreign_commits.GUILTY
INNOCENT = test_committed_offsets.INNOCENT + test_foreign_commits.INNOCENT


@pytest.mark.parametrize("build", [case[0] for case in GUILTY] + INNOCENT, ids=lambda build: build.__name__)
def test_beside_other_groups(build: Callable[[History], object]) -> None:
    """Those that use two hosts' clocks are told apart by them as well."""
    h, alone = History(), History()
    for offset in OFFSETS:
        others(h, offset)
    began = h.time
    alone.time = began
    build(h)
    build(alone)
    for offset in OFFSETS:
        others(h, offset)
    alone.time = h.time
    later(h)
    later(alone)
    expected = whole(live(at_once)(alone), VERDICTS)
    assert bool(expected) == (build not in INNOCENT)
    assert [one for one in whole(live(at_once)(h), RULES) if "g" in one.subject] == expected
    assert [one for one in whole(finished(h), RULES) if "g" in one.subject] == in_order(expected, True)
