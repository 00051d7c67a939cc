"""What the running monitor knows, as the status page shows it: kept in memory, told by the checks, read by views.

The job's threads tell it (`deliver`, `checked`, `done`); the server's threads ask it (`seen`). Nothing waits for long:
what is told is put beside, and what was put together for one view serves all views of that second.
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from alerts.event import FindingEvent
from alerts.incidents.incident import Incident, Names, nameless
from alerts.incidents.judged import judged
from alerts.incidents.silence import Silence
from monitor.incidents.findings import Filter
from monitor.incidents.overview import Overview, checked_rows, in_order, only_counted

if TYPE_CHECKING:
    from streaming_jobs.integrity_job import Batch, BatchProgress

BEATS: Final = 600
LATENCIES: Final = 200
FRESH: Final = timedelta(seconds=1)
"""How old what a view shows may be."""
_OVER: Final = timedelta(seconds=30)

Place = tuple[str, str, int]
"""Cluster, topic, partition."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One batch of checks: when it was done (machine time), how long it took (seconds), how many records, sent and
    polled, its rows told of."""

    at: datetime
    seconds: float
    records: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands at a moment. `partitions`: rows of `partition_state`. `concerned`: the worst open incident of a
    partition. `not_ready`: why nothing is being checked, None where something is. `latency`: seconds from decidable to
    counted, the median of the latest findings of this process. `names`: how people call the clusters."""

    now: datetime
    overview: Overview
    partitions: Sequence[Mapping[str, Any]]
    concerned: Mapping[Place, Incident]
    beats: Sequence[Beat]
    not_ready: str | None
    latency: float | None
    names: Names = nameless

    @property
    def records_per_second(self) -> float | None:
        """Records checked, over the last half minute, or the last batch where that took longer; None where that is not
        known yet."""
        if len(self.beats) < 2:
            return None
        late = [beat for beat in self.beats[:-2] if self.now - beat.at <= _OVER] + list(self.beats[-2:])
        took = (late[-1].at - late[0].at).total_seconds()
        return sum(beat.records for beat in late[1:]) / took if took > 0 else None


def _machine_time() -> datetime:
    return datetime.now(UTC)


class Board:
    """One monitor's. `standing`: its incidents at a time; `places`: all places of one; `ready`: why it does not check;
    `silences`: those that it heeds.

    It is a channel of the dispatcher, like the metrics."""

    name = "status"

    def __init__(
        self,
        standing: Callable[[datetime], list[Incident]],
        places: Callable[[str], Sequence[str]],
        ready: Callable[[], str | None],
        clock: Callable[[], datetime] = _machine_time,
        *,
        silences: Callable[[], Sequence[Silence]] = tuple,
        names: Names = nameless,
    ) -> None:
        self.silences = silences
        self._names = names
        self._standing, self._places, self._ready, self._clock = standing, places, ready, clock
        self._lock = threading.Lock()
        self._viewing = threading.Lock()
        self._rows: dict[Place, Mapping[str, Any]] = {}
        self._counted: Counter[tuple[str, str]] = Counter()
        self._beats: deque[Beat] = deque(maxlen=BEATS)
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._records = 0
        self._seen: Seen | None = None

    # Told

    def begin(self, recorded: pa.Table, states: pa.Table) -> None:
        """Take over what the tables `findings` and `partition_state` held before."""
        counted = only_counted(recorded, Filter())
        with self._lock:
            self._counted = counted
            self._take(states)

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        """New events of findings; those that `begin` has had already are passed over."""
        fresh = [event for event in events if not event.replayed]
        with self._lock:
            self._counted += _only_counted(fresh)
            self._latencies.extend(event.latency for event in fresh if event.event != "closed")

    def checked(self, batch: Batch) -> None:
        """A batch was checked: of the partitions that it touched, how they are now."""
        with self._lock:
            self._take(batch.states)
            self._records += batch.stats.sent + batch.stats.polled

    def done(self, progress: BatchProgress) -> None:
        """A batch is over."""
        with self._lock:
            self._beats.append(Beat(self._clock(), progress.duration, self._records))
            self._records = 0

    def _take(self, states: pa.Table) -> None:
        rows = dict(self._rows)
        for row in states.to_pylist():
            rows[row["cluster"], row["topic"], row["partition"]] = row
        self._rows = rows  # replaced as a whole: who reads it needs no lock for long

    # Asked

    def not_ready(self) -> str | None:
        """Why nothing is being checked, None where something is."""
        return self._ready()

    def seen(self) -> Seen:
        """What stands now, or did a second ago."""
        with self._viewing:
            now = self._clock()
            if self._seen is None or not timedelta(0) <= now - self._seen.now < FRESH:
                self._seen = self._look(now)
            return self._seen

    def _look(self, now: datetime) -> Seen:
        with self._lock:
            rows, counted = self._rows, dict(self._counted)
            beats, latencies = list(self._beats), list(self._latencies)
        incidents = self._standing(now)
        partitions = [rows[place] for place in sorted(rows)]
        return Seen(
            now=now,
            overview=Overview(
                now,
                incidents,
                counted,
                checked_rows(partitions, self._names),
                silences=in_order(one for one in self.silences() if one.active(now)),
            ),
            partitions=partitions,
            concerned=self._concerned(incidents, rows),
            beats=beats,
            not_ready=self._ready(),
            latency=statistics.median(latencies) if latencies else None,
            names=self._names,
        )

    def _concerned(self, incidents: Sequence[Incident], rows: Mapping[Place, object]) -> dict[Place, Incident]:
        """Each partition's worst open incident. One that names a topic and no partition of it concerns all of them."""
        found: dict[Place, Incident] = {}
        for one in sorted(incidents, key=lambda one: (one.severity != "critical", one.since)):
            if not one.open:
                continue
            subjects = one.subjects if one.places <= len(one.subjects) else self._places(one.occurrence)
            for subject in subjects:
                topic, _, partition = subject.rpartition("/")
                if partition.isdecimal() and (one.cluster, topic, int(partition)) in rows:
                    found.setdefault((one.cluster, topic, int(partition)), one)
                else:
                    for place in rows:
                        if place[:2] == (one.cluster, subject):
                            found.setdefault(place, one)
        return found


def _only_counted(events: Sequence[FindingEvent]) -> Counter[tuple[str, str]]:
    return Counter((event.anomaly, event.severity) for event in events if not judged(event) and event.event != "closed")
