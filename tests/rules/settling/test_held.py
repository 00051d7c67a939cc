"""A log that is read again in the order of its times, of hosts whose clocks differ: its verdicts are what they were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rules.engine.order import KINDS
from rules.kept.state import load
from rules.settling.given_again import KEPT
from rules.step import HELD
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Slice
from tests.rules.cut_logs.test_given_again import Boots
from tests.rules.histories import History, Store, found, number

W = number("w")
LOST = 30
"""What is polled by the other host's reader alone, or by nobody."""


def history(ahead: float, *, polled: bool) -> Boots:
    """One host writes and reads, and another one reads, whose clock is so many seconds ahead."""
    h = Boots(ahead={"two": ahead}, one=("w", "r", "o"), two=("s", "v"))
    for name in ("r", "s"):
        h.assign(name)
    for i in range(150):
        h.send("w", i, at=2 * i)
        h.send("v", i, at=2 * i + 1)
        for name in ("r", "s"):
            if i != LOST or (name == "s" and polled):
                h.poll(name, [("w", i, 1, 2 * i), ("v", i, 1, 2 * i + 1)])
            else:
                h.poll(name, [("v", i, 1, 2 * i + 1)])
        h.row("o", "offsets", log_start=0, log_end=2 * i + 2, last_stable=2 * i + 2)
        h.second()
    return h


def read_again(rows: Sequence[Slice], held: int) -> Store:
    """In the order of their times, 100 rows at once."""
    store, rows = Store(), sorted(rows, key=lambda row: row.completed)
    store.store.held = held
    for first in range(0, len(rows), 100):
        store.feed(rows[first : first + 100])
    if held:
        store.settle()
    return store


def live(rows: Sequence[Slice]) -> Store:
    store = Store()
    for first in range(0, len(rows), 10):
        store.feed(rows[first : first + 10])
    return store


@pytest.mark.long
@pytest.mark.parametrize("ahead", [0.0, 90.0, -90.0, 600.0, -600.0])
@pytest.mark.parametrize("polled", [True, False], ids=["innocent", "guilty"])
def test_what_another_host_did_by_another_clock_counts(ahead: float, polled: bool) -> None:
    h = history(ahead, polled=polled)
    told, now = found(read_again(h.rows, HELD).findings), found(live(h.rows).findings)
    assert {subject for name, subject in told if name == "lost-write"} == (set() if polled else {(W, LOST)})
    # Of readers whose clocks are minutes apart the order is known only where nothing has been forgotten meanwhile.
    assert now <= told
    assert {name for name, _ in told - now} <= {"poll-skip"}


@pytest.mark.parametrize("ahead", [90.0, 600.0])
def test_log_time_that_is_not_held_back_accuses_wrongly(ahead: float) -> None:
    """What it is for: the other host was not heard of yet when a verdict was due."""
    assert ("lost-write", (W, LOST)) in found(read_again(history(ahead, polled=True).rows, 0).findings)


def test_nothing_is_judged_before_it_settles_and_all_of_it_then() -> None:
    h, store = history(0.0, polled=False), Store()
    store.store.held = HELD
    assert not found(store.feed(h.rows))
    (last,) = store.last.values()
    now = last.summary["now"]
    assert found(store.settle()) == found(live(h.rows).findings)
    (last,) = store.last.values()
    assert (last.summary["now"] - now).total_seconds() == HELD / 1e6
    assert store.settle() == []


@pytest.mark.parametrize(("held", "minutes"), [(0, 20), (HELD, 35)])
def test_of_each_observer_so_many_minutes_of_listings_are_kept(held: int, minutes: int) -> None:
    h = Boots(ahead={"two": 300.0}, one=("o",), two=("p",))
    for i in range(60):
        for name in ("o", "p"):
            h.row(name, "offsets", log_start=0, log_end=i, last_stable=i)
        for _ in range(60):
            h.second()
    store = Store()
    store.store.held = held
    store.feed(h.rows)
    (kept,) = store.stored.values()
    assert kept.hot is not None
    listed = load(kept.hot, KINDS).checks["listed-ends"].listed
    assert [np.count_nonzero(listed.boot == boot) for boot in np.unique(listed.boot)] == [minutes, minutes]
    assert (np.diff(listed.invoked) >= 0).all()
    assert {int(listed.end[listed.boot == boot].min()) for boot in np.unique(listed.boot)} == {60 - minutes}


def after_a_cut(skipped: int | None) -> History:
    """A log that was cut is written again, by more sends than are kept of what is judged, and one of them a reader is
    not given."""
    h = History()
    h.assign("r")
    h.assign("s")
    h.send("v", 0, 1, at=5_000)
    h.observe(end=5_001)
    h.mark(1.0)
    h.observe(end=0)
    h.mark(1.0)
    for i in range(0, KEPT + 600, 4):
        for seq in range(i, i + 4):
            h.send("w", seq, at=2 * seq)  # a marker beside each
        h.poll("r", [("w", seq, 1, 2 * seq) for seq in range(i, i + 4)])
        h.poll("s", [("w", seq, 1, 2 * seq) for seq in range(i, i + 4) if seq != skipped])
        h.observe(end=2 * i + 8)
        h.mark(1.0)
    return h


@pytest.mark.long
@pytest.mark.parametrize("skipped", [102, None], ids=["guilty", "innocent"])
def test_what_is_not_judged_yet_forgets_no_send(skipped: int | None) -> None:
    h = after_a_cut(skipped)
    skips = {(s.anomaly, s.evidence["offset"]) for s in live(h.rows).findings if s.anomaly == "int-poll-skip"}
    assert skips == ({("int-poll-skip", 2 * 103)} if skipped else set())
    store = Store()
    store.store.held = HELD
    store.feed(h.rows)
    store.settle()
    assert {(s.anomaly, s.evidence["offset"]) for s in store.findings if s.anomaly == "int-poll-skip"} == skips


@pytest.mark.parametrize("held", [0, HELD])
def test_what_is_open_while_log_time_is_held_back_is_judged_when_it_is_not_any_more(held: int) -> None:
    """A fast writer's quarter of an hour is more than the open window holds at other times."""
    h = History()
    h.assign("r")
    for i in range(400):
        h.send("w", i, at=i)
        if i != LOST:
            h.poll("r", [("w", i, 1, i)])
        h.observe(end=i + 1)
        h.mark(1.0)
    store = Store(Objectives(window_runs=64))
    store.store.held = held
    for first in range(0, len(h.rows), 100):
        store.feed(h.rows[first : first + 100])
    store.settle()
    told = [(one.anomaly, one.subject) for one in store.findings]
    assert ("lost-write", (W, LOST)) in told and ("window-overflow", ()) not in told
