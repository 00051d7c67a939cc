"""Published defects that an incident looks like: by its evidence alone, and only where that is unmistakable."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.commands.explain import lines
from monitor.incidents.explained import Wanted, find
from monitor.incidents.published import looks_like
from rules.vocabulary.finding import Finding
from streaming_jobs.tables.findings import current
from tests.monitor.rows import NOON, events, finding, record


def of_transaction(anomaly: str, between: int | None, told: str = "aborted", next_told: str = "committed") -> Finding:
    following = {} if between is None else {"offsets_between": between, "next_told": next_told}
    return finding(anomaly, evidence={"writer": 7, "seq": 1, "offset": 9, "txn": 5, "told": told, **following})


@pytest.mark.parametrize(
    ("anomaly", "between", "known"),
    [
        ("G1a", 0, True),
        ("lost-write", 0, True),
        ("torn-transaction", 0, True),
        ("G1a", 1, False),  # its own marker may stand there
        ("G1a", None, False),  # nothing is known of what follows
        ("zombie-write", 0, False),
    ],
)
def test_a_transaction_without_a_marker(anomaly: str, between: int | None, known: bool) -> None:
    rows = current(events(of_transaction(anomaly, between))).to_pylist()
    assert looks_like(rows).startswith("KAFKA-20734, ") == known
    assert bool(looks_like(rows)) == known


@pytest.mark.parametrize(("next_told", "known"), [("aborted", True), ("unknown", True), ("committed", False)])
def test_a_record_that_is_lost_between_two_commits_was_decided_by_no_marker(next_told: str, known: bool) -> None:
    rows = current(events(of_transaction("lost-write", 0, "committed", next_told))).to_pylist()
    assert bool(looks_like(rows)) == known


def test_where_the_log_was_cut_the_marker_may_have_gone_with_the_records() -> None:
    cut = finding("log-truncation", (9,), evidence={"log_end": 9, "known": 10, "written_again": 9})
    lost = of_transaction("lost-write", 0, "committed", "unknown")
    assert looks_like(current(events(lost)).to_pylist()) and not looks_like(current(events(lost, cut)).to_pylist())


def test_explain_says_so(tmp_path: Path) -> None:
    exposed = of_transaction("G1a", 0)
    record(tmp_path, exposed)
    found = find(tmp_path / "tables", tmp_path / "tables" / "history", Wanted(exposed.id), NOON)
    text = " ".join(line.plain for line in lines(found, NOON, 80))
    assert "It looks like KAFKA-20734, seen in Kafka 4.3.1: a transaction that ends while" in text
