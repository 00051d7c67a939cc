"""`lost-commit`: one loss is told once, however many of the commits that were lost with it are told of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.committed.committed_offsets import OBSERVER, RULES, Fed, commit, in_order, later, lost, read
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.cut_logs.test_given_again import Boots
from tests.rules.histories import History
from tests.rules.whole import Told, finished, in_any_way, whole

STEADY = 80
"""So many commits, and what the observer is told of each: more than is kept of them."""


def grows(h: History) -> None:
    """The group commits 0, 10, 20 ... and the observer is told each."""
    for i in range(STEADY):
        commit(h, 10 * i)
        read(h, 10 * i, by="o")
        if i % 8 == 7:
            h.observe(end=1000)
            h.mark(1.0)


LAST = 10 * (STEADY - 1)
FIRST = lost(LAST, 20, 10.364, to=OBSERVER, after=1.007)


def told_again_while_the_group_goes_on(h: History) -> None:
    """It commits 200 while the observer asks again: that may have taken the place of 790, and of nothing below 200."""
    grows(h)
    read(h, 20, by="o")
    h.time += 0.001
    invoked = h.at(h.time)
    read(h, 20, by="o")
    commit(h, 200, invoked=invoked)


def told_to_who_had_committed_more(h: History) -> None:
    """Of what was acknowledged before the first was told, whoever is told less."""
    grows(h)
    commit(h, LAST + 5)
    read(h, 20, by="o")
    read(h, 20)


def lost_again(h: History) -> None:
    """What was committed after that is lost as well, to where it was lost before."""
    grows(h)
    read(h, 20, by="o")
    commit(h, 30)
    read(h, 30, by="o")
    read(h, 20, by="o")


def acknowledged_since_the_first_was_asked_for(h: History) -> None:
    """The first that was told less may not have been told of it yet: it was lost by itself."""
    grows(h)
    invoked = h.at(h.time)
    read(h, 20, by="o")
    commit(h, LAST + 5, invoked=invoked)
    read(h, 20)


def told_less_still(h: History) -> None:
    grows(h)
    read(h, 20, by="o")
    read(h, 10, by="o")


@pytest.mark.parametrize(
    "happens, more",
    [
        (told_again_while_the_group_goes_on, []),
        (told_to_who_had_committed_more, []),
        (lost_again, [lost(30, 20, 10.37, to=OBSERVER, after=0.003)]),
        (acknowledged_since_the_first_was_asked_for, [lost(LAST + 5, 20, 10.368)]),
        (told_less_still, [lost(LAST, 10, 10.366, to=OBSERVER, after=1.009)]),
    ],
)
@in_any_way()
def test_one_loss_is_told_once(happens: Callable[[History], None], more: list[Told], fed: Fed) -> None:
    h = History()
    h.start("r")
    happens(h)
    later(h)
    first = FIRST
    if happens is told_to_who_had_committed_more:
        first = lost(LAST, 20, 10.366, to=OBSERVER, after=1.009)
    assert whole(fed(h), RULES) == in_order([first, *more], fed is finished)


@pytest.mark.parametrize(
    "waits, losses",
    [
        (True, [(100, 25)]),
        (False, [(100, 25), (200, 25)]),  # that may have been asked for before the other was acknowledged
    ],
    ids=["before", "perhaps not"],
)
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_what_another_host_was_acknowledged_before_is_the_same_loss(
    fed: Fed, waits: bool, losses: list[tuple[int, int]]
) -> None:
    """By the measured difference of their clocks."""
    h = Boots(ahead={}, one=("w", "r", "o"), two=("v", "s"))
    h.row("r", "start", settings={"group.id": "g"})
    h.row("s", "start", settings={"group.id": "g"})
    h.send("w", 0, at=0)
    h.poll("s", [("w", 0, 1, 0)])
    h.send("v", 0, at=1)
    h.poll("r", [("v", 0, 1, 1)])
    commit(h, 100)
    read(h, 100, by="o")
    h.second()
    commit(h, 200, by="s")
    if waits:
        h.second()
    read(h, 25, by="o")
    read(h, 25, by="s")
    for _ in range(15):
        h.row("o", "offsets", log_start=0, log_end=1000, last_stable=1000)
        h.second()
    assert [one.subject[1:] for one in whole(fed(h), ("lost-commit",))] == losses
