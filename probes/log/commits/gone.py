"""A host that will not come back is declared gone, so that nobody waits for what is left in its journals.

What its readers may have polled holds up losses for as long as it is away, and rightly: it may come back. Only a person
knows that it will not. The declaration is what its own committer would have written had it found the journals lost: a
mark for each of its processes that is over, and of which everything after its last mark is missing for good. What they
did until then is judged, and so is everything after the host was down; what lies between stays unverifiable.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from probes.log.commits.history import History
from probes.log.commits.marks import COMMITTER, PlaceName
from probes.log.errors import HistoryConflict, HistoryUnavailable, HostUnknown
from rules.vocabulary.slices import Mark, Slice, to_table
from rules.vocabulary.table_errors import in_words

ATTEMPTS: Final = 20
_COLUMNS: Final = ("cluster", "topic_id", "topic", "partition", "completed", "marks")


def declare_gone(history: History, committer: int, now: datetime, since: datetime | None = None) -> int:
    """Declare that the host of this committer does not come back; returns of how many processes the log ends here.
    `since`: when it was down at the latest; None where nobody knows more than that it is now.

    Raises `HostUnknown` where the log holds no mark of such a committer, or one of the last minute: it is alive."""
    told = _marks_of(history, committer)
    if not told.num_rows:
        raise HostUnknown(f"the probe log {history.uri} holds no mark of a committer {committer}")
    newest = max(told["completed"].to_pylist())
    if now - newest < timedelta(minutes=1):
        raise HostUnknown(f"committer {committer} is at work: it wrote to the probe log at {newest:%H:%M:%S} UTC")
    over = (now if since is None else max(since, newest)) - timedelta(microseconds=1)
    rows = list(_last_words(told.to_pylist(), now, over))
    if rows:
        _append(history, to_table(rows))
    return len({mark.process for row in rows for mark in row.marks})


def _marks_of(history: History, committer: int) -> pa.Table:
    options = dict(history.storage_options or {}) or None
    try:
        if not DeltaTable.is_deltatable(history.uri, options):
            raise HistoryUnavailable(f"there is no probe log at {history.uri}")
        table = DeltaTable(history.uri, storage_options=options)
        return table.to_pyarrow_table(
            columns=list(_COLUMNS), filters=(pc.field("f") == "mark") & (pc.field("process") == committer)
        )
    except (DeltaError, OSError) as error:
        raise HistoryUnavailable(f"cannot read the Delta table {history.uri}: {in_words(error)}") from error


def _last_words(told: list[dict[str, object]], now: datetime, over: datetime) -> Iterable[Slice]:
    """A mark row for each partition, of a committer of its own: should the host come back all the same, its own go on
    where they were."""
    known: dict[PlaceName, dict[int, Mark]] = {}
    for row in sorted(told, key=lambda row: str(row["completed"])):
        place = PlaceName(*(row[name] for name in ("cluster", "topic_id", "topic", "partition")))  # type: ignore[arg-type]
        marks = known.setdefault(place, {})
        for one in row["marks"] or ():  # type: ignore[attr-defined]
            marks[one["process"]] = Mark(**one)
    marker = uuid.uuid4().int >> 65
    for place, marks in known.items():
        ended = [mark._replace(ended=over, lost=True) for mark in marks.values() if mark.ended is None]
        if ended:
            yield Slice(
                cluster=place.cluster, topic_id=place.topic_id, topic=place.topic, partition=place.partition,
                run=COMMITTER, kind=COMMITTER, process=marker, op=0, slice=0, f="mark", type="ok", invoked=now,
                completed=now, marks=ended,
            )  # fmt: skip


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
