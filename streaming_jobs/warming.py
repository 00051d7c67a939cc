"""Spark's Python workers begin while its first query is still being planned, and not after.

They take two seconds to import what they need, and the JVM one to learn to speak with them; planning takes as long, and
waits for processes of its own meanwhile.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_warmed: Final[weakref.WeakSet[SparkContext]] = weakref.WeakSet()


def warm(spark: SparkSession) -> None:
    """Have a local Spark start its workers, once; where it cannot, the first batch says why. Returns when they have
    begun: call it on a thread of its own."""
    context = spark.sparkContext
    if context in _warmed or not (context.master or "").startswith("local"):
        return
    _warmed.add(context)
    tasks = context.defaultParallelism
    try:
        spark.range(0, tasks, 1, tasks).mapInArrow(_same, "id bigint").write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError, OSError) as error:
        log.debug("the workers were not begun before they were wanted: %s", error)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
