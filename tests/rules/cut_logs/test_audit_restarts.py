"""Readers that begin anew in the middle of a block: none of them has read it whole, and all of them together have."""

from __future__ import annotations

import random

import pytest

from rules.audit import digests
from rules.audit.digests import READINGS_KEPT
from rules.audit.sums import BLOCK
from rules.engine import order
from rules.kept.state import load
from tests.rules.cut_logs.test_audit import PLACE, Log, W, check, explained, logged, read, runs, settle, subjects, write
from tests.rules.histories import History, Store, found


def until(h: History, name: str, log: Log, start: int, end: int, *, size: int = 100) -> None:
    """A reader reads a part of the log."""
    read(h, name, {offset: value for offset, value in log.items() if offset < end}, start=start, size=size)


def restarted(log: Log, later: Log, stops: list[int], *, back: int = 0, size: int = 100, wait: int = 20) -> History:
    """The log is written and read; at each of `stops` the reader ends, and the next one begins `back` offsets before
    it. What it reads is settled before the next one begins, if `wait` seconds are enough. Then an audit reads
    `later`."""
    h = History()
    write(h, log)
    begin = 0
    for life, stop in enumerate([*stops, max(log) + 1]):
        until(h, f"r{life}", log, max(begin - back, 0), stop, size=size)
        h.row(f"r{life}", "close")
        settle(h, max(log) + 1, seconds=wait)
        begin = stop
    settle(h, max(log) + 1)
    read(h, "audit", later, size=333)
    settle(h, max(log) + 1)
    return h


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 9, 60])
@pytest.mark.parametrize("back", [0, 1, 130, 333])
@pytest.mark.parametrize("lost", [1500, 1640, 1790, 1990])
def test_what_vanished_from_a_block_in_which_readers_began_anew_is_found(lost: int, back: int, parts: int) -> None:
    log = logged(5 * BLOCK)
    h = restarted(log, {o: v for o, v in log.items() if o != lost}, [1600, 1800], back=back)
    store = check(h, parts=parts)
    assert (BLOCK, 2 * BLOCK) in [(r.start, r.end) for _, r in store.rechecks]
    assert subjects(explained(h, store)) == {("vanished-record", (lost, W, lost))}


@pytest.mark.long
@pytest.mark.parametrize("markers", [0, 3, 100])
@pytest.mark.parametrize("back", [0, 1, 130, 333, 1500])
def test_a_log_that_stays_is_found_to_stay(back: int, markers: int) -> None:
    """Any two of how far they go back, of the markers, of the sizes and of the parts meet, and not all of them."""
    log = logged(5 * BLOCK, markers=markers)
    for i, (size, wait) in enumerate(((50, 20), (333, 1), (700, 0))):
        h = restarted(log, log, [1600, 1800, 3000], back=back, size=size, wait=wait)
        store = check(h, parts=(1, 9, 60)[(i + back + markers) % 3], seed=size)
        assert store.rechecks == []
        assert found(store.findings) == set()


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 9, 40])
@pytest.mark.parametrize("audited", [1610, 1700, 1900])
@pytest.mark.parametrize("back", [0, 120])
def test_who_was_there_before_is_followed_and_not_who_came_after(back: int, audited: int, parts: int) -> None:
    """An audit reads the block after its record has vanished, and before the next reader begins in its middle."""
    log = logged(5 * BLOCK)
    gone = {o: v for o, v in log.items() if o != 1500}
    h = History()
    write(h, log)
    until(h, "first", log, 0, 1600)
    h.row("first", "close")
    settle(h, max(log) + 1)
    until(h, "audit", gone, 0, audited)
    settle(h, max(log) + 1, seconds=1)
    read(h, "second", gone, start=1600 - back, size=100)
    settle(h, max(log) + 1)
    read(h, "later", gone, size=333)
    settle(h, max(log) + 1)
    store = check(h, parts=parts)
    assert (BLOCK, 2 * BLOCK) in [(r.start, r.end) for _, r in store.rechecks]
    assert subjects(explained(h, store)) == {("vanished-record", (1500, W, 1500))}


def test_what_is_read_again_may_take_several_steps() -> None:
    """Each poll of the second reader is settled before the next one comes: what it reads again takes four of them."""
    log = logged(3 * BLOCK)
    h = History()
    write(h, log)
    until(h, "first", log, 0, 1600)
    h.row("first", "close")
    settle(h, max(log) + 1)
    h.assign("second")
    for start in range(1430, 2230, 50):
        h.poll("second", runs(log, start, start + 50), position_before=start, position_after=start + 50)
        settle(h, max(log) + 1, seconds=8)
    read(h, "audit", {o: v for o, v in log.items() if o != 1300})
    settle(h, max(log) + 1)
    store = Store()
    for row in h.rows:
        store.feed([row])
    assert (BLOCK, 2 * BLOCK) in [(r.start, r.end) for _, r in store.rechecks]


def test_who_begins_after_a_hole_goes_on_with_nobodys_reading() -> None:
    """From 1,600 to 1,700 nobody in assign mode has read: what is not there now may never have been."""
    log = logged(5 * BLOCK)
    h = restarted(log, {o: v for o, v in log.items() if o != 1650}, [1600], back=-100)
    store = check(h)
    assert [(r.start, r.end) for _, r in store.rechecks if r.start == BLOCK] == []


def test_who_jumps_while_it_catches_up_is_on_its_own() -> None:
    """It begins at 1,500, where another one had read to 1,800; then it begins anew at 1,900."""
    log = logged(5 * BLOCK)
    h = History()
    write(h, log)
    until(h, "first", log, 0, 1800)
    settle(h, max(log) + 1)
    until(h, "second", log, 1500, 1550)
    h.assign("second", assigned=False)
    h.assign("second")
    h.poll("second", runs(log, 1900, 2500), position_before=1900, position_after=2500)
    settle(h, max(log) + 1)
    read(h, "audit", log, size=333)
    settle(h, max(log) + 1)
    for parts in (1, 5, 40):
        assert check(h, parts=parts).rechecks == []


def test_who_begins_with_the_block_reads_it_by_itself() -> None:
    """Else an audit would see what was there when the first one looked, for ever."""
    log = logged(BLOCK + 10)
    gone = {o: v for o, v in log.items() if o != 300}
    h = History()
    write(h, log)
    until(h, "first", log, 0, 700)
    h.row("first", "close")
    settle(h, max(log) + 1)
    read(h, "second", log)
    settle(h, max(log) + 1)
    for audit in ("one", "two"):
        read(h, audit, gone, size=333)
        settle(h, max(log) + 1)
    for parts in (1, 9):
        store = check(h, parts=parts)
        assert (0, BLOCK) in [(r.start, r.end) for _, r in store.rechecks]
        assert subjects(explained(h, store)) == {("vanished-record", (300, W, 300))}


def test_many_lives_leave_few_readings() -> None:
    log = logged(400)
    h = History()
    write(h, log)
    rng = random.Random(1)
    for life in range(3 * READINGS_KEPT):
        until(h, f"r{life}", log, 0, rng.randrange(50, 400))
        h.row(f"r{life}", "close")
        settle(h, max(log) + 1, seconds=2)
    store = check(h, parts=5)
    state = load(store.stored[PLACE].hot or b"", order.KINDS)
    of = set(order.own(state, digests.CHECK).reading.process.tolist())
    assert len(of) > 3 and len(of - set(state.processes)) <= READINGS_KEPT
