"""A log that was cut below its own start: a leader that was long behind, or has nothing, goes on from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.checks.records import losses
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import live, whole

Fed = Callable[[History], Store]
FEEDS = pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
START, END = 100, 120
"""Of the log before it was cut."""


def cut(
    h: History,
    again: int,
    *,
    lost: int | None = None,
    start: int | None = None,
    seconds: int = 40,
    unread: int = 0,
    pause: float = 0.0,
) -> History:
    """Retention has taken what was below `START`; then the log is cut, and goes on from `again`, below that. One record
    a second is written and polled, but for number `lost`, which readers pass. `start`: of the log since. `unread`: so
    many of the last records before the cut nobody had polled. `pause`: seconds from a poll to the next listing."""
    h.assign("r")
    h.observe(start=START, end=START)
    h.mark(1.0)
    for i in range(END - START):
        h.send("w", i, 1, at=START + i)
        if i < END - START - unread:
            h.poll("r", [("w", i, 1, START + i)])
    h.observe(start=START, end=END)
    h.mark(2.0)
    h.observe(start=0 if start is None else start, end=again)
    h.poll("r", [])
    h.assign("r")
    for i in range(seconds):
        h.send("v", i, 1, at=again + i)
        if i != lost:
            h.poll("r", [("v", i, 1, again + i)])
        h.time += pause
        h.observe(start=0 if start is None else start, end=again + i + 1)
        h.mark(1.0)
    return h


@FEEDS
@pytest.mark.parametrize("again", [0, 40])
@pytest.mark.parametrize("lost", [5, 20])
def test_what_is_lost_of_the_log_as_it_is_since_is_lost(fed: Fed, again: int, lost: int) -> None:
    (found,) = whole(fed(cut(History(), again, lost=lost)), ["lost-write"])
    assert (found.evidence["seq"], found.evidence["offset"]) == (lost, again + lost)


@FEEDS
@pytest.mark.parametrize("again", [0, 40])
def test_nothing_is_lost_of_it_where_all_was_polled(fed: Fed, again: int) -> None:
    told = fed(cut(History(), again))
    assert whole(told, ["lost-write", "benign-retention", "suspected", "unseen", "poll-skip"]) == []
    assert [one.evidence["written_again"] for one in whole(told, ["log-truncation"])] == [again]


@FEEDS
@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_a_second_cut_of_a_log_that_is_still_shorter_than_it_was_is_told_too(fed: Fed, pause: float) -> None:
    h = cut(History(), 0, pause=pause)
    h.observe(end=25)
    for i in range(40, 60):
        h.send("v", i, 1, at=i - 15)
        h.poll("r", [("v", i, 1, i - 15)])
        h.observe(end=i - 14)
        h.mark(1.0)
    told = whole(fed(h), ["log-truncation"])
    assert [(one.evidence["known"], one.evidence["written_again"]) for one in told] == [(END - 1, 0), (39, 25)]


@FEEDS
@pytest.mark.parametrize("again", [0, 40, 110])
def test_what_is_written_again_and_read_at_once_is_never_suspected(fed: Fed, again: int) -> None:
    """Readers had been past it in the log that was."""
    h = cut(History(), again, seconds=0)
    for i in range(40):
        h.send("v", i, 1, at=again + i)
        h.observe(start=0, end=again + i + 1)
        h.mark(1.0)
        h.poll("r", [("v", i, 1, again + i)])
        h.mark(1.0)
    assert whole(fed(h), ["suspected", "unseen"]) == []


def test_an_end_of_zero_that_was_told_to_be_a_cut_while_a_row_was_missing_is_not_called_spurious_later() -> None:
    h, store = History(), Store()
    h.send("w", 0, 4, at=0)
    h.send("w", 4, 5, at=5)
    h.observe(end=10)
    h.mark(1.0)
    h.send("q", 0, 1, at=4)
    late = h.rows.pop()
    h.row("q", "position", position_before=0, position_after=0)
    h.mark(1.0)
    for second in range(60):
        if second > 41:
            h.send("v", second, 1, at=second - 42)
            h.time += 0.5
        h.observe(end=10 if second < 40 else max(second - 41, 0))
        h.mark(1.0)
    for row in h.rows:
        store.feed([row])
    names = ["log-truncation", "spurious-zero-offset"]
    told = [one for one in whole(store, names) if one.subject[0] != "acknowledgement"]
    assert [(one.anomaly, one.evidence["known"]) for one in told] == [("log-truncation", 9)]
    h.rows.clear()
    h.mark(1.0)
    for row in (late, *h.rows):
        store.feed([row])
    assert [one for one in whole(store, names) if one.subject[0] != "acknowledgement"] == told


@pytest.mark.long
@pytest.mark.parametrize("missing", [3, 10, 30, 50])
def test_nothing_is_dated_before_the_log_where_the_beginning_is_missing(missing: int) -> None:
    h, store = cut(History(), 0, lost=5), Store()
    for row in h.rows[missing:]:
        store.feed([row])
    assert [one for one in store.findings if one.at < 0] == []


@FEEDS
@pytest.mark.parametrize("again", [0, 40])
def test_who_went_back_over_the_cut_is_told_when_it_is_known_and_not_when_the_log_is_as_long_again(
    fed: Fed, again: int
) -> None:
    h = History()
    h.assign("r")
    h.observe(start=START, end=START)
    h.mark(1.0)
    for i in range(END - START):
        h.send("w", i, 1, at=START + i)
        h.poll("r", [("w", i, 1, START + i)])
    h.observe(start=START, end=END)
    h.mark(2.0)
    h.observe(start=0, end=again)
    for i in range(40):
        h.send("v", i, 1, at=again + i)
        h.poll("r", [("v", i, 1, again + i)])
        h.observe(start=0, end=again + i + 1)
        h.mark(1.0)
    told = whole(fed(h), ["nonmonotonic-poll", "spurious-zero-offset"])
    back, *zero = [one for one in told if one.subject[0] != "acknowledgement"]
    assert (back.evidence["previous_offset"], back.evidence["offset"]) == (END - 1, again)
    assert back.at < 10, "the log is as long again at 83"
    assert [one.anomaly for one in zero] == (["spurious-zero-offset"] if again == 0 else [])


@pytest.mark.parametrize("late", [False, True])
def test_what_nobody_reads_of_the_log_as_it_is_since_is_told(late: bool) -> None:
    """`late`: what an observer on another host had listed before the cut comes after it."""
    h = History()
    h.assign("r")
    old = h.row("p", "offsets", log_start=START, log_end=START, last_stable=START)
    cut(h, 0, seconds=10)
    for i in range(10, 40):
        h.send("v", i, 1, at=i)
        h.observe(start=0, end=i + 1)
        h.mark(1.0)
    store, rows = Store(), [row for row in h.rows if not (late and row is old)]
    for row in rows[:-60]:
        store.feed([row])
    store.feed([old] if late else [])
    for row in rows[-60:]:
        store.feed([row])
    assert [one.event for one in whole(store, ["unseen"])] == ["opened"]


@pytest.mark.long
@FEEDS
@pytest.mark.parametrize("unread", [0, 1, 6])
@pytest.mark.parametrize("again", [110, 114])
@pytest.mark.parametrize("skipped", [None, 20])
def test_where_a_value_stood_before_the_cut_there_may_be_a_marker_now(
    fed: Fed, again: int, unread: int, skipped: int | None
) -> None:
    """Nobody skips what a cut took away. What was written since, a reader that goes over it has skipped."""
    h = cut(History(), again, seconds=0, unread=unread)
    for i in range(40):
        at = again + i + i // 5 + 1  # a commit marker behind each five
        h.send("v", i, 1, at=at)
        h.observe(start=START, end=at + 1)
        if i != skipped:
            h.poll("r", [("v", i, 1, at)])
        h.poll("s", [("v", i, 1, at)])
        h.mark(1.0)
    told = whole(fed(h), ["poll-skip", "log-truncation"])
    skips = [one.evidence["skipped"] for one in told if one.anomaly == "poll-skip"]
    assert [[one["seq"] for one in each] for each in skips] == ([] if skipped is None else [[skipped]])
    assert len(told) > len(skips), "it was cut"


@FEEDS
@pytest.mark.parametrize("start", [0, 3])
def test_retention_takes_what_lies_below_the_start_of_the_log_as_it_is_since(fed: Fed, start: int) -> None:
    """All of it lies below the start of the log that was."""
    h = cut(History(), 0, seconds=0)
    for i in range(6):
        h.send("v", i, 1, at=i)
    h.observe(end=6)
    h.mark(1.0)
    for _ in range(3):
        h.observe(start=start, end=6)
        h.mark(1.0)
    told = [(one.subject, one.evidence["log_start"]) for one in whole(fed(h), ["benign-retention"])]
    assert told == [((number("v"), i), start) for i in range(start)]


def test_what_retention_had_taken_of_the_log_that_was_is_told_when_the_last_reader_s_log_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often a start is listed, it is kept once."""
    monkeypatch.setattr(losses, "STARTS_KEPT", 2)
    h, store = History(), Store()
    for name in "rs":
        h.assign(name)
    h.send("w", 0, 3, at=START)
    h.observe(start=START, end=START + 3)
    h.mark(1.0)
    late = h.poll("r", [])
    for _ in range(4):
        h.observe(start=START + 3, end=START + 3)
        h.mark(10.0)
    h.observe(end=0)
    h.poll("s", [])
    h.assign("s")
    for i in range(4):
        h.send("v", i, 1, at=i)
        h.poll("s", [("v", i, 1, i)])
        h.observe(end=i + 1)
        h.mark(10.0)
    for row in h.rows:
        if row is not late:
            store.feed([row])
    assert whole(store, ["benign-retention", "lost-write"]) == []
    store.feed([late])
    store.feed([h.mark(1.0)])
    (told,) = whole(store, ["benign-retention", "lost-write"])
    assert told.evidence == {"writer": number("w"), "seq": 0, "values": 3, "offset": START, "log_start": START + 3}
