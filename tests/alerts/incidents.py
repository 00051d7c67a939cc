"""Incidents as receivers are given them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from alerts.incidents.incident import Incident
from tests.alerts.findings import NOON

S = timedelta(seconds=1)


def incident(id_: str = "00000000000000ab", *, ended: float | None = None, **changed: Any) -> Incident:
    """An incident that began at noon and was over `ended` seconds later."""
    over = None if ended is None else NOON + ended * S
    given: dict[str, Any] = {
        "id": id_,
        "occurrence": f"{id_}@1",
        "anomaly": "lost-write",
        "kind": "violation",
        "severity": "critical",
        "cluster": "c",
        "topic": "orders",
        "message": "a record is lost",
        "evidence": {"writer": 2**60, "offset": 5},
        "since": NOON,
        "last": NOON,
        "until": over,
        "told": NOON + S,
        "ended": over,
        "subjects": ("orders/3",),
        "places": 1,
        "findings": 1,
        "standing": 0,
        "folded": {},
        "topics": frozenset({"orders"}),
    }
    return Incident(**(given | changed))


def condition(**changed: Any) -> Incident:
    given: dict[str, Any] = {"anomaly": "unseen", "kind": "condition", "standing": 1} | changed
    return incident(**given)


class Clock:
    """A machine's clock that a test sets."""

    def __init__(self) -> None:
        self.now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def at(self, seconds: float) -> datetime:
        self.now = NOON + seconds * S
        return self.now
