"""Spark's settings: which of them the job cannot do without, and which only make it cheaper.

A site that has a Spark has its own settings, in `spark-defaults.conf` or given to `spark-submit`. They are kept: ours
replace them only where the job would be wrong without (`NEEDED`), and stand where the site says nothing (`preferred`).
A Spark in this process alone (`local`) has no site: there our settings fit small and frequent batches on few cores.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHECKPOINTING: Final = "org.apache.spark.sql.execution.streaming.checkpointing"
_DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"
_EXTENSIONS: Final = "spark.sql.extensions"
JARS: Final = "spark.jars"
PACKAGES: Final = "spark.jars.packages"
WORKERS_PYTHON: Final = "spark.pyspark.python"
LOGS: Final = "offsetwatch.logs"
"""The property of the JVM that tells the folder of its logs."""
_MAINTENANCE: Final = "spark.sql.streaming.stateStore.maintenanceInterval"

NEEDED: Final = {
    # Days and times of the probe log are UTC's.
    "spark.sql.session.timeZone": "UTC",
    # transformWithState works with no other.
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    # Of probe logs that are no plain files (deletion vectors), which Delta's own source reads.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What nobody may set otherwise. `spark.sql.extensions` too: Delta's is added to what a site has."""

ELSEWHERE: Final = {
    "spark.master": "it is job.spark.master",
    "spark.sql.shuffle.partitions": "it is job.shuffle_partitions, and fixed by a checkpoint's first run",
    "spark.submit.deployMode": "this process is the driver",
}
"""Settings that have a key of their own."""

_STREAM: Final = {
    "spark.app.name": "offsetwatch",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",  # another would make a metastore in the current folder
    "spark.sql.adaptive.enabled": "false",  # a stateful query cannot use it, and others here are tiny
    # State: changelog checkpoints write what changed, not whole files; few versions are kept.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Spark's own choice has a process of its own (readlink) started for each file it renames, thirty a batch. Both
    # write beside, rename, and keep Hadoop's checksums.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    # With nothing new, the log is looked at again after so long; at Spark's own 10 ms that is a tenth of a core.
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # With any bound in bytes Spark adds up the size of all columns after each row: ten times the time of the rest.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # A batch's shuffle is of no use after it. Removed at once, its files never reach the disk; else they wait until the
    # JVM collects what they belong to.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "streaming_jobs.worker_daemon",
    # Set for one kind of Python function alone, it would give each kind workers of its own.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""Cheaper for this stream, on whatever Spark."""

_FEW_CORES: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Delta reads its own log through Spark jobs of 50 tasks unless told otherwise.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "false",
    # Each batch is another plan, and of few rows: compiling it costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A shuffle's file is written once, and not first in pieces.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    "spark.shuffle.checksum.enabled": "false",
    # The few files of a second are one task's, and those of a day are many's.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": str(64 << 10),
    "spark.sql.files.maxPartitionBytes": str(16 << 20),
    "spark.cleaner.periodicGC.interval": "10min",
    # The one executor is in this very JVM. After a pause of more than two minutes (a machine that was suspended) Spark
    # would take it for lost all the same, refuse its heartbeats from then on, and end the JVM after sixty of them.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
    # What is kept of a batch is written anew with the next, 300 kB each. A kernel writes files to the disk when they
    # are half a minute old: what later batches have replaced is removed before, with a snapshot every second of them,
    # and most of it never reaches the disk (`python -m tests.bench canary`).
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    _MAINTENANCE: "5s",
}
"""For small and frequent batches on few cores of one machine, and for nobody else to reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """`jars`: Delta's jars, which PySpark does not bring. `master`: "local", or the Spark that is there already.
    `cores`: of a local Spark, and of a standalone one unless the site says how many. `driver_memory` is the JVM's heap;
    Python workers come on top. `shuffle_partitions` is fixed for a query by its first run. `java_home`: None takes the
    environment's. `java_options` come after ours, `extra` replaces Spark settings of ours and of the site. `beside`:
    jars for the class path of a local Spark."""

    jars: Sequence[Path]
    logs: Path
    master: str = "local"
    cores: int = 2
    driver_memory: str = "2g"
    shuffle_partitions: int = 4
    java_home: Path | None = None
    ui: bool = False
    scratch: Path | None = None
    java_options: Sequence[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[Path] = ()

    @property
    def is_local(self) -> bool:
        """Whether Spark is in this process's own JVM, all of it."""
        return is_local(self.master)


def is_local(master: str) -> bool:
    """Whether a master of Spark's is a machine's own."""
    return master.startswith("local")


def file_url(path: Path) -> str:
    """A path as Spark takes it for this file system's, whichever one a site has for its default. Not as URLs are
    written: Hadoop takes all letters as they are."""
    return f"file://{path.absolute()}"


def store_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """What a checkpoint at S3 asks for: how Hadoop finds the store that deltalake finds by these variables (credentials
    it takes from them itself), and that it is not looked at often. Pure."""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    virtual = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false").lower() == "true"
    told = {"endpoint": endpoint, "endpoint.region": region, "path.style.access": str(not virtual).lower()}
    if endpoint is None:
        del told["path.style.access"]
    # Files of the state go as streams do: the SDK's asynchronous client, which would send them, fails at a store that
    # answers 100 (continue).
    told |= {"optimized.copy.from.local.enabled": "false", "connection.expect.continue": "false"}
    # Nobody else writes below a checkpoint: what is there need not be asked before each file.
    told["performance.flags"] = "create,delete,mkdir"
    of_hadoop = {f"spark.hadoop.fs.s3a.{name}": value for name, value in told.items() if value}
    return of_hadoop | {_MAINTENANCE: "60s"}  # Spark's own: each look at a bucket is paid for


def java_options(settings: SessionSettings) -> list[str]:
    """How the driver's JVM is started."""
    options = [
        f"-D{LOGS}={settings.logs.absolute()}",
        f"-Dlog4j2.configurationFile={(settings.logs.absolute() / 'log4j2.properties').as_uri()}",
        "-Xss16m",  # stopping a query serialises a deep plan; 1 MiB overflows
        "-Duser.timezone=UTC",
    ]
    if settings.is_local:
        options += [
            "-Djava.net.preferIPv4Stack=true",
            # The work is done in Python and in native code; compiling the JVM's share of it well took more processor
            # time (21 s in the first minute, measured) than it ever gave back, and doubled the start.
            "-XX:TieredStopAtLevel=1",
            # What lives is small, and the cores are few: G1's threads and tables cost more than they save.
            "-XX:+UseSerialGC",
            "-Xms128m",
            "-XX:MinHeapFreeRatio=20",
            "-XX:MaxHeapFreeRatio=40",
        ]
    return [*options, *settings.java_options]


def launch_conf(settings: SessionSettings, site: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings that the driver's JVM is started with, where the `site` has these defaults. Pure."""
    site = site or {}
    if settings.is_local:
        return spark_conf(settings)
    fixed = {"spark.master": settings.master, "spark.submit.deployMode": "client", JARS: _jars(settings, site)}
    return spark_conf(settings, site) | fixed


def spark_conf(settings: SessionSettings, site: Mapping[str, str] | None = None) -> dict[str, str]:
    """What we set for the session, above what the `site` has. Pure: nothing is started or written."""
    site = site or {}
    ours = _preferred(settings)
    if settings.is_local:
        ours |= {
            "spark.master": settings.master if settings.master != "local" else f"local[{settings.cores}]",
            "spark.driver.memory": settings.driver_memory,
            "spark.driver.extraJavaOptions": shlex.join(java_options(settings)),
            "spark.ui.enabled": str(settings.ui).lower(),
        }
        if settings.beside:
            ours["spark.driver.extraClassPath"] = ":".join(str(jar.absolute()) for jar in settings.beside)
    else:
        ours = {name: value for name, value in ours.items() if name not in site}
    extensions = [*filter(None, settings.extra.get(_EXTENSIONS, site.get(_EXTENSIONS, "")).split(","))]
    needed = NEEDED | {
        _EXTENSIONS: ",".join(extensions if _DELTA in extensions else [*extensions, _DELTA]),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
    }
    if settings.is_local:
        needed[JARS] = _jars(settings, site)
    return ours | dict(settings.extra) | needed


def _jars(settings: SessionSettings, site: Mapping[str, str]) -> str:
    """Those that are wanted beside PySpark's own, and ours where nobody else brings Delta."""
    wanted = dict(site) | dict(settings.extra)
    jars = [*filter(None, wanted.get(JARS, "").split(","))]
    if not any("delta-spark" in wanted.get(name, "") for name in (JARS, PACKAGES)):
        jars += [str(jar.absolute()) for jar in settings.jars]
    return ",".join(jars)


def _preferred(settings: SessionSettings) -> dict[str, str]:
    ours = dict(_STREAM)
    if settings.is_local:
        ours |= _FEW_CORES
    elif settings.master.startswith("spark://"):
        ours["spark.cores.max"] = str(settings.cores)  # else it would take all that the cluster has
    if settings.scratch is not None:
        scratch = str(settings.scratch.absolute())
        ours |= {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
    return ours
