"""Evidence of a changed log names the leader epochs of what its readers were given, as far as brokers tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rules.audit.explain import explain
from rules.audit.leader_epochs import epoch_of, epochs_around
from rules.audit.readings import Readings
from rules.vocabulary.slices import LeaderEpoch, Place, to_table
from tests.rules.histories import History, number

W, X = number("w"), number("x")


def told(h: History) -> list[tuple[str, dict[str, Any]]]:
    h.observe(end=100)
    found = explain(Readings(to_table(h.rows)), Place("c", "t", 0), 0, 100, finished=False)
    return [(one.anomaly, dict(one.evidence)) for one in found or ()]


def gone(
    saw: Sequence[LeaderEpoch], passed: Sequence[LeaderEpoch], *, back: bool = False
) -> tuple[str, dict[str, Any]]:
    """The value 5 was polled at offset 5, and another reader went over it later (`back`: had gone over it before)."""
    h = History()
    polls: list[tuple[str, list[tuple[str, int, int, int]], Sequence[LeaderEpoch]]] = [
        ("r", [("w", 0, 10, 0)], saw),
        ("s", [("w", 0, 5, 0), ("w", 6, 4, 6)], passed),
    ]
    for reader, runs, epochs in reversed(polls) if back else polls:
        h.poll(reader, runs, epochs=epochs)
    (one,) = told(h)
    return one


@pytest.mark.parametrize("back", [False, True], ids=["vanished-record", "late-record"])
@pytest.mark.parametrize(
    ("saw", "passed", "named"),
    [
        ([LeaderEpoch(3)], [LeaderEpoch(3)], {"leader_epoch": 3, "passed_leader_epochs": [3, 3]}),
        ([LeaderEpoch(3)], [LeaderEpoch(3), LeaderEpoch(5, 6)], {"leader_epoch": 3, "passed_leader_epochs": [3, 5]}),
        (
            [LeaderEpoch(2), LeaderEpoch(3, 5), LeaderEpoch(4, 6)],
            [LeaderEpoch(5)],
            {"leader_epoch": 3, "passed_leader_epochs": [5, 5]},
        ),
        ([LeaderEpoch(3)], [], {"leader_epoch": 3}),
        ([], [LeaderEpoch(3), LeaderEpoch(5, 7)], {"passed_leader_epochs": [3, 3]}),
        ([], [], {}),
    ],
    ids=["one", "another leader behind it", "one of its own", "told to one", "told to the other", "not told"],
)
def test_of_a_value_that_one_was_given_and_the_other_not(
    saw: Sequence[LeaderEpoch], passed: Sequence[LeaderEpoch], named: dict[str, Any], back: bool
) -> None:
    name, evidence = gone(saw, passed, back=back)
    bare = gone([], [], back=back)
    assert (name, evidence) == (bare[0], bare[1] | named)
    assert name == ("late-record" if back else "vanished-record")


def test_of_two_values_at_one_offset() -> None:
    h = History()
    h.poll("r", [("w", 0, 3, 0)], epochs=[LeaderEpoch(3)])
    h.poll("s", [("w", 0, 2, 0), ("x", 0, 1, 2)], epochs=[LeaderEpoch(3), LeaderEpoch(5, 2)])
    h.poll("q", [("w", 0, 3, 0)])
    values = [{"writer": W, "seq": 2, "leader_epoch": 3}, {"writer": X, "seq": 0, "leader_epoch": 5}]
    expected = {"offset": 2, "values": sorted(values, key=lambda one: one["writer"])}
    assert told(h) == [("inconsistent-offsets", expected)]


def test_values_without_epochs_are_told_without() -> None:
    h = History()
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("s", [("x", 0, 1, 2)], epochs=[LeaderEpoch(0)])
    values = [{"writer": W, "seq": 2}, {"writer": X, "seq": 0, "leader_epoch": 0}]
    expected = {"offset": 2, "values": sorted(values, key=lambda one: one["writer"])}
    assert told(h) == [("inconsistent-offsets", expected)]


def test_another_epoch_alone_is_no_finding() -> None:
    """What was appended again, the same at the same offset, is no fault that anybody could see."""
    h = History()
    h.poll("r", [("w", 0, 10, 0)], epochs=[LeaderEpoch(3)])
    h.poll("s", [("w", 0, 10, 0)], epochs=[LeaderEpoch(3), LeaderEpoch(5, 4)])
    h.poll("q", [("w", 0, 10, 0)], epochs=[LeaderEpoch(5), LeaderEpoch(4, 4)])
    assert told(h) == []


@pytest.mark.parametrize(
    ("offset", "own", "around"), [(0, 1, [2]), (1, 1, [1, 2]), (3, 2, [2, 2]), (6, 2, [2, 4]), (8, 4, [2]), (9, 4, [4])]
)
def test_at_the_ends_of_what_was_polled(offset: int, own: int, around: list[int]) -> None:
    h = History()
    h.poll(
        "r",
        [("w", 0, 1, 0), ("w", 1, 5, 2), ("w", 7, 1, 8)],
        epochs=[LeaderEpoch(1), LeaderEpoch(2, 2), LeaderEpoch(4, 7)],
    )
    table = to_table(h.rows)
    assert (epoch_of(table, 0, offset), epochs_around(table, 0, offset)) == (own, around)
