"""The live checker of a drill: the probe log's rows through the same functions as the stream's, without Spark.

`Checks` is the checking: rows in, findings out, state in memory; `rules.step.step` for each partition,
`rules.across.resolution` across them, severities by `rules.vocabulary.policy`. `Follower` reads the log as the
committer appends to it, commit by commit. `Checker` is both in a thread, with the answers to rechecks
(`rules.audit.explain`) and the search for cycles, and tells when it had each finding. What it keeps is the state that
the stream keeps, and the findings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.drill.definition.found import Found
from monitor.drill.definition.verdict import CHECK_FAILED
from monitor.errors import UserError
from rules.across.lookups import Question, read_through
from rules.store import MemoryStore
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Place, micros
from streaming_jobs.config import JobConfig
from streaming_jobs.cycles.search import CycleJob, Searched
from streaming_jobs.errors import JobError
from streaming_jobs.history.files import completed
from streaming_jobs.history.replay import Replay
from streaming_jobs.history.validation import CHECKED_SCHEMA, KEYS, reasons_to_reject
from streaming_jobs.verdicts import lookups
from streaming_jobs.verdicts.recheck import PATIENCE, Asked, explained, shares

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.25
"""Seconds between two looks for new commits."""
CYCLES_EVERY: Final = 5.0
RECHECK_EVERY: Final = 1.0


class Checks:
    """The checks of one history, from its first row. Not for several threads at once."""

    def __init__(self, objectives: Objectives) -> None:
        self._store = MemoryStore(objectives)
        self._failed: set[Place] = set()
        self.rechecks: list[Asked] = []
        """What the log's rows have to explain; whoever does so takes it out."""
        self.lookups: dict[tuple[str, int], Question] = {}
        """What the log's rows have to tell of transactions; likewise."""
        self.rejected: list[str] = []
        """Why rows could not be understood."""
        self.now: dict[Place, int] = {}
        """The log time, microseconds, that each partition has come to."""
        self.summaries: dict[Place, dict[str, Any]] = {}

    def take(self, rows: pa.Table) -> list[Finding]:
        """Check rows with `CHECKED_SCHEMA`'s columns, of any partitions and in any order."""
        reasons = reasons_to_reject(rows)
        if reasons:
            self.rejected += reasons.values()
            keep = np.ones(rows.num_rows, bool)
            keep[list(reasons)] = False
            rows = rows.filter(pa.array(keep)).combine_chunks()
        findings: list[Finding] = []
        facts: list[pa.Table] = []
        for place, own in _by_place(rows):
            if place not in self._failed:
                findings += self._step(place, own, facts)
        if facts:
            resolved = self._store.resolve(pa.concat_tables(facts))
            findings += resolved.findings
            for question in resolved.questions:
                known = self.lookups.get(question.key)
                self.lookups[question.key] = question if known is None else known.joined(question)
        return findings

    def _step(self, place: Place, rows: pa.Table, facts: list[pa.Table]) -> list[Finding]:
        try:
            stepped = self._store.step_one(place, rows)
        except Exception as error:  # a check that crashed means unknown, not passed
            log.exception("a rule failed on partition %s", place)
            self._failed.add(place)
            return [_crashed(place, rows, error)]
        if stepped.facts.num_rows:
            facts.append(stepped.facts)
        self.rechecks += [Asked(place, recheck.start, recheck.end) for recheck in stepped.rechecks]
        self.summaries[place] = stepped.summary
        if stepped.summary["now"] is not None:
            self.now[place] = micros(stepped.summary["now"])
        return stepped.findings


def _by_place(rows: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
    """The rows of each partition, in their order."""
    if not rows.num_rows:
        return
    labels = np.zeros(rows.num_rows, np.int64)
    for name in KEYS:
        encoded = rows[name].combine_chunks().dictionary_encode()
        labels = labels * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64)
    for label in np.unique(labels).tolist():
        own = rows.filter(pa.array(labels == label)).combine_chunks()
        yield Place(*(own[name][0].as_py() for name in KEYS)), own


def _crashed(place: Place, rows: pa.Table, error: Exception) -> Finding:
    at = micros(pc.max(rows["completed"]).as_py())
    topic = rows["topic"][0].as_py()
    return Finding(
        anomaly=CHECK_FAILED, cluster=place.cluster, topic_id=place.topic_id, topic=topic, partition=place.partition,
        subject=(), event="opened", message=f"a rule failed on partition {place.partition} of {topic}: its verdict is"
        f" unknown from here on ({type(error).__name__}: {error})",
        evidence={"error": f"{type(error).__name__}: {error}", "slices": rows.num_rows}, at=at, decidable=at,
    )  # fmt: skip


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
        on_found: Callable[[Found], None] = lambda found: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        config = JobConfig(root=data)
        self.history = config.history_path
        self.found: list[Found] = []
        self.checks = Checks(objectives)
        self.failed: Exception | None = None
        """Why the thread has ended before it was asked to."""
        self._follower = Follower(self.history)
        self._on_found, self._clock = on_found, clock
        self._known: set[str] = set()
        self._tries: dict[Asked, int] = {}
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
                    self._answer(last=False)
                    rechecks = time.monotonic()
                if time.monotonic() - cycles >= CYCLES_EVERY:
                    self._search()
                    cycles = time.monotonic()
            self._look()
            self._search()
            self._answer(last=True)
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
        for row in searched.findings.to_pylist():
            at = micros(row["at"])
            finding = Finding(
                anomaly=row["anomaly"], cluster=row["cluster"], topic_id=row["topic_id"], topic=row["topic"],
                partition=row["partition"], subject=(row["id"],), message=row["message"],
                evidence=orjson.loads(row["evidence"]), context=orjson.loads(row["context"]), at=at, decidable=at,
            )  # fmt: skip
            self._tell([finding])

    def _answer(self, *, last: bool) -> None:
        """Answer what the rows of the log can answer now; `last`: no further row will come."""
        waiting = [lookups.Asked(one, 0, last) for one in self.checks.lookups.values()]
        through = read_through(
            (place.cluster, summary["topic"], place.partition, summary["read_through"])
            for place, summary in self.checks.summaries.items()
        )
        answers = lookups.looked_up(Replay(self.history), waiting, through) if waiting else {}
        for question, told in answers.items():
            if told.settled:
                del self.checks.lookups[question.key]
            self._tell([told.finding] if told.finding is not None else [])
        self._explain(last=last)

    def _explain(self, *, last: bool) -> None:
        waiting = {asked: asked.start for asked in self.checks.rechecks}
        while waiting:
            for share in shares(waiting.items()):
                for part, found in explained(Replay(self.history), share, finished=last).items():
                    asked = part.of
                    waiting[asked] = part.end
                    self._tell(found or [])
                    if found is None:
                        self._tries[asked] = self._tries.get(asked, 0) + 1
                    if (found is not None and part.end == asked.end) or self._tries.get(asked, 0) >= PATIENCE:
                        self.checks.rechecks = [one for one in self.checks.rechecks if one != asked]
                    if found is None or part.end == asked.end:
                        del waiting[asked]

    def _tell(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.event == "raised" and finding.id in self._known:
                continue
            self._known.add(finding.id)
            one = Found(finding=finding, severity=severity(finding.anomaly, finding.context), seen=self._clock())
            self.found.append(one)
            self._on_found(one)
