"""The live checker of a drill: the probe log's rows through the same functions as the stream's, without Spark.

`monitor.history_files.checks` is the checking. `Follower` reads the log as the committer appends to it, commit by
commit. `Checker` is both in a thread, with the search for cycles and severities by `rules.vocabulary.policy`, and tells
when it had each finding. What it keeps is the state that the stream keeps, and the findings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from monitor.drill.definition.graded import Graded
from monitor.errors import UserError
from monitor.history_files.checks import Checks, cycles_of
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from streaming_jobs.config import JobConfig
from streaming_jobs.cycles.search import CycleJob, Searched
from streaming_jobs.errors import JobError
from streaming_jobs.history.files import completed
from streaming_jobs.history.validation import CHECKED_SCHEMA

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.25
"""Seconds between two looks for new commits."""
CYCLES_EVERY: Final = 5.0
RECHECK_EVERY: Final = 1.0


class Follower:
    """The probe log at `path`, commit after commit. It is compacted by nobody while it is followed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0

    def read(self) -> pa.Table | None:
        """The rows of all commits since the last call, with `CHECKED_SCHEMA`'s columns; None where there are none."""
        tables: list[pa.Table] = []
        while (commit := self._path / "_delta_log" / f"{self._next:020d}.json").is_file():
            files = []
            for line in commit.read_bytes().splitlines():
                action = orjson.loads(line).get("add")
                if action is not None:
                    files.append(self._path / action["path"])
            for file in files:
                with pq.ParquetFile(file) as opened:
                    present = set(opened.schema_arrow.names)
                    tables.append(completed(opened.read(columns=[n for n in CHECKED_SCHEMA.names if n in present])))
            self._next += 1
        return pa.concat_tables(tables).combine_chunks() if tables else None


class Checker:
    """Follows the probe log below `data` in a thread. `found` grows as findings come, and never shrinks.

    `on_found` is called with each of them, on the checker's thread. `clock`: seconds of the wall clock."""

    def __init__(
        self,
        data: Path,
        objectives: Objectives,
        *,
        on_found: Callable[[Graded], None] = lambda found: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        config = JobConfig(root=data)
        self.history = config.root / "tables" / "history"
        self.found: list[Graded] = []
        self.checks = Checks(objectives)
        self.failed: Exception | None = None
        """Why the thread has ended before it was asked to."""
        self._follower = Follower(self.history)
        self._on_found, self._clock = on_found, clock
        self._known: set[str] = set()
        data.mkdir(parents=True, exist_ok=True)
        self._cycles = CycleJob(config, [self._searched])
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name="drill-checker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Check what is there by now, and end. Safe to call twice.

        Raises UserError where the checker itself failed: the verdict is unknown."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.failed is not None:
            reason = f"{type(self.failed).__name__}: {self.failed}"
            raise UserError(f"the drill's checker failed, so its verdict is unknown: {reason}") from self.failed

    @property
    def now(self) -> int:
        """The log time, microseconds, that every partition has come to; -1 before the first mark. Of a topic that was
        made anew, the partitions that are there now."""
        times: dict[tuple[str, str, int], int] = {}
        for place, now in list(self.checks.now.items()):
            name = (place.cluster, self.checks.summaries[place]["topic"], place.partition)
            times[name] = max(times.get(name, -1), now)
        return min(times.values(), default=-1)

    def _keep_on(self) -> None:
        cycles = rechecks = time.monotonic()
        try:
            while not self._ending.wait(LOOK_EVERY):
                self._look()
                if time.monotonic() - rechecks >= RECHECK_EVERY:
                    self._tell(self.checks.answer(self.history, last=False))
                    rechecks = time.monotonic()
                if time.monotonic() - cycles >= CYCLES_EVERY:
                    self._search()
                    cycles = time.monotonic()
            self._look()
            self._search()
            self._tell(self.checks.answer(self.history, last=True))
        except Exception as error:  # told by `stop`
            log.exception("the drill's checker failed")
            self.failed = error

    def _look(self) -> None:
        rows = self._follower.read()
        if rows is not None and rows.num_rows:
            self._tell(self.checks.take(rows))

    def _search(self) -> None:
        try:
            self._cycles.run()
        except JobError as error:
            log.warning("%s", error)

    def _searched(self, searched: Searched) -> None:
        self._tell(list(cycles_of(searched)))

    def _tell(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.event == "raised" and finding.id in self._known:
                continue
            self._known.add(finding.id)
            one = Graded(finding=finding, severity=severity(finding.anomaly, finding.context), seen=self._clock())
            self.found.append(one)
            self._on_found(one)
