"""The demonstration's verdict and its exit code, and what its screen and lines show."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from alerts.event import FindingEvent
from alerts.event import events as finding_events
from monitor.demo import view as demo_view
from monitor.demo.demo import Standing
from monitor.demo.provocation import Provoked
from monitor.demo.verdict import summary, verdict
from monitor.demo.view import Snapshot
from rules.vocabulary.finding import Finding
from streaming_jobs.checks_stalled import stalled
from streaming_jobs.tables.findings import current
from tests.monitor.rows import NOON, events, finding

PROVOKED = Provoked(topic="t", partition=3, writer=7, process=8, records=2, first=4, second=9, at=NOON)


def duplicate(seq: int, **more: Any) -> Finding:
    evidence = {"writer": 7, "seq": seq, "offsets": [4 + seq, 9 + seq]}
    return finding("duplicate", (7, seq), **({"evidence": evidence, "context": {"idempotent": "false"}} | more))


BOTH = (duplicate(0), duplicate(1))
OPENED = (finding("unseen", (), "opened"), finding("suspected", (), "opened"))
SKIPPED = {"context": {"mode": "subscribe"}}
CASES: list[tuple[str, tuple[Finding, ...], Provoked | None, int]] = [
    ("what was provoked, and nothing else", BOTH, PROVOKED, 0),
    ("nothing was found", (), PROVOKED, 1),
    ("half of it was found", BOTH[:1], PROVOKED, 1),
    ("nothing was provoked", (), None, 1),
    ("something else was found, too", (*BOTH, finding("lost-write")), PROVOKED, 1),
    ("another writer's duplicate", (*BOTH, duplicate(5, evidence={"writer": 5, "seq": 0})), PROVOKED, 1),
    ("the same writer's, elsewhere", (*BOTH, duplicate(0, partition=4)), PROVOKED, 1),
    ("a value that was not sent twice", (*BOTH, duplicate(2)), PROVOKED, 1),
    ("what follows from it", (*BOTH, finding("nonmonotonic-poll", implied_by=BOTH[0].id)), PROVOKED, 0),
    ("what follows from something else", (*BOTH, finding("nonmonotonic-poll", implied_by="other")), PROVOKED, 1),
    ("what the policy allows", (*BOTH, finding("poll-skip", **SKIPPED)), PROVOKED, 0),
    ("conditions judge nothing", (*BOTH, *OPENED), PROVOKED, 0),
    ("observations judge nothing", (*BOTH, finding("foreign-record")), PROVOKED, 0),
]  # fmt: skip


@pytest.mark.parametrize(("found", "provoked", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_exit_code(found: tuple[Finding, ...], provoked: Provoked | None, code: int) -> None:
    assert verdict(current(events(*found)).to_pylist() if found else [], provoked).exit_code == code


def test_the_summary_says_what_was_provoked_and_found() -> None:
    rows = current(events(*BOTH, finding("lost-write"), finding("unseen", (), "opened"))).to_pylist()
    told = list(summary(verdict(rows, PROVOKED), 1.23))
    assert told[0].startswith("provoked: 2 records of writer 7, a producer without idempotence, were sent to t/3 twice")
    assert told[1] == "found: 2 of 2 duplicates, the first 1.2 s after its second copy was acknowledged"
    assert told[2].startswith("  warning duplicate in t/3: ")
    assert told[3] == "NOT PROVOKED: critical lost-write in t/3: a lost-write happened"
    assert told[4] == "conditions that opened: 1 (unseen), 1 still open"
    assert list(summary(verdict([], None), None)) == [
        "provoked: nothing; the demonstration was stopped before its violation",
        "other violations: none",
    ]


TOPICS = ("offsetwatch-records", "offsetwatch-transactions")
STATE = {
    "topic": "t", "partition": 3, "log_end": 1_234, "last_stable": 1_230, "frontier": 1_100, "unseen": 0, "now": NOON,
    "readers": [{"process": 1, "position": 1_200, "mode": "assign"}],
}  # fmt: skip


def shown(now: Snapshot, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(demo_view.screen(now, width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def snapshot(duplicates: int = 1) -> Snapshot:
    rows = events(*[duplicate(seq) for seq in range(duplicates)]).to_pylist() if duplicates else []
    return Snapshot(
        step="provoked", elapsed=31, limit=90, cluster="Kafka, 3 brokers", url="http://127.0.0.1:1/metrics",
        sent=4_321, sent_rate=399.6, states=[STATE | {"topic": t, "partition": p} for t in TOPICS for p in range(6)],
        checked_until=1.26, batch_seconds=0.61, rows_rate=399, batches=12, allowed=17,
        events=finding_events(rows, NOON, 10.0),
    )  # fmt: skip


def test_the_screen_before_anything_is_known() -> None:
    text = "\n".join(shown(Snapshot(step="starting Kafka", elapsed=0.2), 100, 30))
    assert "starting Kafka" in text and "Ctrl-C stops it" in text and "log time - behind" in text


def test_the_screen_shows_figures_partitions_and_findings_with_evidence() -> None:
    text = "\n".join(shown(snapshot(), 120, 40))
    parts = [
        "sent 4,321 (400/s)", "log time 1.3 s behind", "batch 0.6 s", "399 rows/s, 12 batches", "1,234", "1,100",
        "readers' lag 30 records", "http://127.0.0.1:1/metrics", "31 s of 90 s",
        "warning duplicate raised in t/3", "offsets=[4, 9]", "17 more are observations or allowed",
    ]  # fmt: skip
    for part in parts:
        assert part in text, part


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    lines = shown(snapshot(duplicates=50), width, height)
    assert len(lines) <= height
    assert any("seq=49" in line for line in lines), "the newest finding is on the screen"
    assert max(map(len, lines)) <= width


def test_that_the_checks_stand_still_is_shown_at_once() -> None:
    """No batch tells of it; everything else comes with its batch."""
    at = NOON.replace(microsecond=0)
    opened, closed = (stalled(event, at, at, why) for event, why in (("opened", "the JVM has gone"), ("closed", "")))
    told: list[FindingEvent] = []
    Standing(told.append).deliver(finding_events(events(opened, duplicate(0), closed).to_pylist(), NOON, 10.0))
    (event,) = told
    assert next(demo_view.event_lines(event)) == (
        f"finding opened: {event.severity} checks-stalled in all clusters: Nothing is being checked: the JVM has gone."
    )


def test_lines_for_where_there_is_no_terminal() -> None:
    now = snapshot()
    assert demo_view.line(now).startswith("  31 s  sent 4,321 (400/s)  acked 0 (0/s)  polled 0 (0/s)  readers' lag 30")
    told = list(demo_view.event_lines(now.events[0]))
    assert told[0] == "finding raised: warning duplicate in t/3: a duplicate happened"
    assert told[1] == "  evidence: writer=7  seq=0  offsets=[4, 9]"
