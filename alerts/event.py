"""What a channel is given: one event in the life of a finding, judged and timed.

A finding comes from the rules, its severity from the policy. The two waiting times are computed here once, so that the
metrics and the log never disagree about them:

- *detection latency*: from the moment when the evidence was first enough (`decidable`, log time, which is the wall
  clock of the probes' host) until the event was counted;
- *grace*: how long the rules waited, by their own objective, before absence counted as loss. Only findings that are
  decided on settlement have it. It is kept apart, because it is a promise and no delay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import FINDING_SCHEMA, FindingRow

Identity = tuple[str, str, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvent(FindingRow):
    """A row of the findings, and how it is passed on.

    `counted`: UTC wall clock when the event was recorded and passed on. `grace`: seconds waited before the verdict,
    None where none is. `replayed`: an earlier process recorded it, which may have ended before it told anyone."""

    counted: datetime
    grace: float | None = None
    replayed: bool = False

    @property
    def identity(self) -> Identity:
        """What makes two deliveries the same event: the finding's id, what happened to it, and when (log time)."""
        return (self.id, self.event, self.at)

    @property
    def latency(self) -> float:
        """Detection latency in seconds; not below 0, where the probes' clock is ahead of this host's."""
        return max(0.0, (self.counted - self.decidable).total_seconds())


def events(rows: Iterable[Mapping[str, Any]], counted: datetime, grace: float) -> list[FindingEvent]:
    """Rows of `FINDING_SCHEMA` (further columns are ignored) as events; `grace` is the rules' objective in seconds."""
    return [_event(row, counted, grace) for row in rows]


def recorded(rows: Iterable[Mapping[str, Any]]) -> list[FindingEvent]:
    """Rows of the findings table as events, in the order and at the times of their record, each event once."""
    once: dict[Identity, FindingEvent] = {}
    for row in sorted(rows, key=lambda row: row["recorded"]):
        event = _event(row, row["recorded"], 0.0)
        once.setdefault(event.identity, event)
    return list(once.values())


def parsed(text: str) -> dict[str, Any]:
    """The object of a JSON column. What is none is told as `unreadable`: one bad row must not hide all others."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": text[:200]}


def _event(row: Mapping[str, Any], counted: datetime, grace: float) -> FindingEvent:
    entry = CATALOGUE.get(row["anomaly"])
    waited = entry is not None and entry.decided == "on settlement"
    told = {name: row[name] for name in FINDING_SCHEMA.names}
    told |= {name: parsed(row[name]) for name in ("evidence", "context")}
    return FindingEvent(**told, counted=counted, grace=grace if waited else None)
