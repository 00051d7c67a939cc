"""What transforms take for a stranger's input is none of their group's, however much else the partition is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rules.arrays.columns import Runs
from rules.checks.transactions import unknown_inputs
from rules.kept.report import Report
from rules.kept.state import Process, State
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Irregular, Place
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import Store, number
from tests.rules.transforms.transform_pair import Pair
from tests.rules.whole import whole

V = number("v")
MANY = 300
"""More than are kept."""
MISSING = [("missing", "g", V, 0), ("missing", "g", V, 1)]


def writers(pair: Pair, lives: int) -> None:
    """So many more writers of the input begin and end."""
    for h in (pair.inputs, pair.outputs):
        known = list(h.processes)
        for i in range(lives):
            h.row(f"w{i}", "start", settings={"writer": str(number(f"w{i}")), "sends_to": "in"}).run = "run-a"
            h.row(f"w{i}", "close")
        h.processes[:] = known


def left_out(pair: Pair, runs: list[str], lives: int = 0) -> None:
    """v, of a host that has joined, sends two values, and x leaves them out: it lists records of others of
    these runs, the first and the last of a poll."""
    for h in (pair.inputs, pair.outputs):
        h.row("v", "start", settings={"writer": str(V), "sends_to": "in"}).run = "run-b"
    writers(pair, lives)
    pair.feed(0, 4)
    pair.transform(0, 0, 4, 0)
    pair.inputs.send("v", 0, 2, at=4)
    pair.inputs.poll("r", [("v", 0, 2, 4)])
    pair.feed(6, 4)
    pair.transform(1, 6, 4, 6)
    (row,) = (row for row in pair.rows if row.f == "txn" and row.op == 11 and row.topic == "in")
    row.irregular = [
        Irregular(i, 4, "foreign", 9 + i, number(f"of {run}"), 0, "in", 0, run) for i, run in enumerate(runs)
    ]
    pair.wait(40)


def told(store: Store, anomaly: str = "eos-violation") -> list[tuple[Any, ...]]:
    return [one.subject for one in whole(store, (anomaly,))]


@pytest.mark.parametrize("knows", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_whose_a_writer_is_that_lives_is_known_however_many_have_begun_since(
    fed: Callable[[Any], Store], knows: bool
) -> None:
    """Writers crash on purpose, and each life has a number of its own."""
    pair = Pair()
    left_out(pair, [] if knows else ["run-b"], lives=MANY)
    assert told(fed(pair)) == (MISSING if knows else [])


@pytest.mark.parametrize("later", [True, False], ids=["its next life knows them", "it has no other life"])
def test_of_more_runs_than_are_kept_nothing_is_concluded_until_the_group_begins_again(
    later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That some were dropped is told."""
    monkeypatch.setattr(unknown_inputs, "PAIRS_KEPT", 4)
    pair = Pair()
    left_out(pair, ["run-b", *(f"run-{i}" for i in range(6))])
    if later:
        for h in (pair.inputs, pair.outputs):
            h.row("y", "start", kind="transform", settings={"group.id": "g"})
            pair.begun("y", h)
        pair.inputs.assign("y", f="subscribe")
    pair.inputs.send("v", 2, 1, at=10)
    pair.inputs.poll("r", [("v", 2, 1, 10)])
    pair.feed(11, 4)
    pair.transform(2, 11, 4, 12, process="y" if later else "x")
    pair.wait(40)
    store = row_by_row(pair)
    assert told(store) == ([("missing", "g", V, 2)] if later else [])
    assert ("runs that transforms do not know",) in told(store, "window-overflow")


def test_what_is_settled_is_not_remembered() -> None:
    """Each of many hosts joins with a run of its own, and the group's next transform knows it."""
    own = unknown_inputs.UnknownInputs(
        strange_runs=[
            ["g", "a", 0, 9, 5, 1, -1],
            ["g", "b", 0, 20, 5, 1, -1],
            ["g", "c", 0, 9, 8, 1, -1],
            ["g", "d", 0, 9, 5, 2, -1],
            ["h", "a", 0, 9, 5, 3, -1],
        ],
        born={"g": 7},
    )
    processes = {1: Process(closed=6), 2: Process()}
    report = Report(Place("c", "t", 0), State(settled=10, processes=processes), Objectives())
    unknown_inputs.forget(own, report.state, report)
    assert [one[:2] for one in own.strange_runs] == [["g", "b"], ["g", "c"], ["g", "d"], ["h", "a"]]
    assert [one[6] for one in own.strange_runs] == [6, 6, -1, -1]
    assert own.blind == {}


def test_a_strangers_are_its_writers_values_where_the_polls_went_that_list_it() -> None:
    """Run a's, further on as long as no transform has begun since, or the one lives that listed them: of run b's, up to
    the last of them."""
    own = unknown_inputs.UnknownInputs(
        strange_runs=[["g", "a", 10, 19, 8, 4, -1], ["g", "b", 10, 19, 5, 5, -1], ["g", "d", 10, 19, 5, 6, -1]],
        born={"g": 7},
        wrote=[[1, "a"], [2, "b"], [3, "c"], [4, "d"]],
    )
    lives = {5: Process(closed=6), 6: Process(closed=9)}

    def taken(group: str, settled: int) -> list[list[bool]]:
        writer, offset = (column.ravel() for column in np.meshgrid([1, 2, 3, 4], [9, 10, 19, 20], indexing="ij"))
        runs = Runs(writer, writer, offset, offset, writer * 0 + 1)
        found: list[list[bool]] = (
            unknown_inputs.unknown_to(own, group, runs, writer * 0 + settled, lives).reshape(4, 4).tolist()
        )
        return found

    up_to, on = [False, True, True, False], [False, True, True, True]
    assert taken("g", 9) == [on, up_to, [False] * 4, on]
    assert taken("g", 10) == [on, up_to, [False] * 4, up_to]
    lives[6].closed = -1
    assert taken("g", 10) == [on, up_to, [False] * 4, on]
    assert taken("h", 9) == [[False] * 4] * 4


def test_the_newest_writers_are_known_and_those_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_inputs, "WRITERS_KEPT", 2)
    own = unknown_inputs.UnknownInputs(wrote=[[number, "a"] for number in range(5)])
    state = State(processes={7: Process(writer=1)})
    unknown_inputs.forget(own, state, Report(Place("c", "t", 0), state, Objectives()))
    assert own.wrote == [[1, "a"], [3, "a"], [4, "a"]]
