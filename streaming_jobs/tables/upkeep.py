"""Upkeep of the Delta tables, so that a month of running does not slow the job down.

Plan, then act: `plan` is pure and says what to do about what `survey` has seen; `Upkeep.run` does it. What is done:

- small files are compacted, once there are many; the stream over `history` does not notice (`skipChangeCommits`);
- `history` and `findings` are aged out, `history` by whole days; findings that are only counted much sooner, as
  a healthy canary makes ten millions of them a year;
- files that no version within the retention needs are deleted (vacuum; not of `history` while a rebuild reads it),
  and the log is checkpointed and its expired commits dropped;
- under a cap (`max_gb`) the oldest of `history` goes before its time (`streaming_jobs.tables.cap`).

Every retention must exceed the largest lag that the job is allowed: a stream that wants what is gone ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from rules.vocabulary.encodings import compacted
from rules.vocabulary.file_sizes import targets
from rules.vocabulary.table_errors import in_words
from streaming_jobs.config import JobConfig, UpkeepConfig
from streaming_jobs.errors import UNREADABLE, TableError
from streaming_jobs.location import TableLocation, TableUrl, names, opened, readers
from streaming_jobs.tables import cap
from streaming_jobs.tables.data_file import sync_commit
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.file_hashes import CHANGED, changed, forget_notes
from streaming_jobs.tables.log_kept import is_kept, let_go
from streaming_jobs.tables.schemas import SPECS

Action = Literal["compact", "age", "thin", "let_go", "checkpoint", "vacuum"]

_REPLACED: Final = frozenset({"partition_state", "readers", "across", "cycle_search"})
"""Tables that the job itself replaces as a whole: they have nothing to compact and nothing to age."""

_AGED_BY: Final = {
    "findings": "at",
    "rejected": "recorded",
    "transactions": "at",
    "rechecks": "recorded",
    "lookups": "recorded",
}
"""The time by which rows of these tables are old."""

_LOG_FILES: Final = 1_000
_SMALL_BYTES: Final = 16 << 20
_VACUUM_EVERY: Final = timedelta(hours=1)
_CAUGHT_UP: Final = timedelta(minutes=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a table looks like. `small_files` of the current version; `log_files` of its log; `oldest` day of its data;
    `vacuumed`, `thinned`: when this process last did so. `log_kept`: a rebuild has the log's commits kept, and the
    stream has read it up to `read_through`."""

    name: str
    small_files: int
    log_files: int
    oldest: date | None
    vacuumed: datetime | None
    thinned: datetime | None = None
    log_kept: bool = False
    read_through: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do. `predicate` is what to delete, for `age` and `thin`."""

    table: str
    action: Action
    predicate: str | None = None
    hours: int | None = None


def plan(surveys: Iterable[Survey], config: UpkeepConfig, now: datetime) -> list[Step]:
    """What to do, in order. Pure."""
    steps: list[Step] = []
    kept = {"history": config.history_days} | dict.fromkeys(_AGED_BY, config.findings_days)
    for seen in surveys:
        days = kept.get(seen.name)
        if days is not None and seen.oldest is not None:
            first = (now - timedelta(days=days)).date()
            if seen.oldest < first:
                column = _AGED_BY.get(seen.name, "date")
                value = f"'{first.isoformat()}'" if column == "date" else _midnight(first)
                steps.append(Step(table=seen.name, action="age", predicate=f"{column} < {value}"))
        if seen.name == "findings" and (seen.thinned is None or seen.thinned.date() < now.date()):
            first = (now - timedelta(days=config.counted_days)).date()
            if seen.oldest is not None and seen.oldest < first:
                steps.append(Step(table=seen.name, action="thin", predicate=f"{_COUNTED} AND at < {_midnight(first)}"))
        if seen.name not in _REPLACED and seen.small_files >= config.small_files:
            steps.append(Step(table=seen.name, action="compact"))
        if seen.log_kept and seen.read_through is not None and now - seen.read_through < _CAUGHT_UP:
            steps.append(Step(table=seen.name, action="let_go"))
        if seen.log_files >= _LOG_FILES:
            steps.append(Step(table=seen.name, action="checkpoint"))
        # A rebuild reads the files of one version, for hours.
        if not seen.log_kept and (seen.vacuumed is None or now - seen.vacuumed >= _VACUUM_EVERY):
            spec = SPECS.get(seen.name)
            hours = config.vacuum_hours if seen.name not in _REPLACED or spec is None else 1
            steps.append(Step(table=seen.name, action="vacuum", hours=max(1, round(hours))))
    return steps


def _up_to(time: datetime) -> str:
    """Rows that had completed by a time; `date` is the day of that, so that files of later ones are left alone."""
    utc = time.astimezone(UTC)
    return f"date <= '{utc.date().isoformat()}' AND completed <= '{utc.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}'"


def _midnight(day: date) -> str:
    return f"'{day.isoformat()}T00:00:00Z'"


_COUNTED: Final = "event = 'raised' AND severity IN ('info', 'allowed') AND anomaly <> 'topic-recreated'"
"""Findings that nobody is told of. A condition is no such thing: its end is told of by its beginning. That a topic was
made anew is said with incidents, however much later these are asked for."""


def survey(path: TableLocation, name: str, vacuumed: datetime | None, thinned: datetime | None = None) -> Survey:
    """Look at a table. Raises Delta's errors."""
    table = DeltaTable(str(path), storage_options=readers(path))
    actions = pa.table(table.get_add_actions(flatten=True))
    sizes = actions["size_bytes"].to_pylist()
    return Survey(
        name=name,
        small_files=sum(size < _SMALL_BYTES for size in sizes),
        log_files=sum(1 for one in names(path / "_delta_log") if one.endswith(".json")),
        oldest=_oldest(actions),
        vacuumed=vacuumed,
        thinned=thinned,
        log_kept=is_kept(table),
    )


def _oldest(actions: pa.Table) -> date | None:
    for column in ("partition.date", "min.at", "min.recorded"):
        if column in actions.column_names:
            values = [v for v in actions[column].to_pylist() if v is not None]
            if values:
                least = min(values)
                return least.date() if isinstance(least, datetime) else least
    return None


def act(path: TableLocation, step: Step) -> str:
    """Do one step; what was done, as a line. Raises Delta's errors."""
    table = DeltaTable(str(path))
    if step.action == "compact":
        removed, added = _compact(path, table, compacted() if step.table == "history" else None)
        return f"{step.table}: {removed} files compacted into {added}"
    if step.action in ("age", "thin"):
        gone = table.delete(step.predicate)
        _sync(path, table)
        what = f"{gone.get('num_removed_files', 0)} files" if step.action == "age" else "what is only counted"
        return f"{step.table}: {what} aged out ({step.predicate})"
    if step.action == "let_go":
        before = let_go(table).removeprefix("interval ")
        return f"{step.table}: commits are kept for {before} again, after a rebuild"
    if step.action == "checkpoint":
        table.create_checkpoint()
        _sync(path, table)  # before the commits that it says again are deleted
        table.cleanup_metadata()
        return f"{step.table}: checkpoint at version {table.version()}"
    # Full: what was removed some hours ago the log's checkpoints leave out, and it would stay for ever.
    gone = table.vacuum(retention_hours=step.hours, dry_run=False, enforce_retention_duration=False, full=True)
    if not isinstance(path, TableUrl):
        forget_notes(path)
    return f"{step.table}: {len(gone)} unused files deleted"


def _compact(path: TableLocation, table: DeltaTable, written: WriterProperties | None) -> tuple[int, int]:
    """Put small files together, a partition after the other; how many were removed and added."""
    removed = added = 0
    for filters, size in targets(table):
        if not isinstance(path, TableUrl):
            _require_as_written(path, table.get_add_actions(flatten=True), filters, size)
        made = table.optimize.compact(filters, target_size=size, max_concurrent_tasks=1, writer_properties=written)
        if made["numFilesRemoved"]:
            _sync(path, table)
            removed, added = removed + made["numFilesRemoved"], added + made["numFilesAdded"]
    return removed, added


def _require_as_written(path: Path, actions: Any, filters: Sequence[tuple[str, str, str]] | None, size: int) -> None:
    """Raises OSError where the bytes of a file have changed that would be compacted, as `filters` picks it and it is
    smaller than `size`: what was made of it would look as if it had been written so."""
    for one in pa.table(actions).to_pylist():
        chosen = all(str(one[f"partition.{name}"]) == value for name, _, value in filters or ())
        if chosen and one["size_bytes"] < size and changed(file := path / unquote(one["path"])):
            raise OSError(f"{UNREADABLE} file {file}: {CHANGED}")


def _sync(path: TableLocation, table: DeltaTable) -> None:
    if not isinstance(path, TableUrl):
        sync_commit(path, table.version(), rewritten=True)


class Upkeep:
    """Keeps the tables of one configuration. Not for several threads at once."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._done: dict[tuple[str, Action], datetime] = {}

    def _paths(self) -> dict[str, TableLocation]:
        own: dict[str, TableLocation] = {name: self._config.tables_path / name for name in SPECS}
        return {"history": self._config.history_path, **own}

    def run(self, now: datetime, stopping: Callable[[], bool] = lambda: False) -> Iterator[str]:
        """Survey, plan, act; a line for each thing done or failed. A failure (somebody else's commit came between, say)
        is told and left for the next time, and so is what has not begun once it is `stopping`."""
        for name, path in self._paths().items():
            if stopping():
                return
            try:
                if opened(path) is None:
                    continue
                seen = survey(path, name, self._done.get((name, "vacuum")), self._done.get((name, "thin")))
                if seen.log_kept:
                    seen = replace(seen, read_through=self._read_through())
                for step in plan([seen], self._config.upkeep, now):
                    if stopping():
                        return
                    line = act(path, step)
                    self._done[name, step.action] = now
                    yield line
            except (DeltaError, OSError, ValueError) as error:
                yield f"{name}: upkeep put off: {in_words(error)}"
        most, history = self._config.upkeep.max_gb, self._config.history_path
        if most is not None and not stopping() and isinstance(history, Path) and DeltaTable.is_deltatable(str(history)):
            try:
                yield from self._hold(history, most, now)
            except (DeltaError, OSError, ValueError) as error:
                yield f"history: upkeep put off: {in_words(error)}"

    def _read_through(self) -> datetime | None:
        """The log time up to which the stream has come."""
        try:
            told = read_table(self._config.tables_path, "partition_state")["now"].to_pylist()
        except TableError:
            return None
        return max((one for one in told if one is not None), default=None)

    def _hold(self, history: Path, most: float, now: datetime) -> Iterator[str]:
        """Keep the data folder below `most` gigabytes; a line for what was done, and where that is not enough."""
        files = cap.held(history)
        taken = cap.taken([self._config.root], history, files)
        allowed = most * 1e9
        if taken.kept > cap.BEGIN_AT * allowed:
            until = cap.cut(files, taken.kept - cap.END_AT * allowed, now)
            takes = f"the data folder takes {taken.kept / 1e9:.3g} GB of {most:g} (job.upkeep.max_gb)"
            if until is not None:
                gone = Step(table="history", action="age", predicate=_up_to(until))
                yield f"{takes}; {act(history, gone)}"
            elif taken.kept > allowed:
                yield f"{takes}, and of the probe log nothing is left to take but its last hour"
        if taken.total > allowed:
            yield act(history, Step(table="history", action="vacuum", hours=1))
