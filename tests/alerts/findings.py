"""One-line findings and events for the tests of the alerts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from alerts.event import FindingEvent
from rules.finding import Event, Finding
from rules.history import EPOCH, micros
from rules.policy import Severity

NOON = EPOCH + timedelta(days=20_000, hours=12)
"""The wall clock of the tests."""


def finding(
    anomaly: str = "duplicate", subject: int = 1, *, event: Event = "raised", ago: float = 1.0, **more: Any
) -> Finding:
    """A finding that could be decided `ago` seconds before noon."""
    spoken = micros(NOON - timedelta(seconds=ago))
    return Finding(
        anomaly=anomaly, cluster="c", topic_id="t-id", topic="t", partition=3, subject=(subject,), event=event,
        message="a sentence", evidence={"offsets": [4, 9]}, at=spoken, decidable=spoken, **more,
    )  # fmt: skip


def event(
    found: Finding, severity: Severity = "critical", *, grace: float | None = None, counted: datetime = NOON
) -> FindingEvent:
    return FindingEvent(finding=found, severity=severity, counted=counted, grace=grace)
