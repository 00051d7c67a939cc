"""The stateful operator: the rows of the probe log in, one row of verdicts per partition and batch out.

    history -> bundle (mapInArrow) -> group by (cluster, topic id, partition) -> `Partition` (transformWithState)

The checks themselves are `rules.step`; this module only carries their state. A partition's *hot* value is read and
written at each batch, and *chunks* only where the checks ask for them, so that what a healthy batch writes stays small.

**A rule that raises.** The partition is *quarantined*: nothing of that batch is applied to it, its last good state is
kept beside the error, a `check-failed` condition opens, and the partition's later rows are counted and not checked,
since checks that have missed rows would speak of gaps that are not there. Its verdict is unknown from then on; all
other partitions go on. No evidence is lost: every row is in `history`, and a rebuild replays the partition from there.

**A state of another version** (`UnknownFormat`) ends the query: the job then rebuilds the state (`rebuild`) from the
probe log. A query whose state was rebuilt is handed it as its initial state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, ValueState

from rules.step import Stepped, UnknownFormat, prepare
from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Place, micros
from streaming_jobs.history import files
from streaming_jobs.history.bundles import BUNDLE_DDL, bundle_files, bundle_rows, pack, records_in, slices_in, unpack
from streaming_jobs.history.validation import KEYS

_TEXT, _BYTES, _COUNT = pa.string(), pa.binary(), pa.int64()
OUTPUT_SCHEMA: Final = pa.schema(
    {
        "cluster": _TEXT, "topic_id": _TEXT, "partition": pa.int32(), "findings": _BYTES, "facts": _BYTES,
        "rechecks": _TEXT, "summary": _TEXT, "rejected": _BYTES, "slices": _COUNT, "sent": _COUNT, "polled": _COUNT,
        "state_bytes": _COUNT, "chunks_written": _COUNT, "check_us": _COUNT, "state_us": _COUNT,
    }
)  # fmt: skip
"""One row per partition and batch. `findings`, `facts` (for stage 2) and `rejected` are Arrow streams, absent where
there are none, and so is `rechecks`, a JSON list of [start, end) offsets that two readers saw differently. `summary` is
the JSON object of the partition's row for `partition_state`, times in microseconds. `state_bytes` counts what was
written to the state store; `check_us` and `state_us` are spent in the checks and in the store's round trips."""

VERDICT_DDL: Final = "verdict binary"
"""How such a row crosses Spark: as one value. Through pandas each column would cost as much as a check."""


@dataclass(frozen=True)
class Check:
    """The checks' entry point. Another stands in for it where the operator itself is tested."""

    prepare: Callable[[bytes | None, pa.Table], Any] = prepare


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return micros(value)
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    raise TypeError(f"a summary holds a {type(value).__name__}")


def _failure(place: Place, topic: str, slices: pa.Table, error: Exception) -> Finding:
    """The condition that opens when a rule raises. Its time is the last of the batch's, so that a re-run agrees."""
    at = micros(pc.max(slices["completed"]).as_py())
    said = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    return Finding(
        anomaly="check-failed",
        cluster=place.cluster,
        topic_id=place.topic_id,
        topic=topic,
        partition=place.partition,
        subject=(),
        event="opened",
        message=f"A rule failed on partition {place.partition} of {topic}: its verdict is unknown from here on.",
        evidence={"error": said, "slices": slices.num_rows},
        at=at,
        decidable=at,
    )


@dataclass(slots=True)
class _Kept:
    """A partition's row in the state store: the hot value, the error that quarantined it, the slices left unchecked."""

    hot: bytes | None
    failed: str | None
    behind: int


STATE_DDL: Final = (
    "cluster string, topic_id string, partition int, name string, value binary, failed string, behind bigint"
)
"""State that was rebuilt. A partition has one row without a name, whose value is the hot value, with the error that
quarantined it and the slices left unchecked since; and one row for each chunk."""


class Partition(StatefulProcessor):
    """One partition's checks, called once per batch that holds slices of it.

    `kept` and `chunks` are where its state is: Spark's stores, or whatever else holds values so (`rebuild`)."""

    def __init__(self, objectives: Objectives, check: Check) -> None:
        self.objectives = objectives
        self.check = check

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept: ValueState | Any = handle.getValueState("partition", "hot binary, failed string, behind bigint")
        self.chunks: MapState | Any = handle.getMapState("chunks", "name string", "chunk binary")

    def close(self) -> None:
        pass

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        for row in initialState.itertuples(index=False):
            if isinstance(row.name, str):
                self.chunks.updateValue((row.name,), (row.value,))
            else:
                failed = row.failed if isinstance(row.failed, str) else None
                self.kept.update((row.value, failed, int(row.behind)))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        payloads: list[bytes] = []
        rejected: list[bytes] = []
        for frame in rows:
            for refused, payload in zip(frame["rejected"], frame["payload"], strict=True):
                (rejected if refused else payloads).append(payload)
        row = self.verdict(Place(str(key[0]), str(key[1]), int(key[2])), payloads, rejected)
        told = pa.RecordBatch.from_pylist([row], schema=OUTPUT_SCHEMA)
        yield pd.DataFrame({"verdict": [told.serialize().to_pybytes()]})

    def verdict(self, place: Place, payloads: list[bytes], rejected: list[bytes]) -> dict[str, Any]:
        """The row of `OUTPUT_SCHEMA` for one batch's bundles of this partition: its slices, and its rejected rows."""
        row: dict[str, Any] = dict(zip(KEYS, place, strict=True)) | _NOTHING
        if rejected:
            row["rejected"] = pack(pa.concat_tables([unpack(payload) for payload in rejected]))
        if payloads:
            self._checked(place, slices_in(payloads), row)
        return row

    def _checked(self, place: Place, slices: pa.Table, row: dict[str, Any]) -> None:
        row["slices"] = slices.num_rows
        row["sent"], row["polled"] = records_in(slices)
        before = time.perf_counter_ns()
        kept = self._load()
        state_ns = time.perf_counter_ns() - before
        check_ns = 0
        if kept.failed is None:
            try:
                began = time.perf_counter_ns()
                prepared = self.check.prepare(kept.hot, slices)
                loaded = time.perf_counter_ns()
                chunks = {
                    name: stored[0] for name in prepared.chunks if (stored := self.chunks.getValue((name,))) is not None
                }
                ready = time.perf_counter_ns()
                stepped = prepared.step(chunks, self.objectives)
                judged = [(finding, severity(finding.anomaly, finding.context)) for finding in stepped.findings]
                found = pack(findings_table(judged)) if judged else None
                facts = pack(stepped.facts) if stepped.facts.num_rows else None
                rechecks = orjson.dumps([list(r) for r in stepped.rechecks]).decode() if stepped.rechecks else None
                summary = orjson.dumps(stepped.summary, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()
                check_ns = time.perf_counter_ns() - ready + (loaded - began)
                state_ns += ready - loaded
            except UnknownFormat:
                raise
            except Exception as error:  # a check that crashed means unknown, not passed
                self._quarantine(place, slices, kept, error, row)
                return
            before = time.perf_counter_ns()
            row["state_bytes"], row["chunks_written"] = self._save(kept, stepped)
            state_ns += time.perf_counter_ns() - before
            row["findings"], row["facts"], row["rechecks"], row["summary"] = found, facts, rechecks, summary
        else:
            kept.behind += slices.num_rows
            self.kept.update((kept.hot, kept.failed, kept.behind))
            row["summary"] = _unknown(slices, kept)
        row["check_us"], row["state_us"] = check_ns // 1000, state_ns // 1000

    def _load(self) -> _Kept:
        stored = self.kept.get()
        return _Kept(None, None, 0) if stored is None else _Kept(stored[0], stored[1], stored[2])

    def _save(self, kept: _Kept, stepped: Stepped) -> tuple[int, int]:
        """Write what changed; (bytes, chunks) written."""
        size = written = 0
        if stepped.hot != kept.hot:
            self.kept.update((stepped.hot, None, 0))
            size += len(stepped.hot)
        for name, chunk in stepped.chunks.items():
            if chunk is None:
                self.chunks.removeKey((name,))
            else:
                self.chunks.updateValue((name,), (chunk,))
                size += len(chunk)
            written += 1
        return size, written

    def _quarantine(self, place: Place, slices: pa.Table, kept: _Kept, error: Exception, row: dict[str, Any]) -> None:
        finding = _failure(place, slices["topic"][0].as_py(), slices, error)
        kept.failed, kept.behind = finding.evidence["error"], slices.num_rows
        self.kept.update((kept.hot, kept.failed, kept.behind))
        row["findings"] = pack(findings_table([(finding, severity(finding.anomaly, finding.context))]))
        row["summary"] = _unknown(slices, kept)


def _unknown(slices: pa.Table, kept: _Kept) -> str:
    told = {"topic": slices["topic"][0].as_py(), "check_failed": kept.failed, "slices_behind": kept.behind}
    return orjson.dumps(told).decode()


_NOTHING: Final[dict[str, Any]] = {
    "findings": None, "facts": None, "rechecks": None, "summary": None, "rejected": None, "slices": 0, "sent": 0,
    "polled": 0, "state_bytes": 0, "chunks_written": 0, "check_us": 0, "state_us": 0,
}  # fmt: skip


def verdict_rows(told: pa.Table) -> pa.Table:
    """The rows (`OUTPUT_SCHEMA`) that a batch of the stream told as values (`VERDICT_DDL`)."""
    batches = [pa.ipc.read_record_batch(value.as_buffer(), OUTPUT_SCHEMA) for value in told["verdict"]]
    return pa.Table.from_batches(batches, OUTPUT_SCHEMA).combine_chunks()


def verdicts(
    history: DataFrame, objectives: Objectives, check: Check | None = None, initial: DataFrame | None = None
) -> DataFrame:
    """The stream of verdicts (`VERDICT_DDL`) over `source.stream`: the probe log's rows, or
    its files' blocks. `initial`, of `STATE_DDL`, is the state that the first batch of a new checkpoint begins with."""
    bundle = bundle_files if tuple(history.columns) == files.COLUMNS else bundle_rows
    bundles = history.mapInArrow(cast(Any, bundle), BUNDLE_DDL)
    return bundles.groupBy(*KEYS).transformWithStateInPandas(
        statefulProcessor=Partition(objectives, check or Check()),
        outputStructType=VERDICT_DDL,
        outputMode="update",
        timeMode="none",
        initialState=None if initial is None else initial.groupBy(*KEYS),
    )
