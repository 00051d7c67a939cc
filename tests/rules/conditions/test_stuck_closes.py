"""`stuck-close`: told once, in the order of time, and no longer than the process is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rules.settling.completeness import REMEMBERED
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Mark
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.splits import WAYS
from tests.rules.whole import Told, whole

NAME = "stuck-close"
FED = pytest.mark.parametrize("fed", [fed for name, fed in WAYS.items() if name != "interleaved"])
"""How a process is called is not known before its first row has come."""
R = number("r")


def hangs(h: History) -> Told:
    h.start("r", name="reader-1")
    h.mark(1.0)
    h.row("r", "close", type="info", error="_CLOSE_STUCK")
    told = f"closing the client of reader-1 (process {R}) does not return"
    since = {"process": R, "since": 1_728_000_001_005_000}
    return Told(NAME, (R,), told, since, 1.006, 1.005, "opened")


def test_it_waits_for_log_time() -> None:
    """That it returned is known before log time has come to either."""
    h = History()
    hangs(h)
    h.row("r", "close")
    store = Store()
    store.feed(h.rows[:-1])
    assert whole(store, [NAME]) == []
    h.mark(1.0)
    store.feed(h.rows[-2:])
    assert [one.event for one in whole(store, [NAME])] == ["opened", "closed"]


@FED
@pytest.mark.parametrize(("seconds", "lasted", "at"), [(1, 1.005, 2.01), (20, 20.043, 21.048)])
def test_it_lasts_until_the_client_returns_however_complete_its_log_is(
    fed: Callable[[History], Store], seconds: int, lasted: float, at: float
) -> None:
    """The row that says that it hangs is the last that anybody waits for."""
    h = History()
    opened = hangs(h)
    for _ in range(seconds):
        h.mark(1.0)
    h.row("r", "close")
    for _ in range(5):
        h.mark(1.0)
    told = {"process": R, "lasted_s": lasted}
    closed = Told(NAME, (R,), f"{NAME} ended after {seconds}.0 s", told, at, None, "closed")
    assert whole(fed(h), [NAME]) == [opened, closed]


@FED
def test_it_ends_with_the_process(fed: Callable[[History], Store]) -> None:
    """Its host was lost meanwhile."""
    h = History()
    opened = hangs(h)
    h.mark(1.0)
    h.processes.remove("r")
    over = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(R, 2, over, over)])
    h.start("w", name="writer-1")
    for _ in range(20):
        h.mark(1.0)
    closed = Told(NAME, (R,), f"{NAME} ended after 1.0 s", {"process": R, "lasted_s": 1.004}, 2.009, None, "closed")
    assert whole(fed(h), [NAME]) == [opened, closed]


def test_of_one_that_never_returns_nobody_knows_any_more_when_it_is_forgotten() -> None:
    h = History()
    opened = hangs(h)
    for _ in range(REMEMBERED // SECOND + 10):
        h.mark(1.0)
    told = whole(row_by_row(h), [NAME])
    assert [one.event for one in told] == ["opened", "closed"]
    assert told[0] == opened
    assert REMEMBERED // SECOND < told[1].at < REMEMBERED // SECOND + 8


@pytest.mark.parametrize("seed", range(6))
def test_that_it_hangs_may_come_after_that_it_has_returned(seed: int) -> None:
    """Rows of one process that are read late, or in another order: what is missing before one is waited for."""
    h = History()
    opened = hangs(h)
    h.row("r", "close")
    h.mark(1.0)
    rows, store = list(h.rows), Store()
    random.Random(seed).shuffle(rows)
    for row in rows:
        store.feed([row])
    h.mark(1.0)
    store.feed(h.rows[-1:])
    told = whole(store, [NAME])
    assert [one.event for one in told] == ["opened", "closed"]
    assert (told[0].evidence, told[0].at) == (opened.evidence, opened.at)
