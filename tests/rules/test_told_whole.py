"""Findings of which other tests only ask whether they are there, whole: subject, message, evidence, context, times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.across.recreated_topics import recreated
from rules.vocabulary.slices import Mark, Place
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.conditions.test_safety import SAFE, topic, writer
from tests.rules.histories import History, Store, number
from tests.rules.losses.test_fates import (
    committed_after_its_successor_began,
    never_committed,
    phantom,
    phantom_of_a_silent_writer,
    settle,
)
from tests.rules.order.test_sequences import broken
from tests.rules.test_classified import fenced, rebalanced
from tests.rules.test_live import healthy
from tests.rules.whole import Told, finished, in_any_way, live, whole

A, R, T, V, W = (number(name) for name in "artvw")
Fed = Callable[[History], Store]


@in_any_way(ticks=0)
@pytest.mark.parametrize("error", ["PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_misleading_fence(error: str, fed: Fed) -> None:
    h = History()
    fenced(h, error=error)
    assert whole(fed(h), ["misleading-fence"]) == [
        Told(
            "misleading-fence",
            (T, 1),
            f"process {T} heard {error}, and no other probe has used its transactional id x since it began",
            {"transactional_id": "x", "process": T, "op": 1, "error": error},
            0.006,
        )
    ]


@in_any_way(ticks=0)
def test_a_rebalance(fed: Fed) -> None:
    h = History()
    rebalanced(h)
    assert whole(fed(h), ["rebalance"]) == [
        Told(
            "rebalance",
            (R, op),
            f"process {R} {'was given' if change == 'gained' else 'lost'} this partition",
            {"process": R, "op": op},
            at,
            context={"change": change},
        )
        for op, change, at in ((1, "gained", 0.004), (3, "lost", 0.008), (5, "gained", 0.012))
    ]


@in_any_way(ticks=1)
@pytest.mark.parametrize(("after", "kind"), [(20, "advance"), (10, "rewind"), (7, "rewind-further"), (14, "other")])
def test_a_position_after_an_abort(after: int, kind: str, fed: Fed) -> None:
    h = History()
    h.row("a", "position", txn=5, position_before=10, reached=20, position_after=after, rebalanced=False)
    assert whole(fed(h), ["abort-position"]) == [
        Told(
            "abort-position",
            (A, 5),
            f"after its transaction was aborted, process {A} stands at {after} ({kind})",
            {"process": A, "txn": 5, "class": kind, "before": 10, "reached": 20, "after": after},
            0.002,
            context={"class": kind, "rebalanced": "false"},
        )
    ]


@in_any_way(ticks=1)
@pytest.mark.parametrize("missing", ["position_before", "reached", "position_after"])
def test_a_position_of_which_not_all_is_known(missing: str, fed: Fed) -> None:
    h = History()
    known: dict[str, Any] = {"position_before": 10, "reached": 20, "position_after": 20}
    h.row("a", "position", txn=5, **(known | {missing: None}))
    assert whole(fed(h), ["abort-position"]) == []


@pytest.mark.parametrize(
    ("build", "seq", "offset", "op", "sent", "at"),
    [(phantom, 7, 3, 0, 2, 0.004), (phantom_of_a_silent_writer, 0, 0, 0, None, 0.004)],
)
@pytest.mark.parametrize("fed", [live(row_by_row, 30), live(at_once, 30), finished])
def test_a_phantom(
    build: Callable[[History], None], seq: int, offset: int, op: int, sent: int | None, at: float, fed: Fed
) -> None:
    h = History()
    build(h)
    said = f"it sent up to {sent}" if sent is not None else "it sent nothing here"
    assert whole(fed(h), ["phantom-read"]) == [
        Told(
            "phantom-read",
            (W, seq),
            f"value {W}/{seq} was polled, and its writer never sent it: {said}",
            {"writer": W, "seq": seq, "offset": offset, "highest_sent": sent, "process": R, "op": op},
            at,
        )
    ]


def test_duplicates_of_two_batches() -> None:
    h = History()
    h.poll("r", [("w", 0, 1, 0), ("v", 0, 1, 1)])
    h.poll("s", [("w", 0, 1, 5)])
    h.poll("s", [("v", 0, 1, 6)])
    store = Store()
    store.feed(h.rows[:-1])
    store.feed(h.rows[-1:])
    assert whole(store, ["duplicate"]) == [
        Told(
            "duplicate",
            (writer, 0),
            f"value {writer}/0 stands at offsets {first} and {second}",
            {"writer": writer, "seq": 0, "offsets": [first, second]},
            at,
            context={"idempotent": "true"},
        )
        for writer, first, second, at in ((W, 0, 5, 0.004), (V, 1, 6, 0.006))
    ]


PLAIN = {"replicas": "1", "unclean_leader_election": "true", "cleanup_policy": "compact", "created_by": "auto"}


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_a_topic_that_is_not_as_asked(fed: Fed) -> None:
    h = History()
    topic(h, **PLAIN)
    told = {**SAFE, **PLAIN}
    assert whole(fed(h), ["under-replicated-probe-topic", "unsafe-config"]) == [
        Told(
            "under-replicated-probe-topic",
            (),
            "the probe topic has replicas 1 of 3, created automatically",
            told,
            0.002,
            event="opened",
        ),
        Told(
            "unsafe-config",
            ("cleanup.policy",),
            "of the probe topic, cleanup.policy is compact",
            told,
            0.002,
            event="opened",
        ),
        Told("unsafe-config", (), "of the probe topic, unclean leader election is on", told, 0.002, event="opened"),
    ]


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_a_topic_that_is_put_right(fed: Fed) -> None:
    h = History()
    topic(h, min_insync="1", unclean_leader_election="true")
    topic(h)
    opened = {**SAFE, "min_insync": "1", "unclean_leader_election": "true"}
    closed = {**SAFE, "lasted_s": 1.004}
    names = ["under-replicated-probe-topic", "unsafe-config"]
    words = ["the probe topic has min in-sync replicas 1 of 2", "of the probe topic, unclean leader election is on"]
    assert whole(fed(h), names) == [
        *(Told(name, (), said, opened, 0.002, event="opened") for name, said in zip(names, words, strict=True)),
        *(Told(name, (), f"{name} ended after 1.0 s", closed, 1.006, event="closed") for name in names),
    ]


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_an_unsafe_writer(fed: Fed) -> None:
    h = History()
    writer(h, **{"acks": "0", "enable.idempotence": "false"})
    h.row("w", "close", type="info")
    h.mark(1.0)
    said = f"process {W} writes with enable.idempotence=false and acks=0"
    told = {"process": W, "enable.idempotence": "false", "acks": "0"}
    closed: dict[str, Any] = {"process": W, "lasted_s": 1.004}
    assert whole(fed(h), ["unsafe-config"]) == [
        Told("unsafe-config", (W,), said, told, 0.002, event="opened"),
        Told("unsafe-config", (W,), "unsafe-config ended after 1.0 s", closed, 1.006, event="closed"),
    ]


def test_a_topic_that_was_made_anew() -> None:
    old, new = Place("c", "old", 3), Place("c", "new", 3)
    (finding,) = recreated([(old, "topic")], {new: ("topic", 7)})
    assert (finding.cluster, finding.topic_id, finding.topic, finding.partition) == ("c", "new", "topic", 3)
    assert (finding.anomaly, finding.subject, finding.at, finding.decidable) == ("topic-recreated", ("old",), 7, 7)
    assert finding.message == "topic topic had id old and has new now: it is a new log"
    assert finding.evidence == {"before": "old", "now": "new"}


@pytest.mark.parametrize("fed", [row_by_row, at_once, finished])
@pytest.mark.parametrize(("start", "name"), [(0, "sequence-loss"), (10, "benign-retention")])
def test_a_broken_sequence(start: int, name: str, fed: Fed) -> None:
    h = History()
    broken(h, start=start)
    error = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert whole(fed(h), ["sequence-loss", "benign-retention"]) == [
        Told(
            name,
            (W, 1),
            f"process {W} reports {error}; it had offset 9 acknowledged, the log starts at {start}",
            {"process": W, "op": 1, "error": error, "log_start": start, "acknowledged": 9},
            1.012,
        )
    ]


def test_what_nobody_polled_before_retention_took_it() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 3, at=0)
    h.observe(start=3, end=3)
    for _ in range(14):
        h.mark(1.0)
    assert whole(row_by_row(h), ["benign-retention", "unseen", "suspected", "lost-write"]) == [
        Told(
            "benign-retention",
            (W, 0),
            f"3 values from {W}/0 on, acknowledged at offset 0, fell below the log start before anybody polled them",
            {"writer": W, "seq": 0, "values": 3, "offset": 0, "log_start": 3},
            1.0,
        )
    ]


def test_what_is_suspected_and_unseen_until_it_is_lost() -> None:
    h = History()
    healthy(h, 40, lose=10)
    first = [{"offset": 60, "writer": W, "seq": 50, "values": 5}]
    told = whole(row_by_row(h), ["suspected", "unseen", "lost-write"])
    assert [one for one in told if one.anomaly != "lost-write"] == [
        Told(
            "suspected",
            (),
            "5 acknowledged values were passed by every reader that goes on, and polled by none",
            {"values": 5, "first": first},
            12.0,
            event="opened",
        ),
        Told(
            "unseen",
            (),
            "5 acknowledged values have not been polled, the oldest for 10.9 s",
            {"values": 5, "first": first, "age_s": 10.914},
            21.0,
            20.086,
            "opened",
        ),
        Told(
            "suspected",
            (),
            "suspected ended after 10.0 s",
            {"values": 0, "first": [], "lasted_s": 10.0},
            22.0,
            event="closed",
        ),
        Told(
            "unseen",
            (),
            "unseen ended after 1.9 s",
            {"values": 0, "first": [], "age_s": 0.0, "lasted_s": 1.914},
            22.0,
            event="closed",
        ),
    ]
    lost = [one for one in told if one.anomaly == "lost-write"]
    assert [(one.subject, one.evidence) for one in lost] == [
        ((W, 50 + i), {"writer": W, "seq": 50 + i, "offset": 60 + i, "read_to": one.evidence["read_to"]})
        for i, one in enumerate(lost)
    ]
    assert len(lost) == 5


def test_an_error_that_misleads() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 2, at=None, type="info", error="NOT_LEADER_FOR_PARTITION")
    h.poll("r", [("w", 0, 2, 0)])
    settle(h)
    assert whole(row_by_row(h), ["misleading-error"]) == [
        Told(
            "misleading-error",
            (W, 0),
            f"operation 0 of process {W} was told that it failed, and its write is visible",
            {"process": W, "op": 0, "writer": W, "seq": 0},
            0.006,
        )
    ]


@pytest.mark.parametrize(
    ("build", "why", "more", "at"),
    [
        (
            committed_after_its_successor_began,
            f"its commit was invoked after process {number('second')} had taken the id over",
            {"later_process": number("second"), "late_by_s": 1.0},
            0.01,
        ),
        (never_committed, "its commit was never invoked", {}, 0.008),
    ],
)
def test_a_zombie(build: Callable[[History], None], why: str, more: dict[str, Any], at: float) -> None:
    h = History()
    h.assign("r")
    build(h)
    settle(h)
    first = number("first")
    told = {"process": first, "op": 9, "txn": 5, "transactional_id": "x", "writer": W, "seq": 0}
    assert whole(row_by_row(h), ["zombie-write"]) == [
        Told("zombie-write", (first, 9), f"transaction 5 of process {first} is visible, and {why}", told | more, at)
    ]


def a_misleading_fence(h: History) -> None:
    h.row("t", "init", transactional_id="x")
    h.txn("t", sends=[("t", 0, 1, None)], type="info", txn=1, transactional_id="x", error="_FENCED")


def a_committed_zero(h: History) -> None:
    h.row("r", "commit", committed=5, group="g")
    h.row("o", "offsets", committed=0, group="g")


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(
    ("build", "name"), [(a_misleading_fence, "misleading-fence"), (a_committed_zero, "spurious-zero-offset")]
)
def test_nothing_is_concluded_where_a_journal_was_lost(build: Callable[[History], None], name: str, lost: bool) -> None:
    """Whose it was may have explained it."""
    h = History()
    h.assign("z")
    build(h)
    h.time += 1.0
    h.processes.remove("z")
    now = h.at(h.time)
    marks = [Mark(number("z"), 1, h.at(0.0) if lost else now, now, lost)]
    h.row("committer", "mark", marks=marks, invoked=now, completed=now)
    for _ in range(5):
        h.mark(1.0)
    assert [one.anomaly for one in whole(row_by_row(h), [name])] == ([] if lost else [name])
