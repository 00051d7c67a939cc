"""`unseen` compared whole: two spells, as they come and caught up at once, and in a finished history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.liveness_of import at_once, row_by_row
from tests.rules.whole import Told, finished, whole

V, W = number("v"), number("w")


def two_spells(h: History) -> None:
    h.assign("r")
    h.send("w", 0, 5, at=0)
    h.send("v", 0, 1, at=5)
    for seconds, runs in ((15, [("w", 0, 5, 0), ("v", 0, 1, 5)]), (12, []), (13, [("w", 5, 2, 6)]), (3, [])):
        for _ in range(seconds):
            h.observe(end=8)
            h.mark(1.0)
        if runs:
            h.poll("r", runs)
        elif seconds == 12:
            h.send("w", 5, 2, at=6)


def some(offset: int, writer: int, seq: int, values: int) -> dict[str, int]:
    return {"offset": offset, "writer": writer, "seq": seq, "values": values}


@pytest.mark.parametrize(
    ("fed", "ended", "age"), [(row_by_row, {"first": [], "age_s": 0.0}, 10.88), (at_once, {}, 10.882)]
)
def test_while_it_lasts(fed: Callable[[History], Store], ended: dict[str, Any], age: float) -> None:
    """Of a spell that a catch-up goes over in one step, less is told at its end."""
    h = History()
    two_spells(h)
    six = {"values": 6, "first": [some(0, W, 0, 5), some(5, V, 0, 1)], "age_s": 10.992}
    two = {"values": 2, "first": [some(6, W, 5, 2)], "age_s": age}
    words = "acknowledged values have not been polled, the oldest for"
    lasted = round(41 - 38 + age - 10, 3)
    assert whole(fed(h), ["unseen"]) == [
        Told("unseen", (), f"6 {words} 11.0 s", six, 11.0, 10.008, "opened"),
        Told("unseen", (), "unseen ended after 6.0 s", {"values": 0, **ended, "lasted_s": 5.992}, 16.0, event="closed"),
        Told("unseen", (), f"2 {words} 10.9 s", two, 38.0, round(48 - age, 3), "opened"),
        Told(
            "unseen", (), "unseen ended after 3.9 s", {"values": 0, **ended, "lasted_s": lasted}, 41.0, event="closed"
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("audits", [True, False])
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_nobody_but_an_audit_reads(fed: Callable[[History], Store], audits: bool) -> None:
    """It comes by after a while, and is through in a moment: those who should read are not there."""
    h = History()
    h.send("w", 0, 5, at=0)
    for _ in range(30):
        h.observe(end=5)
        h.mark(1.0)
    h.start("a", name="audit", **({"audit": "true"} if audits else {}))
    h.assign("a")
    for _ in range(3):
        h.observe(end=5)
        h.mark(1.0)
    h.poll("a", [("w", 0, 5, 0)])
    h.mark(1.0)
    h.mark(1.0)
    assert [one.event for one in whole(fed(h), ["unseen"])] == ([] if audits else ["opened", "closed"])


def several(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=None)
    h.poll("r", [("w", 0, 1, 0)])


def one_above_the_log_start(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.observe(start=2, end=3)
    h.poll("r", [("x", 0, 1, 9)])


@pytest.mark.parametrize(
    ("build", "said", "first"),
    [
        (several, "3 acknowledged values were", [(W, 1, 2), (V, 0, 1)]),
        (one_above_the_log_start, "1 acknowledged value was", [(W, 2, 1)]),
    ],
)
def test_of_a_finished_history(build: Callable[[History], None], said: str, first: list[tuple[int, int, int]]) -> None:
    h = History()
    build(h)
    listed = [{"writer": writer, "seq": seq, "values": values} for writer, seq, values in first]
    told = {"values": sum(one["values"] for one in listed), "first": listed}
    assert whole(finished(h), ["unseen"]) == [Told("unseen", (), f"{said} never polled", told, 0.006, event="opened")]
