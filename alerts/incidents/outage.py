"""The times for which a cluster answered nobody, or served little, and what they explain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from alerts.event import FindingEvent
from rules.vocabulary.conditions import UNDER_MIN_ISR, waits_on
from rules.vocabulary.times import from_micros

SHORTLY: Final = timedelta(seconds=5)
"""Before this nobody is told of a condition that waits on the cluster: partitions tell of one outage within seconds of
each other."""
_LAG: Final = timedelta(seconds=10)
_IN_SYNC_FOR: Final = timedelta(seconds=45)
"""Followers that are cut off from their leader count as in sync for `replica.lag.time.max.ms` and half of that, with
Kafka's own setting: what waits on them has waited since before anybody is told that too few are."""
_SOONER: Final = frozenset({"unseen", "stuck-close"})
"""Conditions that wait on a cluster for less than an outage has to last."""


def tellable_from(event: FindingEvent, within: timedelta = SHORTLY) -> datetime:
    """Before this nobody is told of what another finding may explain that comes so long after it. Where the checks are
    behind, and found this one late, they find the other one as late."""
    return event.counted + within + min(max(event.counted - event.decidable, timedelta(0)), _LAG)


@dataclass(slots=True)
class Outage:
    """The newest time for which a cluster answered nobody, as it was told: `since` the last answer, `called` when that
    was long enough, `until` the next answer; and so of another condition that explains what waits (`anomaly`)."""

    finding: str
    anomaly: str
    since: datetime
    called: datetime
    until: datetime | None = None

    @classmethod
    def told(cls, away: FindingEvent) -> Outage:
        """The one that such a condition tells of."""
        since = away.evidence.get("since")
        return cls(
            away.id,
            away.anomaly,
            from_micros(since) if isinstance(since, int) else away.decidable - SHORTLY,
            away.decidable,
        )

    def holds(self, at: datetime) -> bool:
        """Did it hold then, or until a moment before?"""
        return self.since <= at and (self.until is None or at <= self.until + SHORTLY)

    def explains(self, event: FindingEvent) -> bool:
        """Was it due in that time, and because of it? One that had to wait as long as an outage has to last was due
        when the outage was called, or hardly before; one that waits for less, at any time in it."""
        if event.anomaly not in waits_on(self.anomaly):
            return False
        early = self.since if event.anomaly in _SOONER else self.called - SHORTLY
        if self.anomaly == UNDER_MIN_ISR:
            early = min(early, self.since - _IN_SYNC_FOR)
        return early <= event.decidable and (self.until is None or event.decidable <= self.until + SHORTLY)
