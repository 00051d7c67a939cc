"""`offset-regression`: offsets that go back, beside offsets that may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.histories import History, Store, found
from tests.rules.liveness_of import at_once, row_by_row, shuffled


def finished(h: History) -> Store:
    store = Store()
    store.feed(h.rows, finished=True)
    return store


def live(feed: Callable[[History], Store]) -> Callable[[History], Store]:
    def fed(h: History) -> Store:
        for _ in range(3):
            h.mark(1.0)
        return feed(h)

    return fed


FEEDS = pytest.mark.parametrize(
    "fed",
    [live(row_by_row), live(at_once), live(lambda h: shuffled(h, 3)), finished],
    ids=["row_by_row", "at_once", "shuffled", "finished"],
)


def commit(h: History, offset: int, **more: object) -> None:
    h.row("r", "commit", committed=offset, group="g", **more)


def read(h: History, offset: int | None, group: str = "g", **more: object) -> None:
    h.row("o", "offsets", committed=offset, group=group, **more)


def went_back(h: History) -> None:
    commit(h, 50)
    commit(h, 100)
    read(h, 100)
    read(h, 70)


def went_back_to_a_commit(h: History) -> None:
    """A delayed commit may land late."""
    commit(h, 50)
    commit(h, 100)
    read(h, 100)
    read(h, 50)


def went_back_to_an_indefinite_commit(h: History) -> None:
    commit(h, 70, type="info")
    commit(h, 100)
    read(h, 100)
    read(h, 70)


def went_back_to_a_transaction_s_offset(h: History) -> None:
    h.txn("t", polls=[("w", 0, 1, 69)], type="fail", txn=1, committed=70, group="g")
    commit(h, 100)
    read(h, 100)
    read(h, 70)


def went_back_to_where_a_dead_transaction_had_polled(h: History) -> None:
    """It died before it could log that its offsets were sent."""
    h.txn("t", polls=[("w", 0, 1, 69)], type="info", txn=1, position_after=70)
    commit(h, 100)
    read(h, 100)
    read(h, 70)


def expired(h: History) -> None:
    commit(h, 100)
    read(h, 100)
    read(h, None)


def of_two_groups(h: History) -> None:
    commit(h, 100)
    read(h, 100)
    read(h, 70, group="other")


def read_at_the_same_time(h: History) -> None:
    """The lower one was asked for before the higher one had been answered."""
    early = h.at(h.time)
    commit(h, 100)
    read(h, 100)
    read(h, 70, invoked=early)


def of_two_hosts(h: History) -> None:
    """Nobody knows in which order two hosts' clocks had it."""
    read(h, 100, boot="a", mono_invoked=10, mono_completed=20)
    read(h, 70, boot="b", mono_invoked=30, mono_completed=40)


GUILTY = [
    (went_back, ("offset-regression", ("g", 100, 70))),
]
INNOCENT = [
    went_back_to_a_commit, went_back_to_an_indefinite_commit, went_back_to_a_transaction_s_offset,
    went_back_to_where_a_dead_transaction_had_polled, expired, of_two_groups, read_at_the_same_time, of_two_hosts,
]  # fmt: skip
RULES = {"offset-regression"}


@FEEDS
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: object, fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert {f for f in found(fed(h).findings) if f[0] in RULES} == {expected}


@FEEDS
@pytest.mark.parametrize("build", INNOCENT)
def test_innocent(build: Callable[[History], object], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert {f for f in found(fed(h).findings) if f[0] in RULES} == set()


def test_nobody_went_back_while_a_log_is_missing() -> None:
    """A process whose log never completes may have asked for it."""
    h = History()
    commit(h, 100)
    hidden = h.row("q", "commit", committed=70, group="g")
    h.row("q", "position", position_after=3)
    read(h, 100)
    read(h, 70)
    for _ in range(70):
        h.mark(20.0)
    h.rows.remove(hidden)
    assert "offset-regression" not in {f.anomaly for f in row_by_row(h).findings}


def test_what_is_remembered_of_commits_is_dropped_below_the_log_start() -> None:
    h = History()
    for i in range(8):
        commit(h, i << 20)
        h.observe(start=max(0, (i - 2) << 20), end=(i << 20) + 1)
        h.mark(1.0)
    store = row_by_row(h)
    (kept,) = store.stored.values()
    assert len([name for name in kept.chunks if name.startswith("commits.")]) <= 4
