"""The one entry point of the checks: `step(stored, slices) -> state, findings, facts`, for many partitions at once.

The streaming job, `offsetwatch check`, the rebuild, the tests and the benchmarks all call it. It knows no Spark, no
Kafka and no clock: `now` of a partition is the time of the marks in its rows.

A partition's state is a small *hot* value, read and written at each step, and *chunks*: what is known of 8,192
consecutive sequence numbers of one writer, read and written only when they are touched. Both are bytes here, so that
any store can hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rules.finding import Fact, Finding
from rules.history import Place
from rules.objectives import Objectives


@dataclass(slots=True)
class Stored:
    """One partition's state as it is kept between steps: `hot` is None before the first; `chunks` by chunk name."""

    hot: bytes | None = None
    chunks: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Stepped:
    """What a step made of one partition. `chunks` holds only those that changed; None means: delete it.

    `summary` is the partition's row for the Delta table `partition_state`: plain values by column name, see
    `SUMMARY_SCHEMA`."""

    hot: bytes
    chunks: dict[str, bytes | None]
    findings: list[Finding]
    facts: list[Fact]
    summary: dict[str, Any]


SUMMARY_SCHEMA = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("now", pa.timestamp("us", tz="UTC")),
        pa.field("log_start", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("last_stable", pa.int64()),
        pa.field("frontier", pa.int64()),
        pa.field("acknowledged", pa.int64()),
        pa.field("polled", pa.int64()),
        pa.field("failed", pa.int64()),
        pa.field("highest_acknowledged", pa.int64()),
        pa.field("highest_polled", pa.int64()),
        pa.field("unseen", pa.int64()),
        pa.field("window_runs", pa.int64()),
        pa.field("processes", pa.int64()),
        pa.field(
            "readers",
            pa.list_(pa.struct([("process", pa.int64()), ("position", pa.int64()), ("mode", pa.string())])),
        ),
        pa.field("state_bytes", pa.int64()),
    ]
)
"""`now` is log time. `acknowledged`, `polled` and `failed` count records since the start; `highest_*` are offsets;
`frontier` is the offset below which everything is settled; `unseen` counts the values past the delivery objective;
`state_bytes` is the size of the hot value."""


def chunks_needed(hot: bytes | None, slices: pa.Table) -> list[str]:
    """The names of the chunks that `step` will want for one partition: those that `slices` or the open window touch."""
    raise NotImplementedError


def step(
    stored: Mapping[Place, Stored],
    slices: pa.Table,
    objectives: Objectives,
    *,
    finished: bool = False,
) -> dict[Place, Stepped]:
    """Check the slices of many partitions.

    `slices` is a table of `SLICE_SCHEMA`, of any partitions and in any order; `stored` holds for each of them the
    hot value and the chunks that `chunks_needed` named, and nothing where the partition is new. `finished` says that no
    further row will ever come: everything still open is settled, as for a history read from a file.

    Raises `UnknownFormat` where a state was written by a version that this one does not know.
    """
    raise NotImplementedError


class UnknownFormat(ValueError):
    """The state was written by another version: rebuild it from the probe log."""


def places(slices: pa.Table) -> Iterable[Place]:
    """The partitions that the slices speak of."""
    raise NotImplementedError
