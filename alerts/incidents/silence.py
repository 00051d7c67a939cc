"""A silence: for a while nobody is told of what happens in a cluster, or in a topic, because somebody works there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """`topic` may be empty: all that concerns the cluster. `until`: when it ends, or was ended. Machine times."""

    id: str
    cluster: str
    topic: str
    since: datetime
    until: datetime
    because: str
    by: str

    def active(self, at: datetime) -> bool:
        return self.since <= at < self.until

    def covers(self, cluster: str, topics: Collection[str]) -> bool:
        """Does it silence what concerns this cluster and these topics? A silence of a topic is one of what concerns
        nothing but this topic: no violation elsewhere is hidden by what it has in common with one there."""
        return self.cluster == cluster and (not self.topic or set(topics) == {self.topic})

    @property
    def place(self) -> str:
        """What it silences, in words."""
        return f"topic {self.topic} of cluster {self.cluster}" if self.topic else f"cluster {self.cluster}"
