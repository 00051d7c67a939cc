"""Rechecks: two readers saw a range of offsets differently, and the rows of the probe log tell how (`rules.explain`).

Asked by a batch and answered on a thread of its own, since the rows may lie days back. The table `rechecks` holds both,
so that a question outlives the process. What is found is reported by the id of its finding, once.

The log is read from its newest day backwards, and for one partition only, up to the day before which the range did not
exist: on that day nobody had observed a log end beyond its first offset.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.explain import concerns, explain
from rules.finding import Finding
from rules.history import Place
from rules.readings import Readings
from streaming_jobs.errors import JobError
from streaming_jobs.replay import Replay
from streaming_jobs.schemas import RECHECKS
from streaming_jobs.tables import open_table, read_table
from streaming_jobs.validation import CHECKED_SCHEMA

log = logging.getLogger(__name__)

PATIENCE: Final = 300
"""How many times it is looked for an observation of the log start after the reading in question; an answer without one
may take retention for a loss, so there is none then."""
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Asked:
    """Offsets [start, end) of a partition."""

    place: Place
    start: int
    end: int


class Rechecks:
    """Answers what is asked. `report` writes findings and tells them to the listeners (`Sink.report`). Thread-safe."""

    def __init__(
        self,
        history: Path,
        tables: Path,
        report: Callable[[list[Finding]], None],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._history = history
        self._tables = tables
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        # What is to be answered, and how many times that was tried.
        self._waiting: dict[Asked, int] = dict.fromkeys(unanswered(read_table(tables, "rechecks")), 0)

    def ask(self, questions: Iterable[Asked]) -> None:
        """These are in the table, and to be answered."""
        with self._lock:
            for asked in questions:
                self._waiting.setdefault(asked, 0)

    def answer(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Answer what can be answered now. What fails is told in the log and tried again."""
        with self._lock:
            waiting = list(self._waiting)
        for asked in waiting:
            if stopping():
                return
            try:
                found = self._explained(asked)
            except (JobError, OSError, pa.ArrowException) as error:
                log.warning(
                    "offsets %s to %s of %s are not explained yet: %s", asked.start, asked.end, asked.place, error
                )
                found = None
            with self._lock:
                self._waiting[asked] += 1
                over = self._waiting[asked] >= PATIENCE
            if found is None and not over:
                continue
            if found is None:
                log.warning("offsets %s to %s of %s were given up unexplained", asked.start, asked.end, asked.place)
            try:
                self._tell(found or [])
                self._answered(asked)
            except JobError as error:
                log.warning("a recheck could not be written and is tried again: %s", error)

    def _tell(self, found: list[Finding]) -> None:
        events = read_table(self._tables, "findings")
        known = set(events["id"].to_pylist())
        fresh = {f.id: f for f in found if f.id not in known}
        if fresh:
            self._report(list(fresh.values()))

    def _answered(self, asked: Asked) -> None:
        row = asked_row(asked) | {"answered": True, "batch": None, "recorded": self._clock()}
        open_table(self._tables, "rechecks").write(pa.Table.from_pylist([row], schema=RECHECKS), mode="append")
        with self._lock:
            del self._waiting[asked]

    def _explained(self, asked: Asked) -> list[Finding] | None:
        rows = rows_of(Replay(self._history), asked)
        return explain(Readings(rows), asked.place, asked.start, asked.end, finished=False) if rows.num_rows else []


def rows_of(replay: Replay, asked: Asked) -> pa.Table:
    """The rows of the probe log that `explain` needs."""
    kept: list[pa.Table] = []
    for day in reversed(replay.days()):
        highest = -1
        for rows in replay.rows_of(day, asked.place, _ROWS):
            highest = max(highest, pc.max(rows["log_end"]).as_py() or -1)
            needed = rows.filter(concerns(rows, asked.start, asked.end))
            if needed.num_rows:
                kept.append(needed)
        if 0 <= highest <= asked.start:
            break
    return pa.concat_tables(kept).combine_chunks() if kept else CHECKED_SCHEMA.empty_table()


def asked_row(asked: Asked) -> dict[str, object]:
    """The columns of the table `rechecks` that say what is asked."""
    place = asked.place
    where = {"cluster": place.cluster, "topic_id": place.topic_id, "partition": place.partition}
    return where | {"start": asked.start, "end": asked.end}


def unanswered(rows: pa.Table) -> list[Asked]:
    """What was asked and not answered since, of the table `rechecks`."""
    last: dict[Asked, bool] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: (row["recorded"], row["answered"])):
        place = Place(row["cluster"], row["topic_id"], row["partition"])
        last[Asked(place, row["start"], row["end"])] = row["answered"]
    return [asked for asked, answered in last.items() if not answered]
