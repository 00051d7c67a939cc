"""The committer's mark rows: for each partition, how far the log of each of this host's processes is complete.

One row per partition and append. It counts only slices that are in the table with the same append or an earlier one,
and promises a time only as far as the journals that were read do. It is written also when nothing else is: it is the
log's heartbeat and the clock that the rules go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from probes.log.progress import Life, Progress
from probes.log.rows import FIELDS, Row

COMMITTER: Final = "committer"
"""The `run` and the `kind` of mark rows."""

LINGER: Final = 60_000_000
"""Microseconds of log time for which a life that is over is still vouched for, counted from its last row. Less than the
time after which the rules forget a closed process, so that no mark speaks of one that they no longer know."""


class PlaceName(NamedTuple):
    """A partition with its topic's name."""

    cluster: str
    topic_id: str
    topic: str
    partition: int


class Vouched(NamedTuple):
    """One life's progress as of what this append brings."""

    life: Life
    progress: Progress

    def through(self, now: int) -> int:
        # A closed process invokes nothing more: all that it ever will is here.
        return now if self.progress.closed else self.progress.through


def current_places(lives: Iterable[tuple[Life, Progress]], before: Iterable[PlaceName]) -> list[PlaceName]:
    """The partitions to mark: those in which this host's processes have rows. Of a cluster without any such process
    those marked `before` stay: the log's clock goes on while its probes are down."""
    found: dict[PlaceName, None] = {}
    for life, progress in lives:
        for (topic_id, partition), topic in progress.topics.items():
            found[PlaceName(life.cluster, topic_id, topic, partition)] = None
    clusters = {place.cluster for place in found}
    for place in before:
        if place.cluster not in clusters:
            found[place] = None
    return list(found)


def mark_rows(
    places: Iterable[PlaceName], vouched: Iterable[Vouched], counters: Mapping[PlaceName, int],
    now: int, op: int, boot: str, mono: int,
) -> dict[str, list[Row]]:  # fmt: skip
    """Packed mark rows by cluster. `counters`: mark rows that each place had before; `now` in microseconds."""
    known = list(vouched)
    rows: dict[str, list[Row]] = {}
    for place in places:
        key = (place.topic_id, place.partition)
        marks = [
            (one.life.process, slices, one.through(now))
            for one in known
            if one.life.cluster == place.cluster and (slices := one.progress.next_slice(key))
        ]
        told = {
            "topic_id": place.topic_id, "topic": place.topic, "partition": place.partition, "op": op,
            "slice": counters.get(place, 0), "f": "mark", "type": "ok", "invoked": now, "completed": now,
            "mono_invoked": mono, "mono_completed": mono, "kind": COMMITTER, "marks": marks or None, "boot": boot,
        }  # fmt: skip
        rows.setdefault(place.cluster, []).append([told.get(name) for name in FIELDS])
    return rows
