"""The order of polls and sends: steps that conclude nothing beside those that do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store
from tests.rules.whole import finished, whole

Fed = Callable[[History], Store]
POLLS = ("poll-skip", "int-poll-skip", "nonmonotonic-poll", "int-nonmonotonic-poll", "spurious-zero-offset")
SENDS = ("int-send-skip", "nonmonotonic-send", "int-nonmonotonic-send")


def wait(h: History, seconds: int, start: int | None = 0) -> None:
    for _ in range(seconds):
        if start is not None:
            h.observe(start=start, end=9)
        h.mark(1.0)


def skipped(h: History) -> None:
    """Reader r goes from offset 0 to 2."""
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])


@pytest.mark.parametrize("fed", [row_by_row, at_once])
@pytest.mark.parametrize(("told", "found"), [([0], True), ([0, 2], True), ([2], False), ([None, 2], False)])
def test_what_counts_is_the_log_start_when_it_was_skipped(told: list[int | None], found: bool, fed: Fed) -> None:
    """What is listed first after it, whatever is listed later, or as long as nothing is."""
    h = History()
    for reader in ("r", "s"):
        h.assign(reader)
    h.observe(start=0, end=0)
    h.mark(1.0)
    skipped(h)
    for start in told[:-1]:
        wait(h, 2 if start == 0 else 15, start)
    wait(h, 12, told[-1])
    assert {one.anomaly for one in whole(fed(h), POLLS)} == ({"poll-skip"} if found else set())


def test_a_listing_from_before_tells_nothing() -> None:
    """The one after comes in a later step."""
    h, store = History(), Store()
    for reader in ("r", "s"):
        h.assign(reader)
    skipped(h)
    h.rows[2:2] = [h.observe(start=0, end=0)]
    h.rows.pop()
    h.rows[2].invoked, h.rows[2].completed = h.at(0.0001), h.at(0.0002)
    h.mark(1.0)
    store.feed(h.rows)
    h.rows.clear()
    wait(h, 25, 2)
    store.feed(h.rows)
    assert whole(store, POLLS) == []


def test_offset_0_again_is_no_spurious_one() -> None:
    """It was not above 0 before; or it was within one operation."""
    h = History()
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 1, 0)])
    h.poll("s", [("w", 0, 1, 0)])
    h.poll("r", [("w", 0, 3, 0), ("w", 0, 1, 0)])
    assert [one.anomaly for one in whole(finished(h), POLLS)] == ["int-nonmonotonic-poll", "nonmonotonic-poll"]


@pytest.mark.parametrize("fed", [at_once, finished])
def test_neighbours_of_which_one_was_moved(fed: Fed) -> None:
    """That it has its index elsewhere is told by its duplicate."""
    h = History()
    for reader in ("r", "s"):
        h.assign(reader)
    h.txn("t", sends=[("w", 0, 1, 0), ("v", 0, 1, 1)], txn=1)
    h.poll("r", [("w", 0, 1, 0), ("v", 0, 1, 1)])
    h.poll("s", [("w", 0, 1, 5)])
    wait(h, 25)
    assert whole(fed(h), (*POLLS, *SENDS)) == []


@pytest.mark.parametrize("fed", [at_once, row_by_row])
@pytest.mark.parametrize("sends", [[("w", 0, 6, None), ("w", 6, 1, 3)], [("w", 0, 1, 3), ("w", 1, 6, None)]])
def test_sends_without_an_offset_conclude_nothing(sends: list[tuple[str, int, int, int | None]], fed: Fed) -> None:
    h = History()
    h.assign("r")
    h.send("v", 0, 3, at=0)
    h.txn("t", sends=sends, txn=1)
    h.send("v", 3, 4, at=4)
    h.poll("r", [("v", 0, 3, 0), *((w, seq, n, at) for w, seq, n, at in sends if at is not None), ("v", 3, 4, 4)])
    wait(h, 25)
    assert whole(fed(h), SENDS) == []


@pytest.mark.parametrize("fed", [at_once, row_by_row])
def test_polls_without_an_offset_conclude_nothing(fed: Fed) -> None:
    h = History()
    h.assign("r")
    h.assign("s")
    h.send("w", 0, 5, at=0)
    h.poll("s", [("w", 0, 5, 0)])
    h.poll("r", [("w", 0, 1, 0), ("w", 1, 2, None), ("w", 3, 1, 3)])  # type: ignore[list-item]
    h.poll("r", [("w", 4, 1, 4)])
    wait(h, 25)
    assert whole(fed(h), POLLS) == []


def test_an_offset_with_two_values_concludes_nothing() -> None:
    """Neither for whom it is between, nor for whom it ends at."""
    h = History()
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("q", [("v", 7, 1, 2)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])
    h.poll("p", [("w", 2, 1, 2)])
    h.poll("p", [("w", 1, 1, 1)])
    assert whole(finished(h), POLLS) == []


def test_sends_to_an_offset_with_two_values_conclude_nothing() -> None:
    h = History()
    h.send("w", 0, 1, at=5)
    h.send("w", 1, 1, at=4)
    h.txn("t", sends=[("u", 0, 1, 7), ("u", 1, 1, 9)], txn=1)
    h.send("v", 0, 1, at=8)
    h.poll("r", [("v", 7, 1, 4), ("v", 8, 1, 9)])
    assert whole(finished(h), SENDS) == []


@pytest.mark.parametrize("fed", [at_once, row_by_row, finished])
def test_what_processes_write_between_each_other_is_in_order(fed: Fed) -> None:
    """Each one's operations lie behind its last, and of one nobody knows where it lies."""
    h = History()
    h.assign("r")
    h.send("w", 0, 1, at=1)
    h.send("v", 0, 1, at=0)
    h.send("w", 1, 1, at=None)
    h.send("v", 1, 1, at=3)
    h.send("w", 2, 1, at=4)
    h.poll("r", [("v", 0, 1, 0), ("w", 0, 2, 1), ("v", 1, 1, 3), ("w", 2, 1, 4)])
    wait(h, 25)
    assert whole(fed(h), (*SENDS, "send-skip")) == []
