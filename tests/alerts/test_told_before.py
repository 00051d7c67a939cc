"""What an earlier version told, and this one sees otherwise: whoever was told that it is open is told its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertsConfig, WebhookConfig
from alerts.event import FindingEvent
from alerts.incidents.incident import nameless
from alerts.incidents.told_before import told_before
from alerts.paging import Paging
from alerts.receivers.memory import Memory, Size, ToldTimes
from tests.alerts.findings import NOON
from tests.alerts.incidents import Clock, S
from tests.alerts.servers import eventually, sink
from tests.alerts.test_incidents import told

CUT = told("log-truncation", 1, at=6.0, counted=15.0)
SIGN = told("inconsistent-offsets", 2, at=6.0, counted=15.5)
OPENED = told("suspected", 3, event_="opened", at=6.0, counted=12.0)
CLOSED = told("suspected", 3, event_="closed", at=9.0, counted=14.0)
OTHER = told("G1a", 4, at=300.0, counted=301.0, topic="transactions")


def occurrence(event: FindingEvent) -> str:
    return f"{event.id}@{int(event.at.timestamp() * 1000)}"


def seen(occurrences: Sequence[FindingEvent], recorded: Sequence[FindingEvent]) -> list[Any]:
    found = told_before([occurrence(one) for one in occurrences], recorded, hold=timedelta(seconds=120), names=nameless)
    became = [one.became and (one.became.anomaly, one.became.id) for one in found]
    return [
        (one.occurrence, one.ended and (one.ended - NOON) / S, part) for one, part in zip(found, became, strict=True)
    ]


def test_what_is_part_of_another_incident_by_now_ends_there() -> None:
    assert seen([SIGN], [CUT, SIGN, OTHER]) == [(occurrence(SIGN), 301.0, ("log-truncation", CUT.id))]


def test_what_has_never_been_one_as_is_known_by_now_ends_when_it_did() -> None:
    assert seen([OPENED], [OPENED, CLOSED, CUT]) == [(occurrence(OPENED), 14.0, None)]


def test_what_has_come_back_is_no_part_of_itself_and_each_time_has_its_own_end() -> None:
    again = told("suspected", 3, event_="opened", at=100.0, counted=101.0)
    spells = [OPENED, CLOSED, again, told("suspected", 3, event_="closed", at=103.0, counted=104.0)]
    assert seen([OPENED, again], spells) == [(occurrence(OPENED), 14.0, None), (occurrence(again), 104.0, None)]
    later = told("suspected", 3, event_="opened", at=200.0, counted=201.0)
    assert seen([OPENED, later], [*spells, later, OTHER]) == [(occurrence(OPENED), 14.0, None)]


def test_what_stands_as_it_was_told_is_left_alone() -> None:
    assert seen([CUT, OTHER], [CUT, SIGN, OTHER]) == []


def test_of_what_no_finding_is_known_nothing_is_told() -> None:
    assert seen([SIGN], [CUT]) == []
    assert seen([SIGN], []) == []
    earlier = told("inconsistent-offsets", 2, at=-900.0, counted=-890.0)
    assert seen([earlier], [CUT, SIGN]) == []


@pytest.mark.parametrize("quiet", [60, 900])
def test_who_was_told_by_an_earlier_version_is_told_the_end_once(tmp_path: Path, quiet: int) -> None:
    clock = Clock()
    memory = Memory(tmp_path / "webhook.json", NOON)
    for event in (CUT, SIGN, OPENED):
        memory.note(occurrence(event), ToldTimes(open=event.counted, size=Size(1, 1), sized=event.counted))
    clock.at(60.0)
    with sink() as hook:
        config = AlertsConfig(quiet=quiet, webhook=WebhookConfig(urls=(hook.url,)))
        for _ in range(2):  # a restart tells nobody again
            running = Paging(config, tmp_path, list[str]().append, clock)
            running.begin([OPENED, CLOSED, CUT, SIGN])
            running.start()
            eventually(lambda: len(hook.bodies) >= 2, "ends")
            running.stop()
        ends = {one["incident"]["id"]: one for one in hook.bodies if one["incident"]["id"] != CUT.id}
        assert len(hook.bodies) == len(ends) == 2
    part = {"anomaly": "log-truncation", "id": CUT.id}
    assert {id_: (one["state"], one["incident"]["became"]) for id_, one in ends.items()} == {
        SIGN.id: ("over", part),
        OPENED.id: ("over", None),
    }
    assert ends[SIGN.id]["incident"]["description"].endswith(f"It is part of log-truncation, incident {CUT.id}.")
    assert list(json.loads((tmp_path / "webhook.json").read_text())["told"]) == [occurrence(CUT)]
