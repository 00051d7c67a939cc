"""The state rebuilt from the probe log, in order, and handed over to a new query.

It is needed where the stream cannot go on or begin by itself: the checkpoint is gone although the tables tell of an
earlier query; it was laid out, or the state in it written, by another version; the commit that the stream wants next
has been cleaned away (`evidence-gap`); or it would begin on a table whose first commits are gone, in whatever order
compaction left the files.

The log is read at one version of its table in the order of its times (`replay`), each piece goes through the same
checks as the stream's batches (`verdicts.checks`, their state in memory), and the verdicts into the same tables
(`sink`), as far as these do not tell them yet (`untold`). Log time is held back meanwhile (`rules.step.HELD`): in the
order of their times, what hosts did whose clocks differ comes further apart than it did live. Then the state becomes
that of a new checkpoint (`handover`), and the stream goes on with the commit after that version: it begins at the
version itself, whose own rows it passes over.

A rebuild that is killed goes on from the last state it saved, with the same pieces: what it had written already it
finds in the tables, by the number of the piece. It reads the newest days of the log (`job.rebuild_days`), and what was
written since the tables were: all of it would take an hour for each two days. Older rows are gone for it like those
that were aged out: `rules.engine.retention` tells what that means for the checks. The log's commits are kept meanwhile
(`log_kept`).
"""

from __future__ import annotations

import base64
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from deltalake.exceptions import DeltaError

from rules.engine.retention import begun
from rules.step import HELD, UnknownFormat
from rules.vocabulary.slices import Place
from rules.vocabulary.table_errors import in_words
from rules.vocabulary.times import from_micros, micros
from streaming_jobs.config import JobConfig
from streaming_jobs.damaged_table_log import empty_commits, write_off
from streaming_jobs.errors import EvidenceGap, JobError, StateFormat, TableError, translated
from streaming_jobs.history import damage
from streaming_jobs.history.bundles import bundles_of, pack, rejected_in, slices_in
from streaming_jobs.history.damage import Damage
from streaming_jobs.history.gap import gap, open_gaps
from streaming_jobs.history.handover import STATE_SCHEMA, RebuildPlan, Workspace, handover
from streaming_jobs.history.layout import has_begun, reason_against
from streaming_jobs.history.replay import ROWS, Piece, Replay
from streaming_jobs.history.source import first_version
from streaming_jobs.location import TableLocation
from streaming_jobs.tables import log_kept
from streaming_jobs.tables.delta_tables import read_table, version_of
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.verdicts.checks import OUTPUT_SCHEMA, Check, Checks, no_verdict
from streaming_jobs.verdicts.kept import Kept
from streaming_jobs.verdicts.sink import Listener, Rebuilt, Sink
from streaming_jobs.verdicts.untold import Key, Untold

log = logging.getLogger(__name__)

SAVE_EVERY: Final = 30.0
"""Seconds between two saved states: so much work is done again after a kill."""
_TELL_EVERY: Final = 5.0
_REMEMBERED: Final = ("findings", "rejected", "transactions", "rechecks", "lookups")


class RebuildStopped(JobError):
    """A stop was asked for in mid-rebuild; the next start goes on with it."""


def reason_to_rebuild(config: JobConfig) -> str | None:
    """Why the job cannot just start, if so, as a phrase."""
    unfinished = Workspace(config.checkpoint_path, config.rebuild_folder).plan()
    if unfinished is not None:
        return unfinished.reason
    if has_begun(config.checkpoint_path) or handover(config.checkpoint_path) is not None:
        return reason_against(config.checkpoint_path) or _reason_in_findings(config.tables_path)
    if config.starting_version is not None:
        return None
    if read_table(config.tables_path, "partition_state").num_rows:
        return "its checkpoint is gone"
    if first_version(config.history_path) is None:
        return "the probe log's first commits are gone"
    return None


def _reason_in_findings(tables: TableLocation) -> str | None:
    """The same by what of the table of findings is gone: a rebuild finds it again, in its newest days."""
    empty = _empty_commits(tables)
    return f"{', '.join(map(str, empty))} is empty: what was found there is gone" if empty else None


def _empty_commits(tables: TableLocation) -> list[Path]:
    """Of the table of findings. An object store writes whole commits or none."""
    return empty_commits(tables / "findings") if isinstance(tables, Path) else []


class _Chunks:
    """A partition's chunks in memory."""

    def __init__(self) -> None:
        self._chunks: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self._chunks.get(name)

    def put(self, name: str, chunk: bytes) -> None:
        self._chunks[name] = chunk

    def remove(self, name: str) -> None:
        self._chunks.pop(name, None)

    @property
    def all(self) -> Mapping[str, bytes]:
        """Every chunk by its name."""
        return self._chunks


class Rebuild:
    """One rebuild of a job's state. `run` returns when the new checkpoint is in its place.

    `say` is given lines for the user. `stopping` is asked between two pieces."""

    def __init__(
        self,
        config: JobConfig,
        listeners: Sequence[Listener] = (),
        *,
        check: Check | None = None,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._listeners = listeners
        self._checks = Checks(config.objectives.objectives(), check or Check())
        self._clock = clock
        self._stopping = stopping
        self._say_only = say
        self._space = Workspace(config.checkpoint_path, config.rebuild_folder)
        self._partitions: dict[Place, tuple[Kept, _Chunks]] = {}
        self._summaries: dict[Place, str] = {}
        self._lost: list[Damage] = []

    def run(self, reason: str, *, rows: int = ROWS) -> None:
        """Rebuild because of `reason`, or go on with an unfinished rebuild. A piece has about so many `rows`. Files of
        the log that are lost are given up, and it begins anew.

        Raises `RebuildStopped`, and `JobError`s: the log cannot be read, a table cannot be written."""
        while True:
            try:
                self._run(reason, rows)
                return
            except (EvidenceGap, TableError):
                history = self._config.history_path
                if not (lost := damage.found(history, everything=True)):
                    raise
                damage.give_up(history, lost, tended=self._config.upkeep.enabled)
                self._say(damage.told(lost))
                self._lost += lost
                self._space.discard()
                self._partitions, self._summaries = {}, {}

    def _run(self, reason: str, rows: int) -> None:
        plan = self._space.plan()
        if plan is not None:
            try:
                self._say("a rebuild of the checks' state was interrupted: it goes on")
                self._go(plan)
                return
            except (EvidenceGap, StateFormat, UnknownFormat) as error:
                self._say(f"the interrupted rebuild begins anew ({error})")
                self._space.discard()
                self._partitions, self._summaries = {}, {}
        self._go(self._new_plan(reason, rows))

    def _say(self, line: str) -> None:
        log.info("%s", line)
        self._say_only(line)

    def _new_plan(self, reason: str, rows: int) -> RebuildPlan:
        states = read_table(self._config.tables_path, "partition_state").to_pylist()
        judged = max((row["now"] for row in states if row["now"] is not None), default=None)
        replay = Replay(self._config.history_path)
        replay = replay.newest_days(self._config.rebuild_days, self._clock().date(), judged)
        pieces = tuple(replay.pieces(rows))
        if sum(piece.rows for piece in pieces) > log_kept.MANY:
            self._keep_the_log()
        plan = RebuildPlan(
            id=uuid.uuid4().hex,
            reason=reason,
            version=replay.version,
            files=tuple(replay.added_files()),
            tables={name: version_of(self._config.tables_path, name) for name in _REMEMBERED},
            reached=tuple(_reached(states)),
            pieces=pieces,
        )
        self._space.begin(plan)
        return plan

    def _keep_the_log(self) -> None:
        try:
            log_kept.keep(self._config.history_path)
        except (DeltaError, OSError) as error:
            # It may be done in time.
            self._say(f"the probe log is not kept for longer while it is read: {in_words(error)}")

    def _go(self, plan: RebuildPlan) -> None:
        if not self._space.handed_over(plan) and not self._space.complete():
            self._rebuild(plan)
        self._space.install()
        write_off(_empty_commits(self._config.tables_path))
        self._say(f"the checks' state is rebuilt: the stream goes on after version {plan.version} of the probe log")

    def _rebuild(self, plan: RebuildPlan) -> None:
        began = time.monotonic()
        rows = sum(piece.rows for piece in plan.pieces)
        self._say(
            f"rebuilding the checks' state from the probe log at version {plan.version}, because {plan.reason}: "
            f"{rows} rows in {len(plan.pieces)} pieces"
        )
        try:
            since = plan.pieces[0].day if plan.pieces else None
            replay = Replay(self._config.history_path, plan.version, since)
        except TableError as error:  # deltalake names no kinds: a version that is not there is the one reason here
            raise EvidenceGap(str(error)) from error
        untold = self._untold(plan)
        progress = self._space.progress()
        resolution = None
        if progress.state is None:
            self._begin(replay)
        else:
            told = progress.more["resolution"]
            resolution = None if told is None else base64.b64decode(told)
            self._restore(self._space.state(progress))
            untold.load(progress.more["untold"])
            self._summaries = {Place(*key): summary for *key, summary in progress.more["summaries"]}
        sink = Sink(
            self._config.tables_path,
            f"{self._config.name}:{plan.id}",
            self._listeners,
            clock=self._clock,
            objectives=self._config.objectives.objectives(),
            rebuilt=Rebuilt(untold, resolution),
        )
        if self._lost:
            known = set(open_gaps(current_findings(self._config.tables_path)))
            sink.report(gap("opened", (set(sink.clusters) or {""}) - known, self._clock(), damaged=self._lost))
        saved = told = time.monotonic()
        for number, slices in _ahead(replay, plan.pieces, progress.done):
            if self._stopping():
                raise RebuildStopped("The rebuild of the checks' state was stopped; the next start goes on with it.")
            sink.accept(number, self._piece(slices))
            now = time.monotonic()
            if now - saved >= SAVE_EVERY:
                self._space.save(number + 1, self._state(), self._more(untold, sink.resolution))
                saved = now
            if now - told >= _TELL_EVERY:
                self._tell(plan, number + 1, rows)
                told = now
        sink.accept(len(plan.pieces), self._settled())
        sink.accept(len(plan.pieces) + 1, self._last(untold), last=True)
        self._space.prepare(plan, self._state())
        seconds = time.monotonic() - began
        self._say(f"{rows} rows of {len(self._partitions)} partitions were checked again in {seconds:.1f} s")

    def _more(self, untold: Untold, resolution: bytes | None) -> dict[str, Any]:
        return {
            "untold": untold.dump(),
            "summaries": [[*place, said] for place, said in self._summaries.items()],
            "resolution": None if resolution is None else base64.b64encode(resolution).decode(),
        }

    def _tell(self, plan: RebuildPlan, done: int, rows: int) -> None:
        so_far = sum(piece.rows for piece in plan.pieces[:done])
        end = plan.pieces[done - 1].end
        day = plan.pieces[done - 1].day
        until = f"the end of {day}" if end is None else from_micros(end).strftime("%Y-%m-%d %H:%M:%S")
        self._say(f"rebuilt up to {until} UTC: {so_far} of {rows} rows ({100 * so_far // max(1, rows)} %)")

    def _untold(self, plan: RebuildPlan) -> Untold:
        """What the tables told when this rebuild began."""
        tables = self._config.tables_path
        try:
            before = {name: read_table(tables, name, plan.tables[name]) for name in _REMEMBERED}
        except TableError as error:
            raise EvidenceGap(str(error)) from error
        return Untold(before, {(c, t, p): now for c, t, p, now in plan.reached})

    def _partition(self, place: Place) -> tuple[Kept, _Chunks]:
        return self._partitions.setdefault(place, (Kept(), _Chunks()))

    def _begin(self, replay: Replay) -> None:
        edges = replay.edges()
        for edge in edges:
            self._partition(edge.place)[0].hot = begun(edge.gone)
        if edges:
            self._say(
                f"the first rows of {len(edges)} partitions are older than job.rebuild_days, or have been aged out: "
                f"state begins with {replay.days()[0]}, and what was sent before that is not judged again"
            )

    def _piece(self, slices: pa.Table) -> pa.Table:
        """The verdicts on the rows of one piece, without summaries: those of the past interest nobody."""
        rows: dict[Place, dict[str, Any]] = {}
        for bundle in bundles_of(slices).to_pylist():
            if bundle["rejected"]:
                for place, refused in rejected_in([bundle["payload"]]).items():
                    rows.setdefault(place, no_verdict(place))["rejected"] = pack(refused)
                continue
            for place, own in slices_in([bundle["payload"]]).items():
                try:
                    row = self._checks.verdict(place, own, *self._partition(place), held=HELD)
                except UnknownFormat as error:
                    raise translated(error, checkpoint=str(self._config.checkpoint_path)) from error
                self._summaries[place], row["summary"] = row["summary"], None
                rows[place] = row | {"rejected": rows.get(place, row)["rejected"]}
        return pa.Table.from_pylist(list(rows.values()), schema=OUTPUT_SCHEMA)

    def _settled(self) -> pa.Table:
        """The verdicts that were held back, now that all is here."""
        made = {
            place: self._checks.settled(place, *self._partition(place), orjson.loads(before))
            for place, before in self._summaries.items()
        }
        rows = {place: row for place, row in made.items() if row is not None}
        for place, row in rows.items():
            self._summaries[place], row["summary"] = row["summary"], None
        return pa.Table.from_pylist(list(rows.values()), schema=OUTPUT_SCHEMA)

    def _last(self, untold: Untold) -> pa.Table:
        """Every partition's summary, and the events by which the conditions in the table come to be what they are."""
        now: dict[Key, int] = {}
        unknown: set[Key] = set()
        left = {key: told for key, told in untold.left_open().items() if Place(*key) in self._partitions}
        for place, summary in self._summaries.items():
            told, key = orjson.loads(summary), (place.cluster, place.topic_id, place.partition)
            if told.get("check_failed"):
                unknown.add(key)
            elif told["now"] is not None:
                now[key] = told["now"]
        carried = {key: self._checks.carried(self._partition(Place(*key))[0], told) for key, told in left.items()}
        events = untold.settle(now, unknown, carried)
        rows = [
            {"cluster": p.cluster, "topic_id": p.topic_id, "partition": p.partition, "summary": summary}
            for p, summary in self._summaries.items()
        ]
        if events.num_rows:
            place = Place("", "", -1)
            rows.append({"cluster": place.cluster, "topic_id": "", "partition": -1, "findings": pack(events)})
        return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)

    def _state(self) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for place, (kept, chunks) in self._partitions.items():
            where = {"cluster": place.cluster, "topic_id": place.topic_id, "partition": place.partition, "behind": 0}
            rows.append(where | {"value": kept.hot, "failed": kept.failed, "behind": kept.behind})
            rows.extend(where | {"name": name, "value": chunk} for name, chunk in chunks.all.items())
        return pa.Table.from_pylist(rows, schema=STATE_SCHEMA)

    def _restore(self, state: pa.Table) -> None:
        for row in state.to_pylist():
            kept, chunks = self._partition(Place(row["cluster"], row["topic_id"], row["partition"]))
            if row["name"] is None:
                kept.hot, kept.failed, kept.behind = row["value"], row["failed"], row["behind"]
            else:
                chunks.put(row["name"], row["value"])


def _reached(states: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, int, int]]:
    """The log time up to which each partition has been judged, of rows of `partition_state`."""
    for row in states:
        if row["now"] is not None and not row["check_failed"]:
            yield row["cluster"], row["topic_id"], row["partition"], micros(row["now"])


def _ahead(replay: Replay, pieces: Sequence[Piece], done: int) -> Iterator[tuple[int, pa.Table]]:
    """The pieces from number `done` on, with their rows; the next one is read while one is worked on."""
    with ThreadPoolExecutor(1, "replay") as reader:
        coming = reader.submit(replay.read, pieces[done]) if done < len(pieces) else None
        for number in range(done, len(pieces)):
            assert coming is not None
            rows = coming.result()
            coming = reader.submit(replay.read, pieces[number + 1]) if number + 1 < len(pieces) else None
            yield number, rows
