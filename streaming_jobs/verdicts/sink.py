"""Where a batch's verdicts end: Delta tables first, then whoever listens.

Exactly once per table: a batch that Spark runs again (it was killed between our writes and its own commit) finds its
number in the tables' transactions and writes nothing; its listeners are called, and are told that it is a replay.
`partition_state` and `readers` are replaced as a whole by each batch from the rows in memory, which come from the
tables at the start: the same batch gives the same rows. What the partitions know for each other goes through stage 2
(`resolution`) here, and its findings into the same append.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.across.lookups import Question
from rules.across.recreated_topics import recreated
from rules.vocabulary.finding import FACT_SCHEMA, FINDING_SCHEMA, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Place
from streaming_jobs.errors import TableError
from streaming_jobs.history.bundles import REJECTED_SCHEMA, unpack
from streaming_jobs.history.validation import KEYS
from streaming_jobs.location import TableLocation, TableUrl
from streaming_jobs.tables.data_file import sync
from streaming_jobs.tables.delta_tables import open_tables
from streaming_jobs.tables.schemas import FINDINGS, LOOKUPS, PARTITION_STATE, READERS, RECHECKS, REJECTED, TRANSACTIONS
from streaming_jobs.verdicts import lookups as lookups_
from streaming_jobs.verdicts import recheck
from streaming_jobs.verdicts.recheck import OffsetRange
from streaming_jobs.verdicts.resolution import Resolution, judged
from streaming_jobs.verdicts.untold import Untold

log = logging.getLogger(__name__)

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """What a batch was made of. `slices`, `sent` and `polled` count rows and records of the probe log; `state_bytes` is
    what the batch wrote to the state store, `state_bytes_max` the most that one partition wrote; the seconds are sums
    over partitions (`check`: in the rules, `state`: in the store's round trips) and, for `write`, our tables."""

    partitions: int = 0
    slices: int = 0
    sent: int = 0
    polled: int = 0
    rejected: int = 0
    state_bytes: int = 0
    state_bytes_max: int = 0
    check_seconds: float = 0.0
    state_seconds: float = 0.0
    write_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch, counted. `number` is None for findings that no batch made (evidence-stalled). `findings` has the
    columns of `schemas.FINDINGS`; `states` those of `PARTITION_STATE`, for the partitions that the batch touched;
    `counted` is machine time after the tables were written. `replayed`: these findings were in the table already, from
    before a restart."""

    number: int | None
    replayed: bool
    findings: pa.Table
    states: pa.Table
    rejected: pa.Table
    stats: BatchStats
    counted: datetime
    rechecks: tuple[OffsetRange, ...] = ()
    lookups: tuple[Question, ...] = ()


Listener = Callable[[Batch], None]


class Rebuilt(NamedTuple):
    """What a rebuild begins with: what to write of what is found again, and the state of stage 2."""

    untold: Untold
    resolution: bytes | None


class Unwritten(NamedTuple):
    """Findings of no batch that have been told and could not be written yet; under which name and number."""

    app: str
    number: int
    rows: pa.Table


class Sink:
    """Writes batches and calls `listeners` in order. One batch at a time, from any thread.

    A listener that raises is logged and stops nothing. Raises `TableError` where a table cannot be written."""

    def __init__(
        self,
        root: TableLocation,
        app: str,
        listeners: Sequence[Listener] = (),
        *,
        clock: Callable[[], datetime] | None = None,
        objectives: Objectives | None = None,
        rebuilt: Rebuilt | None = None,
    ) -> None:
        """`app` is `<job>:<query id>`. But for a rebuild, the state of stage 2 is that of the batch before."""
        self._plans: TableLocation | None = None
        self._untold = rebuilt.untold if rebuilt is not None else None
        self._app = app
        self._listeners = tuple(listeners)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._lock = threading.Lock()
        self._alone = f"{app}:alone:{uuid.uuid4().hex}"
        self._told_alone = 0
        self._put_off: list[Unwritten] = []
        self._tables = open_tables(root)
        begin = (rebuilt.resolution,) if rebuilt is not None else None
        self._resolution = Resolution(self._tables["across"], app, objectives or Objectives(), begin)
        self._states: dict[Key, dict[str, Any]] = {
            _key(r): r for r in self._tables["partition_state"].read().to_pylist()
        }

    def hold_plans(self, plans: TableLocation) -> None:
        """`plans`: where Spark keeps what each batch was to read; it survives the loss of the host once findings are
        written of it. To be called before any batch."""
        self._plans = plans

    @property
    def resolution(self) -> bytes | None:
        """The state of stage 2 after the last batch."""
        return self._resolution.state

    @property
    def unwritten(self) -> list[Unwritten]:
        """What has been told, and waits for the table of findings."""
        return list(self._put_off)

    def take_over(self, unwritten: Sequence[Unwritten]) -> None:
        """What the sink before this one left is written before the next batch. To be called before any."""
        self._put_off = list(unwritten)

    @property
    def clusters(self) -> dict[str, datetime | None]:
        """The clusters whose partitions are known, and the log time of their newest row."""
        newest: dict[str, datetime | None] = {}
        for key, row in self._states.items():
            known, now = newest.get(key[0]), row.get("now")
            newest[key[0]] = max(filter(None, (known, now)), default=None)
        return newest

    def accept(self, number: int, verdicts: pa.Table, *, last: bool = False) -> Batch:
        """Write one batch of `checks.OUTPUT_SCHEMA` rows. `last`: of a rebuild, whose state of stage 2 then stands.

        Raises `UnknownFormat` where that state was written by another version."""
        with self._lock:
            began = self._clock()
            now = began
            self._write_put_off()
            found = _stacked(verdicts["findings"], FINDING_SCHEMA)
            refused = _stacked(verdicts["rejected"], REJECTED_SCHEMA)
            resolved = self._resolution.take(number, _stacked(verdicts["facts"], FACT_SCHEMA))
            found = pa.concat_tables([found, judged(resolved.findings), self._recreated(verdicts)])
            outcomes, lookups, rechecks = resolved.transactions, tuple(resolved.questions), _rechecks(verdicts)
            if self._untold is not None:
                found, refused = self._untold.findings(found), self._untold.rejected(refused)
                outcomes = self._untold.transactions(outcomes)
                rechecks, lookups = self._untold.rechecks(rechecks), self._untold.lookups(lookups)
            findings = _stamped(found, FINDINGS, number, now)
            rejected = _stamped(refused, REJECTED, number, now)
            touched = self._merge(verdicts, number)
            if findings.num_rows:
                self._hold_plan(number)
            replayed = self._append("findings", findings, number)
            self._append("rejected", rejected, number)
            self._append("transactions", _stamped(outcomes, TRANSACTIONS, number, now), number)
            self._append("rechecks", _asked(map(recheck.asked_row, rechecks), RECHECKS, number, now), number)
            self._append("lookups", _asked(map(lookups_.asked_row, lookups), LOOKUPS, number, now), number)
            self._resolution.keep(number, always=last)
            if touched:
                self._replace("partition_state", _states(self._states.values()), number)
                self._replace("readers", _readers(self._states.values()), number)
            counted = self._clock()
            batch = Batch(
                number=number,
                replayed=replayed,
                findings=findings,
                states=_states(self._states[key] for key in touched),
                rejected=rejected,
                stats=_stats(verdicts, refused.num_rows, (counted - began).total_seconds()),
                counted=counted,
                rechecks=rechecks,
                lookups=lookups,
            )
            self._tell(batch)
            return batch

    def report(self, findings: Iterable[Finding], *, put_off: bool = False) -> None:
        """Write findings that no batch made, and tell them. `put_off`: where they cannot be written now they are told
        all the same, and written before the next batch."""
        judged = [(f, severity(f.anomaly, f.context)) for f in findings]
        if not judged:
            return
        with self._lock:
            now = self._clock()
            rows = _stamped(findings_table(judged), FINDINGS, None, now)
            self._told_alone += 1
            self._put_off.append(Unwritten(self._alone, self._told_alone, rows))
            try:
                self._write_put_off()
            except TableError as error:
                if not put_off:
                    self._put_off.pop()
                    raise
                log.warning("%s findings are told, and written later: %s", rows.num_rows, error)
            self._tell(
                Batch(
                    number=None,
                    replayed=False,
                    findings=rows,
                    states=PARTITION_STATE.empty_table(),
                    rejected=REJECTED.empty_table(),
                    stats=BatchStats(),
                    counted=self._clock(),
                )
            )

    def _write_put_off(self) -> None:
        """Write findings of no batch, each under the number that it had when it was first tried: that may have come
        through although no answer did."""
        while self._put_off:
            app, number, rows = self._put_off[0]
            self._tables["findings"].write(rows, mode="append", app_id=app, batch=number)
            del self._put_off[0]

    def _tell(self, batch: Batch) -> None:
        for listener in self._listeners:
            try:
                listener(batch)
            except Exception:
                log.exception("a listener failed on batch %s", batch.number)

    def _hold_plan(self, number: int) -> None:
        """What this batch read survives the loss of the host: one of the same number that read more would be taken for
        written."""
        if self._plans is not None and not isinstance(self._plans, TableUrl):
            for path in (self._plans / str(number), self._plans):
                with suppress(FileNotFoundError):
                    sync(path)

    def _append(self, name: str, rows: pa.Table, number: int) -> bool:
        return self._tables[name].write(rows, mode="append", app_id=f"{self._app}:{name}", batch=number).replayed

    def _replace(self, name: str, rows: pa.Table, number: int) -> None:
        self._tables[name].write(rows, mode="overwrite", app_id=f"{self._app}:{name}", batch=number)

    def _recreated(self, verdicts: pa.Table) -> pa.Table:
        """Topics whose id is not what it was. A batch that runs again may find them known: its findings are written."""
        new: dict[Place, tuple[str, int]] = {}
        for row in verdicts.select([*KEYS, "summary"]).filter(pc.is_valid(verdicts["summary"])).to_pylist():
            if _key(row) not in self._states:
                summary = orjson.loads(row["summary"])
                new[Place(*_key(row))] = (summary["topic"], summary.get("began") or summary.get("now") or 0)
        if not new:
            return FINDING_SCHEMA.empty_table()
        known = ((Place(*key), row["topic"]) for key, row in self._states.items())
        return findings_table((f, severity(f.anomaly, f.context)) for f in recreated(known, new))

    def _merge(self, verdicts: pa.Table, number: int) -> list[Key]:
        touched = []
        told = verdicts.select([*KEYS, "summary"]).filter(pc.is_valid(verdicts["summary"]))
        for row in told.to_pylist():
            key = _key(row)
            summary = orjson.loads(row["summary"])
            summary.pop("began", None)
            if summary.get("check_failed"):  # the last good summary stands, and says that it is not the present
                base = self._states.get(key, {})
                self._states[key] = base | summary | dict(zip(KEYS, key, strict=True)) | {"batch": number}
            else:
                self._states[key] = summary | {"check_failed": None, "slices_behind": 0, "batch": number}
            touched.append(key)
        return touched


def _key(row: dict[str, Any]) -> Key:
    return row["cluster"], row["topic_id"], row["partition"]


def _stacked(column: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """The tables whose Arrow streams stand in a column, one below the other."""
    parts = [unpack(payload) for payload in column.drop_null().to_pylist()]
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def _rechecks(verdicts: pa.Table) -> tuple[OffsetRange, ...]:
    """The ranges of offsets that are to be explained."""
    rows = verdicts.select([*KEYS, "rechecks"]).filter(pc.is_valid(verdicts["rechecks"])).to_pylist()
    return tuple(
        OffsetRange(Place(*_key(row)), start, end) for row in rows for start, end in orjson.loads(row["rechecks"])
    )


def _asked(rows: Iterable[dict[str, Any]], schema: pa.Schema, number: int, now: datetime) -> pa.Table:
    own = {"answered": False, "batch": number, "recorded": now}
    return pa.Table.from_pylist([row | own for row in rows], schema=schema)


def _stamped(rows: pa.Table, schema: pa.Schema, number: int | None, now: datetime) -> pa.Table:
    """The rows with the job's own columns."""
    count = rows.num_rows
    own = {
        "batch": pa.repeat(pa.scalar(number, pa.int64()), count),
        "recorded": pa.repeat(pa.scalar(now, _TIME), count),
    }
    return pa.table([own[f.name] if f.name in own else rows[f.name] for f in schema], schema=schema)


_TIME: Final = pa.timestamp("us", tz="UTC")


def _states(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=PARTITION_STATE)


def _readers(rows: Iterable[dict[str, Any]]) -> pa.Table:
    listed = []
    for row in rows:
        end = row.get("last_stable") if row.get("last_stable") is not None else row.get("log_end")
        for reader in row.get("readers") or ():
            position = reader.get("position")
            listed.append(
                {name: row[name] for name in ("cluster", "topic_id", "topic", "partition", "batch")}
                | {name: reader.get(name) for name in ("process", "position", "mode")}
                | {"lag": None if end is None or position is None else max(0, end - position)}
            )
    return pa.Table.from_pylist(listed, schema=READERS)


def _stats(verdicts: pa.Table, rejected: int, seconds: float) -> BatchStats:
    def total(name: str) -> int:
        return pc.sum(verdicts[name]).as_py() or 0

    return BatchStats(
        partitions=verdicts.num_rows,
        slices=total("slices"),
        sent=total("sent"),
        polled=total("polled"),
        rejected=rejected,
        state_bytes=total("state_bytes"),
        state_bytes_max=pc.max(verdicts["state_bytes"]).as_py() or 0,
        check_seconds=total("check_us") / 1e6,
        state_seconds=total("state_us") / 1e6,
        write_seconds=seconds,
    )


def query_id(checkpoint: TableLocation) -> str:
    """The id that Spark gave to the query of this checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"])
