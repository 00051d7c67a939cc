"""How the cluster serves its clients right now: latency and throughput of the probes' own operations.

Read from the newest rows of the probe log, when somebody looks, and not again for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming_jobs.location import TableLocation, opened

OVER: Final = timedelta(seconds=30)
KEPT: Final = 6.0
"""Seconds for which an answer serves; ten times as long as it took, where that is more."""


@dataclass(frozen=True, slots=True)
class TrafficPace:
    """Over the last half minute of the probe log: records sent and polled a second; milliseconds that a send took until
    it was acknowledged, the median and the 99th of a hundred (None where nothing was sent); sends and polls that did
    not end ok (transactions are aborted on purpose)."""

    sent_per_second: float
    polled_per_second: float
    median: float | None
    slow: float | None
    not_ok: int


class Recent:
    """The pace of one probe log. For any number of threads: one reads, the others are given what is known."""

    def __init__(self, history: TableLocation, clock: Callable[[], float] = time.monotonic) -> None:
        self._history, self._clock = history, clock
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        self._known: TrafficPace | None = None
        self._until = 0.0

    def pace(self, newest: datetime | None) -> TrafficPace | None:
        """The half minute up to `newest`, log time. None where nothing is known: no log, or none that can be read."""
        if newest is not None and self._clock() >= self._until and self._lock.acquire(blocking=False):
            try:
                began = self._clock()
                self._known = self._read(newest)
                took = self._clock() - began
                self._until = self._clock() + max(KEPT, 10 * took)
            finally:
                self._lock.release()
        return self._known

    def _read(self, newest: datetime) -> TrafficPace | None:
        try:
            if self._table is None:
                self._table = opened(self._history)
                if self._table is None:
                    return None
            self._table.update_incremental()
            rows = self._table.to_pyarrow_dataset().to_table(columns=_COLUMNS, filter=_late(newest))
        except (DeltaError, OSError, pa.ArrowException):
            self._table = None  # a file that compaction took away meanwhile: the next look opens it anew
            return self._known
        return pace_of(rows)


_COLUMNS: Final = ["f", "type", "invoked", "completed", "sent", "polled"]


def _late(newest: datetime) -> Any:
    since = newest - OVER
    days: list[date] = sorted({since.astimezone(UTC).date(), newest.astimezone(UTC).date()})
    at = pc.field("completed")
    return (
        pc.field("date").isin(days)
        & (at > pa.scalar(since, pa.timestamp("us", tz="UTC")))
        & (at <= pa.scalar(newest, pa.timestamp("us", tz="UTC")))
        & pc.field("f").isin(["send", "poll", "txn"])
    )


def pace_of(rows: pa.Table) -> TrafficPace:
    """Of rows of the probe log that span `OVER`."""
    seconds = OVER.total_seconds()
    sends = rows.filter(pc.and_(pc.equal(rows["f"], "send"), pc.equal(rows["type"], "ok")))
    took = (sends["completed"].cast(pa.int64()).to_numpy() - sends["invoked"].cast(pa.int64()).to_numpy()) / 1_000
    return TrafficPace(
        sent_per_second=_records(rows["sent"]) / seconds,
        polled_per_second=_records(rows["polled"]) / seconds,
        median=float(np.percentile(took, 50)) if len(took) else None,
        slow=float(np.percentile(took, 99)) if len(took) else None,
        not_ok=len(rows.filter(pc.and_(pc.not_equal(rows["f"], "txn"), pc.not_equal(rows["type"], "ok")))),
    )


def _records(runs: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.struct_field(pc.list_flatten(runs), "length")).as_py() or 0)
