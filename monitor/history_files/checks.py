"""The checks of one probe log without Spark: rows in, findings out, state in memory.

`Checks` calls what the jobs call: `rules.step.step` for each partition, `rules.across.resolution` across them, the
look-ups and the rechecks that the log's rows answer. Drills follow a log with it while it grows (`Checker`), and
`offsetwatch check` goes over one that is kept (`probe_log`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.across.lookups import Question, read_through
from rules.engine.retention import begun
from rules.step import Stored
from rules.store import MemoryStore
from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from rules.vocabulary.times import micros
from streaming_jobs.cycles.search import Searched
from streaming_jobs.history.replay import Edge, Replay
from streaming_jobs.history.validation import KEYS, reasons_to_reject
from streaming_jobs.location import TableLocation
from streaming_jobs.verdicts import lookups
from streaming_jobs.verdicts.recheck import PATIENCE, OffsetRange, explained, shares, together

log = logging.getLogger(__name__)

CHECK_FAILED: Final = "check-failed"


class Checks:
    """The checks of one history, from its first row. Not for several threads at once."""

    def __init__(self, objectives: Objectives, *, held: int = 0) -> None:
        """`held`: by how much log time is held back until `settle` (`rules.step.prepare`)."""
        self._store = MemoryStore(objectives, held=held)
        self._failed: set[Place] = set()
        self.rechecks: list[OffsetRange] = []
        """What the log's rows have to explain; whoever does so takes it out."""
        self.lookups: dict[tuple[str, int], Question] = {}
        """What the log's rows have to tell of transactions; likewise."""
        self.rejected: list[str] = []
        """Why rows could not be understood."""
        self.now: dict[Place, int] = {}
        """The log time, microseconds, that each partition has come to."""
        self.summaries: dict[Place, dict[str, Any]] = {}
        self._tries: dict[OffsetRange, int] = {}

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
        return findings + self._resolved(facts)

    def settle(self) -> list[Finding]:
        """Log time is not held back any longer: no more rows will come."""
        self._store.held = 0
        findings: list[Finding] = []
        facts: list[pa.Table] = []
        for place in list(self._store.stored):
            if place not in self._failed:
                findings += self._step(place, None, facts)
        return findings + self._resolved(facts)

    def _resolved(self, facts: list[pa.Table]) -> list[Finding]:
        findings: list[Finding] = []
        if facts:
            resolved = self._store.resolve(pa.concat_tables(facts))
            findings += resolved.findings
            for question in resolved.questions:
                known = self.lookups.get(question.key)
                self.lookups[question.key] = question if known is None else known.joined(question)
        return findings

    def begin(self, edges: Iterable[Edge]) -> None:
        """State begins where rows are left: those before have been aged out of the log."""
        for edge in edges:
            self._store.stored[edge.place] = Stored(hot=begun(edge.gone))

    def answer(self, history: TableLocation, *, last: bool) -> list[Finding]:
        """What the rows of the log can answer now; `last`: no further row will come."""
        found: list[Finding] = []
        waiting = [lookups.PendingLookup(one, 0, last) for one in self.lookups.values()]
        through = read_through(
            (place.cluster, summary["topic"], place.partition, summary["read_through"])
            for place, summary in self.summaries.items()
        )
        answers = lookups.looked_up(Replay(history), waiting, through) if waiting else {}
        for question, told in answers.items():
            if told.settled:
                del self.lookups[question.key]
            found += [told.finding] if told.finding is not None else []
        return found + self._explain(history, last=last)

    def _explain(self, history: TableLocation, *, last: bool) -> list[Finding]:
        findings: list[Finding] = []
        waiting = {asked: asked.start for asked in self.rechecks}
        while waiting:
            for some in together(shares(waiting.items())):
                for part, found in explained(Replay(history), some, finished=last).items():
                    asked = part.of
                    waiting[asked] = part.end
                    findings += found or []
                    if found is None:
                        self._tries[asked] = self._tries.get(asked, 0) + 1
                    if (found is not None and part.end == asked.end) or self._tries.get(asked, 0) >= PATIENCE:
                        self.rechecks = [one for one in self.rechecks if one != asked]
                    if found is None or part.end == asked.end:
                        del waiting[asked]
        return findings

    def _step(self, place: Place, rows: pa.Table | None, facts: list[pa.Table]) -> list[Finding]:
        """`rows`: None for a step without any."""
        try:
            stepped = self._store.settle_one(place) if rows is None else self._store.step_one(place, rows)
        except Exception as error:  # a check that crashed means unknown, not passed
            log.exception("a rule failed on partition %s", place)
            self._failed.add(place)
            return [_crashed(place, self.summaries.get(place, {}), rows, error)]
        if stepped.facts.num_rows:
            facts.append(stepped.facts)
        self.rechecks += [OffsetRange(place, recheck.start, recheck.end) for recheck in stepped.rechecks]
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


def _crashed(place: Place, before: Mapping[str, Any], rows: pa.Table | None, error: Exception) -> Finding:
    """`before`: the summary of the partition's last step."""
    now = before["now"] if rows is None else pc.max(rows["completed"]).as_py()
    at = -1 if now is None else micros(now)
    topic = before["topic"] if rows is None else rows["topic"][0].as_py()
    said, slices = f"{type(error).__name__}: {error}", 0 if rows is None else rows.num_rows
    return Finding(
        anomaly=CHECK_FAILED,
        cluster=place.cluster,
        topic_id=place.topic_id,
        topic=topic,
        partition=place.partition,
        event="opened",
        message=f"a rule failed on partition {place.partition} of {topic}: its verdict is"
        f" unknown from here on ({said})",
        evidence={"error": said, "slices": slices},
        at=at,
        decidable=at,
    )


def cycles_of(searched: Searched) -> Iterator[Finding]:
    """The cycles that a search found."""
    for row in searched.findings.to_pylist():
        at = micros(row["at"])
        yield Finding(
            anomaly=row["anomaly"],
            cluster=row["cluster"],
            topic_id=row["topic_id"],
            topic=row["topic"],
            partition=row["partition"],
            subject=(row["id"],),
            message=row["message"],
            evidence=orjson.loads(row["evidence"]),
            context=orjson.loads(row["context"]),
            at=at,
            decidable=at,
        )
