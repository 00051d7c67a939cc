"""`log-truncation`: logs that end below what was known of them, beside ends that say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rules.checks.known_ends import LISTINGS_KEPT, STEPS_KEPT
from rules.checks.log_ends import KEPT
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Run, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, number, singly
from tests.rules.liveness_of import at_once, row_by_row
from tests.rules.test_audit import explained, subjects
from tests.rules.whole import Told, finished, in_any_way, live, whole

Fed = Callable[[History], Store]
RULES = ("log-truncation",)


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


def truncated_in_an_outage(h: History) -> None:
    """Nobody could ask for the end until three records had been written again."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.send("v", 0, 2, at=3)
    h.time += 1
    h.observe(end=6)
    h.time += 1
    h.send("v", 2, 1, at=6)
    h.time += 1
    h.observe(end=7)


def truncated_beside_a_slow_write(h: History) -> None:
    """What stands at 3 was invoked before a higher offset was known: the log need not have been cut below 6."""
    h.send("w", 0, 3, at=0)
    h.send("x", 0, 1, at=3, invoked=h.at(0.7), completed=h.at(1.5))
    h.send("w", 3, 6, at=4, invoked=h.at(0.5), completed=h.at(1))
    h.time = 2
    h.observe(end=6)
    written_again(h, 6)


def truncated_below_a_poll(h: History) -> None:
    h.poll("r", [("w", 0, 10, 0)])
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


def erased(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=0)
    h.observe(end=0)
    written_again(h, 0)


def truncated_by_one_clock_of_two(h: History) -> None:
    """What the other host knows is more, and says nothing."""
    on_a = {"boot": "a", "mono_invoked": 10**9, "mono_completed": 2 * 10**9}
    h.send("w", 0, 10, at=0, **on_a)
    h.send("x", 0, 10, at=10, boot="b", mono_invoked=1, mono_completed=2)
    later = {"boot": "a", "mono_invoked": 9 * 10**9, "mono_completed": 10**10}
    h.row("o", "offsets", log_start=0, log_end=4, last_stable=4, **later)
    h.send("v", 0, 1, at=5, boot="a", mono_invoked=11 * 10**9, mono_completed=12 * 10**9)
    h.row("o", "offsets", log_start=0, log_end=6, last_stable=6, boot="a", mono_invoked=13 * 10**9,
          mono_completed=14 * 10**9)  # fmt: skip


def died_while_it_polled(h: History, polled: int = 10) -> None:
    """Killed with a transaction open; recovery writes what its journal has. It polled some time before the close row,
    and long after the transaction began: the row itself does not tell."""
    began = h.at(h.time)
    h.time += 5
    h.row("t", "txn", type="info", txn=1, error="process-died", invoked=began, completed=began,
          polled=runs_of(polled), mode="assign", isolation="read_committed")  # fmt: skip
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))


def runs_of(polled: int) -> list[Run]:
    return [Run(number("w"), 0, 0, polled)]


def truncated_below_what_a_dead_process_had_polled(h: History) -> None:
    """By the time it was closed, it had."""
    died_while_it_polled(h)
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def truncated_below_what_a_dead_process_had_polled_beside_others(h: History) -> None:
    """Of another one, and of one on another host, it is not known by when they had polled more."""
    for process, more in (("u", {}), ("x", {"boot": "b", "mono_invoked": 1, "mono_completed": 1})):
        now = h.at(h.time)
        h.row(process, "txn", type="info", txn=2, error="process-died", invoked=now, completed=now, polled=runs_of(20),
              mode="assign", isolation="read_committed", **more)  # fmt: skip
    truncated_below_what_a_dead_process_had_polled(h)


def truncated_below_an_indefinite_poll(h: History) -> None:
    """Its process lives: it had polled by the end of the operation."""
    h.poll("r", [("w", 0, 10, 0)], type="info")
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


def truncated_below_a_poll_in_no_time(h: History) -> None:
    h.row("z", "position", type="info", invoked=h.at(0), completed=h.at(0.001))
    now = h.at(h.time)
    h.poll("r", [("w", 0, 10, 0)], invoked=now, completed=now)
    h.time += 0.998
    h.observe(end=9)
    written_again(h, 9)


def cut(end: int, known: int, again: int, where: str, *, at: float) -> Told:
    said = (
        f"the log ends at {end}, and offset {known} was acknowledged or polled before; then offset {again} was given to"
        f" another write: what stood {where} is gone"
    )
    return Told("log-truncation", (known,), said, {"log_end": end, "known": known, "written_again": again}, at)


def cut_at_9(at: float) -> Told:
    return cut(9, 9, 9, "there", at=at)


def outlived(h: History, invoked: float) -> None:
    """The log grows past all that was known, before the write has its answer that was given offset 4 again."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 8, at=10)
    h.time += 1
    h.observe(end=18)
    for _ in range(20):
        h.mark(2)
    h.send("x", 0, 1, at=4, invoked=h.at(invoked))
    h.mark(1)


def borne_out_by_an_answer_that_came_late(h: History) -> None:
    outlived(h, 2.5)


def answered_late_and_under_way_before(h: History) -> None:
    outlived(h, 1.5)


def truncated_and_written_by_a_transaction(h: History, type: str, error: str | None = None) -> None:
    """Each of its records was acknowledged, whatever became of it."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    began = h.at(h.time)
    h.time += 0 if error else 1
    h.txn("t", sends=[("t", 0, 3, 4)], type=type, txn=1, error=error, invoked=began, completed=h.at(h.time))
    h.time += 1
    h.observe(end=8)


def written_by_an_aborted_transaction(h: History) -> None:
    truncated_and_written_by_a_transaction(h, "fail")


def written_by_an_indefinite_transaction(h: History) -> None:
    truncated_and_written_by_a_transaction(h, "info")


def written_by_a_transaction_whose_process_died(h: History) -> None:
    """Nobody knows when its records were acknowledged, and it began after the listing."""
    truncated_and_written_by_a_transaction(h, "info", "process-died")
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))


def truncated_below_an_aborted_transaction(h: History) -> None:
    h.txn("t", sends=[("t", 0, 10, 0)], type="fail", txn=1)
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


GUILTY = [
    (written_by_an_aborted_transaction, cut(4, 9, 4, "at 6 offsets", at=1.004)),
    (written_by_an_indefinite_transaction, cut(4, 9, 4, "at 6 offsets", at=1.004)),
    (written_by_a_transaction_whose_process_died, cut(4, 9, 4, "at 6 offsets", at=1.004)),
    (truncated_below_an_aborted_transaction, cut_at_9(1.004)),
    (borne_out_by_an_answer_that_came_late, cut(4, 9, 4, "at 6 offsets", at=2.006)),
    (truncated_below_an_indefinite_poll, cut_at_9(1.004)),
    (truncated_below_a_poll_in_no_time, cut_at_9(1.004)),
    (truncated_below_what_a_dead_process_had_polled_beside_others, cut(4, 9, 4, "at 6 offsets", at=6.01)),
    (truncated, cut(4, 9, 4, "at 6 offsets", at=2.006)),
    (truncated_in_an_outage, cut(6, 9, 3, "at 7 offsets", at=2.006)),
    (truncated_beside_a_slow_write, cut(6, 9, 6, "at 4 offsets", at=2.002)),
    (truncated_below_a_poll, cut(9, 9, 9, "there", at=1.004)),
    (erased, cut(0, 9, 0, "at 10 offsets", at=1.004)),
    (truncated_by_one_clock_of_two, cut(4, 9, 5, "at 5 offsets", at=0.006)),
    (truncated_below_what_a_dead_process_had_polled, cut(4, 9, 4, "at 6 offsets", at=6.006)),
]  # fmt: skip


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
    written_again(h, 4)


def listed_by_another_host(h: History) -> None:
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    h.row("o", "offsets", log_start=0, log_end=4, last_stable=4, boot="b", mono_invoked=9 * 10**9,
          mono_completed=10**10)  # fmt: skip
    h.send("v", 0, 1, at=4, boot="b", mono_invoked=11 * 10**9, mono_completed=12 * 10**9)


def acknowledged_without_idempotence(h: History) -> None:
    """Its leader alone may have had it, which is all that was promised."""
    h.start("w", writer=str(number("w")), idempotent="false")
    truncated(h)


def of_an_indefinite_write(h: History) -> None:
    h.send("w", 0, 10, at=0, type="info")
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def killed_before_it_polled(h: History) -> None:
    """The transaction began, the log's end was listed as it was, more was written, and polled: then it died."""
    h.send("w", 0, 4, at=0)
    began = h.at(h.time)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("w", 4, 6, at=4)
    h.time += 1
    h.row("t", "txn", type="info", txn=1, error="_TIMED_OUT", invoked=began, completed=began,
          polled=runs_of(10), mode="assign", isolation="read_committed")  # fmt: skip
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))
    h.time += 1
    h.observe(end=10)


def acknowledged_below_the_end(h: History) -> None:
    """A wrong acknowledgement, but not where the log may have been cut."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 2, at=1)
    h.time += 1
    h.observe(end=4)


def acknowledged_across_the_end_of_a_whole_log(h: History) -> None:
    h.send("w", 0, 5, at=0)
    h.time += 1
    h.observe(end=5)
    h.time += 1
    h.send("v", 0, 3, at=4)
    h.time += 1
    h.observe(end=7)


def written_by_another_host(h: History) -> None:
    """Its clock is its own: nobody knows whether it wrote after the listing."""
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    h.row("o", "offsets", log_start=0, log_end=4, last_stable=4, boot="a", mono_invoked=3 * 10**9,
          mono_completed=4 * 10**9)  # fmt: skip
    h.send("v", 0, 1, at=4, boot="b", mono_invoked=5 * 10**9, mono_completed=6 * 10**9)
    for boot in ("b", "a"):
        h.row("o", "offsets", log_start=0, log_end=5, last_stable=5, boot=boot, mono_invoked=7 * 10**9,
              mono_completed=8 * 10**9)  # fmt: skip


def empty_with_one_record(h: History) -> None:
    """Offset 0 was known, and none above it."""
    h.send("w", 0, 1, at=0)
    h.time += 1
    h.observe(end=0)
    h.time += 1
    h.observe(end=1)


def lost_with_its_host(h: History) -> None:
    """Nobody knows when it polled what it had polled: it has no close row."""
    h.row("t", "txn", type="info", txn=1, error="host-lost", polled=runs_of(10), mode="assign",
          isolation="read_committed")  # fmt: skip
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def acknowledged_to_a_transaction_whose_process_died(h: History) -> None:
    """Its row does not tell when: it was listed as it was, and then written."""
    h.send("w", 0, 4, at=0)
    began = h.at(h.time)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("w", 4, 1, at=4)
    h.txn("t", sends=[("t", 0, 6, 5)], type="info", txn=1, error="process-died", invoked=began, completed=began)
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))
    h.time += 1
    h.observe(end=11)


def written_by_a_transaction_that_was_under_way(h: History) -> None:
    """A deposed leader listed the end that it knew; the transaction had its offsets by then, or has them since."""
    early = h.at(h.time)
    h.send("w", 0, 4, at=0)
    h.send("w", 4, 4, at=6)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.txn("t", sends=[("t", 0, 2, 4)], type="fail", txn=1, invoked=early)
    h.time += 1
    h.observe(end=10)


def of_an_indefinite_transaction_without_offsets(h: History) -> None:
    h.txn("t", sends=[("t", 0, 10, None)], type="info", txn=1)
    h.time += 1
    h.observe(end=0)
    written_again(h, 0)


def listed_in_vain(h: History) -> None:
    """The request failed, whatever it told."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.row("observer", "offsets", type="fail", log_start=0, log_end=4, last_stable=4)
    written_again(h, 4)
    h.observe(end=10)


def listed_as_zero(h: History, first: int = 10) -> None:
    h.send("w", 0, 10, at=0)
    h.observe(end=first)
    h.time += 1
    h.observe(end=0)
    h.observe(end=10)


INNOCENT = [
    answered_late_and_under_way_before,
    acknowledged_below_the_end, acknowledged_across_the_end_of_a_whole_log, written_by_another_host,
    empty_with_one_record, listed_in_vain, acknowledged_to_a_transaction_whose_process_died,
    written_by_a_transaction_that_was_under_way, of_an_indefinite_transaction_without_offsets,
    listed_by_a_deposed_leader, acknowledged_late, given_out_after_the_log_was_whole, listed_before,
    listed_by_another_host, acknowledged_without_idempotence, of_an_indefinite_write, killed_before_it_polled,
    lost_with_its_host,
]  # fmt: skip


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
            "log-truncation", (9,),
            "the log ends at 4, and offset 9 was acknowledged or polled before; then offset 4 was given to another"
            " write: what stood at 6 offsets is gone",
            {"log_end": 4, "known": 9, "written_again": 4}, 1.004,
        )
    ]  # fmt: skip


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
    assert [(one.start, one.end) for _, one in store.rechecks] == ([(3, 10)] * 2 if cut else [])
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
    assert told.evidence == {"log_end": 4, "known": 9, "written_again": 4}


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
    assert told == [((9,), {"log_end": 4, "known": 9, "written_again": 4})]
    assert [(one.subject, one.evidence) for one in whole(store, RULES)] == told


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
    assert [(one.start, one.end) for _, one in store.rechecks] == [(4, 14)]
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
    assert told == ([((known,), expected)] if cut else [])
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
