"""Which findings somebody should know of; the others are counted."""

from __future__ import annotations

from typing import Final

from alerts.event import FindingEvent
from rules.vocabulary.catalogue import CATALOGUE

JUDGED: Final = frozenset({"critical", "warning"})


def kind_of(anomaly: str) -> str:
    """violation, condition or classified; an anomaly that this version does not know counts as a violation."""
    entry = CATALOGUE.get(anomaly)
    return entry.kind if entry is not None else "violation"


def is_condition(event: FindingEvent) -> bool:
    """Is it about something that holds for a while, and not about something that happened?"""
    return kind_of(event.anomaly) == "condition"


def judged(event: FindingEvent) -> bool:
    """Is it about something that somebody should know of?"""
    return event.severity in JUDGED and kind_of(event.anomaly) != "classified"
