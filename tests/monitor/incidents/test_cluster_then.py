"""What the cluster did around a finding: changes only, in the order of time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.incidents.cluster_then import AROUND, Change, changes, cluster_then
from monitor.incidents.witnesses import FindingSubject
from probes.kafka.errors import Crash
from tests.monitor.postmortem.histories import S, row, write
from tests.monitor.rows import NOON

OBSERVER, CLIENT = 1, 2


def observed(at: float, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "process": OBSERVER,
        "f": "offsets",
        "type": "ok",
        "error": None,
        "completed": NOON + at * S,
        "settings": None,
        "invoked": NOON + at * S,
        "end_invoked": None,
        "log_start": None,
        "log_end": None,
        "last_stable": None,
        "group": None,
        "transactional_id": None,
        "op": int(10 * at),
        "topic": "t",
        "partition": 0,
    }
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


def test_what_an_observer_had_been_told_before_a_broker_fell_silent_is_no_event() -> None:
    dead = {"type": "info", "error": "_TIMED_OUT"}
    assert told(
        of_group(0, "g-1", "1") | dead,
        observed(1, settings=[*led("1", "0", "1"), ("silent", "1")], type="info", error="_NOENT"),
        of_group(60, "g-1", "1"),
        observed(61, settings=led("1", "0", "1")),
        observed(62, settings=led("2", "1", "1,2")),
    )[-2:] == [
        (60, "broker 1 coordinates group g-1"),
        (62, "broker 2 leads, after 1, leader epoch 1, in sync: 1, 2"),
    ]
    assert (2, "broker 2 leads, leader epoch 1, in sync: 2") in told(
        observed(2, settings=[*led("2", "1", "2"), ("silent", "1")], type="info", error="_NOENT")
    ), "another one leads, and answers"


def test_a_leader_that_was_not_in_sync_is_said_to_be_one() -> None:
    """As it was told last: an observer tells of what changed, and a replica may catch up in between."""
    unclean = "s before it was not in sync: an unclean election, unless it caught up meanwhile"
    assert told(
        observed(0, settings=led("1", "4", "1,2")),
        observed(1, settings=led("1", "4", "1")),
        observed(3, settings=led("1", "4", "1")),
        observed(4, settings=led("2", "5", "2")),
        observed(5, settings=led("nobody", "5", "")),
        observed(7, settings=led("1", "6", "1")),
        observed(8, settings=led("1", "6", "1,2")),
        observed(9, settings=led("2", "7", "1,2")),
    ) == [
        (0, "broker 1 leads, leader epoch 4, in sync: 1, 2"),
        (1, "broker 1 leads, leader epoch 4, in sync: 1"),
        (4, f"broker 2 leads, after 1, leader epoch 5, in sync: 2; 1.0 {unclean}"),
        (5, "nobody leads, after 2, leader epoch 5, in sync: nobody"),
        (7, f"broker 1 leads, after nobody, leader epoch 6, in sync: 1; 3.0 {unclean}"),
        (8, "broker 1 leads, leader epoch 6, in sync: 1, 2"),
        (9, "broker 2 leads, after 1, leader epoch 7, in sync: 1, 2"),
    ]


def test_what_a_broker_tells_that_comes_back_is_no_election() -> None:
    """It names itself, as it was when it went away. The election that lost records was before, and had no such word."""
    unclean = "s before it was not in sync: an unclean election, unless it caught up meanwhile"
    assert told(
        observed(0, settings=led("1", "21", "1")),
        observed(1, settings=led("2", "19", "1,2")),
        observed(4, settings=led("2", "23", "2")),
        observed(6, settings=led("1", "21", "1")),
        observed(7, settings=led("2", "23", "2")),
        observed(9, settings=led("2", "23", "1,2")),
    ) == [
        (0, "broker 1 leads, leader epoch 21, in sync: 1"),
        (4, f"broker 2 leads, after 1, leader epoch 23, in sync: 2; 4.0 {unclean}"),
        (9, "broker 2 leads, leader epoch 23, in sync: 1, 2"),
    ]


def of_group(at: float, name: str, broker: str) -> dict[str, Any]:
    return observed(at, group=name, settings=[("group_coordinator", broker)])


def of_transactions(at: float, name: str, broker: str) -> dict[str, Any]:
    told = [("transaction_coordinator", broker)]
    return observed(at, process=CLIENT, f="txn", transactional_id=name, settings=told)


def test_coordinators_are_told_together_and_so_are_their_changes_of_one_second() -> None:
    assert told(
        of_group(0, "g-1", "2"),
        of_group(1, "g-2", "2"),
        of_group(1, "g-3", "1"),
        of_transactions(2, "t-1", "2"),
        of_group(60, "g-1", "2"),
        of_group(61, "g-1", "nobody"),
        of_group(64, "g-1", "3"),
        of_transactions(70.2, "t-1", "3"),
        of_group(70.6, "g-3", "nobody"),
        of_group(70.8, "g-2", "3"),
        observed(71, settings=[("silent", "")]),
    ) == [
        (0, "broker 2 coordinates groups g-1, g-2, transactional id t-1"),
        (1, "broker 1 coordinates group g-3"),
        (61, "nobody coordinates group g-1, after broker 2"),
        (64, "broker 3 coordinates group g-1"),
        (70.2, "broker 3 coordinates group g-2, transactional id t-1, after broker 2"),
        (70.6, "nobody coordinates group g-3, after broker 1"),
    ]
    assert told(*(of_group(0, f"g-{i}", "1") for i in range(9))) == [
        (0, "broker 1 coordinates groups g-0, g-1, g-2 and 6 more")
    ]


def answered(at: float, partition: int, by: str | None = None, **more: Any) -> dict[str, Any]:
    """The leader answered at once; `by` where the row tells who leads."""
    settings = led(by, "0", by) if by else None
    return observed(at, partition=partition, settings=settings, log_start=0, log_end=9, last_stable=9, **more)


def in_vain(at: float, partition: int, leader: str, *, took: float = 2.5, by: str | None = None) -> dict[str, Any]:
    """The leader was asked, and nothing came back for `took` seconds; `by` where the row tells who leads then."""
    settings = [("silent", leader), ("brokers", "1,2,3"), ("leader", leader), *(led(by, "1", by) if by else ())]
    row = observed(at + took, partition=partition, type="info", error="_NO_OFFSET", settings=settings)
    return row | {"invoked": NOON + at * S, "op": int(10 * at) + 1000 * partition}


def silent(*rows: dict[str, Any]) -> list[tuple[float, str]]:
    """What is told of brokers, but for who leads."""
    lines = told(*sorted(rows, key=lambda row: row["completed"]))
    return [(at, line) for at, line in lines if line.startswith("broker ") and " leads, " not in line]


def test_brokers_that_do_not_answer() -> None:
    assert silent(
        answered(0, 0, "1"),
        answered(0.1, 1, "2"),
        in_vain(1, 1, "2"),
        in_vain(2, 0, "1"),
        in_vain(4, 1, "2"),
        answered(6, 0),
        answered(8.5, 1),
    ) == [
        (1, "broker 2 does not answer"),
        (2, "broker 1 does not answer"),
        (6, "broker 1 answers again, after 4.0 s"),
        (8.5, "broker 2 answers again, after 7.5 s"),
    ]


def test_where_nothing_is_known_before_the_first_question_in_vain_it_may_have_been_silent_for_longer() -> None:
    assert silent(answered(0, 0, "1"), in_vain(1, 1, "2"), in_vain(4, 1, "2"), answered(8.5, 1, "2")) == [
        (1, "broker 2 does not answer, since then or longer"),
        (8.5, "broker 2 answers again, after 7.5 s or longer"),
    ]


def test_a_silent_broker_whose_partitions_another_one_leads_now_has_not_answered() -> None:
    """Nor is the new leader silent because a question to the old one comes to its end: as logs have it that name the
    leader of then, and as they have it that name whom they asked."""
    for of_the_late_one in ("3", "2"):
        assert silent(
            answered(0, 0, "1"),
            answered(0.1, 1, "2"),
            answered(0.2, 2, "3"),
            in_vain(1, 1, "2"),
            in_vain(4, 1, "2"),
            in_vain(7, 1, of_the_late_one),
            answered(8, 0) | {"settings": [("silent", "3")]},
            answered(8.1, 1, "3"),
            answered(8.2, 2),
            answered(10, 0) | {"settings": [("silent", "3")]},
            answered(10.1, 1),
            answered(10.2, 2),
            answered(41.1, 1, "2"),
        ) == [
            (1, "broker 2 does not answer"),
            (8.1, "broker 2 is asked no more: leadership moved to broker 3"),
            (41.1, "broker 2 answers again, and was not asked for 33.0 s before"),
        ]


def test_the_new_leader_may_not_answer_either() -> None:
    assert silent(
        answered(0, 0, "1"),
        answered(0.1, 1, "2"),
        in_vain(1, 1, "2"),
        in_vain(4, 1, "3", by="3"),
        in_vain(7, 1, "3"),
        answered(11, 1),
    ) == [
        (1, "broker 2 does not answer"),
        (4, "broker 3 does not answer, since then or longer"),
        (11, "broker 2 is asked no more: leadership moved to broker 3"),
        (11, "broker 3 answers again, after 7.0 s or longer"),
    ]


def test_nobody_was_asked_where_nobody_led_and_a_refusal_or_a_part_of_an_answer_is_one() -> None:
    assert (
        silent(
            answered(0, 0, "1"),
            answered(0.1, 1, "2"),
            answered(1, 1) | {"settings": led("nobody", "0", "")},
            in_vain(2, 1, "2"),
            in_vain(5, 0, "1") | {"log_start": 0, "settings": [("silent", "2")]},
            in_vain(8, 0, "1", took=0.1) | {"error": "FENCED_LEADER_EPOCH"},
        )
        == []
    )


def test_a_quota_is_told_with_its_longest_wait_and_its_end() -> None:
    held = [(0, ""), (1, "1:0.4"), (3, "1:6.5,2:0.1"), (8, "1:2.0"), (9, ""), (60, "1:1.0"), (61, "")]
    assert silent(*(observed(at, settings=[("throttled", one)] if one else None) for at, one in held)) == [
        (1, "broker 1 held back what it answered our clients, by a quota, for 6.5 s at most, until 12:00:08"),
        (3, "broker 2 held back what it answered our clients, by a quota, for 0.1 s at most, until 12:00:03"),
        (60, "broker 1 held back what it answered our clients, by a quota, for 1.0 s at most, until 12:01:00"),
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
    hung = [
        line
        for _, line in told(
            transaction(0, 32, 10),
            transaction(50, 45, None, error="_STUCK"),
            transaction(100, 45, 10, error="_CRASHED"),
            transaction(150, 3, 1),
            transaction(160, 20, 1, type="ok", error=None),
            transaction(200, 28, None, error="process-died"),
        )
        if "began" in line
    ]
    assert hung[-1] == "a transaction of t-1 began, and was under way when its process ended (process-died)"
    assert hung[:-1] == [
        "a transaction of t-1 began that had no answer, for 32 s, and ended with _TIMED_OUT: 10 s until its commit or "
        "abort was called, 22 s in that call",
        "a transaction of t-1 began that had no answer, for 45 s, and ended with _STUCK; its commit or abort was not "
        "called: it hung in what comes before, sends or the group's offsets",
    ]


@pytest.mark.parametrize("topic_id", ["t-id", "t-id-2"])
def test_a_topic_that_was_made_anew(tmp_path: Path, topic_id: str) -> None:
    history = write(
        tmp_path,
        row("offsets", OBSERVER, 1),
        row("offsets", OBSERVER, 2, topic_id="t-id-2"),
        row("offsets", OBSERVER, 3, topic_id="t-id-2"),
        row("send", CLIENT, 4),
        row("offsets", OBSERVER, 2, cluster="another", topic_id="elsewhere"),
        row("offsets", OBSERVER, 2, partition=4, topic_id="t-id-3"),
    )
    (one,) = cluster_then(history, FindingSubject(topic_id, 3, NOON, [], [], None, topic="t"))
    assert one == Change(NOON + 2.1 * S, "t has another id: it was deleted and made anew")
    assert cluster_then(history, FindingSubject("elsewhere", 3, NOON, [], [], None, topic="t")) == []


def test_whose_an_answer_is_that_comes_before_the_leader_is_told_again(tmp_path: Path) -> None:
    """An observer tells of a leader that stays once a minute: what it told last may lie before what is shown."""
    begins = -AROUND.total_seconds()
    leads = {"led_by": "1", "leader_epoch": "0", "in_sync": "1"}
    dead: dict[str, Any] = {"type": "info", "error": "_NOENT", "settings": {"silent": "1", "leader": "1"}}
    history = write(
        tmp_path,
        row("offsets", OBSERVER, begins - 40, settings={"silent": "2", "leader": "2"}, type="info", op=1),
        row("offsets", OBSERVER, begins - 20, settings=leads, op=2),
        row("offsets", OBSERVER, begins + 2, op=3, log_end=7),
        *(row("offsets", OBSERVER, begins + at, op=op, **dead) for op, at in ((4, 3), (5, 20))),
        row("offsets", OBSERVER, begins + 28, op=6, log_end=8),
        row("offsets", OBSERVER, begins + 40, op=7, log_end=9, settings=leads),
    )
    told = cluster_then(history, FindingSubject("t-id", 3, NOON, [(1, 1)], [], None))
    assert [(round((one.at - NOON).total_seconds() - begins), one.told) for one in told] == [
        (3, "broker 1 does not answer"),
        (3, "2 operations here ended with _NOENT, the last 11:58:50"),
        (28, "broker 1 answers again, after 25.1 s"),
        (40, "broker 1 leads, leader epoch 0, in sync: 1"),
    ]


def test_only_the_partition_and_the_time_around_it_are_read(tmp_path: Path) -> None:
    about = FindingSubject("t-id", 3, NOON, [(1, 1)], [], None)
    assert cluster_then(tmp_path / "none", about) == []
    late = AROUND.total_seconds() + 1
    history = write(
        tmp_path,
        row("offsets", OBSERVER, 1, settings={"silent": "7,8"}),
        row("offsets", OBSERVER, 1, settings={"silent": "7,8", "leader": "7"}, type="info", op=2, partition=4),
        row("offsets", CLIENT, 1, settings={"silent": "8", "leader": "8"}, type="info", partition=4),
        row("offsets", OBSERVER, late, settings={"silent": "9", "leader": "9"}, type="info"),
        row("poll", CLIENT, 2, error="_FAIL", type="info"),
        row("poll", CLIENT, 2.5),
        row("txn", CLIENT, 3, settings={"transaction_coordinator": "4"}, transactional_id="t-1"),
    )
    expected = [
        "broker 7 does not answer, since then or longer",
        "an operation here ended with _FAIL",
        "broker 4 coordinates transactional id t-1",
    ]
    assert [one.told for one in cluster_then(history, about)] == expected
    by_name = FindingSubject("", 3, NOON, [(1, 1)], [], None, topic="t")
    assert [one.told for one in cluster_then(history, by_name)] == expected
