"""`lost-commit` by what a member is told: a coordinator that made it one must know what was committed before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.committed.committed_offsets import RULES, VERDICTS, Fed, commit, in_order, later, lost, read
from tests.rules.histories import History, number
from tests.rules.whole import Told, in_any_way, whole


def join(h: History, process: str, *, assigned: bool = True) -> None:
    """It becomes a member of the group, and holds the partition or does not."""
    for f, holds in (("subscribe", False), ("assign", assigned)):
        h.row(process, f, group="g", mode="subscribe", assigned=holds)


def none_to_a_member_that_joined_later(h: History) -> None:
    """Somebody deleted it, or the cluster did, while the group had no member."""
    commit(h, 100)
    h.time += 5
    join(h, "s")
    read(h, None, by="s")
    read(h, None, by="o")


def none_to_a_member_long_after_it_joined(h: History) -> None:
    """What is known of its joining is kept while it lives."""
    commit(h, 100)
    join(h, "s")
    for _ in range(100):
        h.time += 0.996
        read(h, 100, by="o")
        commit(h, 100, by="t")
    read(h, None, by="s")


def an_older_one_to_a_member_that_joined_later(h: History) -> None:
    commit(h, 50)
    commit(h, 100)
    join(h, "s")
    read(h, 50, by="s")


def none_to_a_member_that_had_joined_before(h: History) -> None:
    """Its coordinator may have been deposed since."""
    join(h, "s")
    commit(h, 100)
    read(h, None, by="s")


def none_to_a_member_that_had_joined_before_and_joins_again(h: History) -> None:
    join(h, "s")
    commit(h, 100)
    join(h, "s")
    read(h, None, by="s")


def none_to_a_member_that_joined_meanwhile(h: History) -> None:
    h.row("s", "subscribe", group="g", mode="subscribe", assigned=False)
    commit(h, 100)
    h.row("s", "assign", group="g", mode="subscribe", assigned=True)
    read(h, None, by="s")


def none_to_a_member_that_holds_nothing(h: History) -> None:
    commit(h, 100)
    join(h, "s", assigned=False)
    read(h, None, by="s")


def none_to_one_that_has_left(h: History) -> None:
    commit(h, 100)
    join(h, "s")
    h.row("s", "revoke", group="g", mode="subscribe", assigned=False)
    read(h, None, by="s")


def none_before_it_was_a_member(h: History) -> None:
    commit(h, 100)
    h.row("s", "subscribe", group="g", mode="subscribe", assigned=False)
    read(h, None, by="s")
    h.row("s", "assign", group="g", mode="subscribe", assigned=True)


def rewound_before_it_joined(h: History) -> None:
    commit(h, 100)
    commit(h, 50)
    join(h, "s")
    read(h, 50, by="s")


GUILTY: list[tuple[Callable[[History], None], list[Told]]] = [
    (none_to_a_member_that_joined_later, [lost(100, None, 5.008, to=number("s"), after=5.005)]),
    (none_to_a_member_long_after_it_joined, [lost(100, None, 100.008, to=number("s"), after=100.005)]),
    (an_older_one_to_a_member_that_joined_later, [lost(100, 50, 0.01, to=number("s"), after=0.005)]),
]
INNOCENT = [
    none_to_a_member_that_had_joined_before,
    none_to_a_member_that_had_joined_before_and_joins_again,
    none_to_a_member_that_joined_meanwhile,
    none_to_a_member_that_holds_nothing,
    none_to_one_that_has_left,
    none_before_it_was_a_member,
    rewound_before_it_joined,
]


@in_any_way()
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: list[Told], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), VERDICTS) == in_order(expected, fed.__name__ == "finished")


@in_any_way()
@pytest.mark.parametrize("build", INNOCENT, ids=lambda build: build.__name__)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    later(h)
    assert whole(fed(h), RULES) == []
