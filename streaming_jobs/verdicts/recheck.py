"""Rechecks: two readers saw a range of offsets differently, and the rows of the probe log tell how
(`rules.audit.explain`).

Asked by a batch and answered on a thread of its own, since the rows may lie days back. The table `rechecks` holds both,
so that a question outlives the process. What is found is reported by the id of its finding, once. Partitions take
turns, and so do the questions about one: none waits for all of a wide one.

The log is read from its newest day backwards, up to the day before which the range did not exist: on that day nobody
had observed a log end beyond its first offset. Each file has rows of all partitions, so that it is read once for many.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import by_place
from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Place
from rules.vocabulary.times import EPOCH
from streaming_jobs.errors import JobError
from streaming_jobs.history.replay import Replay
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import Table, open_table, read_table
from streaming_jobs.tables.schemas import RECHECKS

log = logging.getLogger(__name__)

FIRST_WAIT: Final = timedelta(seconds=2)
"""Until a question that cannot be answered yet is looked into again, and twice as long each time after that. Where a
log was cut its readers may go on within the range for minutes, and each look reads the day."""
LONGEST_WAIT: Final = timedelta(seconds=60)
PATIENCE: Final = 300
"""How many times it is looked for an observation of the log start after the reading in question; an answer without one
may take retention for a loss, so there is none then."""
TOGETHER: Final = 64
"""Questions about one partition that are answered with one reading of its rows."""
AT_ONCE: Final = 1 << 20
"""Offsets of one partition that are explained with one reading of its rows. Of a wider question the rest is answered
when all others have had their turn."""
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition."""

    place: Place
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Part:
    """What of a question is answered at once: offsets [start, end)."""

    of: OffsetRange
    start: int
    end: int


@dataclass(slots=True)
class _Progress:
    """How far a question is answered, how many times the log start was missing, and when it is looked into again."""

    through: int
    tried: int = 0
    due: datetime = EPOCH

    def put_off(self, now: datetime) -> None:
        """It cannot be answered yet."""
        self.due = now + min(FIRST_WAIT * 2 ** min(self.tried, 10), LONGEST_WAIT)
        self.tried += 1


class Rechecks:
    """Answers what is asked. `report` writes findings and tells them to the listeners (`Sink.report`). Thread-safe."""

    def __init__(
        self,
        history: TableLocation,
        tables: TableLocation,
        report: Callable[[list[Finding]], None],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._history = history
        self._tables = tables
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: Table | None = None
        self._waiting: dict[OffsetRange, _Progress] = {}  # whose turn is next comes first
        self.ask(unanswered(read_table(tables, "rechecks")))

    def ask(self, questions: Iterable[OffsetRange]) -> None:
        """These are in the table, and to be answered."""
        with self._lock:
            for asked in questions:
                self._waiting.setdefault(asked, _Progress(asked.start))

    def answer(self, stopping: Callable[[], bool] = lambda: False, *, last: bool = False) -> None:
        """Answer what can be answered now, also what is asked meanwhile. What fails is told in the log and tried again
        by the next call. `last`: there is none, so that nothing waits for its time."""
        held: set[OffsetRange] = set()
        while True:
            now = self._clock()
            with self._lock:
                due = [asked for asked, known in self._waiting.items() if last or known.due <= now]
                waiting = [(asked, self._waiting[asked].through) for asked in due if asked not in held]
            if not waiting:
                return
            for some in together(shares(waiting)):
                if stopping():
                    return
                try:
                    held |= self._settle(explained(Replay(self._history), some))
                except (JobError, OSError, pa.ArrowException) as error:
                    held |= {part.of for share in some for part in share}
                    places = ", ".join(f"{len(share)} ranges of {share[0].of.place}" for share in some)
                    log.warning("%s are not explained yet, and tried again: %s", places, error)

    def _settle(self, found: Mapping[Part, list[Finding] | None]) -> set[OffsetRange]:
        """Tell what was found, and write down which questions are answered: those found to their end, and those given
        up. Which ones must wait?"""
        over, held = [], set()
        with self._lock:
            for part, findings in found.items():
                asked, known = part.of, self._waiting[part.of]
                if findings is not None:
                    known.through = part.end
                    if part.end == asked.end:
                        over.append(asked)
                    else:  # the others first
                        self._waiting[asked] = self._waiting.pop(asked)
                    continue
                known.put_off(self._clock())
                if known.tried >= PATIENCE:
                    log.warning("offsets %s to %s of %s were given up unexplained", part.start, asked.end, asked.place)
                    over.append(asked)
                else:
                    held.add(asked)
        self._tell([finding for findings in found.values() for finding in findings or ()])
        if over:
            told = {"answered": True, "batch": None, "recorded": self._clock()}
            rows = pa.Table.from_pylist([asked_row(asked) | told for asked in over], schema=RECHECKS)
            self._answers = self._answers or open_table(self._tables, "rechecks")
            self._answers.write(rows, mode="append")
        with self._lock:
            for asked in over:
                del self._waiting[asked]
        return held

    def _tell(self, found: list[Finding]) -> None:
        if not found:
            return
        known = set(read_table(self._tables, "findings")["id"].to_pylist())
        fresh = {f.id: f for f in found if f.id not in known}
        if fresh:
            self._report(list(fresh.values()))


def shares(waiting: Iterable[tuple[OffsetRange, int]]) -> list[list[Part]]:
    """What is answered of each partition's questions at once, each with the offset through which it is answered: the
    first of them, at most `TOGETHER` and `AT_ONCE` offsets in all, in the order of their offsets."""
    by_place: dict[Place, list[Part]] = {}
    left: dict[Place, int] = {}
    for asked, through in waiting:
        parts, room = by_place.setdefault(asked.place, []), left.setdefault(asked.place, AT_ONCE)
        if room and len(parts) < TOGETHER:
            end = min(asked.end, through + room)
            parts.append(Part(asked, through, end))
            left[asked.place] = room - (end - through)
    return [sorted(parts, key=lambda part: (part.start, part.end)) for parts in by_place.values()]


def together(shares: Sequence[list[Part]]) -> list[list[list[Part]]]:
    """The shares of which the rows are read at once: of `AT_ONCE` offsets in all, or one of more."""
    found: list[list[list[Part]]] = []
    room = 0
    for share in shares:
        offsets = sum(part.end - part.start for part in share)
        if offsets > room:
            found.append([])
            room = AT_ONCE
        found[-1].append(share)
        room -= offsets
    return found


def explained(
    replay: Replay, shares: Sequence[Sequence[Part]], *, finished: bool = False
) -> dict[Part, list[Finding] | None]:
    """What the rows of the log say of these ranges, each share of one partition: see `rules.audit.explain.explain`."""
    rows = _rows_of(replay, {share[0].of.place: [(part.start, part.end) for part in share] for share in shares})
    found: dict[Part, list[Finding] | None] = {}
    for share in shares:
        place = share[0].of.place
        readings = Readings(rows[place]) if place in rows else None
        for part in share:
            found[part] = explain(readings, place, part.start, part.end, finished=finished) if readings else []
    return found


def _rows_of(replay: Replay, ranges: Mapping[Place, Sequence[tuple[int, int]]]) -> dict[Place, pa.Table]:
    """The rows of the probe log that `explain` needs of each partition that has any."""
    kept: dict[Place, list[pa.Table]] = {}
    left = {place: min(start for start, _ in wanted) for place, wanted in ranges.items()}
    for day in reversed(replay.days()):
        highest = dict.fromkeys(left, -1)
        for rows in replay.rows_of(day, list(left), _ROWS):
            for place, mine in by_place(rows).items():
                highest[place] = max(highest[place], pc.max(mine["log_end"]).as_py() or -1)
                needed = mine.filter(concerns(mine, ranges[place]))
                if needed.num_rows:
                    kept.setdefault(place, []).append(needed)
        left = {place: lowest for place, lowest in left.items() if not 0 <= highest[place] <= lowest}
        if not left:
            break
    return {place: pa.concat_tables(tables).combine_chunks() for place, tables in kept.items()}


def asked_row(asked: OffsetRange) -> dict[str, object]:
    """The columns of the table `rechecks` that say what is asked."""
    place = asked.place
    where = {"cluster": place.cluster, "topic_id": place.topic_id, "partition": place.partition}
    return where | {"start": asked.start, "end": asked.end}


def unanswered(rows: pa.Table) -> list[OffsetRange]:
    """What was asked and not answered since, of the table `rechecks`."""
    last: dict[OffsetRange, bool] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: (row["recorded"], row["answered"])):
        place = Place(row["cluster"], row["topic_id"], row["partition"])
        last[OffsetRange(place, row["start"], row["end"])] = row["answered"]
    return [asked for asked, answered in last.items() if not answered]
