"""The demonstration's verdict and its exit code, and what its screen and lines show."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from alerts.event import FindingEvent
from alerts.event import events as finding_events
from monitor.demo import view as demo_view
from monitor.demo.duplicates import Duplicated
from monitor.demo.figures import Standing
from monitor.demo.leaderless import Killed, Leaderless, skipped_in, what_hides
from monitor.demo.provocation import SentTwice
from monitor.demo.story import Provoked
from monitor.demo.verdict import WIDTH, summary, verdict
from monitor.demo.view import Snapshot, StoryLine
from monitor.drill.actors.actors import Held, Hold
from monitor.drill.drills.leaderless import Places
from rules.vocabulary.finding import Event, Finding
from streaming_jobs.checks_stalled import stalled
from streaming_jobs.tables.findings import current
from tests.monitor.rows import NOON, events, finding

PROVOKED = Duplicated(SentTwice(topic="t", partition=3, writer=7, process=8, records=2, first=4, second=9, at=NOON))


def duplicate(seq: int, **more: Any) -> Finding:
    evidence = {"writer": 7, "seq": seq, "offsets": [4 + seq, 9 + seq]}
    given: dict[str, Any] = {"evidence": evidence, "context": {"idempotent": "false"}} | more
    return finding("duplicate", (7, seq), **given)


BOTH = (duplicate(0), duplicate(1))
OPENED = (finding("unseen", (), "opened"), finding("suspected", (), "opened"))
SKIPPED: dict[str, Any] = {"context": {"mode": "subscribe"}}
CASES: list[tuple[str, tuple[Finding, ...], Sequence[Provoked], int]] = [
    ("what was provoked, and nothing else", BOTH, [PROVOKED], 0),
    ("nothing was found", (), [PROVOKED], 1),
    ("half of it was found", BOTH[:1], [PROVOKED], 1),
    ("nothing was provoked", (), [], 1),
    ("something else was found, too", (*BOTH, finding("lost-write")), [PROVOKED], 1),
    ("another writer's duplicate", (*BOTH, duplicate(5, evidence={"writer": 5, "seq": 0})), [PROVOKED], 1),
    ("the same writer's, elsewhere", (*BOTH, duplicate(0, partition=4)), [PROVOKED], 1),
    ("a value that was not sent twice", (*BOTH, duplicate(2)), [PROVOKED], 1),
    ("what follows from it", (*BOTH, finding("nonmonotonic-poll", implied_by=BOTH[0].id)), [PROVOKED], 0),
    ("what follows from something else", (*BOTH, finding("nonmonotonic-poll", implied_by="other")), [PROVOKED], 1),
    ("what the policy allows", (*BOTH, finding("poll-skip", **SKIPPED)), [PROVOKED], 0),
    ("conditions judge nothing", (*BOTH, *OPENED), [PROVOKED], 0),
    ("observations judge nothing", (*BOTH, finding("foreign-record")), [PROVOKED], 0),
]

LEADERLESS = Leaderless(
    topic="t",
    places=Places(aborted=3, committed=3, elsewhere=1),
    killed=2,
    at=NOON,
    aborted=Held(transactional_id="a", txn=11, sent={}, told="aborted"),
    committed=Held(transactional_id="c", txn=22, sent={}, told="committed"),
    skipped=lambda: Counter([("t", 3, "a"), ("t", 3, "c"), ("t", 3, "ordinary")]),
)


TRIED = Killed(topic="t", at=NOON, skipped=LEADERLESS.skipped)


def of_transaction(anomaly: str, txn: int, transactional_id: str, **more: Any) -> Finding:
    return finding(anomaly, (txn,), evidence={"txn": txn, "transactional_id": transactional_id}, **more)


ALL_THREE = (
    of_transaction("G1a", 11, "a"),
    of_transaction("lost-write", 22, "c"),
    of_transaction("torn-transaction", 22, "c"),
)
CASES += [
    ("no leader: all three", ALL_THREE, [LEADERLESS], 0),
    *(
        (f"no leader: without {ALL_THREE[i].anomaly}", (*ALL_THREE[:i], *ALL_THREE[i + 1 :]), [LEADERLESS], 1)
        for i in range(3)
    ),
    ("an ordinary probe's transaction", (*ALL_THREE, of_transaction("G1a", 33, "ordinary")), [LEADERLESS], 0),
    ("a transaction whose markers are there", (*ALL_THREE, of_transaction("G1a", 33, "other")), [LEADERLESS], 1),
    ("readers went over what was lost", (*ALL_THREE, finding("poll-skip")), [LEADERLESS], 0),
    ("readers went over something elsewhere", (*ALL_THREE, finding("poll-skip", partition=4)), [LEADERLESS], 1),
    ("a duplicate is no part of it", (*ALL_THREE, finding("duplicate")), [LEADERLESS], 1),
    ("the duplicates instead", BOTH, [TRIED, PROVOKED], 0),
    (
        "the duplicates instead, and a marker that is missing",
        (*BOTH, of_transaction("G1a", 33, "ordinary")),
        [TRIED, PROVOKED],
        0,
    ),
    ("nothing but tried", (), [TRIED], 1),
]


@pytest.mark.parametrize(("found", "provoked", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_exit_code(found: tuple[Finding, ...], provoked: list[Provoked], code: int) -> None:
    assert verdict(current(events(*found)).to_pylist() if found else [], provoked).exit_code == code


def test_the_summary_says_what_was_provoked_and_found() -> None:
    rows = current(events(*BOTH, finding("lost-write"), finding("unseen", (), "opened"))).to_pylist()
    told = list(summary(verdict(rows, [PROVOKED]), 1.23))
    assert max(map(len, told)) <= WIDTH
    assert told == [
        "provoked: 2 records of writer 7, a producer without idempotence, were sent to",
        "  t/3 twice: at offset 4, and the same bytes again at 9",
        "found: 2 duplicate, the first 1.2 s after the second copy was acknowledged",
        "  warning duplicate in t/3: a duplicate happened",
        "NOT PROVOKED: critical lost-write in t/3: a lost-write happened",
        "other conditions: unseen; 1 of 1 still open",
    ]
    assert list(summary(verdict([], []), None)) == [
        "provoked: nothing; the demonstration was stopped before",
        "other violations: none",
    ]


def test_the_summary_says_what_was_not_found() -> None:
    opened = [finding(name, (), "opened") for name in ("cluster-unreachable", "check-failed")]
    rows = current(events(*ALL_THREE[:2], of_transaction("G1a", 33, "ordinary"), *opened)).to_pylist()
    told = list(summary(verdict(rows, [LEADERLESS]), 12.3))
    assert told[:7] == [
        "provoked: KAFKA-20734: broker 2, the only replica of t/3, was killed at",
        "  12:00:00.000 UTC, and two transactions ended before it was back",
        "  A, transaction 11: its client was told that it is aborted",
        "  B, transaction 22: its client was told that it is committed",
        "found: 1 G1a, 1 lost-write, the first 12.3 s after the kill",
        "  critical G1a in t/3: a G1a happened",
        "  critical lost-write in t/3: a lost-write happened",
    ]
    assert told[7:] == [
        "NOT FOUND: torn-transaction of transaction 22",
        "explained by it, in transactions of ordinary probes: 1 G1a",
        "other violations: none",
        "conditions that follow from it: cluster-unreachable; 1 of 1 still open",
        "other conditions: check-failed; 1 of 1 still open",
    ]


def test_what_a_coordinator_says_of_markers_that_it_did_not_write() -> None:
    """Its own words, as Kafka 4.3.1 wrote them."""
    said = (
        "[2026-11-22 09:36:22,564] INFO [Transaction Marker Channel Manager 3]: Couldn't find leader endpoint for"
        " partitions Set(drill-a-transactions-0, drill-a-transactions-3) while trying to send transaction markers for"
        " drill-a-run-transactions-aborted, these partitions are likely deleted already and hence can be skipped"
        " (kafka.coordinator.transaction.TransactionMarkerChannelManager)\n"
    )
    of = "drill-a-run-transactions-aborted"
    assert skipped_in(said) == {("drill-a-transactions", 0, of): 1, ("drill-a-transactions", 3, of): 1}
    assert skipped_in(said * 2)["drill-a-transactions", 0, of] == 2, "each transaction has its marker"
    assert skipped_in("[2026-11-22 09:36:22,564] INFO all is well (kafka.Kafka)\n") == {}


TOPICS = tuple(f"offsetwatch-{name}" for name in ("records", "registers", "transactions", "transform-in", "out"))
STATE = {
    "topic": "t",
    "partition": 3,
    "log_end": 1_234,
    "last_stable": 1_230,
    "frontier": 1_100,
    "unseen": 0,
    "now": NOON,
    "readers": [{"process": 1, "position": 1_200, "mode": "assign"}],
}


def shown(now: Snapshot, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(demo_view.screen(now, width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def snapshot(duplicates: int = 1) -> Snapshot:
    rows = events(*[duplicate(seq) for seq in range(duplicates)]).to_pylist() if duplicates else []
    return Snapshot(
        step="provoked",
        elapsed=31,
        limit=90,
        cluster="Kafka, 3 brokers",
        url="http://127.0.0.1:1/",
        sent=4_321,
        sent_rate=399.6,
        states=[STATE | {"topic": t, "partition": p} for t in TOPICS for p in range(6)],
        checked_until=1.26,
        batch_seconds=0.61,
        rows_rate=399,
        batches=12,
        allowed=17,
        events=finding_events(rows, NOON, 10.0),
        told=[StoryLine(30.0 + n, f"line {n} of the story") for n in range(11)],
    )


def test_the_screen_before_anything_is_known() -> None:
    text = "\n".join(shown(Snapshot(step="starting Kafka", elapsed=0.2), 100, 30))
    assert "starting Kafka" in text and "Ctrl-C stops it" in text and "log time - behind" in text


def test_the_screen_shows_figures_partitions_and_findings_with_evidence() -> None:
    text = "\n".join(shown(snapshot(), 120, 40))
    parts = [
        "sent 4,321 (400/s)",
        "log time 1.3 s behind",
        "batch 0.6 s",
        "399 rows/s, 12 batches",
        "1,234",
        "1,100",
        "readers' lag 30 records",
        "http://127.0.0.1:1/",
        "31 s of 90 s",
        "warning duplicate raised in t/3",
        "offsets=[4, 9]",
        "17 more are observations, or allowed",
    ]
    for part in parts:
        assert part in text, part


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    lines = shown(snapshot(duplicates=50), width, height)
    assert len(lines) <= height
    assert any("seq=49" in line for line in lines), "the newest finding is on the screen"
    assert any("line 10 of the story" in line for line in lines)
    assert max(map(len, lines)) <= width


def test_that_the_checks_stand_still_is_shown_at_once() -> None:
    """No batch tells of it; everything else comes with its batch."""
    at = NOON.replace(microsecond=0)
    happened: tuple[tuple[Event, str], ...] = (("opened", "the JVM has gone"), ("closed", ""))
    opened, closed = (stalled(event, at, at, why) for event, why in happened)
    told: list[FindingEvent] = []
    Standing(told.append).deliver(finding_events(events(opened, duplicate(0), closed).to_pylist(), NOON, 10.0))
    (event,) = told
    assert list(demo_view.event_lines(event))[:2] == [
        f"        {event.severity} checks-stalled opened in all clusters",
        "          Nothing is being checked: the JVM has gone.",
    ]


def test_of_a_condition_that_many_share_one_line_is_told() -> None:
    opened = [finding("under-replicated-probe-topic", (n,), "opened", partition=n) for n in range(3)]
    closed = finding("under-replicated-probe-topic", (0,), "closed", partition=0)
    happened = finding_events(
        events(opened[0], duplicate(0), *opened[1:], closed, duplicate(1)).to_pylist(), NOON, 10.0
    )
    told = demo_view.worth_telling(happened)
    assert [(one.anomaly, one.partition) for one in told] == [
        ("under-replicated-probe-topic", 0),
        ("duplicate", 3),
        ("duplicate", 3),
    ]


def test_lines_for_where_there_is_no_terminal() -> None:
    now = snapshot()
    assert demo_view.line(now) == "  31 s  acked 0 (0/s), polled 0 (0/s), checks 1.3 s behind"
    assert list(demo_view.event_lines(now.events[0])) == [
        "        warning duplicate raised in t/3",
        "          a duplicate happened",
        "          evidence: writer=7  seq=0  offsets=[4, 9]",
    ]


def test_figures_of_a_long_demonstration_take_a_second_line() -> None:
    now = replace(snapshot(), elapsed=4_321.0, acknowledged=1_234_567, polled=98_765_432, polled_rate=12_345.0)
    now = replace(now, acknowledged_rate=2_345.0, checked_until=123.4)
    assert demo_view.line(now).splitlines() == [
        "4321 s  acked 1,234,567 (2345/s), polled 98,765,432 (12345/s), checks 123.4 s",
        "        behind",
    ]


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (("committed", "aborted"), None),
        (("unknown", "aborted"), "of A's producer ended nobody knows how, of B's was aborted;"),
        (("aborted", "aborted"), "of A's producer was aborted, of B's was aborted;"),
        (("committed", "committed"), "of A's producer was committed, of B's was committed;"),
    ],
)
def test_the_next_transactions_may_hide_what_happened(then: tuple[Any, Any], words: str | None) -> None:
    """On a busy machine the next transaction ran into a timeout once: nobody is shown then what A aborted."""
    a, b = (replace(held, then=one) for held, one in zip((LEADERLESS.aborted, LEADERLESS.committed), then, strict=True))
    said = what_hides(a, b)
    assert said is None if words is None else said is not None and words in said


def test_what_follows_a_held_transaction_is_the_first_after_its_end() -> None:
    hold, held = Hold(), Held(transactional_id="a", txn=1, sent={})
    hold.followed("a", None)  # a client that begins when nothing was held
    assert hold.held == {}
    hold.begun("a", held)
    hold.followed("a", "committed")  # nobody was told yet how the held one ended
    assert hold.held["a"].then is None
    hold.ended("a", "aborted", NOON)
    assert hold.held["a"].then is None
    hold.followed("a", None)
    hold.followed("a", "committed")
    assert hold.held["a"] == replace(held, told="aborted", at=NOON, then="unknown")
    hold.begun("a", held)  # the next attempt
    assert hold.held["a"].then is None
