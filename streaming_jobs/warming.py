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

from streaming_jobs.location import TableLocation, TableUrl

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


def prepare(spark: SparkSession, checkpoint: TableLocation) -> None:
    """What a first query would wait for, while there is time: workers, and Hadoop's access to a checkpoint at a URL."""
    warm(spark)
    if not isinstance(checkpoint, TableUrl):
        return
    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(str(checkpoint))  # type: ignore[union-attr]
        path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path)
    except (PySparkException, Py4JError, OSError) as error:
        log.debug("the checkpoint was not looked at before it was wanted: %s", error)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
