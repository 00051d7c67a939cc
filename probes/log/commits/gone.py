"""A host that will not come back is declared gone, so that nobody waits for what is left in its journals.

What its readers may have polled holds up losses for as long as it is away, and rightly: it may come back. Only a person
knows that it will not. The declaration is what its own committer would have written had it found the journals lost: a
mark for each of its processes that is over, and of which everything after its last mark is missing for good. What they
did until then is judged, and so is everything after the host was down; what lies between stays unverifiable.

It is said once of each process. The log keeps it with its time, which a second declaration cannot change: by then what
waited has been judged. Of a host that came back and went down again it is said of what has lived there since.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from probes.log.commits.history import History
from probes.log.commits.marks import COMMITTER, PlaceName
from probes.log.errors import HistoryConflict, HistoryUnavailable, HostUnknown
from rules.vocabulary.slices import DECLARED_GONE, Mark, Slice, to_table
from rules.vocabulary.table_errors import in_words

ATTEMPTS: Final = 20
_COLUMNS: Final = ("process", "cluster", "topic_id", "topic", "partition", "completed", "marks")


class Declared(NamedTuple):
    """`processes`: of so many the log ends here. Where it is none, because all that lived there had been declared gone
    before: `at`, when that was, and `over`, when they were down at the latest as it was said then."""

    processes: int
    at: datetime | None = None
    over: datetime | None = None


def declare_gone(history: History, committer: int, now: datetime, since: datetime | None = None) -> Declared:
    """Declare that the host of this committer does not come back; returns what came of it.
    `since`: when it was down at the latest; None where nobody knows more than that it is now.

    Raises `HostUnknown` where the log holds no mark of such a committer, or one of the last minute: it is alive."""
    told = _marks_of(history, committer)
    its = [row for row in told if row["process"] == committer]
    if not its:
        raise HostUnknown(f"the probe log {history.uri} holds no mark of a committer {committer}")
    newest = max(row["completed"] for row in its)
    if now - newest < timedelta(minutes=1):
        raise HostUnknown(f"committer {committer} is at work: it wrote to the probe log at {newest:%H:%M:%S} UTC")
    over = (now if since is None else max(since, newest)) - timedelta(microseconds=1)
    before = _declared_before([row for row in told if row["process"] != committer])
    living = _living(its)
    rows = list(_last_words(living, before, now, over))
    if rows:
        _append(history, to_table(rows))
        return Declared(len({mark.process for row in rows for mark in row.marks}))
    processes = {process for marks in living.values() for process in marks}
    said = max((before[one] for one in processes if one in before), default=None)
    return Declared(0) if said is None else Declared(0, said.at, said.over)


class _Said(NamedTuple):
    """When a process was declared gone, and by when it was over as was said then."""

    at: datetime
    over: datetime


def _marks_of(history: History, committer: int) -> list[dict[str, Any]]:
    """The mark rows of this committer, and the declarations: each is the first row of a committer of its own."""
    options = dict(history.storage_options or {}) or None
    try:
        if not DeltaTable.is_deltatable(history.uri, options):
            raise HistoryUnavailable(f"there is no probe log at {history.uri}")
        table = DeltaTable(history.uri, storage_options=options)
        its, first = pc.field("process") == committer, pc.field("op") == 0
        told = table.to_pyarrow_table(columns=list(_COLUMNS), filters=(pc.field("f") == "mark") & (its | first))
    except (DeltaError, OSError) as error:
        raise HistoryUnavailable(f"cannot read the Delta table {history.uri}: {in_words(error)}") from error
    rows: list[dict[str, Any]] = told.to_pylist()
    return rows


def _declared_before(told: list[dict[str, Any]]) -> dict[int, _Said]:
    """By process. Rows of other hosts name their own processes alone."""
    found: dict[int, _Said] = {}
    for row in told:
        for one in row["marks"] or ():
            if one["lost"] and one["ended"] is not None:
                said = _Said(row["completed"], one["ended"])
                found[one["process"]] = max(said, found.get(one["process"], said))
    return found


def _living(told: list[dict[str, Any]]) -> dict[PlaceName, dict[int, tuple[Mark, datetime]]]:
    """By partition, the newest mark of each process that is not over by the word of its own host, and when that was."""
    known: dict[PlaceName, dict[int, tuple[Mark, datetime]]] = {}
    for row in sorted(told, key=itemgetter("completed")):
        place = PlaceName(*(row[name] for name in ("cluster", "topic_id", "topic", "partition")))
        marks = known.setdefault(place, {})
        for one in row["marks"] or ():
            marks[one["process"]] = Mark(**one), row["completed"]
    return {
        place: {process: told for process, told in marks.items() if told[0].ended is None}
        for place, marks in known.items()
    }


def _last_words(
    living: dict[PlaceName, dict[int, tuple[Mark, datetime]]], before: dict[int, _Said], now: datetime, over: datetime
) -> Iterable[Slice]:
    """A mark row for each partition, of a committer of its own: should the host come back all the same, its own go on
    where they were. What was declared gone already, and has not been heard of since, is left out."""
    marker = uuid.uuid4().int >> 65
    for place, marks in living.items():
        ended = [
            mark._replace(ended=over, lost=True)
            for process, (mark, told) in marks.items()
            if process not in before or before[process].at < told
        ]
        if ended:
            yield Slice(
                cluster=place.cluster,
                topic_id=place.topic_id,
                topic=place.topic,
                partition=place.partition,
                run=COMMITTER,
                kind=COMMITTER,
                process=marker,
                op=0,
                slice=0,
                f="mark",
                type="ok",
                invoked=now,
                completed=now,
                error=DECLARED_GONE,
                marks=ended,
            )


def _append(history: History, rows: pa.Table) -> None:
    app = f"offsetwatch-gone-{uuid.uuid4()}"
    for attempt in range(ATTEMPTS):
        if history.last_version(app) == 1:
            return
        try:
            history.append(rows, app, 1)
            return
        except HistoryConflict:  # the committers of the others append once a second
            if attempt == ATTEMPTS - 1:
                raise
