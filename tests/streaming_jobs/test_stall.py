"""`evidence-stalled`, told the time and never sleeping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rules.vocabulary.finding import Finding
from streaming_jobs.history.stall import EvidenceWatch

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def events(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(f.cluster, f.event) for f in findings]


def watch(*clusters: str, open_clusters: tuple[str, ...] = ()) -> EvidenceWatch:
    known = dict.fromkeys(clusters, at(-3600))
    return EvidenceWatch(timedelta(seconds=30), START, clusters=known, open_clusters=open_clusters)


def test_it_opens_once_after_the_objective_and_closes_with_the_next_row() -> None:
    seen = watch("a")
    assert events(seen.tick(at(29.9))) == []
    (opened,) = seen.tick(at(30))
    assert (opened.anomaly, opened.event, opened.cluster, opened.partition) == ("evidence-stalled", "opened", "a", -1)
    assert opened.evidence == {"last_row": at(-3600).isoformat()}, "of the run before this one"
    assert seen.tick(at(31)) == []
    (closed,) = seen.rows(["a"], at(40))
    assert (closed.id, closed.event) == (opened.id, "closed")
    assert seen.rows(["a"], at(41)) == []
    (again,) = seen.tick(at(71))
    assert (again.event, again.evidence) == ("opened", {"last_row": at(41).isoformat()})


def test_one_silent_cluster_beside_a_live_one() -> None:
    seen = watch("a", "b")
    seen.rows(["b"], at(20))
    assert events(seen.tick(at(35))) == [("a", "opened")]


def test_a_log_that_never_had_a_row_is_stalled_too() -> None:
    seen = watch()
    (opened,) = seen.tick(at(30))
    assert (opened.cluster, opened.event, opened.evidence) == ("", "opened", {"last_row": "never"})
    assert events(seen.rows(["a"], at(50))) == [("", "closed")]
    assert events(seen.tick(at(79))) == []
    assert events(seen.tick(at(80))) == [("a", "opened")]


def test_a_condition_that_was_open_before_a_restart_is_closed_and_not_opened_again() -> None:
    seen = watch("a", open_clusters=("a",))
    assert seen.tick(at(100)) == []
    assert events(seen.rows(["a"], at(101))) == [("a", "closed")]


def test_a_batch_without_rows_says_nothing() -> None:
    seen = watch("a", open_clusters=("a",))
    assert seen.rows([], at(10)) == []


def test_rows_that_the_checks_have_not_come_to_are_no_silence() -> None:
    seen = watch("a", "b")
    assert seen.tick(at(30), lambda: True) == []
    assert seen.tick(at(59), lambda: pytest.fail("is asked where something would open")) == []
    assert events(seen.tick(at(60), lambda: False)) == [("a", "opened"), ("b", "opened")]


def test_rows_of_a_live_cluster_do_not_excuse_a_silent_one() -> None:
    seen = watch("a", "b")
    seen.rows(["b"], at(20))
    assert events(seen.tick(at(35), lambda: True)) == [("a", "opened")]
