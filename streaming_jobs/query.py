"""What a running query of Spark's is asked. Its JVM may have gone: then nobody answers, and that is an answer too."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from streaming_jobs.errors import JobFailed
from streaming_jobs.location import TableLocation, TableUrl, numbers

_COMMIT_WAIT: Final = 10.0


def is_active(query: StreamingQuery) -> bool:
    """Whether it runs; not where nobody answers."""
    try:
        return bool(query.isActive)
    except (Py4JError, OSError):
        return False


def ended_by(query: StreamingQuery) -> BaseException | None:
    """The error by which it ended; None where nobody answers any more."""
    try:
        return query.exception() or JobFailed("The integrity job's query ended without an error.")
    except (Py4JError, OSError):
        return None


def has_read_all(query: StreamingQuery) -> bool:
    """Whether it has looked for rows, and there are none that it has not read."""
    return str(query.status["message"]).startswith("Waiting for data")


def told_since(query: StreamingQuery, seen: int) -> list[dict[str, Any]]:
    """What Spark tells of the batches that have ended since the one of this number. It keeps a hundred, and each costs
    calls into the JVM: they are all asked for only where more than one batch has ended meanwhile."""
    last = query.lastProgress
    if last is None or last.batchId <= seen:
        return []
    told = [last] if last.batchId == seen + 1 else query.recentProgress
    return [one for one in (json.loads(each.json) for each in told) if one["batchId"] > seen]


def await_commit(query: StreamingQuery, commits: TableLocation, number: int) -> None:
    """Spark commits a batch after our callback has returned; stopping before that would only run it again. `commits`:
    where it does. Some seconds at most: a store that does not answer is asked again."""
    deadline = time.monotonic() + _COMMIT_WAIT
    while number >= 0 and not _is_there(number, commits) and time.monotonic() < deadline:
        if not is_active(query):
            return
        time.sleep(0.1 if isinstance(commits, TableUrl) else 0.01)


def _is_there(number: int, commits: TableLocation) -> bool:
    try:
        return number in numbers(commits)
    except OSError:
        return False
