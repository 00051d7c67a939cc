"""Fan-out to channels, and the structured log line."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from alerts.dispatch import Dispatcher
from alerts.event import FindingEvent, recorded
from alerts.log import LogChannel
from rules.vocabulary.finding import Event, Finding, to_table
from tests.alerts.findings import NOON, event, finding


class Kept:
    name = "kept"

    def __init__(self) -> None:
        self.events: list[FindingEvent] = []

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        self.events += events


class Broken:
    name = "broken"

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        raise OSError("no route")


def test_a_failing_channel_is_counted_and_stops_no_other() -> None:
    failed: list[str] = []
    first, last = Kept(), Kept()
    dispatcher = Dispatcher([first, Broken(), last], failed.append)
    dispatcher.dispatch([event(finding(subject=1)), event(finding(subject=2))])
    dispatcher.dispatch([event(finding(subject=3))])
    assert len(first.events) == len(last.events) == 3
    assert failed == ["broken", "broken"]


def test_a_repeated_batch_is_delivered_once() -> None:
    kept = Kept()
    recorded = event(finding(subject=1))
    dispatcher = Dispatcher([kept], lambda name: None, recorded=[recorded.identity])
    for wait in (0, 9):
        counted = NOON + timedelta(seconds=wait)
        dispatcher.dispatch([replace(recorded, counted=counted), event(finding(subject=2), counted=counted)])
    assert [(e.id, e.replayed) for e in kept.events] == [(recorded.id, True), (finding(subject=2).id, False)]


def test_an_opening_and_its_end_are_two_events() -> None:
    kept = Kept()
    dispatcher = Dispatcher([kept], lambda name: None)
    happened: tuple[tuple[Event, float], ...] = (("opened", 9), ("closed", 2))
    dispatcher.dispatch([event(finding("unseen", event=what, ago=ago)) for what, ago in happened])
    dispatcher.dispatch([event(finding("unseen", event="opened", ago=1))])
    assert [e.event for e in kept.events] == ["opened", "closed", "opened"]


def test_grace_belongs_to_findings_that_are_settled() -> None:
    cases: list[tuple[Finding, float | None]] = [
        (finding("lost-write"), 10.0),
        (finding("duplicate"), None),
        (finding("unseen", event="opened"), None),
        (finding("no-such-anomaly"), None),
    ]
    assert [event(f, grace=10.0).grace for f, _ in cases] == [g for _, g in cases]


def test_the_line_is_one_json_object_with_stable_fields() -> None:
    stream = io.StringIO()
    told = [event(finding(ago=1.25), implied_by="ab"), event(finding(event="closed"), "allowed")]
    LogChannel(stream, counted=True).deliver(told)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first.pop("cluster_name") is None, "the configuration names no cluster"
    assert first == {
        "time": "2024-10-04T12:00:00.000Z",
        "level": "error",
        "logger": "offsetwatch.finding",
        "id": finding().id,
        "event": "raised",
        "anomaly": "duplicate",
        "severity": "critical",
        "cluster": "c",
        "topic": "t",
        "topic_id": "t-id",
        "partition": 3,
        "message": "a sentence",
        "evidence": {"offsets": [4, 9]},
        "units": {},
        "at": "2024-10-04T11:59:58.750Z",
        "decidable": "2024-10-04T11:59:58.750Z",
        "detection_latency_seconds": 1.25,
        "implied_by": "ab",
        "replayed": False,
    }
    assert (second["level"], second["event"]) == ("info", "closed")
    LogChannel(stream).deliver([])
    assert len(stream.getvalue().splitlines()) == 2


def test_what_is_only_counted_is_written_where_it_is_asked_for() -> None:
    told = [
        event(finding()),
        event(finding("rebalance"), "info"),
        event(finding(subject=2), "allowed"),
        event(finding("unsafe-config", event="opened"), "warning"),
    ]
    for counted, written in ((False, [0, 3]), (True, [0, 1, 2, 3])):
        stream = io.StringIO()
        LogChannel(stream, counted=counted).deliver(told)
        assert [json.loads(line)["id"] for line in stream.getvalue().splitlines()] == [told[n].id for n in written]


def test_the_table_gives_the_events_in_the_order_of_their_record_each_once() -> None:
    second, first = (to_table([(finding(subject=n), "critical")]).to_pylist()[0] for n in (2, 1))
    rows = [
        second | {"recorded": NOON + timedelta(seconds=9)},
        first | {"recorded": NOON + timedelta(seconds=4)},
        first | {"recorded": NOON + timedelta(seconds=8)},
    ]
    told = recorded(rows)
    assert [(e.id, e.counted) for e in told] == [
        (first["id"], rows[1]["recorded"]),
        (second["id"], rows[0]["recorded"]),
    ]
    assert told[0].evidence == {"offsets": [4, 9]}
