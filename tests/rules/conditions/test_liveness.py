"""`stuck-consumer`: readers that do not move, beside readers that have nothing to read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, delayed, events, row_by_row
from tests.rules.histories import History, Store, number, seeds
from tests.rules.model import Model
from tests.rules.whole import live, whole

R = number("r")


def traffic(h: History, seconds: int, *, first: int = 0, polls: bool, others: bool = True, lag: int = 0) -> int:
    """A record a second, read by `s` at once and by `r` if it polls; returns the next offset."""
    for i in range(first, first + seconds):
        h.send("w", i, 1, at=i)
        if others:
            h.poll("s", [("w", i, 1, i)])
        if polls:
            h.poll("r", [("w", i, 1, i)])
        h.observe(end=i + 1)
        h.mark(1.0)
    return first + seconds


def stopped(h: History) -> None:
    """`r` stops after ten seconds while `s` goes on."""
    h.assign("r")
    h.assign("s")
    traffic(h, 10, polls=True)
    traffic(h, 50, first=10, polls=False)


def stopped_and_came_back(h: History) -> None:
    stopped(h)
    h.poll("r", [("w", 10, 50, 10)])
    traffic(h, 5, first=60, polls=True)


def never_began(h: History) -> None:
    """It holds the partition, and not a record has come since."""
    h.assign("r", f="subscribe")
    h.assign("s")
    traffic(h, 50, polls=False)


def has_nothing_to_read(h: History) -> None:
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for _ in range(60):
        h.observe(end=5)
        h.mark(1.0)


def stands_before_a_marker(h: History) -> None:
    """The log ends with a transaction's marker, and before it with what was aborted: nothing that can be read."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    h.txn("t", sends=[("t", 0, 3, 5)], type="fail", txn=1)
    for _ in range(60):
        h.observe(end=9)
        h.mark(1.0)


def waits_for_a_transaction(h: History) -> None:
    """Values beyond the last stable offset are not to be read yet."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    h.send("w", 5, 3, at=6)
    for _ in range(60):
        h.observe(end=9, stable=5)
        h.mark(1.0)


def retention_goes_past_an_open_transaction(h: History, *, readable: int = 0) -> None:
    """The last stable offset is where the log begins, and moves with that. `readable`: so many offsets lie between."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for i in range(60):
        if i % 5 == 0:
            h.row("r", "position", position_after=5, mode="assign", assigned=True)
        start = 5 + 60 * max(0, i - 3)
        h.observe(start=start, end=start + 100, stable=start + readable)
        h.mark(1.0)


def retention_leaves_it_something_to_read(h: History) -> None:
    retention_goes_past_an_open_transaction(h, readable=50)


def says_that_it_passed(h: History) -> None:
    """Acknowledged and not there (a swallowed commit): the reader went over it, and says so."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    h.send("w", 5, 1, at=5)
    for _ in range(60):
        h.row("r", "position", position_after=7, mode="assign", assigned=True)
        h.observe(end=7)
        h.mark(1.0)


def says_that_it_stands(h: History) -> None:
    """Somebody else's records lie ahead: no value of ours, but its own word that it does not get there."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for _ in range(60):
        h.row("r", "position", position_after=5, mode="assign", assigned=True)
        h.observe(end=9)
        h.mark(1.0)


def the_end_was_read_before_the_stable_offset(h: History, *, reads: bool = True) -> None:
    """Nothing comes for a minute, and the reader says where it stands. Then a record is written between the observer's
    two questions: the last stable offset is beyond the end that was read before it."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for _ in range(60):
        h.row("r", "position", position_after=5, mode="assign", assigned=True)
        h.observe(end=5)
        h.mark(1.0)
    h.send("w", 5, 1, at=5)
    h.observe(end=5, stable=6)
    for _ in range(1 if reads else 40):
        h.row("r", "position", position_after=5, mode="assign", assigned=True)
        h.mark(1.0)
    if reads:
        h.poll("r", [("w", 5, 1, 5)])
    traffic(h, 5, first=6, polls=reads, others=False)


def does_not_read_what_was_written_after_the_end_was_read(h: History) -> None:
    the_end_was_read_before_the_stable_offset(h, reads=False)


def retention_overtook_it(h: History) -> None:
    h.assign("r")
    h.assign("s")
    traffic(h, 5, polls=True)
    h.send("w", 5, 2, at=5)
    for _ in range(60):
        h.observe(start=7, end=7)
        h.mark(1.0)


def gave_the_partition_up(h: History) -> None:
    h.assign("r")
    h.assign("s")
    traffic(h, 5, polls=True)
    h.assign("r", assigned=False, f="revoke")
    traffic(h, 50, first=5, polls=False)


def is_busy_with_transactions(h: History) -> None:
    h.assign("r")
    h.assign("s")
    h.row("r", "init", transactional_id="x")
    traffic(h, 5, polls=True)
    traffic(h, 50, first=5, polls=False)


def sees_no_watermark(h: History) -> None:
    """Polls of a dead cluster return empty, and the observer hears nothing either."""
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for _ in range(60):
        h.row("observer", "offsets", type="info", error="_TIMED_OUT")
        h.mark(1.0)


def saw_no_watermark_for_a_while(h: History) -> None:
    h.assign("r")
    traffic(h, 5, polls=True, others=False)
    for _ in range(20):
        h.row("observer", "offsets", type="info", error="_TIMED_OUT")
        h.mark(1.0)
    for _ in range(20):
        h.observe(end=5)
        h.mark(1.0)


def reads_uncommitted(h: History) -> None:
    """It may read up to the log's end, and stops."""
    h.assign("r")
    for i in range(50):
        h.send("w", i, 1, at=i)
        if i < 5:
            h.poll("r", [("w", i, 1, i)], isolation="read_uncommitted", position_after=i + 1)
        h.observe(end=i + 1, stable=0)
        h.mark(1.0)


def only_aborted_below_the_stable_offset(h: History, *, committed: bool = False) -> None:
    """A transactional producer was killed: its records lie at 1207 to 1209, their marker at 1212, and the last stable
    offset stands at 1210, where another transaction is open. The reader stands at 1207. `committed`: the record at 1209
    is another producer's, and acknowledged."""
    h.assign("r")
    h.send("w", 0, 5, at=1202)
    h.poll("r", [("w", 0, 5, 1202)])
    h.observe(end=1207)
    h.mark(1.0)
    h.txn("t", sends=[("t", 0, 2 if committed else 3, None)], type="info", txn=1, transactional_id="x")
    if committed:
        h.send("v", 0, 1, at=1209)
    h.row("t", "close", type="info", error="process-died")
    h.observe(end=1210, stable=1207)
    h.mark(1.0)
    for second in range(60):
        h.row("r", "position", position_after=1207, mode="assign", assigned=True)
        h.observe(end=1213 + second, stable=1210)
        h.mark(1.0)


def a_committed_record_lies_below_the_stable_offset(h: History) -> None:
    only_aborted_below_the_stable_offset(h, committed=True)


def stands_although_all_is_ended(h: History) -> None:
    """The same, but the other transaction ends at once: the reader has to go past the marker, and does not."""
    only_aborted_below_the_stable_offset(h)
    for second in range(40):
        h.row("r", "position", position_after=1207, mode="assign", assigned=True)
        h.observe(end=1273 + second, stable=1273)
        h.mark(1.0)


def the_log_was_cut_below_an_open_transaction(h: History) -> None:
    """It has gone back, and read what may be read: what was acknowledged above it before the cut is there no more, and
    the last stable offset was higher then."""
    h.assign("r")
    traffic(h, 10, polls=True)
    h.txn("t", sends=[("t", 0, 3, 6)], type="info", txn=1)
    h.poll("r", [("w", 5, 1, 5)])
    for second in range(60):
        h.observe(end=9 + second // 10, stable=6)
        h.mark(1.0)


def it_stood_until_the_log_was_cut(h: History, *, always: bool = True) -> None:
    """What it had not read is there no more. Or one reading of several was lower."""
    stopped(h)
    for second in range(30):
        h.observe(end=8 if always or second % 5 else 60)
        h.mark(1.0)


def it_stood_and_some_readings_were_lower(h: History) -> None:
    it_stood_until_the_log_was_cut(h, always=False)


def the_log_was_cut_and_goes_on(h: History) -> None:
    """It reads again up to where the log was cut, and then no more, while that grows."""
    the_log_was_cut_below_an_open_transaction(h)
    for second in range(40):
        h.send("w", 100 + second, 1, at=9 + 6 + second)
        h.observe(end=16 + second)
        h.mark(1.0)


STUCK: list[tuple[Callable[[History], object], list[tuple[str, int]]]] = [
    (stopped, [("opened", 41)]),
    (stopped_and_came_back, [("opened", 41), ("closed", 61)]),
    (never_began, [("opened", 32)]),
    (says_that_it_stands, [("opened", 36)]),
    (sees_no_watermark, [("opened", 35)]),
    (reads_uncommitted, [("opened", 36)]),
    (a_committed_record_lies_below_the_stable_offset, [("opened", 33)]),
    (stands_although_all_is_ended, [("opened", 93)]),
    (does_not_read_what_was_written_after_the_end_was_read, [("opened", 96)]),
    (retention_leaves_it_something_to_read, [("opened", 41)]),
    (it_stood_until_the_log_was_cut, [("opened", 41), ("closed", 71)]),
    (it_stood_and_some_readings_were_lower, [("opened", 41)]),
    (the_log_was_cut_and_goes_on, [("opened", 101)]),
]
FINE = [
    has_nothing_to_read,
    stands_before_a_marker,
    waits_for_a_transaction,
    says_that_it_passed,
    retention_overtook_it,
    retention_goes_past_an_open_transaction,
    gave_the_partition_up,
    is_busy_with_transactions,
    saw_no_watermark_for_a_while,
    only_aborted_below_the_stable_offset,
    the_end_was_read_before_the_stable_offset,
    the_log_was_cut_below_an_open_transaction,
]


@pytest.mark.parametrize(("build", "expected"), STUCK, ids=[c[0].__name__ for c in STUCK])
@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_a_stuck_reader(
    build: Callable[[History], object], expected: list[tuple[str, int]], fed: Callable[[History], Store]
) -> None:
    h = History()
    build(h)
    assert [(event, second) for event, (who,), second in events(fed(h), "stuck-consumer") if who == R] == expected


@pytest.mark.parametrize("build", FINE, ids=[c.__name__ for c in FINE])
@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_a_reader_that_is_fine(build: Callable[[History], object], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert [e for e in events(fed(h), "stuck-consumer") if e[1] == (R,)] == []


@pytest.mark.long
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_a_reader_without_a_position_is_nowhere(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    for _ in range(60):
        h.row("observer", "offsets", type="info", error="_TIMED_OUT")
        h.mark(1.0)
    (stuck,) = (one for one in fed(h).findings if one.anomaly == "stuck-consumer")
    assert stuck.message == f"process {number('r')} is nowhere, and no watermark can be read"
    assert stuck.evidence["position"] == -1


@pytest.mark.parametrize("build", [stopped_and_came_back, sees_no_watermark, says_that_it_stands])
def test_the_order_of_arrival_does_not_matter(build: Callable[[History], object]) -> None:
    h = History()
    build(h)
    expected = events(row_by_row(h), "stuck-consumer")
    assert expected
    for seed in seeds(2):
        assert events(delayed(h, seed), "stuck-consumer") == expected


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once), live(lambda h: delayed(h, 3))])
def test_it_is_told_by_its_name_and_with_the_error_of_its_polls(fed: Callable[[History], Store], refused: bool) -> None:
    """An error from before it moved last is of no interest."""
    h = History()
    h.start("r", name="reader-1")
    h.rows[-1].isolation = "read_committed"
    h.assign("r")
    h.poll("r", [], type="info", error="_TRANSPORT")
    traffic(h, 5, polls=True)
    for second in range(5, 45):
        if refused:
            h.poll("r", [], type="info", error="TOPIC_AUTHORIZATION_FAILED")
        traffic(h, 1, first=second, polls=False)
    (told,) = [one for one in whole(fed(h), ["stuck-consumer"]) if one.event == "opened" and one.subject == (R,)]
    words = "reader-1 has not moved from offset 5, and there is more to read"
    assert told.message == words + ("; its polls end with TOPIC_AUTHORIZATION_FAILED" if refused else "")
    assert told.evidence.get("error") == ("TOPIC_AUTHORIZATION_FAILED" if refused else None)


def test_a_reader_that_closes_is_stuck_no_longer() -> None:
    h = History()
    stopped(h)
    h.row("r", "close", type="info")
    traffic(h, 3, first=60, polls=False)
    assert [e[0] for e in events(row_by_row(h), "stuck-consumer")] == ["opened", "closed"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3))
def test_a_healthy_cluster_has_no_such_condition(seed: int) -> None:
    conditions = {
        "stuck-consumer",
        "stuck-producer",
        "hanging-transaction",
        "unrecovered-transaction",
        "stuck-close",
        "unsafe-config",
        "under-replicated-probe-topic",
        "misleading-fence",
        "benign-retention",
    }
    for store in (row_by_row(Model(seed).run().history), at_once(Model(seed).run().history)):
        assert {f.anomaly for f in store.findings} & conditions == set()
