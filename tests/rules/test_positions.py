"""`offset-regression` and `log-truncation`: offsets that go back, beside offsets that may."""

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


def written_again(h: History, offset: int) -> None:
    """A second after a listing, a record is given this offset; a second later the end is listed once more."""
    h.time += 1
    h.send("v", 0, 1, at=offset)
    h.time += 1
    h.observe(end=offset + 1)


def truncated(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def truncated_below_a_poll(h: History) -> None:
    h.poll("r", [("w", 0, 10, 0)])
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


def listed_by_a_deposed_leader(h: History) -> None:
    """It was cut off before it could know of the last records. Its successor has them, and gives out what follows."""
    h.send("w", 0, 10, at=0)
    for _ in range(20):
        h.time += 1
        h.observe(end=4)
    written_again(h, 10)


def acknowledged_late(h: History) -> None:
    """A deposed leader listed its end; a write that had been under way by then is acknowledged below what is known."""
    early = h.at(h.time)
    h.send("w", 0, 5, at=0)
    h.send("w", 5, 4, at=6)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 1, at=5, invoked=early)
    h.time += 1
    h.observe(end=10)


def given_out_after_the_log_was_whole(h: History) -> None:
    """A wrong acknowledgement, after a listing that had all that was known: what was listed before says nothing."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.observe(end=10)
    written_again(h, 4)


def listed_before(h: History) -> None:
    """The listing was invoked before the acknowledgement came."""
    early = h.at(h.time)
    h.send("w", 0, 10, at=0)
    h.row("observer", "offsets", log_start=0, log_end=4, last_stable=4, invoked=early)


def listed_by_another_host(h: History) -> None:
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    h.row("o", "offsets", log_start=0, log_end=4, last_stable=4, boot="b", mono_invoked=9 * 10**9,
          mono_completed=10**10)  # fmt: skip


def acknowledged_without_idempotence(h: History) -> None:
    """Its leader alone may have had it, which is all that was promised."""
    from tests.rules.histories import number

    h.start("w", writer=str(number("w")), idempotent="false")
    truncated(h)


def of_an_indefinite_write(h: History) -> None:
    h.send("w", 0, 10, at=0, type="info")
    h.time += 1
    h.observe(end=4)


def listed_as_zero(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=0)
    h.observe(end=10)


def erased(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=0)
    h.observe(end=0)
    written_again(h, 0)


GUILTY = [
    (went_back, ("offset-regression", ("g", 100, 70))),
    (truncated, ("log-truncation", (9,))),
    (truncated_below_a_poll, ("log-truncation", (9,))),
    (erased, ("log-truncation", (9,))),
]
INNOCENT = [
    went_back_to_a_commit, went_back_to_an_indefinite_commit, went_back_to_a_transaction_s_offset,
    went_back_to_where_a_dead_transaction_had_polled, expired, of_two_groups, read_at_the_same_time, of_two_hosts,
    listed_before, listed_by_another_host, listed_by_a_deposed_leader, acknowledged_late,
    given_out_after_the_log_was_whole, acknowledged_without_idempotence, of_an_indefinite_write, listed_as_zero,
]  # fmt: skip
RULES = {"offset-regression", "log-truncation"}


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


@FEEDS
def test_an_end_of_zero_is_spurious_unless_the_next_listing_bears_it_out(fed: Callable[[History], Store]) -> None:
    h = History()
    listed_as_zero(h)
    assert {f[0] for f in found(fed(h).findings)} == {"spurious-zero-offset"}


def test_a_truncation_is_reported_once() -> None:
    h = History()
    truncated(h)
    for _ in range(20):
        h.observe(end=5)
        h.mark(1.0)
    assert sum(f.anomaly == "log-truncation" for f in row_by_row(h).findings) == 1


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
