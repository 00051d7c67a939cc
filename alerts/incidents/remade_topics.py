"""Probe topics that somebody deleted and made anew, or the cluster lost: what is found just after may come of it.

It is only counted (`topic-recreated`), as nothing that was promised is broken. Whoever is woken by clients that do not
get going in the new topic has to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from alerts.event import FindingEvent

REMADE: Final = "topic-recreated"
BEFORE: Final = timedelta(minutes=2)
"""Clients that were at work in a topic have got going in the next one by then, or wait for something else."""
AFTER: Final = timedelta(seconds=10)
"""The first process begins in the new topic so long after others have found that the old one is gone."""
KEPT: Final = 100


class Remade(NamedTuple):
    """The newest of these times is when a process first began in one of the new topics."""

    topics: Sequence[str]
    at: datetime


@dataclass(slots=True)
class RemadeTopics:
    """When topics were made anew, the newest `KEPT` of each cluster; each with its partitions is one."""

    times: dict[str, dict[tuple[str, str], datetime]] = field(default_factory=dict)
    """By cluster: by topic and its new id."""

    def note(self, event: FindingEvent) -> None:
        known = self.times.setdefault(event.cluster, {})
        topic = event.topic, event.topic_id
        known[topic] = min(event.at, known.get(topic, event.at))
        if len(known) > KEPT:
            del known[min(known, key=known.__getitem__)]

    def about(self, cluster: str, since: datetime) -> Remade | None:
        """Those of a cluster that were made anew about when something was found there, None where none was."""
        near = {
            topic: at for (topic, _), at in self.times.get(cluster, {}).items() if since - BEFORE <= at <= since + AFTER
        }
        return Remade(sorted(near), max(near.values())) if near else None
