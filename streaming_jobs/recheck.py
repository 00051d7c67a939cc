"""Rechecks: two readers saw a range of offsets differently, and the rows of the probe log tell how
(`rules.audit.explain`).

Asked by a batch and answered on a thread of its own, since the rows may lie days back. The table `rechecks` holds both,
so that a question outlives the process. What is found is reported by the id of its finding, once.

The log is read from its newest day backwards, and for one partition only, up to the day before which the range did not
exist: on that day nobody had observed a log end beyond its first offset.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place
from streaming_jobs.errors import JobError
from streaming_jobs.replay import Replay
from streaming_jobs.schemas import RECHECKS
from streaming_jobs.tables import open_table, read_table
from streaming_jobs.validation import CHECKED_SCHEMA

log = logging.getLogger(__name__)

PATIENCE: Final = 300
"""How many times it is looked for an observation of the log start after the reading in question; an answer without one
may take retention for a loss, so there is none then."""
TOGETHER: Final = 64
"""Questions about one partition that are answered with one reading of its rows."""
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
        for together in of_one_partition(waiting):
            if stopping():
                return
            try:
                self._settle(together, explained(Replay(self._history), together))
            except (JobError, OSError, pa.ArrowException) as error:
                place = together[0].place
                log.warning("%s ranges of %s are not explained yet, and tried again: %s", len(together), place, error)

    def _settle(self, together: Sequence[Asked], found: Mapping[Asked, list[Finding] | None]) -> None:
        """Tell what was found, and write down which questions are answered: those found, and those given up."""
        over = []
        with self._lock:
            for asked in together:
                self._waiting[asked] += 1
                if found[asked] is None and self._waiting[asked] >= PATIENCE:
                    log.warning("offsets %s to %s of %s were given up unexplained", asked.start, asked.end, asked.place)
                    over.append(asked)
        answered = [asked for asked in together if found[asked] is not None] + over
        self._tell([finding for asked in answered for finding in found[asked] or ()])
        if answered:
            told = {"answered": True, "batch": None, "recorded": self._clock()}
            rows = pa.Table.from_pylist([asked_row(asked) | told for asked in answered], schema=RECHECKS)
            open_table(self._tables, "rechecks").write(rows, mode="append")
        with self._lock:
            for asked in answered:
                del self._waiting[asked]

    def _tell(self, found: list[Finding]) -> None:
        if not found:
            return
        known = set(read_table(self._tables, "findings")["id"].to_pylist())
        fresh = {f.id: f for f in found if f.id not in known}
        if fresh:
            self._report(list(fresh.values()))


def of_one_partition(waiting: Iterable[Asked]) -> Iterator[list[Asked]]:
    """The questions in groups of one partition each, at most `TOGETHER` in one: those that lie near each other."""
    by_place: dict[Place, list[Asked]] = {}
    for asked in waiting:
        by_place.setdefault(asked.place, []).append(asked)
    for group in by_place.values():
        group.sort(key=lambda asked: (asked.start, asked.end))
        for first in range(0, len(group), TOGETHER):
            yield group[first : first + TOGETHER]


def explained(
    replay: Replay, together: Sequence[Asked], *, finished: bool = False
) -> dict[Asked, list[Finding] | None]:  # fmt: skip
    """What the rows of the log say of these ranges of one partition: see `rules.audit.explain.explain`."""
    rows = _rows_of(replay, together[0].place, [(asked.start, asked.end) for asked in together])
    if not rows.num_rows:
        return {asked: [] for asked in together}
    readings = Readings(rows)
    return {asked: explain(readings, asked.place, asked.start, asked.end, finished=finished) for asked in together}


def _rows_of(replay: Replay, place: Place, ranges: Sequence[tuple[int, int]]) -> pa.Table:
    """The rows of the probe log that `explain` needs."""
    kept: list[pa.Table] = []
    lowest = min(start for start, _ in ranges)
    for day in reversed(replay.days()):
        highest = -1
        for rows in replay.rows_of(day, place, _ROWS):
            highest = max(highest, pc.max(rows["log_end"]).as_py() or -1)
            needed = rows.filter(concerns(rows, ranges))
            if needed.num_rows:
                kept.append(needed)
        if 0 <= highest <= lowest:
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
