"""The committer's mark rows: for each partition, how far the log of each of this host's processes is complete.

One row per partition and append. It counts only slices that are in the table with the same append or an earlier one,
and promises a time only as far as the journals that were read do. It is written also when nothing else is: it is the
log's heartbeat and the clock that the rules go by. A backlog is carried over in several appends: while there is one, a
mark is invoked at the time through which all journals were read to their ends, and completed when it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from probes.log.commits.clock_steps import ClockSteps
from probes.log.journals.progress import Life, LifeProgress
from probes.log.rows import AT, FIELDS, Row

COMMITTER: Final = "committer"
"""The `run` and the `kind` of mark rows."""

MARKED_ON: Final = 60_000_000
"""For so long, in microseconds, a partition is marked after the last process there is over: what happened last in a
topic that was deleted is decided after the grace time, and rows of hosts that are late come within half a minute."""


class PlaceName(NamedTuple):
    """A partition with its topic's name."""

    cluster: str
    topic_id: str
    topic: str
    partition: int


class Vouched(NamedTuple):
    """One life's progress as of what this append brings."""

    life: Life
    progress: LifeProgress
    broken: bool = False
    """Its journal cannot be read on: what it did since is not to be had."""
    held: bool = False
    """It lives."""

    def mark(self, slices: int, append: Append) -> tuple[int, int, int, int | None, bool]:
        """A `Mark` as it is packed. Whoever closed invokes nothing more, and all that it ever did is here."""
        progress = self.progress
        through = append.steps.as_now(progress.through) if self.life.boot == append.boot else progress.through
        if progress.closed:
            return self.life.process, slices, append.now, progress.newest + 1, False
        if progress.lost:
            return self.life.process, slices, through, progress.over_by, True
        if self.broken:
            return self.life.process, slices, through, None if self.held else append.now, True
        return self.life.process, slices, through, None, False


class Append(NamedTuple):
    """The append that marks are written for: its number is their `op`. Journals were `read` through one moment, and the
    marks are written `now`, in microseconds, or at `mono` of this boot's monotonic clock, by a clock that was set at
    these `steps`."""

    number: int
    read: int
    now: int
    boot: str
    mono: int
    steps: ClockSteps


def current_places(
    lives: Iterable[tuple[Life, LifeProgress]], before: Mapping[PlaceName, int], now: int
) -> dict[PlaceName, int]:
    """The partitions to mark, and when each was last known to have a process of this host with rows in it: those that
    have one `now`, and those marked `before` for `MARKED_ON` after that. Where there is no such process at all those
    stay: the log's clock goes on while its probes are down, and not where they work in another cluster by now."""
    found: dict[PlaceName, int] = {}
    for life, progress in lives:
        for (topic_id, partition), topic in progress.topics.items():
            found[PlaceName(life.cluster, topic_id, topic, partition)] = now
    down = not found
    for place, held in before.items():
        if down or now - held < MARKED_ON:
            found.setdefault(place, held)
    return found


def last_words(told: Mapping[str, Iterable[Row]], processes: Collection[int], now: int) -> dict[PlaceName, list[Any]]:
    """The last marks of these processes, by place, whose journals no longer hold what these mark rows `told` of them:
    they are over, and what they did after these marks may be missing for good."""
    found: dict[PlaceName, list[Any]] = {}
    for cluster, rows in told.items():
        for row in rows:
            place = PlaceName(cluster, row[AT["topic_id"]], row[AT["topic"]], row[AT["partition"]])
            for process, slices, through, ended, _ in row[AT["marks"]] or ():
                if process in processes and ended is None:
                    found.setdefault(place, []).append((process, slices, through, now, True))
    return found


def mark_rows(
    places: Iterable[PlaceName],
    vouched: Iterable[Vouched],
    last: Mapping[PlaceName, list[Any]],
    counters: Mapping[PlaceName, int],
    append: Append,
) -> dict[str, list[Row]]:
    """Packed mark rows by cluster. `last`: `last_words`. `counters`: mark rows that each place had before."""
    known = [(one.life.cluster, one.progress, one.mark(0, append)) for one in vouched]
    rows: dict[str, list[Row]] = {}
    for place in places:
        key = (place.topic_id, place.partition)
        marks = [
            (process, slices, *rest)
            for cluster, progress, (process, _, *rest) in known
            if cluster == place.cluster and (slices := progress.next_slice(key))
        ] + last.get(place, [])
        told = {
            "topic_id": place.topic_id,
            "topic": place.topic,
            "partition": place.partition,
            "op": append.number,
            "slice": counters.get(place, 0),
            "f": "mark",
            "type": "ok",
            "invoked": append.read,
            "completed": append.now,
            "boot": append.boot,
            "mono_invoked": append.mono,
            "mono_completed": append.mono,
            "kind": COMMITTER,
            "marks": marks or None,
        }
        rows.setdefault(place.cluster, []).append([told.get(name) for name in FIELDS])
    return rows
