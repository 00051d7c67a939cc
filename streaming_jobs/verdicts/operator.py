"""The stateful operator: the rows of the probe log in, one row of verdicts per partition and batch out.

    history -> bundle (mapInArrow) -> group by (cluster, topic id, part) -> `Part` (transformWithState)

It is called for a few partitions at once (`bundles.PER_PART`), since each call goes to the JVM and back; their verdicts
are one value too (`part`, `part_checks`). What is checked, and how a partition fails for itself, is `checks`.

**A state of another version** (`UnknownFormat`) ends the query: the job then rebuilds the state (`rebuild`) from the
probe log. A query whose state was rebuilt is handed it as its initial state.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from rules.vocabulary.objectives import Objectives
from streaming_jobs.history.block import BUNDLE_DDL
from streaming_jobs.history.bundles import BUNDLE_KEYS, BUNDLE_SCHEMA, PER_PART, bundle_rows
from streaming_jobs.verdicts.checks import OUTPUT_SCHEMA, Check
from streaming_jobs.verdicts.part import Part

VERDICT_DDL: Final = "verdict binary"
"""How the rows of a part cross Spark (`checks.OUTPUT_SCHEMA`): as one value. Through pandas each column would cost as
much as a check."""

STATE_DDL: Final = (
    "cluster string, topic_id string, partition int, name string, value binary, failed string, behind bigint"
)
"""State that was rebuilt. A partition has one row without a name, whose value is the hot value, with the error that
quarantined it and the slices left unchecked since; and one row for each chunk."""


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
