"""`altered-record`: what came otherwise than it was sent, and the broker's time where the topic asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rules.checks.records.altered_records import KEPT
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Altered, Run, Slice
from tests.rules.histories import START, History, Store, found, number

W = number("w")
SENT, TOLD = "timestamp 1763741823123 CreateTime", "timestamp 0 CreateTime"
APPENDED = "timestamp 1763741823200 LogAppendTime"


def one(what: str, *, seq: int = 2, offset: int = 12, length: int = 1, sent: str = SENT, told: str = TOLD) -> Altered:
    return Altered(W, seq, offset, length, what, sent, told, 4)


def poll(h: History, *altered: Altered, process: str = "r", **more: Any) -> Slice:
    polled = [Run(W, 0, 10, 8)]
    return h.row(process, "poll", polled=polled, altered=altered, mode="assign", isolation="read_committed", **more)


def settings(h: History, kind: str | None, *, asked: int | None = None, **clock: Any) -> Slice:
    more = {} if kind is None else {"timestamp_type": kind}
    if asked is not None:
        more["settings_asked"] = str(asked)
    told = {"replicas": "3", **more}
    return h.row("observer", "offsets", log_start=0, log_end=20, last_stable=20, settings=told, **clock)


def fed(rows: Sequence[Slice], size: int) -> list[Finding]:
    store = Store()
    for i in range(0, len(rows), size):
        store.feed(rows[i : i + size])
    return [finding for finding in store.findings if finding.anomaly == "altered-record"]


def micros(row: Slice) -> int:
    return int((row.completed - START).total_seconds() * 1e6 + 20_000 * 86_400 * 1e6)


def test_what_differs_in_two_respects() -> None:
    h = History()
    poll(h, one("key,headers", sent="a", told="b"))
    (finding,) = fed(h.rows, 1)
    assert finding.subject == (W, 2, "key,headers")
    assert finding.message == "the record at offset 12 came with altered key and headers: b instead of a"


@pytest.mark.parametrize("outcome", ["ok", "fail", "info"])
def test_another_timestamp_is_proven_by_the_poll_whatever_became_of_it(outcome: str) -> None:
    h = History()
    row = poll(h, one("timestamp", length=3), type=outcome)
    (finding,) = fed(h.rows, 1)
    assert finding.subject == (W, 2, "timestamp")
    assert finding.message == (f"the 3 records from offset 12 on came with altered timestamp: {TOLD} instead of {SENT}")
    assert finding.evidence == {
        "writer": W,
        "seq": 2,
        "offset": 12,
        "records": 3,
        "what": "timestamp",
        "sent": SENT,
        "told": TOLD,
        "leader_epoch": 4,
        "process": row.process,
        "op": row.op,
    }
    assert (finding.at, finding.decidable, finding.event) == (micros(row), micros(row), "raised")


def test_what_came_as_it_was_sent() -> None:
    h = History()
    h.send("w", 0, 8, at=10)
    poll(h)
    settings(h, "CreateTime")
    store = Store()
    store.feed(h.rows, finished=True)
    assert found(store.findings) == set()


def test_the_same_records_seen_by_many_are_one_finding() -> None:
    h = History()
    for process in ("r", "s", "t"):
        poll(h, one("key", sent="key 0a", told="key none"), one("key,headers", seq=5, offset=15), process=process)
    first, second = fed(h.rows, 1)
    assert first.message == "the record at offset 12 came with altered key: key none instead of key 0a"
    assert (first.subject, second.subject) == ((W, 2, "key"), (W, 5, "key,headers"))
    assert len(fed(h.rows, len(h.rows))) == 2


BROKERS = one("timestamp-type", length=4, told=APPENDED)
WITH_KEY = one("key,timestamp-type", sent=f"key 0a, {SENT}", told=f"key none, {APPENDED}")


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, None, []),
        ("CreateTime", None, []),
        (None, "CreateTime", ["timestamp-type", "key,timestamp-type"]),
        ("CreateTime", "CreateTime", ["timestamp-type", "key,timestamp-type"]),
        ("LogAppendTime", None, ["key"]),
        ("CreateTime", "LogAppendTime", ["key"]),
        ("LogAppendTime", "CreateTime", ["key"]),
        (None, "LogAppendTime", ["key"]),
    ],
)
def test_the_brokers_time_is_judged_by_the_topics_settings(
    before: str | None, after: str | None, expected: list[str], size: int
) -> None:
    """Told before the poll only, CreateTime may have changed since."""
    h = History()
    settings(h, before)
    poll(h, BROKERS, WITH_KEY._replace(seq=7, offset=17))
    settings(h, after)
    assert [finding.subject[2] for finding in fed(h.rows, size)] == expected


def test_settings_that_come_before_the_poll_s_row_decide_it_too() -> None:
    h = History()
    late = poll(h, BROKERS)
    settings(h, "CreateTime")
    assert [finding.subject for finding in fed([*h.rows[1:], late], 1)] == [(W, 2, "timestamp-type")]


@pytest.mark.parametrize("size", [1, 3])
def test_older_settings_that_come_later_take_nothing_back(size: int) -> None:
    h = History()
    before, polled, after = settings(h, "CreateTime"), poll(h, BROKERS), settings(h, "CreateTime")
    assert [finding.subject for finding in fed([after, before, polled], size)] == [(W, 2, "timestamp-type")]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(("late", "expected"), [(-1, []), (0, [(W, 2, "timestamp-type")])])
def test_settings_that_were_asked_for_before_the_poll_decide_nothing(
    late: int, expected: list[object], size: int
) -> None:
    """They may have been changed between the question and the poll, which are told once more a minute later."""
    h = History()
    row = poll(h, BROKERS)
    settings(h, "CreateTime", asked=micros(row) + late)
    assert [finding.subject for finding in fed(h.rows, size)] == expected
    h = History()
    row = poll(h, BROKERS)
    settings(h, "CreateTime", asked=micros(row) - 5_000_000)
    settings(h, "LogAppendTime", asked=micros(row) + 5_000_000)
    settings(h, "CreateTime", asked=micros(row) + 9_000_000)
    assert fed(h.rows, size) == []


@pytest.mark.parametrize(("observer", "expected"), [("a", [(W, 2, "timestamp-type")]), ("b", [])])
def test_settings_that_were_asked_for_by_a_clock_that_nobody_knows_decide_nothing(
    observer: str, expected: list[object]
) -> None:
    h = History()
    row = poll(h, BROKERS, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    settings(
        h,
        "CreateTime",
        asked=micros(row) + 5_000_000,
        boot=observer,
        mono_invoked=7 * 10**9,
        mono_completed=8 * 10**9,
        completed=h.at(9),
    )
    assert [finding.subject for finding in fed(h.rows, 1)] == expected


def test_what_waits_is_bounded() -> None:
    h = History()
    for i in range(KEPT + 10):
        poll(h, one("timestamp-type", seq=i, offset=10 + i, told=APPENDED))
    settings(h, "CreateTime")
    assert [finding.subject[1] for finding in fed(h.rows, 1)][:1] == [10]
