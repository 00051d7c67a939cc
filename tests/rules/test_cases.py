"""The specification of each rule: a guilty history beside its nearest innocent twin.

Every case is a finished history, checked whole; those without a verdict from absence are checked row by row as well.
Values are (writer, seq); a finding is (anomaly, subject).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.slices import Irregular
from tests.rules.histories import History, Store, found, number

W, V = number("w"), number("v")
Case = tuple[str, Callable[[History], object], set[tuple[str, tuple[int | str, ...]]]]


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


def _of(anomaly: str, process: str, op: int) -> tuple[str, tuple[int | str, ...]]:
    return anomaly, (number(process), op)


VANISHED = ("vanished-record", (1, W, 1))
"""Where a reader in assign mode skips what another had polled before, the record vanished."""

CASES: list[Case] = [
    ("duplicate", duplicate, {("duplicate", (W, 1))}),
    ("duplicate", the_same_record_read_twice, set()),
    ("duplicate", duplicate_by_acknowledgement, {("duplicate", (W, 0)), ("duplicate", (W, 1)), ("duplicate", (W, 2))}),
    ("duplicate", duplicate_in_an_indefinite_poll, {("duplicate", (W, 0))}),
    ("duplicate", unacknowledged_twice, set()),
    ("inconsistent-offsets", inconsistent_polls, {("inconsistent-offsets", (12,))}),
    ("inconsistent-offsets", consistent_polls, set()),
    (
        "inconsistent-offsets",
        inconsistent_acknowledgement,
        {("inconsistent-offsets", (3,)), ("duplicate", (W, 0))},
    ),
    ("inconsistent-offsets", failed_acknowledgement_is_no_placement, set()),
    ("G1a", aborted_read, {("G1a", (W, 1))}),
    ("G1a", aborted_read_known_late, {("G1a", (W, 1))}),
    ("G1a", indefinite_write_read, set()),
    ("G1a", aborted_read_by_a_failed_reader, set()),
    ("G1a", aborted_read_uncommitted, set()),
    ("precommitted-read", own_write_polled, {("precommitted-read", (W, 1, number("t"), 0))}),
    ("precommitted-read", others_write_polled, set()),
    ("lost-write", lost, {("lost-write", (W, 1))}),
    ("lost-write", not_yet_polled, set()),
    ("lost-write", lost_with_its_indefinite_sibling_seen, {("lost-write", (W, 1))}),
    ("lost-write", indefinite_and_never_seen, set()),
    ("lost-write", polled_only_by_a_failed_operation, {("lost-write", (W, 0))}),
    ("poll-skip", skipped, {_of("poll-skip", "r", 1), VANISHED}),
    ("poll-skip", stepped_over_a_marker, set()),
    ("poll-skip", stepped_over_aborted, set()),
    ("poll-skip", skipped_by_another_process, set()),
    ("poll-skip", skipped_after_giving_the_partition_up, set()),
    ("poll-skip", skipped_while_keeping_the_partition, {_of("poll-skip", "r", 2), VANISHED}),
    ("poll-skip", skipped_by_a_failed_assign, {_of("poll-skip", "r", 2), VANISHED}),
    ("poll-skip", failed_poll_does_not_move, set()),
    ("poll-skip", failed_poll_is_compared, {_of("poll-skip", "r", 1)}),
    ("poll-skip", skipped_below_log_start, set()),
    ("nonmonotonic-poll", went_back, {_of("nonmonotonic-poll", "r", 1)}),
    ("nonmonotonic-poll", went_on, set()),
    ("int-poll-skip", skipped_inside, {("int-poll-skip", (number("r"), 0, 2))}),
    ("int-poll-skip", marker_inside, set()),
    ("int-poll-skip", skipped_inside_with_a_rebalance, set()),
    ("int-poll-skip", corrupted_inside, {("corrupted-record", (1, 99))}),
    ("int-nonmonotonic-poll", went_back_inside, {("int-nonmonotonic-poll", (number("r"), 0, 1))}),
    ("nonmonotonic-send", wrote_backwards, {_of("nonmonotonic-send", "w", 1)}),
    ("nonmonotonic-send", wrote_forwards, set()),
    ("nonmonotonic-send", wrote_backwards_and_failed, set()),
    ("nonmonotonic-send", two_processes_wrote, set()),
    ("int-nonmonotonic-send", wrote_backwards_inside, {("int-nonmonotonic-send", (number("t"), 0, 4))}),
    ("int-send-skip", interleaved_inside, {("int-send-skip", (number("t"), 0, 6))}),
    ("int-send-skip", marker_inside_sends, set()),
    ("corrupted-record", corrupted, {("corrupted-record", (7, 99))}),
    ("relocated-write", relocated, {("relocated-write", (W, "topic", 3, 5, 7))}),
    ("foreign-record", foreign, set()),
    (
        "spurious-zero-offset",
        zero_acknowledgement,
        {("spurious-zero-offset", ("acknowledgement", V, 0)), ("inconsistent-offsets", (0,)), ("lost-write", (V, 0))},
    ),
    ("spurious-zero-offset", zero_acknowledgement_in_time, set()),
    ("spurious-zero-offset", zero_committed, {("spurious-zero-offset", ("committed", "g"))}),
    ("spurious-zero-offset", absent_committed, set()),
    ("spurious-zero-offset", zero_poll, {_of("spurious-zero-offset", "r", 1), _of("nonmonotonic-poll", "r", 1)}),
]


@pytest.mark.parametrize(("rule", "build", "expected"), CASES, ids=[c[1].__name__ for c in CASES])
def test_finished_history(rule: str, build: Callable[[History], object], expected: set[object]) -> None:
    history, store = History(), Store()
    build(history)
    store.feed(history.rows, finished=True)
    assert found(store.findings) == expected


ABSENCE = {"lost-write"}


@pytest.mark.parametrize(("rule", "build", "expected"), CASES, ids=[c[1].__name__ for c in CASES])
def test_row_by_row(rule: str, build: Callable[[History], object], expected: set[object]) -> None:
    """The same findings live: here readers hold the partition, log time passes, and rows come one at a time. Rules from
    absence wait for the frontier and have tests of their own."""
    history, store = History(), Store()
    history.observe(end=0)
    build(history)
    for _ in range(30):
        history.observe(start=4 if build is skipped_below_log_start else 0, end=1_000)
        history.mark(1.0)
    for row in history.rows:
        store.feed([row])
    live = {f for f in found(store.findings) if f[0] not in ABSENCE}
    whole = {f for f in expected if f[0] not in ABSENCE}
    at_once = {f for f in whole if CATALOGUE[f[0]].decided == "at once" and f != _of("spurious-zero-offset", "r", 1)}
    assert at_once <= live <= whole


def test_evidence_is_complete() -> None:
    """One finding, whole."""
    history, store = History(), Store()
    duplicate(history)
    (finding,) = (f for f in store.feed(history.rows, finished=True) if f.anomaly == "duplicate")
    assert finding.evidence == {"writer": W, "seq": 1, "offsets": [1, 3]}
    assert finding.message == f"value {W}/1 stands at offsets 1 and 3"
    assert (finding.cluster, finding.topic, finding.partition) == ("c", "topic", 0)
    assert finding.context == {"idempotent": "true"}
