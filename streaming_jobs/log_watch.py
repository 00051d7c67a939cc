"""What comes to the probe log, and what waits there, by the machine's clock: the two conditions that no rule can find.

`evidence-stalled`, where no row comes (`history.stall`), and `checks-behind`, where rows wait for the checks
(`checks_behind`); both are timed by when rows came (`history.arrivals`), and told through `report`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from rules.vocabulary.conditions import EVIDENCE_STALLED
from rules.vocabulary.finding import Finding
from streaming_jobs import checks_behind
from streaming_jobs.config import JobConfig
from streaming_jobs.history.arrivals import Arrivals
from streaming_jobs.history.source import NewestVersion
from streaming_jobs.history.stall import EvidenceWatch


def patience(config: JobConfig) -> float:
    """Seconds that rows may wait: the limit, beyond what they wait on purpose."""
    return config.behind_limit + config.trigger + config.hold


def steady(now: Callable[[], datetime]) -> Callable[[], datetime]:
    """A clock that says what `now` does, and goes on as it was where that is set: by it nothing was silent for as long
    as the machine's clock was set ahead."""
    begun, at = now(), time.monotonic()
    return lambda: begun + timedelta(seconds=time.monotonic() - at)


def machine_time() -> datetime:
    """What the machine's clock says."""
    return datetime.now(UTC)


class Clocks(NamedTuple):
    """A job's. `counted`: the machine's time, by which findings are recorded; best one that never goes back. `silence`:
    one that nobody sets, by which it is known how long no row has come."""

    counted: Callable[[], datetime]
    silence: Callable[[], datetime]


class LogWatch:
    """One job's. `taken`, `checked_rows` and `batch_ended` are called by the thread that runs batches, `look` and
    `silence` by one that watches the log, `checked` by the one that watches the job; `waiting` by any."""

    def __init__(
        self,
        config: JobConfig,
        newest: NewestVersion,
        clusters: Mapping[str, datetime | None],
        found: pa.Table,
        clock: Callable[[], datetime],
    ) -> None:
        """`found`: the findings as they stand, with what an earlier run left open; `clusters`: those that it knew."""
        self._clock = clock
        self._arrivals = Arrivals(config.history_path, newest, clock)
        is_open = found.filter(pc.equal(found["state"], "open"))
        stalled = is_open.filter(pc.equal(is_open["anomaly"], EVIDENCE_STALLED))["cluster"].to_pylist()
        behind = is_open.filter(pc.equal(is_open["anomaly"], checks_behind.NAME))["at"].to_pylist()
        self._evidence = EvidenceWatch(
            config.liveness, clock(), clusters=clusters, open_clusters=stalled, ended=config.ended
        )
        self._behind = checks_behind.BehindWatch(patience(config), min(behind, default=None))
        self._behind_lock = threading.Lock()
        self._batch_ended = self._looked = time.monotonic()
        self._stood = 0.0
        """Seconds for which this process has not run since the silence was asked for."""

    def taken(self) -> datetime | None:
        """A batch begins: when the rows that it may have came last; None where none have since the start."""
        return self._arrivals.taken()

    def checked_rows(self, newest: Mapping[str, datetime | None], came: datetime | None) -> list[Finding]:
        """What it closes that rows of these clusters were checked, the newest of these times. `came`: what `taken` told
        when the batch began."""
        return self._evidence.rows(newest, self._clock(), came)

    def batch_ended(self) -> None:
        """It is out of our hands."""
        self._batch_ended = time.monotonic()

    def waiting(self) -> float:
        """Seconds for which no batch has come although rows wait."""
        return min(self._arrivals.waiting(), time.monotonic() - self._batch_ended)

    def checked(self, through: int, newest: int) -> None:
        """All commits up to `through` are checked, and `newest` is there."""
        left = None
        if not self._behind.served:
            with suppress(DeltaError, OSError):
                left = newest if self._arrivals.rows_between(through, newest) else None
        with self._behind_lock:
            self._behind.checked(through, left)

    def look(self, has_read_all: Callable[[], bool]) -> Sequence[Finding]:
        """What has waited too long by now, or does no more. `has_read_all`: whether no row is left that no batch has
        read; it is asked only where nothing else tells."""
        self._note_standstill()
        self._arrivals.last()
        idle = self._behind.is_left_open and has_read_all()
        with self._behind_lock:
            if idle:
                self._behind.checked(-1)
            return self._behind.tick(self._clock(), time.monotonic(), self._arrivals.brought())

    def _note_standstill(self) -> None:
        before, self._looked = self._looked, time.monotonic()
        if self._looked - before > checks_behind.LONGEST_LOOK:
            self._stood += self._looked - before

    def silence(self) -> Sequence[Finding]:
        """Of which cluster no row has come for too long. To be asked while no batch is running: then there are rows."""
        now = self._clock()
        if self._stood:
            self._evidence.stood_still(timedelta(seconds=self._stood), now)
            self._stood = 0.0
        return self._evidence.tick(now, self._arrivals.last())
