"""`evidence-stalled`, told the time and never sleeping."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rules.vocabulary.finding import Finding
from rules.vocabulary.times import micros
from streaming_jobs import log_watch
from streaming_jobs.config import JobConfig
from streaming_jobs.history.source import NewestVersion
from streaming_jobs.history.stall import EvidenceWatch
from streaming_jobs.log_watch import LogWatch
from streaming_jobs.tables.findings import current_findings

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
    (closed,) = seen.rows({"a": at(39)}, at(40), at(40))
    assert (closed.id, closed.event) == (opened.id, "closed")
    assert seen.rows({"a": at(40)}, at(41), at(41)) == []
    (again,) = seen.tick(at(71), at(41))
    assert (again.event, again.evidence) == ("opened", {"last_row": at(41).isoformat()})


def test_it_is_timed_by_when_rows_came_and_not_by_the_batch_that_they_waited_for() -> None:
    seen = watch("a")
    assert seen.rows({"a": at(19)}, at(50), at(20)) == []
    (opened,) = seen.tick(at(50), at(20))
    assert (opened.evidence, opened.decidable) == ({"last_row": at(20).isoformat()}, micros(at(50)))


def test_rows_that_waited_for_the_checks_until_it_opened_do_not_end_it() -> None:
    """A catch-up: the last rows came before the silence, whenever they are checked."""
    seen = watch("a")
    (opened,) = seen.tick(at(50), at(20))
    assert opened.event == "opened"
    assert seen.rows({"a": at(19)}, at(53), at(20)) == []
    assert seen.tick(at(54), at(20)) == []
    assert events(seen.rows({"a": at(60)}, at(61), at(60))) == [("a", "closed")]


def test_rows_that_come_afterwards_end_it_though_they_wait_for_checks_that_are_minutes_behind() -> None:
    seen = watch("a")
    assert events(seen.tick(at(50), at(20))) == [("a", "opened")]
    assert seen.tick(at(80), at(50)) == [], "they came just before it was told"
    (closed,) = seen.tick(at(90), at(89))
    assert (closed.event, closed.at) == ("closed", micros(at(90)))
    assert seen.tick(at(118), at(89)) == []
    assert events(seen.tick(at(119), at(89))) == [("a", "opened")]


def test_who_stood_still_for_longer_than_rows_are_old_waits_for_the_objective_from_then_on() -> None:
    seen = watch("a")
    seen.rows({"a": at(30)}, at(30), at(30))
    seen.stood_still(timedelta(seconds=60), at(85))
    assert seen.tick(at(114.9), at(30)) == []
    assert events(seen.tick(at(115), at(30))) == [("a", "opened")]


def test_of_several_clusters_each_has_rows_when_such_are_checked_that_came_afterwards() -> None:
    seen = watch("a", "b")
    assert events(seen.tick(at(50), at(20))) == [("a", "opened"), ("b", "opened")]
    assert seen.tick(at(90), at(60)) == [], "nobody knows whose they are"
    assert seen.rows({"a": at(19)}, at(300), at(40)) == []
    assert events(seen.rows({"a": at(60)}, at(310), at(60))) == [("a", "closed")]
    assert seen.rows({"b": at(19)}, at(320), at(50)) == []


def test_one_silent_cluster_beside_a_live_one() -> None:
    seen = watch("a", "b")
    seen.rows({"b": at(20)}, at(20), at(20))
    assert events(seen.tick(at(35), at(20))) == [("a", "opened")]


def test_a_log_that_never_had_a_row_is_stalled_too() -> None:
    seen = watch()
    (opened,) = seen.tick(at(30))
    assert (opened.cluster, opened.event, opened.evidence) == ("", "opened", {"last_row": "never"})
    assert events(seen.rows({"a": at(49)}, at(50), at(50))) == [("", "closed")]
    assert events(seen.tick(at(79), at(50))) == []
    assert events(seen.tick(at(80), at(50))) == [("a", "opened")]


def test_a_condition_that_was_open_before_a_restart_is_closed_and_not_opened_again() -> None:
    seen = watch("a", open_clusters=("a",))
    assert seen.tick(at(100)) == []
    assert events(seen.rows({"a": at(101)}, at(101), at(101))) == [("a", "closed")]


@pytest.mark.parametrize(("newest", "told"), [(-3600, []), (-60, ["closed"])])
def test_rows_that_a_restart_finds_there_close_it_where_they_are_new(newest: float, told: list[str]) -> None:
    """The batch that a kill cut off is made again: its rows were there when the condition opened. Nothing came since
    the start: the log has been silent for the whole objective once it is over."""
    seen = watch("a", open_clusters=("a",))
    assert [event for _, event in events(seen.rows({"a": at(newest)}, at(10), None))] == told
    opened = seen.tick(at(30))
    assert events(opened) == ([("a", "opened")] if told else [])
    assert all(one.evidence == {"last_row": at(newest).isoformat()} for one in opened)


def test_a_log_that_a_start_reads_for_longer_than_the_objective_is_silent_all_the_same() -> None:
    seen = watch()
    for second in range(5, 30, 5):
        assert seen.rows({"a": at(second - 7200)}, at(second), None) == []
    (opened,) = seen.tick(at(30))
    assert (opened.cluster, opened.evidence) == ("a", {"last_row": at(25 - 7200).isoformat()})


def test_a_batch_without_rows_says_nothing() -> None:
    seen = watch("a", open_clusters=("a",))
    assert seen.rows({}, at(10), at(9)) == []


def test_rows_that_the_checks_have_not_come_to_are_no_silence() -> None:
    seen = watch("a", "b")
    assert seen.tick(at(30), at(29)) == []
    assert seen.tick(at(58), at(29)) == []
    opened = seen.tick(at(59), at(29))
    assert events(opened) == [("a", "opened"), ("b", "opened")]
    assert {one.evidence["last_row"] for one in opened} == {at(29).isoformat()}


def test_rows_of_a_live_cluster_do_not_excuse_a_silent_one() -> None:
    seen = watch("a", "b")
    seen.rows({"b": at(20)}, at(20), at(20))
    assert events(seen.tick(at(35), at(34))) == [("a", "opened")]


def test_a_log_that_has_ended_on_purpose_is_not_waited_for() -> None:
    """It was open before; others are told of as ever, and so is the nameless one where no other is known."""
    known = dict.fromkeys(("a", "b"), at(-3600))
    seen = EvidenceWatch(timedelta(seconds=30), START, clusters=known, open_clusters=("a",), ended=("a", "gone"))
    (closed,) = seen.tick(at(1))
    assert (closed.cluster, closed.event, closed.message) == ("a", "closed", "The probe log of a has ended on purpose.")
    assert events(seen.tick(at(29))) == []
    assert seen.rows({"a": at(20), "gone": at(20)}, at(25), at(25)) == []
    assert events(seen.tick(at(100), at(25))) == [("b", "opened")]
    assert events(seen.tick(at(500), at(25))) == []
    assert events(seen.rows({"b": at(501)}, at(501), at(501))) == [("b", "closed")]


def test_a_machine_whose_clock_is_set_ahead_takes_the_log_for_silent_no_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = JobConfig(root=tmp_path)
    told, passed = START, 0.0
    monkeypatch.setattr(log_watch, "machine_time", lambda: told)
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    found = current_findings(config.tables_path)
    seen = LogWatch(config, NewestVersion(config.history_path), {}, found, log_watch.steady(log_watch.machine_time))
    told = at(3600)
    assert seen.silence() == []
    passed = config.liveness.total_seconds()
    assert events(list(seen.silence())) == [("", "opened")], "it is as silent as it is"


@pytest.mark.parametrize("stopped", [True, False])
def test_time_in_which_this_process_was_stopped_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Whoever brings the rows of an evidence topic was stopped with it: they come when both go on."""
    config, passed = JobConfig(root=tmp_path), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    watch = LogWatch(
        config,
        NewestVersion(config.history_path),
        {},
        current_findings(config.tables_path),
        log_watch.steady(log_watch.machine_time),
    )

    def look(seconds: float) -> list[Finding]:
        nonlocal passed
        passed += seconds
        watch.look(lambda: True)
        return list(watch.silence())

    liveness, before = config.liveness.total_seconds(), 20
    for _ in range(before):
        assert look(1.0) == []
    silent = look(liveness) if stopped else [one for _ in range(round(liveness) - before) for one in look(1.0)]
    assert events(silent) == ([] if stopped else [("", "opened")])
    if stopped:
        for _ in range(round(liveness) - before - 1):
            assert look(1.0) == []
        assert events(look(1.0)) == [("", "opened")], "the log is as silent as it is while we run"
