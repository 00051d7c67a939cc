"""`phantom-read` where the writer's log comes late, or is over: what is polled of a writer nobody knows yet waits."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rules.checks.records import phantom_reads
from rules.checks.records.phantom_reads import Record, record_name
from rules.vocabulary.slices import Mark, Place
from tests.rules.histories import History, Store, found, number, singly

W = number("w")


@pytest.mark.parametrize(("sent", "phantom"), [(6, False), (5, True)])
def test_a_poll_waits_for_a_writer_of_which_nothing_is_known(sent: int, phantom: bool) -> None:
    """Its host has not been heard of for two minutes."""
    h, store = History(), Store()
    for seq in range(sent):
        h.send("w", seq, at=seq)
    late = list(h.rows)
    h.rows.clear()
    h.processes.remove("w")
    h.poll("r", [("w", 0, 6, 0)])
    for _ in range(120):
        h.mark(1.0)
    assert found(store.feed(h.rows)) == set()
    h.rows.clear()
    h.processes.append("w")
    for _ in range(3):
        h.mark(1.0)
    store.feed([*late, *h.rows])
    assert (("phantom-read", (W, 5)) in found(store.findings)) == phantom


@pytest.mark.parametrize("polled", [True, False])
def test_a_writer_that_sent_nothing_here_is_known_also_when_it_is_over(polled: bool) -> None:
    h, store = History(), Store()
    h.start("w", writer=str(W))
    h.row("w", "close")
    for _ in range(10):
        h.mark(1.0)
    store.feed(h.rows)
    h.rows.clear()
    h.processes.remove("w")
    h.poll("r", [("w", 0, 1, 0)] if polled else [])
    for _ in range(10):
        h.mark(1.0)
    store.feed(h.rows)
    assert found(store.findings) == ({("phantom-read", (W, 0))} if polled else set())


@pytest.mark.parametrize(("polled_at", "phantom"), [(20, True), (38, False)])
def test_what_a_writer_s_host_took_with_it_concerns_what_was_polled_later(polled_at: int, phantom: bool) -> None:
    """Its journal tells all until second 40, and nothing of what it did from then until its host went down at 60. No
    log time passes meanwhile: another host is away."""
    h, store = History(), Store()
    h.start("w", writer=str(W))
    h.send("w", 0, at=0)
    h.assign("other")
    h.row("another committer", "mark", marks=[Mark(number("other"), 1, h.at(h.time))])
    h.processes = ["w"]
    for second in range(1, 40):
        if second == polled_at:
            h.poll("r", [("w", 0, 1, 0), ("w", 7, 1, 1)])
        h.mark(1.0)
    h.processes.remove("w")
    told, ended = h.at(h.time), h.at(60)
    h.time = 60
    h.row("committer", "mark", marks=[Mark(W, h._slices[W, 0], told, ended, True)])
    for _ in range(40):
        h.mark(1.0)
    store.feed(h.rows)
    assert found(store.findings) == ({("phantom-read", (W, 7))} if phantom else set())


@pytest.mark.parametrize("strange", [True, False], ids=["unknown writer", "late writer"])
@pytest.mark.parametrize("seq", [10_000, 99], ids=["phantom", "sent"])
def test_a_phantom_among_many_polls_that_wait_is_found(
    seq: int, strange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is polled first, and then more of its writer's and of others' values than are kept."""
    monkeypatch.setattr(phantom_reads, "STRANGERS_KEPT" if strange else "KEPT", 8)
    h, store = History(), Store()
    writers = ["w", "x", "y"]
    for name in writers:
        h.start(name, writer=str(number(name)))
    early, h.rows = list(h.rows), []
    if strange:
        h.processes.clear()
    else:
        store.feed([*early, h.mark(1.0)])
        h.rows.clear()
        h.processes.clear()
    for i in range(0, 100, 10):
        for name in writers:
            h.send(name, i, 10, at=1_000 * writers.index(name) + i)
    late, h.rows = list(h.rows), []
    h.processes.clear()
    h.poll("r", [("w", seq, 1, seq if seq < 100 else 900)])
    for i in range(0, 100, 10):
        for name in writers:
            h.poll("r", [(name, i, 10, 1_000 * writers.index(name) + i)])
        h.mark(10.0)
    store.feed(h.rows)
    h.rows.clear()
    h.processes += writers
    store.feed([*(early if strange else []), *late, *(h.mark(5.0) for _ in range(5))])
    assert found(store.findings) == ({("phantom-read", (W, seq))} if seq == 10_000 else set())


def test_sends_that_come_in_another_order() -> None:
    h, store = History(), Store()
    h.assign("r")
    h.send("w", 0, 3, at=0)
    newest = h.send("w", 3, 3, at=3)
    h.poll("r", [("w", 0, 6, 0)])
    for _ in range(15):
        h.mark(1.0)
    store.feed([newest])
    h.rows.remove(newest)
    store.feed(h.rows)
    assert found(store.findings) == set()


def test_what_is_known_of_a_writer_is_kept_as_long_as_its_highest_value_stands() -> None:
    h, store = History(), Store()
    h.send("w", 0, 5, at=100)
    h.poll("r", [("w", 3, 2, 103)])
    h.poll("r", [("w", 0, 2, 100)], type="info")
    for row in singly(h.rows):
        store.feed(row)
    (chunk,) = (data for name, data in store.stored[Place("c", "t", 0)].chunks.items() if name == record_name(W))
    assert Record(*struct.unpack("<qqqb", chunk)) == Record(4, W, 104, 0)


@pytest.mark.parametrize(("seq", "phantom"), [(9, True), (2, False)])
def test_what_nobody_sent_is_a_phantom_to_who_reads_uncommitted_too(seq: int, phantom: bool) -> None:
    h = History()
    h.start("w", writer=str(W))
    h.send("w", 0, 2, at=0)
    h.send("w", 2, 1, at=None, type="info")
    h.assign("u")
    h.poll("u", [("w", 0, 2, 0), ("w", seq, 1, 2)], isolation="read_uncommitted")
    for _ in range(15):
        h.mark(1.0)
    store = Store()
    store.feed(h.rows)
    assert found(store.findings) == ({("phantom-read", (W, seq))} if phantom else set())


@pytest.mark.parametrize("sent", [2, 8])
def test_a_row_of_the_reader_that_is_missing_holds_no_phantom_back(sent: int) -> None:
    """The readers' rows before the poll were rejected, or come later: what was polled was polled."""
    h, store = History(), Store()
    h.start("w", writer=str(W))
    h.send("w", 0, sent, at=0)
    h.assign("r")
    missing = h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 7, 1, 1)])
    for _ in range(15):
        h.mark(1.0)
    h.rows.remove(missing)
    store.feed(h.rows)
    assert (("phantom-read", (W, 7)) in found(store.findings)) == (sent < 8)


@pytest.mark.parametrize("seq", [7, 1])
@pytest.mark.parametrize("closed", [True, False])
def test_the_log_of_a_writer_that_is_over_is_asked_by_nobody_s_clock(closed: bool, seq: int) -> None:
    """Nothing tells how far the clocks of the two hosts are apart; one that lives may have sent more by its own."""

    def by(boot: str) -> dict[str, Any]:
        ns = round(h.time * 1e9)
        return {"boot": boot, "mono_invoked": ns, "mono_completed": ns + 10**6}

    h, store = History(), Store()
    h.start("w", writer=str(W))
    h.send("w", 0, 2, at=0, **by("there"))
    if closed:
        h.row("w", "close", **by("there"))
    h.poll("r", [("w", seq, 1, seq)], **by("here"))
    for _ in range(15):
        h.time += 1.0
        for boot, process in (("there", "w"), ("here", "r")):
            now = h.at(h.time)
            over = now if closed and process == "w" else None
            told = Mark(number(process), h._slices[number(process), 0], now, over)
            h.row(f"{boot} committer", "mark", marks=[told], invoked=now, completed=now, **by(boot))
    store.feed(h.rows)
    assert found(store.findings) == ({("phantom-read", (W, seq))} if closed and seq > 1 else set())
