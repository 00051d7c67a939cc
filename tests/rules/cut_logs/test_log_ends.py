"""`log-truncation`: logs that end below what was known of them, beside ends that say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rules.checks.ends.known_ends import LISTINGS_KEPT, STEPS_KEPT
from rules.checks.ends.log_ends import FIRST, KEPT
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.cut_logs.log_end_histories import (
    GUILTY,
    INNOCENT,
    empty_with_one_record,
    listed_as_zero,
    outlived,
    truncated,
    truncated_in_an_outage,
    written_again,
)
from tests.rules.cut_logs.test_audit import explained, subjects
from tests.rules.histories import START, History, Store, singly
from tests.rules.whole import Told, finished, in_any_way, live, whole

Fed = Callable[[History], Store]
RULES = ("log-truncation",)


@in_any_way()
@pytest.mark.parametrize(("build", "expected"), GUILTY, ids=[c[0].__name__ for c in GUILTY])
def test_guilty(build: Callable[[History], object], expected: Told, fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), RULES) == [expected]


@in_any_way()
@pytest.mark.parametrize("build", INNOCENT)
def test_innocent(build: Callable[[History], object], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), RULES) == []


def test_an_answer_to_what_was_sent_after_the_log_was_whole_bears_out_nothing() -> None:
    h = History()
    outlived(h, 5.5)
    assert "log-truncation" not in {f.anomaly for f in row_by_row(h).findings}


@in_any_way()
def test_an_end_of_zero_is_spurious_unless_the_next_listing_bears_it_out(fed: Fed) -> None:
    h = History()
    listed_as_zero(h)
    message = "the log's end was listed as 0 when offset 9 was known before"
    subject = ("listed", micros(START) + 1_006_000)
    expected = Told("spurious-zero-offset", subject, message, {"known": 9}, 1.006)
    assert whole(fed(h), ("log-truncation", "spurious-zero-offset")) == [expected]


@in_any_way()
def test_a_leader_that_was_cut_off_before_anything_was_readable_lists_zero(fed: Fed) -> None:
    """Its successor was given the records; it was deposed, does not know it yet, and lists what it last knew."""
    h = History()
    listed_as_zero(h, first=0)
    assert whole(fed(h), ("log-truncation", "spurious-zero-offset")) == []


def test_a_truncation_is_reported_once() -> None:
    h = History()
    truncated(h)
    for _ in range(20):
        h.observe(end=5)
        h.mark(1.0)
    assert len(whole(row_by_row(h), RULES)) == 1


def test_in_a_file_no_further_listing_is_waited_for() -> None:
    h = History()
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 1, at=4)
    assert whole(finished(h), ["log-truncation"]) == [
        Told(
            "log-truncation",
            (9,),
            "the log ends at 4, and offset 9 was acknowledged or polled before; then offset 4 was given to another"
            " write: what stood at 6 offsets is gone",
            {"log_end": 4, "known": 9, "written_again": 4, "known_since": micros(START) + 4_000},
            1.004,
        )
    ]


@in_any_way()
def test_of_two_truncations_each_tells_its_own_extent(fed: Fed) -> None:
    h = History()
    truncated_in_an_outage(h)
    h.time += 1
    h.send("v", 3, 13, at=7)
    h.time += 1
    h.observe(end=20)
    h.time += 1
    h.send("u", 0, 2, at=15)
    h.time += 1
    h.observe(end=17)
    written_again(h, 17)
    told = [(one.subject, one.evidence["written_again"]) for one in whole(fed(h), ["log-truncation"])]
    assert sorted(told) == [((9,), 3), ((19,), 15)]


@in_any_way()
def test_since_when_an_offset_was_known_is_not_told_of_a_log_that_had_been_cut_above_it(fed: Fed) -> None:
    """Its clock knew a higher one, of the log as it was before."""
    h = History()
    truncated(h)
    h.send("v", 1, 2, at=5)
    h.time += 1
    h.observe(end=7)
    h.time += 1
    h.observe(end=6)
    h.time += 1
    h.send("u", 0, 1, at=6)
    h.time += 1
    h.observe(end=7)
    told = [(one.subject, "known_since" in one.evidence) for one in whole(fed(h), ["log-truncation"])]
    assert sorted(told) == [((6,), False), ((9,), True)]


@pytest.mark.long
@pytest.mark.parametrize("cut", [True, False], ids=["guilty", "innocent"])
def test_what_was_written_again_is_explained_by_the_rows(cut: bool) -> None:
    """Ten values are read and settled; seven of them give way to others, which are read too."""
    h = History()
    h.send("w", 0, 10, at=0)
    h.poll("r", [("w", 0, 10, 0)], position_before=0, position_after=10)
    for _ in range(20):
        h.observe(end=10)
        h.mark(1.0)
    start = 3 if cut else 10
    h.send("v", 0, 3, at=start)
    h.mark(1.0)
    h.observe(end=start + 3)
    h.mark(1.0)
    h.send("v", 3, 2, at=start + 3)
    for _ in range(40):  # not all of it is given again yet
        h.observe(end=start + 5)
        h.mark(1.0)
    h.send("v", 5, 7, at=start + 5)
    h.mark(1.0)
    h.assign("s")
    h.poll("s", [("w", 0, start, 0), ("v", 0, 12, start)], position_before=0, position_after=start + 12)
    full = h.time
    for _ in range(640):
        h.observe(end=start + 12)
        h.mark(1.0)
    store, asked = Store(), list[float]()
    for row, one in zip(h.rows, singly(h.rows), strict=True):
        store.feed(one)
        asked += [(micros(row.completed) - micros(START)) / SECOND - full] * (len(store.rechecks) - len(asked))
    assert [(one.start, one.end) for _, one in store.rechecks] == ([(0, 10)] * 2 if cut else [])
    assert [later <= at < later + 5 for at, later in zip(asked, (30, 600), strict=cut)] == [True] * len(asked)
    assert subjects(explained(h, store)) == {("inconsistent-offsets", (offset,)) for offset in range(3, 10) if cut}
    assert [one.subject for one in whole(store, ["log-truncation"])] == ([(9,)] if cut else [])


@pytest.mark.parametrize("feed", [finished, live(at_once)], ids=["a file", "a backlog"])
def test_in_a_long_history_an_early_truncation_is_found(feed: Fed) -> None:
    """More writes, and listings, come after it in the same step than are kept from one step to the next."""
    h = History()
    truncated(h)
    for i in range(max(KEPT, STEPS_KEPT, LISTINGS_KEPT) + 10):
        h.time += 0.06
        h.send("v", 1 + i, 1, at=5 + i)
        h.observe(end=6 + i)
    (told,) = whole(feed(h), ["log-truncation"])
    assert told.evidence == {"log_end": 4, "known": 9, "written_again": 4, "known_since": micros(START) + 6_000}


def written_while_a_row_is_missing(h: History) -> Iterator[Slice | None]:
    """Ten records are acknowledged and the log is cut to four of them, while the row of an eleventh, which had been
    acknowledged too, is missing; the row itself comes last, after a None."""
    h.send("w", 0, 10, at=0)
    h.observe(end=10)
    h.mark(1.0)
    h.send("q", 0, 1, at=10)
    late = h.rows.pop()
    h.row("q", "position", position_before=0, position_after=0)
    h.mark(1.0)
    yield from h.rows
    h.rows.clear()
    for second in range(60):
        if second < 40:
            h.observe(end=11)
        elif second == 40:
            h.observe(end=4)
        else:
            h.send("v", second, 1, at=second - 37)
            h.observe(end=second - 36)
        h.mark(1.0)
    yield from h.rows
    yield None
    h.rows.clear()
    h.mark(1.0)
    yield from (late, *h.rows)


def test_a_truncation_while_a_row_is_missing_is_found_at_once_and_told_once() -> None:
    h, store, told = History(), Store(), list[tuple[object, ...]]()
    for row in written_while_a_row_is_missing(h):
        if row is None:
            told = [(one.subject, one.evidence) for one in whole(store, RULES)]
        else:
            store.feed([row])
    assert told == [((9,), {"log_end": 4, "known": 9, "written_again": 4, "known_since": micros(START) + 4_000})]
    assert [(one.subject, one.evidence) for one in whole(store, RULES)] == told


def test_what_was_written_first_and_never_acknowledged_is_explained_with_the_rest() -> None:
    """No acknowledgement tells that its offset was given again: readers do."""
    h, first = History(), 2_003
    h.send("w", 0, 2_010, at=0)
    h.poll("r", [("w", 0, 2_010, 0)], position_before=0, position_after=2_010)
    for _ in range(20):
        h.observe(end=2_010)
        h.mark(1.0)
    h.send("v", 0, 1, at=None, type="info", error="_TIMED_OUT")
    h.send("v", 1, 2, at=first + 1)
    h.mark(1.0)
    h.observe(end=first + 3)
    h.mark(1.0)
    h.send("v", 3, 9, at=first + 3)
    h.assign("s")
    h.poll("s", [("w", 0, first, 0), ("v", 0, 12, first)], position_before=0, position_after=first + 12)
    for _ in range(60):
        h.observe(end=first + 12)
        h.mark(1.0)
    store = Store()
    for one in singly(h.rows):
        store.feed(one)
    (cut,) = whole(store, ["log-truncation"])
    assert cut.evidence["written_again"] == first + 1
    assert [(one.start, one.end) for _, one in store.rechecks] == [(first + 1 - FIRST, 2_010)]
    assert subjects(explained(h, store)) == {("inconsistent-offsets", (offset,)) for offset in range(first, 2_010)}


def test_what_was_known_late_tells_a_truncation_no_second_time_and_calls_no_end_stale() -> None:
    """The row that comes late tells that four offsets more were known. The end that the log has since then is right,
    and all that was given again is asked for."""
    h, store = History(), Store()
    h.send("w", 0, 10, at=0)
    h.observe(end=10)
    h.mark(1.0)
    h.send("q", 0, 4, at=10)
    late = h.rows.pop()
    h.row("q", "position", position_before=0, position_after=0)
    h.mark(1.0)
    for _ in range(40):
        h.observe(end=14)
        h.mark(1.0)
    h.observe(end=4)
    h.mark(1.0)
    h.send("v", 0, 2, at=4)
    for _ in range(45):
        h.observe(end=6)
        h.mark(1.0)
    store.feed(h.rows)
    (first,) = whole(store, (*RULES, "stale-log-end"))
    assert (first.subject, first.evidence["written_again"]) == ((9,), 4)
    h.rows.clear()
    h.mark(1.0)
    store.feed([late, *h.rows])
    assert whole(store, (*RULES, "stale-log-end")) == [first]
    h.rows.clear()
    h.send("v", 2, 20, at=6)
    for _ in range(60):
        h.observe(end=26)
        h.mark(1.0)
    store.feed(h.rows)
    assert [(one.start, one.end) for _, one in store.rechecks] == [(0, 14)]
    assert whole(store, (*RULES, "stale-log-end")) == [first]


@pytest.mark.parametrize("cut", [True, False])
def test_a_truncation_while_a_missing_row_is_waited_for_is_found_in_a_long_log(cut: bool) -> None:
    """A commit of the probe log was lost, and what one process did in it: for ten minutes listings wait for it. Four
    minutes into them the log was cut; by their end six thousand writes have come since."""
    h, store, told_by = History(), Store(), list[float]()
    h.send("w", 0, 1, at=0)
    h.observe(end=1)
    h.row("q", "position", position_before=0, position_after=0)
    h.mark(0.5)
    h.row("q", "position", position_before=0, position_after=0)
    h.rows.pop()  # it was lost
    h.row("q", "position", position_before=0, position_after=0)
    end, began = 1, h.time
    for second in range(660):
        if cut and second == 240:
            h.time += 0.1
            h.observe(end=end - 30)
            end -= 30
        for _ in range(16):
            h.time += 0.06
            h.send("w", end if second < 240 or not cut else end + 30, 1, at=end)
            end += 1
        h.observe(end=end)
        h.time = max(h.time, began + second + 1)
        h.mark()
        if second % 20 == 19:
            store.feed(h.rows)
            h.rows.clear()
            told_by += [h.time - began] * (len(whole(store, RULES)) - len(told_by))
    store.feed(h.rows)
    known = 240 * 16
    told = [(one.subject, one.evidence) for one in whole(store, RULES)]
    expected = {"log_end": known - 29, "known": known, "written_again": known - 29}
    assert [(subject, {**evidence, "known_since": 0}) for subject, evidence in told] == (
        [((known,), {**expected, "known_since": 0})] if cut else []
    )
    assert [round((evidence["known_since"] - micros(START)) / SECOND, 1) for _, evidence in told] == [240.5] * cut
    assert told_by == ([pytest.approx(260, abs=1)] if cut else [])


def test_a_live_log_is_listed_once_more_first() -> None:
    h = History()
    h.send("w", 0, 10, at=0)
    h.mark(1.0)
    h.observe(end=4)
    h.mark(1.0)
    h.send("v", 0, 1, at=4)
    for _ in range(3):
        h.mark(1.0)
    assert whole(row_by_row(h), ["log-truncation"]) == []


@in_any_way()
def test_an_end_of_zero_where_nothing_above_0_was_known_is_not_spurious(fed: Fed) -> None:
    h = History()
    empty_with_one_record(h)
    assert whole(fed(h), ["spurious-zero-offset"]) == []


def test_what_is_listed_too_short_again_is_the_same_truncation() -> None:
    h = History()
    h.send("w", 0, 10, at=0)
    for i in range(3):
        h.mark(1.0)
        h.observe(end=4 + i)
        h.mark(1.0)
        h.send("v", i, 1, at=4 + i)
    h.mark(1.0)
    h.observe(end=7)
    for _ in range(3):
        h.mark(1.0)
    store = Store()
    for row in singly(h.rows):
        store.feed(row)
    assert [(one.subject, one.evidence["written_again"]) for one in whole(store, ["log-truncation"])] == [((9,), 4)]
