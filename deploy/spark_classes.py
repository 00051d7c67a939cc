"""A short life of a Spark session, in which Java loads what the jobs' sessions will want: `python -m
deploy.spark_classes FOLDER`.

It streams from a source in Python into a stateful operator in Python, as the integrity job does, for a few small
batches, and ends in order. Java writes its class archive as it ends (`class_archive`), if SPARK_SUBMIT_OPTS say so.
What is not loaded here is read from the jars later, as if there were no archive.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd

_BATCHES = 2
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Numbers(DataSource):
    """One row a batch."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int, payload binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return NumbersReader()


class NumbersReader(DataSourceStreamReader):
    """Each time it is asked there is one more."""

    def __init__(self) -> None:
        self._asked = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"number": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        self._asked += 1
        return {"number": self._asked}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:
        return [InputPartition(end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        yield partition.value % 2, b"payload"


class Kept(StatefulProcessor):
    """Keeps what it was given last."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "kept binary")
        self.map = handle.getMapState("map", "name string", "kept binary")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for frame in rows:
            self.value.get()
            self.map.getValue(("name",))
            self.value.update((b"value",))
            self.map.updateValue(("name",), (b"value",))
            yield frame[["payload"]]


def live(folder: str) -> None:
    """The life of one session, with its files in `folder`."""
    builder = SparkSession.builder
    for name, value in {**_SETTINGS, "spark.local.dir": folder, "spark.sql.warehouse.dir": folder}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(Numbers)
    enough = threading.Event()

    def on_batch(frame: DataFrame, number: int) -> None:
        frame.toArrow()
        if number + 1 >= _BATCHES:
            enough.set()

    stateful = (
        spark.readStream.format("numbers")
        .load()
        .groupBy("number")
        .transformWithStateInPandas(
            statefulProcessor=Kept(), outputStructType="payload binary", outputMode="update", timeMode="none"
        )
    )
    query = (
        stateful.writeStream.foreachBatch(on_batch)
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    while query.isActive and not enough.wait(0.1):
        pass
    for progress in query.recentProgress:
        progress.json  # noqa: B018 - as the job asks
    query.stop()
    _end(spark)


def _end(spark: SparkSession) -> None:
    """End the JVM too, and return when it has written its archive."""
    jvm: Any = SparkContext._gateway  # PySpark has no word for it
    spark.stop()
    jvm.proc.stdin.close()
    jvm.proc.wait()


if __name__ == "__main__":
    live(sys.argv[1])
