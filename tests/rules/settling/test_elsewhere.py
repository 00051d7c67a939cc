"""Whose log a verdict needs here: of what each says of itself as it begins, and of what it does."""

from __future__ import annotations

from typing import Any

import pytest

from rules.engine.order import KINDS
from rules.kept.state import load
from rules.settling.gate import OBSERVERS, READERS, WRITERS
from tests.rules.histories import History, Store, number

Q = number("q")
WRITER = {"writer": str(Q)}
HERE, AWAY = "topic", "another topic"


def needed(h: History) -> set[str]:
    store = Store()
    store.feed(h.rows)
    (stored,) = store.stored.values()
    assert stored.hot is not None
    process = load(stored.hot, KINDS).processes[Q]
    kinds = {"reads": READERS, "writes": WRITERS, "observes": OBSERVERS}
    return {name for name, who in kinds.items() if who.picks(Q, process)}


@pytest.mark.parametrize(
    ("mode", "told", "expected"),
    [
        ("assign", {"reads_from": HERE}, {"reads"}),
        ("assign", {}, {"reads"}),  # all of them
        ("assign", {"reads_from": AWAY}, set()),
        (None, WRITER, {"writes", "observes"}),  # nobody knows yet which
        (None, WRITER | {"sends_to": HERE}, {"writes", "observes"}),
        (None, WRITER | {"sends_to": AWAY}, set()),
        ("subscribe", WRITER | {"reads_from": AWAY, "sends_to": AWAY}, set()),
        ("subscribe", WRITER | {"reads_from": HERE, "sends_to": AWAY}, {"reads"}),
        ("subscribe", WRITER | {"reads_from": AWAY, "sends_to": HERE}, {"reads"}),  # what it reads, it says in time
        (None, {"name": "observer"}, {"writes", "observes"}),
    ],
)
def test_who_is_needed_by_what_it_says_as_it_begins(mode: Any, told: dict[str, str], expected: set[str]) -> None:
    h = History()
    h.row("q", "start", mode=mode, settings=told)
    assert needed(h) == expected


def polls(h: History) -> None:
    h.poll("q", [("w", 0, 1, 0)])


def is_assigned(h: History) -> None:
    h.assign("q")


def sends(h: History) -> None:
    h.send("q", 0, 1, at=0)


@pytest.mark.parametrize("does", [polls, is_assigned, sends])
@pytest.mark.parametrize("begins_first", [True, False])
def test_who_does_here_what_it_said_it_would_do_elsewhere_is_needed(does: Any, begins_first: bool) -> None:
    h = History()
    h.row("q", "start", mode="subscribe", settings=WRITER | {"reads_from": AWAY, "sends_to": AWAY})
    assert needed(h) == set()
    does(h)
    if not begins_first:
        h.rows.reverse()
    assert needed(h)


def test_a_member_that_was_given_nothing_here_has_read_nothing() -> None:
    h = History()
    h.row("q", "start", mode="subscribe", settings={"reads_from": AWAY})
    h.assign("q", f="subscribe", assigned=False)
    h.row("q", "poll", type="info", error="_TRANSPORT", mode="subscribe")
    assert needed(h) == set()
