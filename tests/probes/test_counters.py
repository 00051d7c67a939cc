"""What people are told of transactions: an abort that was planned is no failure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from alerts.probe_metrics import ProbeMetrics
from monitor.process.probing import summary
from probes.log.life_log import Instant
from probes.records.delivery import Batch
from probes.running.fleet import FleetStatus
from probes.workloads.probe import Counters
from probes.workloads.transactional.transaction_course import Course, count_outcome
from rules.vocabulary.slices import Outcome


def course(intent: Literal["commit", "abort"]) -> Course:
    batches = [Batch(7, {("t", 0): (0, 3)}), Batch(7, {("t", 0): (3, 5)})]
    return Course(1, 1, intent, Instant(datetime(2026, 1, 1, tzinfo=UTC), 0), {}, batches, handed=3)


@pytest.mark.parametrize(
    ("intent", "outcome", "counted"),
    [
        ("commit", "ok", {"transactions_committed": 1, "acknowledged": 3}),
        ("commit", "fail", {"transactions_failed": 1, "failed": 3}),
        ("commit", "info", {"transactions_indefinite": 1, "indefinite": 3}),
        ("abort", "fail", {"transactions_aborted": 1, "aborted": 3}),
        ("abort", "info", {"transactions_indefinite": 1, "indefinite": 3}),
    ],
)
def test_a_planned_abort_is_no_failure(
    intent: Literal["commit", "abort"], outcome: Outcome, counted: dict[str, Any]
) -> None:
    counters = Counters("transactions-1", "transactions")
    count_outcome(counters, course(intent), outcome)
    assert counters == Counters("transactions-1", "transactions", **counted)
    (aborted, failed) = (
        next(
            sample.value
            for metric in ProbeMetrics(lambda: [counters]).collect()
            for sample in metric.samples
            if sample.name == f"offsetwatch_probe_transactions_{name}_total"
        )
        for name in ("aborted", "failed")
    )
    assert (aborted, failed) == (counters.transactions_aborted, counters.transactions_failed)


def test_the_last_line_tells_what_became_of_what_was_sent() -> None:
    writer = Counters("writer-1", "writer", sent=1500, acknowledged=1490, failed=4, indefinite=6, errors=2)
    aborting = Counters("transactions-1", "transactions", sent=30, acknowledged=20, aborted=10, polled=7)
    assert summary(FleetStatus("run", None, (writer, aborting), None)) == (
        "1,530 sent, 1,510 acknowledged, 10 aborted on purpose, 4 failed, 6 of unknown outcome, 7 polled, "
        "2 client errors"
    )


def test_what_nobody_has_told_the_fate_of_when_a_life_ends_is_of_unknown_outcome() -> None:
    """A client that was abandoned on purpose, or was stuck: its rows are `info`, and so they are counted."""
    counters = Counters("transactions-1", "transactions", sent=100, acknowledged=60, aborted=20, failed=5, indefinite=3)
    counters.end_life(2)
    assert (counters.indefinite, counters.transactions_indefinite) == (15, 2)
    counters.acknowledged += 4  # the thread that was given up goes on: a counter never falls
    counters.end_life(0)
    assert (counters.indefinite, counters.transactions_indefinite) == (15, 2)
