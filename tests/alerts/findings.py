"""One-line finding events for the tests of the alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from alerts.event import FindingEvent, events
from rules.vocabulary.finding import Event, Finding, to_table
from rules.vocabulary.policy import Severity
from rules.vocabulary.times import EPOCH, micros

NOON = EPOCH + timedelta(days=20_000, hours=12)
"""The wall clock of the tests."""


def finding(anomaly: str = "duplicate", subject: int = 1, *, event: Event = "raised", ago: float = 1.0) -> Finding:
    """A finding that could be decided `ago` seconds before noon."""
    spoken = micros(NOON - timedelta(seconds=ago))
    return Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="t-id",
        topic="t",
        partition=3,
        subject=(subject,),
        event=event,
        message="a sentence",
        evidence={"offsets": [4, 9]},
        at=spoken,
        decidable=spoken,
    )


def event(found: Finding, severity: Severity = "critical", *, grace: float = 0.0, **changed: Any) -> FindingEvent:
    """The event as a channel gets it, counted at noon: through the table's columns, as the job hands it over."""
    (made,) = events(to_table([(found, severity)]).to_pylist(), NOON, grace)
    return replace(made, **changed)
