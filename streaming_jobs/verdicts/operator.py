"""The stateful operator: the rows of the probe log in, one row of verdicts per partition and batch out.

    history -> bundle (mapInArrow) -> group by (cluster, topic id, part) -> `Part` (transformWithState)

It is called for a few partitions at once (`bundles.PER_PART`), since each call, and each question to the state store
within it, goes to the JVM and back: what is kept of all of them is one value (`kept`), with the chunks that they ask
for at each batch (`recent`), read and written once, and their verdicts are one value too. What is checked, and how a
partition fails for itself, is `checks`.

**A state of another version** (`UnknownFormat`) ends the query: the job then rebuilds the state (`rebuild`) from the
probe log. A query whose state was rebuilt is handed it as its initial state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle, ValueState

from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from streaming_jobs.history.block import BUNDLE_DDL
from streaming_jobs.history.bundles import (
    BUNDLE_KEYS,
    BUNDLE_SCHEMA,
    PER_PART,
    bundle_rows,
    pack,
    rejected_in,
    slices_in,
)
from streaming_jobs.verdicts.checks import OUTPUT_SCHEMA, Check, Checks, no_verdict
from streaming_jobs.verdicts.kept import Kept, dump, load
from streaming_jobs.verdicts.recent import RecentChunks

VERDICT_DDL: Final = "verdict binary"
"""How the rows of a part cross Spark (`checks.OUTPUT_SCHEMA`): as one value. Through pandas each column would cost as
much as a check."""

STATE_DDL: Final = (
    "cluster string, topic_id string, partition int, name string, value binary, failed string, behind bigint"
)
"""State that was rebuilt. A partition has one row without a name, whose value is the hot value, with the error that
quarantined it and the slices left unchecked since; and one row for each chunk."""


class _Chunks:
    """One partition's chunks in the state store, among those of its part."""

    def __init__(self, stored: MapState | Any, partition: int) -> None:
        self._stored, self._partition = stored, partition

    def get(self, name: str) -> bytes | None:
        found = self._stored.getValue((self._partition, name))
        return None if found is None else found[0]

    def put(self, name: str, chunk: bytes) -> None:
        self._stored.updateValue((self._partition, name), (chunk,))

    def remove(self, name: str) -> None:
        self._stored.removeKey((self._partition, name))


class Part(StatefulProcessor):
    """The checks of a part of a topic's partitions, called once per batch that holds rows of them."""

    def __init__(self, objectives: Objectives, check: Check) -> None:
        self.checks = Checks(objectives, check)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept: ValueState | Any = handle.getValueState("partitions", "kept binary")
        self.chunks: MapState | Any = handle.getMapState("chunks", "partition int, name string", "chunk binary")

    def close(self) -> None:
        pass

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        _, kept = self._load()  # the rows of a part may come in several frames
        for row in initialState.itertuples(index=False):
            partition = int(cast(Any, row.partition))
            if isinstance(row.name, str):
                _Chunks(self.chunks, partition).put(row.name, cast(bytes, row.value))
            else:
                failed = row.failed if isinstance(row.failed, str) else None
                kept[partition] = Kept(cast(bytes, row.value), failed, int(cast(Any, row.behind)))
        self.kept.update((dump(kept),))

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
        told = self._verdicts(payloads) if payloads else {}
        for place, refused in rejected_in(rejected).items():
            told.setdefault(place, no_verdict(place))["rejected"] = pack(refused)
        batch = pa.RecordBatch.from_pylist(list(told.values()), schema=OUTPUT_SCHEMA)
        yield pd.DataFrame({"verdict": [batch.serialize().to_pybytes()]})

    def _verdicts(self, payloads: list[bytes]) -> dict[Place, dict[str, Any]]:
        """The rows of the partitions that have slices. What the part's own value took of the state store's time is
        told by the first of them."""
        began = time.perf_counter_ns()
        stored, kept = self._load()
        state_ns = time.perf_counter_ns() - began
        told = {}
        for place, slices in sorted(slices_in(payloads).items()):
            own = kept.setdefault(place.partition, Kept())
            chunks = RecentChunks(own.recent, _Chunks(self.chunks, place.partition))
            told[place] = self.checks.verdict(place, slices, own, chunks)
            before = time.perf_counter_ns()
            chunks.settle()
            state_ns += time.perf_counter_ns() - before
        before = time.perf_counter_ns()
        written = dump(kept)
        if written != stored:
            self.kept.update((written,))
        state_ns += time.perf_counter_ns() - before
        next(iter(told.values()))["state_us"] += state_ns // 1000
        return told

    def _load(self) -> tuple[bytes | None, dict[int, Kept]]:
        """The part's value as it is stored, and what it holds."""
        stored = self.kept.get()
        if stored is None:
            return None, {}
        value = bytes(stored[0])
        return value, load(value)


def verdict_rows(told: pa.Table) -> pa.Table:
    """The rows (`OUTPUT_SCHEMA`) that a batch of the stream told as values (`VERDICT_DDL`)."""
    batches = [pa.ipc.read_record_batch(value.as_buffer(), OUTPUT_SCHEMA) for value in told["verdict"]]
    return pa.Table.from_batches(batches, OUTPUT_SCHEMA).combine_chunks()


def verdicts(
    history: DataFrame, objectives: Objectives, check: Check | None = None, initial: DataFrame | None = None
) -> DataFrame:
    """The stream of verdicts (`VERDICT_DDL`) over `source.stream`: bundles, or the probe log's rows. `initial`, of
    `STATE_DDL`, is the state that the first batch of a new checkpoint begins with."""
    bundled = history.columns == BUNDLE_SCHEMA.names
    bundles = history if bundled else history.mapInArrow(cast(Any, bundle_rows), BUNDLE_DDL)
    begun = None
    if initial is not None:
        part = sql.floor(sql.col("partition") / PER_PART).cast("int")
        begun = initial.withColumn("part", part).groupBy(*BUNDLE_KEYS)
    return bundles.groupBy(*BUNDLE_KEYS).transformWithStateInPandas(
        statefulProcessor=Part(objectives, check or Check()),
        outputStructType=VERDICT_DDL,
        outputMode="update",
        timeMode="none",
        initialState=begun,
    )
