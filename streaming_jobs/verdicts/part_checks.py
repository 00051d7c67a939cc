"""What the operator does with a part's rows: the checks of its partitions, one after the other, and their state.

What is kept of all partitions of a part is one value (`kept`), with the chunks that they ask for at each batch
(`recent`), read and written once, since each question to the state store goes to the JVM and back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, ValueState

from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from streaming_jobs.history.bundles import pack, rejected_in, slices_in
from streaming_jobs.verdicts.checks import OUTPUT_SCHEMA, Check, Checks, no_verdict
from streaming_jobs.verdicts.kept import Kept, dump, load
from streaming_jobs.verdicts.recent import RecentChunks


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


class PartChecks:
    """The checks of a part's partitions, with the state that the store keeps of them."""

    def __init__(self, objectives: Objectives, check: Check, kept: ValueState | Any, chunks: MapState | Any) -> None:
        self.checks, self.kept, self.chunks = Checks(objectives, check), kept, chunks

    def begin_with(self, state: pd.DataFrame) -> None:
        """Keep a state that was rebuilt, of `operator.STATE_DDL`; a part's rows may come in several frames."""
        _, kept = self._load()
        for row in state.itertuples(index=False):
            partition = int(cast(Any, row.partition))
            if isinstance(row.name, str):
                _Chunks(self.chunks, partition).put(row.name, cast(bytes, row.value))
            else:
                failed = row.failed if isinstance(row.failed, str) else None
                kept[partition] = Kept(cast(bytes, row.value), failed, int(cast(Any, row.behind)))
        self.kept.update((dump(kept),))

    def told(self, rows: Iterator[pd.DataFrame]) -> pd.DataFrame:
        """The verdicts on a batch's bundles of rows, as one value (`operator.VERDICT_DDL`)."""
        payloads: list[bytes] = []
        rejected: list[bytes] = []
        for frame in rows:
            for refused, payload in zip(frame["rejected"], frame["payload"], strict=True):
                (rejected if refused else payloads).append(payload)
        told = self._verdicts(payloads) if payloads else {}
        for place, refused in rejected_in(rejected).items():
            told.setdefault(place, no_verdict(place))["rejected"] = pack(refused)
        batch = pa.RecordBatch.from_pylist(list(told.values()), schema=OUTPUT_SCHEMA)
        return pd.DataFrame({"verdict": [batch.serialize().to_pybytes()]})

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
