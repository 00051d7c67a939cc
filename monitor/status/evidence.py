"""The evidence of one incident, from the Delta tables: its findings, who did what with its records, the log there.

The table of findings is kept in memory as long as its version stands; what was put together for an incident serves for
a few seconds, so that many who were woken at once read once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from alerts.incidents.incident import Names, nameless
from monitor.diagrams.space_time import AROUND_OFFSETS, Focus, SpaceTime, space_time
from monitor.incidents.explained import Explained, found_in, mentioned, subject
from monitor.incidents.log_around import Standing, log_around
from monitor.incidents.witnesses import FindingSubject, names, nearby, operations, witnesses_in
from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import read_table, version_of

KEPT: Final = 5.0
"""Seconds for which an answer serves; ten times as long as it took, where that is more."""
REMEMBERED: Final = 64
ROWS: Final = 2_000
"""Operations near the records that are looked at, of each incident."""
DAYS: Final = 7
"""Days of the probe log in which the names of probes are sought."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`log`: what stands at the offsets around the first finding's records; `diagram`: who sent and polled them; None
    and empty where the finding names no record, or the log no longer holds that time."""

    explained: Explained
    about: FindingSubject | None = None
    log: Sequence[Standing] = ()
    diagram: SpaceTime | None = None
    names: Mapping[int, str] = field(default_factory=dict)


class EvidenceReader:
    """Reads it for any number of threads, one at a time."""

    def __init__(
        self,
        tables: TableLocation,
        history: TableLocation,
        hold: timedelta,
        clock: Callable[[], float] = time.monotonic,
        called: Names = nameless,
    ) -> None:
        self._called = called
        self._tables, self._history, self._hold, self._clock = tables, history, hold, clock
        self._lock = threading.Lock()
        self._events: tuple[int, pa.Table] | None = None
        self._known: OrderedDict[str, tuple[float, Evidence]] = OrderedDict()

    def of(self, wanted: str, now: datetime) -> Evidence:
        """The evidence of the incident or finding with this id, or these first digits of one. Raises UserError where
        there is none, or several, and TableError where a table cannot be read."""
        with self._lock:
            known = self._known.get(wanted)
            if known is not None and self._clock() < known[0]:
                return known[1]
            began = self._clock()
            try:
                evidence = self._read(wanted, now)
            except (DeltaError, OSError, pa.ArrowException) as error:
                raise TableError(f"The probe log in {self._history} could not be read: {in_words(error)}.") from error
            ended = self._clock()
            self._known[wanted] = (ended + max(KEPT, 10 * (ended - began)), evidence)
            self._known.move_to_end(wanted)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return evidence

    def _read(self, wanted: str, now: datetime) -> Evidence:
        found = found_in(
            self._findings(), read_table(self._tables, "partition_state"), wanted, now, self._hold, self._called
        )
        about = subject(found)
        table = operations(self._history, about) if about is not None else None
        if about is None or table is None:
            return Evidence(replace(found, names=names(self._history, mentioned(found), DAYS)))
        saw = witnesses_in(table, about)
        near = nearby(table, about, AROUND_OFFSETS, ROWS)
        processes = {row["process"] for row in near} | {one.process for one in saw} | mentioned(found)
        writers = {run["writer"] for row in near for run in (*(row["sent"] or ()), *(row["polled"] or ()))}
        known = names(self._history, processes | writers, DAYS)
        diagram = space_time(near, Focus(about.values, about.offsets), known)
        return Evidence(
            explained=replace(found, witnesses=saw, names=known),
            about=about,
            log=log_around(near, diagram.offsets, AROUND_OFFSETS) if near else (),
            diagram=diagram,
            names=known,
        )

    def _findings(self) -> pa.Table:
        version = version_of(self._tables, "findings")
        if self._events is None or self._events[0] != version:
            self._events = version, read_table(self._tables, "findings")
        return self._events[1]
