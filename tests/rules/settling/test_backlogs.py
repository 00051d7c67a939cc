"""A committer that catches up after an outage: what it has not read yet is still to come, and is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rules.checks.order import poll_order
from rules.checks.order.poll_order import BLANK_KEPT
from rules.vocabulary.slices import Mark, Run, Slice
from tests.rules.histories import START, History, Store, number
from tests.rules.whole import Told, whole

SECOND_NS = 1_000_000_000
AWAY, BACK, PIECE = 20, 80, 15
"""The committer appends nothing between these seconds, and then the rows of so many seconds at once."""


def of_second(h: History, second: int, other: str) -> list[Slice]:
    """A record, polled at once by `r` and three seconds later by `s`, who at offset 50 reads one of `other`."""
    h.time = second
    h.send("w", second, 1, at=second)
    h.poll("r", [("w", second, 1, second)])
    if second > 3:
        h.poll("s", [(other if second == 53 else "w", second - 3, 1, second - 3)])
    h.observe(start=1, end=second + 1)
    made, h.rows = h.rows, []
    return made


def with_mark(h: History, rows: list[Slice], counts: dict[int, int], read: int, written: int) -> list[Slice]:
    """The rows and the mark of one append: all that had happened through second `read` is here."""
    counts |= {row.process: row.slice + 1 for row in rows}
    marks = [Mark(process, slices, h.at(read + 0.9)) for process, slices in counts.items()]
    mark = h.row("committer", "mark", marks=marks, invoked=h.at(read + 0.9), completed=h.at(written + 0.9))
    h.rows = []
    return [*rows, mark]


@pytest.mark.parametrize("other", ["x", "w"], ids=["guilty", "innocent"])
def test_what_a_backlog_brings_is_held_against_what_came_before_it(other: str) -> None:
    """The acknowledgement comes with one piece, the poll of another value with the next; and a reader of whom a piece
    tells nothing has not stopped."""
    h, store, counts = History(), Store(), dict[int, int]()
    h.assign("r")
    h.assign("s")
    waiting, h.rows = {0: h.rows}, []
    for second in range(1, 100):
        waiting[second] = of_second(h, second, other)
        if AWAY < second < BACK:
            continue
        read = min(second, AWAY + PIECE * (second - BACK + 1)) if second >= BACK else second
        rows = [row for at in list(waiting) if at <= read for row in waiting.pop(at)]
        store.feed(with_mark(h, rows, counts, read, second))
    first, second = sorted(number(writer) for writer in "wx")
    evidence = {"offset": 50, "values": [{"writer": writer, "seq": 50} for writer in (first, second)]}
    message = f"offset 50 holds 2 values: {first}/50 and {second}/50"
    told = Told("inconsistent-offsets", (50,), message, evidence, 53.006)
    assert whole(store, {f.anomaly for f in store.findings}) == ([told] if other == "x" else [])


@pytest.mark.parametrize("seen_there", [True, False], ids=["guilty", "innocent"])
def test_a_step_into_the_last_rows_of_a_reader_is_judged_although_all_of_them_come_late(seen_there: bool) -> None:
    """The host of `r` is away when it goes over offset 12, and closes: it is over as soon as its rows are here."""
    h, store, late = History(), Store(), list[Slice]()
    for second in range(1, 80):
        h.time = second
        if second != 12 or seen_there:
            h.send("w", second, 1, at=second)
            h.poll("s", [("w", second, 1, second)])
        h.observe(start=1, end=second + 1)
        if second < 20 and second != 12:
            h.poll("r", [("w", second, 1, second)])
            if second > 12:
                late.append(h.rows.pop())
        elif second == 20:
            h.row("r", "close")
            late.append(h.rows.pop())
        now = h.at(second + 0.9)
        here = [Mark(number(p), h._slices[number(p), 0], now) for p in ("w", "s", "observer")]
        h.row("committer", "mark", marks=here, invoked=now, completed=now)
        if second < 12:
            h.row("its committer", "mark", marks=[Mark(number("r"), second, now)], invoked=now, completed=now)
        elif second == 79:
            told = Mark(number("r"), h._slices[number("r"), 0], h.at(21), h.at(21))
            h.rows += [*late, h.row("its committer", "mark", marks=[told], invoked=now, completed=now)]
        store.feed(h.rows)
        h.rows = []
    values = [{"offset": 12, "writer": number("w"), "seq": 12}]
    evidence = {"process": number("r"), "op": 11, "previous_op": 10, "previous_offset": 11, "offset": 13}
    what = f"process {number('r')} went from offset 11 to 13 over 1 known values"
    skip = Told("poll-skip", (number("r"), 11), what, evidence | {"skipped": values}, 79.0, context={"mode": "assign"})
    assert whole(store, {"poll-skip"}) == ([skip] if seen_there else [])


@pytest.mark.parametrize("more", [0, 1], ids=["as many as are kept", "one more"])
def test_of_steps_over_nothing_known_the_newest_wait_for_the_log_of_a_host_that_is_late(more: int) -> None:
    """A poll with a hole between each two records. What `v` had sent into the first and the last of them comes late."""
    holes = BLANK_KEPT + more
    h, store = History(), Store()
    w = number("w")
    h.send("v", 0, 1, at=0)
    h.row("w", "send", sent=[Run(w, i, 1 + 2 * i, 1) for i in range(holes + 1)])
    h.assign("r")
    h.time = 1
    polled = [Run(number("v"), 0, 0, 1), *(Run(w, i, 1 + 2 * i, 1) for i in range(holes + 1))]
    h.row("r", "poll", polled=polled, mode="assign", isolation="read_committed")
    first, last = 2, 2 * holes
    h.send("v", 1, 1, at=first, invoked=h.at(0.5), completed=h.at(0.6))
    h.send("v", 2, 1, at=last, invoked=h.at(0.6), completed=h.at(0.7))
    late, h.rows = h.rows[-2:], h.rows[:-2]
    for second in range(2, 80):
        h.time = second
        h.observe(start=0, end=2 * holes + 2)
        now = h.at(second + 0.9)
        here = [Mark(number(p), h._slices[number(p), 0], now) for p in ("w", "r", "observer")]
        h.row("committer", "mark", marks=here, invoked=now, completed=now)
        if second == 2:
            h.row("its committer", "mark", marks=[Mark(number("v"), 1, h.at(0.1))], invoked=now, completed=now)
        if second == 79:
            told = [Mark(number("v"), 3, now)]
            h.rows += [*late, h.row("its committer", "mark", marks=told, invoked=now, completed=now)]
        store.feed(h.rows)
        h.rows = []
    skipped = {one.subject[2] for one in whole(store, {"int-poll-skip"})}
    assert skipped == ({last + 1} if more else {first + 1, last + 1})
    dropped = [one.subject for one in whole(store, {"window-overflow"})]
    assert dropped == ([("steps over nothing known",)] if more else [])


@pytest.mark.parametrize("there", [True, False], ids=["guilty", "innocent"])
def test_of_steps_that_several_readers_made_alike_one_of_each_is_kept(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many wait. All went over the place of what `v` had sent, as it turns out when its log is here."""
    monkeypatch.setattr(poll_order, "BLANK_KEPT", 30)
    h, store = History(), Store()
    w = number("w")
    h.send("v", 0, 1, at=0)
    h.row("w", "send", sent=[Run(w, i, 1 + 2 * i, 1) for i in range(21)])
    for reader in "rst":
        h.assign(reader)
    h.time = 1
    polled = [Run(number("v"), 0, 0, 1), *(Run(w, i, 1 + 2 * i, 1) for i in range(21))]
    for reader in "rst":
        h.row(reader, "poll", polled=polled, mode="assign", isolation="read_committed")
    h.send("v", 1, 1, at=2 if there else 43, invoked=h.at(0.5), completed=h.at(0.6))
    late = h.rows.pop()
    for second in range(2, 80):
        h.time = second
        h.observe(start=0, end=43)
        now = h.at(second + 0.9)
        here = [Mark(number(p), h._slices[number(p), 0], now) for p in ("w", "r", "s", "t", "observer")]
        h.row("committer", "mark", marks=here, invoked=now, completed=now)
        if second == 2:
            h.row("its committer", "mark", marks=[Mark(number("v"), 1, h.at(0.1))], invoked=now, completed=now)
        if second == 79:
            told = [Mark(number("v"), 2, now)]
            h.rows += [late, h.row("its committer", "mark", marks=told, invoked=now, completed=now)]
        store.feed(h.rows)
        h.rows = []
    assert [one.subject for one in whole(store, {"int-poll-skip"})] == ([(number("r"), 1, 3)] if there else [])
    assert whole(store, {"window-overflow"}) == []


@pytest.mark.parametrize("polled", [False, True], ids=["guilty", "innocent"])
def test_a_backlog_of_a_boot_that_is_over_is_waited_for(polled: bool) -> None:
    """`s` and `v` were on a host that went down at 70, whose committer was away from 20 on and catches up after the
    reboot. What `w` had sent at 50 went past `q`; whether `s` polled it is in the second piece."""
    h, store, counts = History(), Store(), dict[int, int]()
    waiting: dict[int, list[Slice]] = {}
    for second in range(1, 100):
        here = _by("here", second, 0)
        h.time = second
        h.send("w", second, 1, at=2 * second, **here)
        h.poll("q", [("w", second, 1, 2 * second)] if second != 50 else [], **here)
        h.poll("q", [("v", second, 1, 2 * second + 1)] if second < 70 else [], **here)
        h.row("observer", "offsets", log_start=2, log_end=2 * second + 2, last_stable=2 * second + 2, **here)
        rows, h.rows = h.rows, []
        if second < 70:
            there = _by("there, first", second, 0)
            h.send("v", second, 1, at=2 * second + 1, **there)
            h.poll("s", [("w", second, 1, 2 * second)] if second != 50 or polled else [], **there)
            waiting[second], h.rows = h.rows, []
        h.row("committer", "mark", marks=[Mark(r.process, r.slice + 1, h.at(second)) for r in rows], **here)
        store.feed(rows + h.rows)
        h.rows = []
        if AWAY < second < BACK:
            continue
        read = min(second, AWAY + PIECE * (second - BACK + 1)) if second >= BACK else second
        due = [row for at in list(waiting) if at <= read for row in waiting.pop(at)]
        counts |= {row.process: row.slice + 1 for row in due}
        over = h.at(70) if read >= 70 else None
        marks = [Mark(process, n, min(h.at(read), h.at(70)), over) for process, n in counts.items()]
        boot = _by("there, first", second, 0) if second < BACK else _by("there, second", second, 75)
        h.row("its committer", "mark", marks=marks, **(boot | {"invoked": h.at(read)}))
        store.feed(due + h.rows)
        h.rows = []
    lost = [(one.anomaly, one.subject) for one in whole(store, {"lost-write"})]
    assert lost == ([] if polled else [("lost-write", (number("w"), 50))])


def _by(boot: str, second: int, begun: int) -> dict[str, Any]:
    """A moment by a boot's clocks."""
    at, mono = START + timedelta(seconds=second), (second - begun) * SECOND_NS
    return {"boot": boot, "invoked": at, "completed": at, "mono_invoked": mono, "mono_completed": mono}
