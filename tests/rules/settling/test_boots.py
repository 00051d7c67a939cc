"""The boots of a host come one after the other, whatever their clocks say."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from rules.arrays.columns import from_table
from rules.kept.state import Clocks, Host, Process, State
from rules.settling.boots import BOOTS_KEPT, boots_after, boots_after_its, boots_before, note_mark
from rules.settling.clocks import set_times
from rules.settling.completeness import GIVEN_UP, horizon, new_rows, note_lives
from rules.settling.gate import READERS, Evidence, Gate
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Mark, to_table
from tests.rules.histories import START, History, number

BACK = 600.0
"""The clock of the second boot is so many seconds behind that of the first."""


def timed(boot: str, wall: float, mono: float) -> dict[str, Any]:
    at, ns = START + timedelta(seconds=wall), round(mono * 1e9)
    return {"boot": boot, "invoked": at, "completed": at, "mono_invoked": ns, "mono_completed": ns}


def taken(state: State, h: History) -> None:
    columns = from_table(to_table(h.rows))
    h.rows = []
    set_times(state, columns)
    new_rows(state, columns)
    note_lives(state, columns)
    horizon(state)


@pytest.mark.parametrize("seed", range(4))
def test_they_are_in_the_order_of_the_appends_in_whatever_order_their_marks_come(seed: int) -> None:
    marks = [(0, 1000, 1), (0, 1001, 2), (1, 400, 3), (1, 401, 4), (2, 700, 5)]
    random.Random(seed).shuffle(marks)
    host, state = Host(), State()
    state.hosts[1] = host
    for boot, at, append in marks:
        note_mark(host, at, boot, at, append)
    assert host.boots == [[0, 1000, 1], [1, 400, 3], [2, 700, 5]]
    assert host.now == 700
    assert (boots_before(state, 1), boots_after(state, 1)) == ({0}, {2})
    assert boots_after_its(Process(boot=0), host) == [[1, 400, 3], [2, 700, 5]]
    assert boots_after_its(Process(boot=7, first=500), host) == [[0, 1000, 1], [2, 700, 5]], "by their clocks"


def test_the_newest_are_kept() -> None:
    host = Host()
    for boot in range(BOOTS_KEPT + 3):
        note_mark(host, 100 - boot, boot, 100 - boot, boot)
    assert [boot for boot, *_ in host.boots] == list(range(3, BOOTS_KEPT + 3))
    assert host.now == 100 - BOOTS_KEPT - 2


def lost_with_its_host(mentioned: bool) -> tuple[State, History]:
    """w lives in the first boot; the second one mentions it, as one that was recovered, or never does."""
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 1000, 1000))
    h.send("w", 0, at=0, **timed("a", 1001, 1001))
    h.row("committer", "mark", marks=[Mark(number("w"), 1, h.at(1001))], **timed("a", 1001.5, 1001.5))
    taken(state, h)
    for i in range(round(GIVEN_UP / SECOND) + 3):
        own = [Mark(number("w"), 1, h.at(1001 - BACK), h.at(1002 - BACK), True)] if mentioned and not i else []
        h.row("committer", "mark", marks=own, **timed("b", 1060 - BACK + i, 1 + i))
    return state, h


def test_a_life_of_which_the_next_boot_has_no_journal_is_over_though_its_clock_is_behind() -> None:
    state, h = lost_with_its_host(mentioned=False)
    late, h.rows = h.rows[-3:], h.rows[:-3]
    taken(state, h)
    assert not state.processes[number("w")].complete, "it may be recovered yet"
    h.rows = late
    taken(state, h)
    (hole,) = state.holes
    assert (hole[0], hole[6], hole[7]) == (number("w"), 0, 1), "from the first boot's time to the second's"


def test_one_that_was_recovered_is_known_to_be_over_at_once() -> None:
    state, h = lost_with_its_host(mentioned=True)
    h.rows = h.rows[:2]
    taken(state, h)
    assert state.processes[number("w")].complete


def test_clocks_that_nobody_can_compare_are_as_far_apart_as_those_of_other_boots_of_their_hosts() -> None:
    """b's clock is ten minutes ahead of that of a, whose host was booted anew since, and has exchanged nothing."""
    a, a2, b, c = range(4)
    state = State(boot_names=["a", "a2", "b", "c"], tops=[(0, -1)] * 4)
    state.hosts = {1: Host(boots=[[a, 0, 1], [a2, 0, 2]]), 2: Host(boots=[[b, 0, 1]]), 3: Host(boots=[[c, 0, 1]])}
    pairs = np.array([(a, b, 600 * SECOND), (b, a, -599 * SECOND)], np.int64).T
    state.clocks = Clocks(pairs[0], pairs[1], np.zeros(2, np.int64), pairs[2])
    gate = Gate(state)
    assert (gate.apart(b, a), gate.apart(a, b)) == (600 * SECOND, -599 * SECOND)
    assert (gate.apart(b, a2), gate.apart(a2, b)) == (660 * SECOND, -539 * SECOND)
    assert (gate.apart(a2, a), gate.apart(c, a2)) == (60 * SECOND, 60 * SECOND)


def test_clocks_that_are_known_to_be_far_apart_from_one_side_are_further_apart_than_that() -> None:
    """c wrote what a read, by a clock that is ten minutes ahead at least; nobody there read what a's host wrote, which
    was booted anew since."""
    a, a2, c = range(3)
    state = State(boot_names=["a", "a2", "c"], tops=[(0, -1)] * 3)
    state.hosts = {1: Host(boots=[[a, 0, 1], [a2, 0, 2]]), 2: Host(boots=[[c, 0, 1]])}
    pairs = np.array([(c, a, -600 * SECOND)], np.int64).T
    state.clocks = Clocks(pairs[0], pairs[1], np.zeros(1, np.int64), pairs[2])
    gate = Gate(state)
    assert (gate.apart(c, a), gate.apart(a, c)) == (660 * SECOND, -600 * SECOND)
    assert (gate.apart(c, a2), gate.apart(a2, c)) == (660 * SECOND, -540 * SECOND)


@pytest.mark.parametrize("found_by_another", [True, False])
@pytest.mark.parametrize(("bound", "known"), [(None, True), (-100, True), (-1, True), (None, False)])
def test_what_a_later_boot_did_came_after_all_that_the_one_before_it_had_come_past(
    bound: int | None, known: bool, found_by_another: bool
) -> None:
    """The clock of a's host was set back by 90 s as it was booted anew, and a reader lives there. Records may tell
    little of that (`bound`). The first boot had come past the time that is asked for, or (not `known`) had not."""
    a, a2 = range(2)
    state = State(now=120 * SECOND, boot_names=["a", "a2"], tops=[(0, -1)] * 2)
    state.hosts = {1: Host(boots=[[a, 0, 1], [a2, 0, 2]])}
    if bound is not None:
        pairs = np.array([(a, a2, bound * SECOND)], np.int64).T
        state.clocks = Clocks(pairs[0], pairs[1], np.zeros(1, np.int64), pairs[2])
    reached = (120 if known else 100) * SECOND
    found = 400 * SECOND if found_by_another else reached  # by a later boot's clock, which is ahead
    state.processes = {
        1: Process(boot=a, through=reached, marked=found, closed=found, closes_at=0, host=1),
        2: Process(boot=a2, through=30 * SECOND, marked=30 * SECOND, reads=True, assigned=True, host=1),
    }
    gate = Gate(state)
    told = gate.ask(105 * SECOND, 110 * SECOND, READERS, a)
    assert told is (Evidence.COMPLETE if known else Evidence.NOT_YET)
