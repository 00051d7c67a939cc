"""What the cluster did around a finding: changes only, in the order of time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monitor.incidents.cluster_then import AROUND, changes, cluster_then
from monitor.incidents.witnesses import Asked
from probes.kafka.errors import Crash
from tests.monitor.postmortem.histories import NOON, S, row, write

OBSERVER, CLIENT = 1, 2


def observed(at: float, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "process": OBSERVER, "f": "offsets", "type": "ok", "error": None, "completed": NOON + at * S, "settings": None,
        "invoked": NOON + at * S, "end_invoked": None,
        "log_start": None, "log_end": None, "last_stable": None, "group": None, "transactional_id": None,
    }  # fmt: skip
    return given | more


def told(*rows: dict[str, Any]) -> list[tuple[float, str]]:
    return [((one.at - NOON).total_seconds(), one.told) for one in changes(rows)]


def led(by: str, epoch: str, in_sync: str) -> list[tuple[str, str]]:
    return [("led_by", by), ("leader_epoch", epoch), ("in_sync", in_sync)]


def test_leaders() -> None:
    assert told(
        observed(0, settings=led("1", "4", "1,2,3")),
        observed(1, settings=led("1", "4", "1,2,3")),
        observed(2, settings=[("replicas", "3")]),
        observed(3, settings=led("nobody", "4", "")),
        observed(4, settings=led("3", "5", "2,3")),
        observed(5, settings=led("3", "5", "1,2,3")),
    ) == [
        (0, "broker 1 leads, leader epoch 4, in sync: 1, 2, 3"),
        (3, "nobody leads, after 1, leader epoch 4, in sync: nobody"),
        (4, "broker 3 leads, after nobody, leader epoch 5, in sync: 2, 3"),
        (5, "broker 3 leads, leader epoch 5, in sync: 1, 2, 3"),
    ]


def of_group(at: float, name: str, broker: str) -> dict[str, Any]:
    return observed(at, group=name, settings=[("group_coordinator", broker)])


def of_transactions(at: float, name: str, broker: str) -> dict[str, Any]:
    told = [("transaction_coordinator", broker)]
    return observed(at, process=CLIENT, f="txn", transactional_id=name, settings=told)


def test_coordinators_are_told_together_and_their_changes_one_by_one() -> None:
    assert told(
        of_group(0, "g-1", "2"),
        of_group(1, "g-2", "2"),
        of_group(1, "g-3", "1"),
        of_transactions(2, "t-1", "2"),
        of_group(60, "g-1", "2"),
        of_group(61, "g-1", "nobody"),
        of_group(64, "g-1", "3"),
        of_transactions(70, "t-1", "3"),
        observed(71, settings=[("silent", "")]),
    ) == [
        (0, "broker 2 coordinates groups g-1, g-2, transactional id t-1"),
        (1, "broker 1 coordinates group g-3"),
        (61, "nobody coordinates group g-1, after broker 2"),
        (64, "broker 3 coordinates group g-1"),
        (70, "broker 3 coordinates transactional id t-1, after broker 2"),
    ]
    assert told(*(of_group(0, f"g-{i}", "1") for i in range(9))) == [
        (0, "broker 1 coordinates groups g-0, g-1, g-2 and 6 more")
    ]


def test_brokers_that_do_not_answer() -> None:
    assert told(
        observed(0, settings=[("silent", "2")]),
        observed(1, settings=[("silent", "1,2")]),
        observed(2, type="info", settings=[("silent", "2")]),
        observed(3.5),
    ) == [
        (0, "broker 2 does not answer"),
        (1, "broker 1 does not answer"),
        (3.5, "broker 1 answers again, after 2.5 s"),
        (3.5, "broker 2 answers again, after 3.5 s"),
    ]


def test_a_log_that_goes_back_and_one_that_only_grows() -> None:
    assert told(
        observed(0, log_start=0, log_end=10, last_stable=8),
        observed(1, log_start=0, log_end=12, last_stable=12),
        observed(2, log_start=5, log_end=9, last_stable=9),
    ) == [
        (2, "the last stable offset went back from 12 to 9"),
        (2, "the log starts at 5, before at 0"),
        (2, "the log's end went back from 12 to 9"),
    ]
    assert told(observed(0, log_end=10), observed(1, log_end=11)) == []


def test_two_observers_ask_side_by_side() -> None:
    """What one was told is older than what the other was told before. What both see is told once."""
    assert told(observed(0, log_end=12), observed(0.1, log_end=10, process=CLIENT)) == []
    assert told(
        observed(0, log_start=0, log_end=12),
        observed(0.1, log_start=0, log_end=11, process=CLIENT),
        observed(1, log_start=3, log_end=9),
        observed(1.1, log_start=3, log_end=9, process=CLIENT),
        observed(2, log_start=3, log_end=12),
        observed(3, log_start=3, log_end=9),
    ) == [
        (1, "the log starts at 3, before at 0"),
        (1, "the log's end went back from 12 to 9"),
        (3, "the log's end went back from 12 to 9"),
    ]


def test_errors_are_counted() -> None:
    sent = {"f": "send", "process": CLIENT, "type": "info"}
    rows = [observed(at, error="_TIMED_OUT", **sent) for at in (1, 2, 61)] + [observed(3, error="_FENCED", **sent)]
    assert told(*rows) == [
        (1, "3 operations here ended with _TIMED_OUT, the last 12:01:01"),
        (3, "an operation here ended with _FENCED"),
    ]


def test_what_the_probes_did_on_purpose_is_nothing_that_the_cluster_did() -> None:
    abandoned = [observed(at, error=Crash.code, f="close", process=CLIENT, type="info") for at in (1, 2)]
    timed_out = observed(3, error="_TIMED_OUT", f="send", process=CLIENT, type="info")
    assert told(*abandoned, timed_out) == [(3, "an operation here ended with _TIMED_OUT")]


def transaction(at: float, took: float, ended: float | None, **more: Any) -> dict[str, Any]:
    invoked = NOON + at * S
    told = {"f": "txn", "type": "info", "error": "_TIMED_OUT", "transactional_id": "t-1"} | more
    one = observed(at + took, process=CLIENT, **told)
    end = None if ended is None else invoked + ended * S
    return one | {"invoked": invoked, "end_invoked": end}


def test_an_operation_that_hung_says_in_which_call() -> None:
    hung = [line for _, line in told(
        transaction(0, 32, 10), transaction(50, 45, None, error="_STUCK"), transaction(100, 45, 10, error="_CRASHED"),
        transaction(150, 3, 1), transaction(160, 20, 1, type="ok", error=None),
    ) if "began" in line]  # fmt: skip
    assert hung == [
        "a transaction of t-1 began that had no answer, for 32 s, and ended with _TIMED_OUT: 10 s until its commit or "
        "abort was called, 22 s in that call",
        "a transaction of t-1 began that had no answer, for 45 s, and ended with _STUCK; its commit or abort was not "
        "called: it hung in what comes before, sends or the group's offsets",
    ]


def test_only_the_partition_and_the_time_around_it_are_read(tmp_path: Path) -> None:
    about = Asked("t-id", 3, NOON, [(1, 1)], [], None)
    assert cluster_then(tmp_path / "none", about) == []
    late = AROUND.total_seconds() + 1
    history = write(
        tmp_path,
        row("offsets", OBSERVER, 1, settings={"silent": "7"}),
        row("offsets", OBSERVER, 1, settings={"silent": "8"}, partition=4),
        row("offsets", OBSERVER, late, settings={"silent": "9"}),
        row("poll", CLIENT, 2, error="_FAIL", type="info"),
        row("poll", CLIENT, 2.5),
        row("txn", CLIENT, 3, settings={"transaction_coordinator": "4"}, transactional_id="t-1"),
    )
    expected = [
        "broker 7 does not answer", "an operation here ended with _FAIL", "broker 4 coordinates transactional id t-1",
    ]  # fmt: skip
    assert [one.told for one in cluster_then(history, about)] == expected
    by_name = Asked("", 3, NOON, [(1, 1)], [], None, topic="t")
    assert [one.told for one in cluster_then(history, by_name)] == expected
