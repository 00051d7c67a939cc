"""The specification of each rule: a guilty history beside its nearest innocent twin.

Every case is a finished history, checked whole; those without a verdict from absence are checked row by row as well.
Values are (writer, seq); findings are compared whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.slices import Irregular
from tests.rules.histories import History, Store, number, singly
from tests.rules.told_of_cases import (
    ABORTED,
    CUT,
    FOREIGN,
    RELOCATED,
    ZERO_ACKNOWLEDGEMENT,
    ZERO_COMMITTED,
    ZERO_POLL,
    back,
    broken,
    inconsistent,
    lost_at,
    sent,
    skip,
    twice,
    vanished,
)
from tests.rules.whole import Told, whole

W, V, R, S, T = (number(name) for name in "wvrst")
Case = tuple[Callable[[History], object], list[Told]]


def duplicate(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0), ("w", 1, 1, 3)])


def the_same_record_read_twice(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("s", [("w", 0, 3, 0)])


def duplicate_by_acknowledgement(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("v", 0, 1, 7), ("w", 0, 3, 8)])


def duplicate_in_an_indefinite_poll(h: History) -> None:
    h.send("w", 0, 1, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("s", [("w", 0, 1, 5)], type="info")


def unacknowledged_twice(h: History) -> None:
    """A write without offset, polled once: where it was acknowledged is simply unknown."""
    h.send("w", 0, 1, at=None)
    h.poll("r", [("w", 0, 1, 4)])


def inconsistent_polls(h: History) -> None:
    h.poll("r", [("w", 0, 5, 10)])
    h.poll("s", [("w", 0, 2, 10), ("v", 7, 1, 12), ("w", 3, 2, 13)])


def consistent_polls(h: History) -> None:
    h.poll("r", [("w", 0, 5, 10)])
    h.poll("s", [("w", 0, 2, 10), ("w", 3, 2, 13)], rebalanced=True)


def inconsistent_acknowledgement(h: History) -> None:
    h.send("w", 0, 1, at=3)
    h.poll("r", [("v", 0, 1, 3)])
    h.poll("r", [("w", 0, 1, 4)])


def failed_acknowledgement_is_no_placement(h: History) -> None:
    h.send("w", 0, 1, at=3, type="fail")
    h.poll("r", [("v", 0, 1, 3)])


def aborted_read(h: History) -> None:
    h.txn("t", sends=[("w", 0, 2, None)], type="fail", txn=1)
    h.poll("r", [("w", 1, 1, 1)])


def aborted_read_known_late(h: History) -> None:
    h.poll("r", [("w", 1, 1, 1)])
    h.txn("t", sends=[("w", 0, 2, None)], type="fail", txn=1)


def indefinite_write_read(h: History) -> None:
    h.txn("t", sends=[("w", 0, 1, None)], type="info", txn=1)
    h.poll("r", [("w", 0, 1, 1)])


def aborted_read_by_a_failed_reader(h: History) -> None:
    """What a failed operation polled is placed in the log, and is not an ok read."""
    h.txn("t", sends=[("w", 0, 1, None)], type="fail", txn=1)
    h.poll("r", [("w", 0, 1, 1)], type="fail")


def aborted_read_uncommitted(h: History) -> None:
    h.txn("t", sends=[("w", 0, 1, None)], type="fail", txn=1)
    h.poll("r", [("w", 0, 1, 1)], isolation="read_uncommitted")


def own_write_polled(h: History) -> None:
    h.txn("t", sends=[("w", 0, 2, 5)], polls=[("w", 1, 1, 6)], type="info")


def others_write_polled(h: History) -> None:
    h.send("v", 0, 1, at=4)
    h.txn("t", sends=[("w", 0, 2, 5)], polls=[("v", 0, 1, 4)])
    h.poll("r", [("w", 0, 2, 5)])


def lost(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("s", [("w", 2, 1, 2)])


def not_yet_polled(h: History) -> None:
    """The tail has not been read: unseen, and not lost."""
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 2, 0)])


def lost_with_its_indefinite_sibling_seen(h: History) -> None:
    h.send("w", 0, 3, at=0, type="info")
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("s", [("w", 2, 1, 2)])


def indefinite_and_never_seen(h: History) -> None:
    h.send("w", 0, 1, at=0, type="info")
    h.send("v", 0, 1, at=1)
    h.poll("r", [("v", 0, 1, 1)])


def polled_only_by_a_failed_operation(h: History) -> None:
    h.send("w", 0, 2, at=0)
    h.poll("r", [("w", 0, 1, 0)], type="fail")
    h.poll("s", [("w", 1, 1, 1)])


def skipped(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])


def stepped_over_a_marker(h: History) -> None:
    h.send("w", 0, 1, at=0)
    h.send("w", 1, 1, at=2)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 1, 2)])


def stepped_over_aborted(h: History) -> None:
    """A reader at read_uncommitted sees the aborted record; that gives it no index."""
    h.txn("t", sends=[("v", 0, 1, 1)], type="fail")
    h.send("w", 0, 1, at=0)
    h.send("w", 1, 1, at=2)
    h.poll("u", [("w", 0, 1, 0), ("v", 0, 1, 1), ("w", 1, 1, 2)], isolation="read_uncommitted")
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 1, 2)])


def skipped_by_another_process(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("q", [("w", 2, 1, 2)])


def skipped_after_giving_the_partition_up(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.assign("r", assigned=False)
    h.assign("r")
    h.poll("r", [("w", 2, 1, 2)])


def skipped_while_keeping_the_partition(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.assign("r")
    h.poll("r", [("w", 2, 1, 2)])


def skipped_by_a_failed_assign(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.assign("r", assigned=False, type="fail")
    h.poll("r", [("w", 2, 1, 2)])


def failed_poll_does_not_move(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 1, 1)], type="info")
    h.poll("r", [("w", 1, 2, 1)])


def failed_poll_is_compared(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)], type="info")


def went_back(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 1, 2, 1)])


def went_on(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 2, 1)])


def skipped_below_log_start(h: History) -> None:
    """Retention overtook the reader: what it skipped was gone."""
    h.send("w", 0, 5, at=0)
    h.poll("s", [("w", 0, 5, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.observe(start=4, end=5)
    h.poll("r", [("w", 4, 1, 4)])


def skipped_inside(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0), ("w", 2, 1, 2)], type="info")


def marker_inside(h: History) -> None:
    h.send("w", 0, 1, at=0)
    h.send("w", 1, 1, at=2)
    h.poll("r", [("w", 0, 1, 0), ("w", 1, 1, 2)])


def skipped_inside_with_a_rebalance(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0), ("w", 2, 1, 2)], rebalanced=True)


def corrupted_inside(h: History) -> None:
    """Where the reader saw a record that it could not read, nothing was skipped."""
    h.send("w", 0, 3, at=0)
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0), ("w", 2, 1, 2)], irregular=[Irregular(1, 1, "corrupted", 99)])


def went_back_inside(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0), ("w", 1, 1, 1)])


def wrote_backwards(h: History) -> None:
    h.send("w", 0, 1, at=5)
    h.send("w", 1, 1, at=4)
    h.poll("r", [("w", 1, 1, 4), ("w", 0, 1, 5)])


def wrote_forwards(h: History) -> None:
    h.send("w", 0, 1, at=4)
    h.send("w", 1, 1, at=9)
    h.poll("r", [("w", 0, 1, 4), ("w", 1, 1, 9)])


def wrote_backwards_and_failed(h: History) -> None:
    h.send("w", 0, 1, at=5)
    h.send("w", 1, 1, at=4, type="fail")
    h.poll("r", [("w", 0, 1, 5)])


def two_processes_wrote(h: History) -> None:
    h.send("w", 0, 1, at=5)
    h.send("v", 0, 1, at=4)
    h.poll("r", [("v", 0, 1, 4), ("w", 0, 1, 5)])


def wrote_backwards_inside(h: History) -> None:
    h.txn("t", sends=[("w", 0, 1, 5), ("w", 1, 1, 4)])
    h.poll("r", [("w", 1, 1, 4), ("w", 0, 1, 5)])


def interleaved_inside(h: History) -> None:
    h.send("v", 0, 1, at=5)
    h.txn("t", sends=[("w", 0, 1, 4), ("w", 1, 1, 6)])
    h.poll("r", [("w", 0, 1, 4), ("v", 0, 1, 5), ("w", 1, 1, 6)])


def marker_inside_sends(h: History) -> None:
    h.txn("t", sends=[("w", 0, 1, 4), ("w", 1, 1, 6)])
    h.poll("r", [("w", 0, 1, 4), ("w", 1, 1, 6)])


def corrupted(h: History) -> None:
    h.irregular("r", Irregular(0, 7, "corrupted", 99))


def relocated(h: History) -> None:
    h.irregular("r", Irregular(0, 7, "relocated", 99, W, 5, "topic", 3))


def foreign(h: History) -> None:
    h.irregular("r", Irregular(0, 7, "foreign", 99, W, 5, "topic", 0, "another"))


def zero_acknowledgement(h: History) -> None:
    h.send("w", 0, 1, at=0)
    h.send("w", 1, 1, at=1)
    h.send("v", 0, 1, at=0)
    h.poll("r", [("w", 0, 2, 0)])


def zero_acknowledgement_in_time(h: History) -> None:
    """The first record's acknowledgement was under way when a later record's arrived."""
    early = h.at(-1.0)
    h.send("w", 1, 1, at=1)
    h.send("v", 0, 1, at=0, invoked=early)
    h.poll("r", [("v", 0, 1, 0), ("w", 1, 1, 1)])


def zero_committed(h: History) -> None:
    h.row("r", "commit", committed=5, group="g")
    h.row("o", "offsets", committed=0, group="g")


def absent_committed(h: History) -> None:
    h.row("r", "commit", committed=5, group="g")
    h.row("o", "offsets", committed=None, group="g")
    h.row("o", "offsets", committed=0, group="another")


def zero_poll(h: History) -> None:
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("w", 0, 1, 0)])


CASES: list[Case] = [
    (duplicate, [twice(1, [1, 3], 0.004)]),
    (the_same_record_read_twice, []),
    (duplicate_by_acknowledgement, [twice(0, [0, 8], 0.004), twice(1, [1, 9], 0.004), twice(2, [2, 10], 0.004)]),
    (duplicate_in_an_indefinite_poll, [twice(0, [0, 5], 0.006)]),
    (unacknowledged_twice, []),
    (inconsistent_polls, [inconsistent(12, 2, 7, 0.004)]),
    (consistent_polls, []),
    (inconsistent_acknowledgement, [inconsistent(3, 0, 0, 0.004), twice(0, [3, 4], 0.006)]),
    (failed_acknowledgement_is_no_placement, []),
    (aborted_read, [ABORTED, CUT]),
    (aborted_read_known_late, [ABORTED, CUT]),
    (indefinite_write_read, []),
    (aborted_read_by_a_failed_reader, []),
    (aborted_read_uncommitted, []),
    (
        own_write_polled,
        [
            Told(
                "precommitted-read",
                (W, 1, T, 0),
                f"operation 0 of process {T} polled its own value {W}/1",
                {"writer": W, "seq": 1, "offset": 6, "process": T, "op": 0},
                0.002,
                context={"isolation": "read_committed"},
            )
        ],
    ),
    (others_write_polled, []),
    (lost, [lost_at(1, W, 1, 3, 0.006)]),
    (not_yet_polled, []),
    (lost_with_its_indefinite_sibling_seen, [lost_at(1, W, 1, 3, 0.006)]),
    (indefinite_and_never_seen, []),
    (polled_only_by_a_failed_operation, [lost_at(0, W, 0, 2, 0.006)]),
    (skipped, [skip("poll-skip", (0, 1), 0.008), vanished(1, 0.004, 0.008)]),
    (stepped_over_a_marker, []),
    (stepped_over_aborted, []),
    (skipped_by_another_process, []),
    (skipped_after_giving_the_partition_up, []),
    (skipped_while_keeping_the_partition, [skip("poll-skip", (0, 2), 0.01), vanished(2, 0.006, 0.01)]),
    (skipped_by_a_failed_assign, [skip("poll-skip", (0, 2), 0.01), vanished(2, 0.006, 0.01)]),
    (failed_poll_does_not_move, []),
    (failed_poll_is_compared, [skip("poll-skip", (0, 1), 0.008)]),
    (skipped_below_log_start, []),
    (went_back, [back("nonmonotonic-poll", (0, 1), 1, 0.006)]),
    (went_on, []),
    (skipped_inside, [skip("int-poll-skip", (0, 0), 0.006)]),
    (marker_inside, []),
    (skipped_inside_with_a_rebalance, []),
    (corrupted_inside, [broken(1, 0.006)]),
    (went_back_inside, [back("int-nonmonotonic-poll", (0, 0), 1, 0.004)]),
    (wrote_backwards, [sent("nonmonotonic-send", W, (0, 1), (5, 4), 0.006)]),
    (wrote_forwards, []),
    (wrote_backwards_and_failed, []),
    (two_processes_wrote, []),
    (wrote_backwards_inside, [sent("int-nonmonotonic-send", T, (0, 0), (5, 4), 0.004)]),
    (interleaved_inside, [sent("int-send-skip", T, (0, 0), (4, 6), 0.006)]),
    (marker_inside_sends, []),
    (corrupted, [broken(7, 0.002)]),
    (relocated, [RELOCATED]),
    (foreign, [FOREIGN]),
    (
        zero_acknowledgement,
        [inconsistent(0, 0, 0, 0.006), ZERO_ACKNOWLEDGEMENT, lost_at(0, V, 0, 2, 0.008)],
    ),
    (zero_acknowledgement_in_time, []),
    (zero_committed, [ZERO_COMMITTED]),
    (absent_committed, []),
    (zero_poll, [back("nonmonotonic-poll", (0, 1), 0, 0.006), ZERO_POLL]),
]
FINDINGS = [name for name, entry in CATALOGUE.items() if entry.kind != "condition"]


@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_finished_history(build: Callable[[History], object], expected: list[Told]) -> None:
    history, store = History(), Store()
    build(history)
    store.feed(history.rows, finished=True)
    assert whole(store, FINDINGS) == sorted(expected, key=lambda told: (told.at, told.anomaly, str(told.subject)))


ABSENCE = {"lost-write"}
LATER = 0.002
"""A row of an observer comes first."""
SETTLED = 11.0
"""When the frontier has passed what happened in the first second, and the grace time is over."""


@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_row_by_row(build: Callable[[History], object], expected: list[Told]) -> None:
    """The same findings live: here readers hold the partition, log time passes, and rows come one at a time. Rules from
    absence wait for the frontier and have tests of their own."""
    history, store = History(), Store()
    history.observe(end=0)
    build(history)
    for _ in range(30):
        history.observe(start=4 if build is skipped_below_log_start else 0, end=1_000)
        history.mark(1.0)
    for row in singly(history.rows):
        store.feed(row)
    wanted = {(told.anomaly, told.subject): told for told in expected}
    found = [told for told in whole(store, FINDINGS) if told.anomaly not in ABSENCE]
    for told in found:
        same = wanted[told.anomaly, told.subject]
        at = round(same.at + LATER, 3) if _at_once(same) else SETTLED
        assert told == same._replace(at=at, evidence=_known_then(same, told))
    assert {one.anomaly for one in wanted.values() if _at_once(one)} <= {told.anomaly for told in found}


def _at_once(told: Told) -> bool:
    return CATALOGUE[told.anomaly].decided == "at once" and told != ZERO_POLL


def _known_then(same: Told, told: Told) -> Mapping[str, object]:
    """Of what failed in an earlier step, only that it did is kept; a poll waits for its time, and is known."""
    if told.anomaly != "G1a" or "failed_op" in told.evidence:
        return same.evidence
    return {name: value for name, value in same.evidence.items() if not name.startswith("failed_")}


def test_a_finding_has_its_place() -> None:
    history, store = History(), Store()
    duplicate(history)
    (finding,) = (f for f in store.feed(history.rows, finished=True) if f.anomaly == "duplicate")
    assert (finding.cluster, finding.topic_id, finding.topic, finding.partition) == ("c", "t", "topic", 0)
