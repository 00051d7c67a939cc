"""GraphFrames as the engine that divides the graph of dependencies, where its jar is on Spark's class path.

Connected components come first: what has no neighbour, and all that lies apart, is cheap to tell so. Then, on what
remains, strongly connected components. The shortest cycles are searched in these parts by `rules.cycles.components`, as
with the engine in memory: the engine only decides who divides the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from rules.arrays.intervals import Ints
from rules.cycles.search import Components
from streaming_jobs.spark_conf import file_url

_CLASS: Final = "org.graphframes.GraphFramePythonAPI"
_ITERATIONS: Final = 100
"""Of the strongly connected components: what they have not separated by then stays together, and is separated in
memory when its cycles are searched."""


def unavailable(spark: SparkSession) -> str | None:
    """Why GraphFrames cannot be used in this session; None where it can."""
    try:
        context: Any = spark.sparkContext
        context._jvm.Thread.currentThread().getContextClassLoader().loadClass(_CLASS)
    except Py4JError:
        return f"GraphFrames' jar is not on Spark's class path (there is no {_CLASS})"
    return None


def components(spark: SparkSession, checkpoints: Path) -> Components:
    """`rules.cycles.search.Components` by GraphFrames. `checkpoints` is a folder for what it keeps between
    iterations."""
    from graphframes import GraphFrame

    spark.sparkContext.setCheckpointDir(file_url(checkpoints))

    def divide(nodes: int, source: Ints, target: Ints) -> Iterator[Ints]:
        if not len(source):
            return
        vertices = spark.range(nodes)
        edges = spark.createDataFrame(pd.DataFrame({"src": source, "dst": target}))
        joined = GraphFrame(vertices, edges).connectedComponents(use_local_checkpoints=True)
        several = joined.groupBy("component").count().where(sql.col("count") > 1).select("component")
        remaining = joined.join(several, "component").select("id").persist()
        inner = edges.join(remaining.withColumnRenamed("id", "src"), "src")
        strong = GraphFrame(remaining, inner.select("src", "dst")).stronglyConnectedComponents(maxIter=_ITERATIONS)
        found = strong.select("id", "component").toPandas()
        remaining.unpersist()
        for _, part in found.groupby("component"):
            if len(part) > 1:
                yield np.sort(part["id"].to_numpy(np.int64))

    return divide
