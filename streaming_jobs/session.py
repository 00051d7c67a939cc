"""The Spark session of the jobs: local, on loopback only, quiet on the terminal, fit for small and frequent batches.

Everything that Spark and its Python workers have to say goes to `<logs>/spark.log` and `<logs>/spark.out`: a stopped
query must not print stack traces over a live view. The settings differ from Spark's own where these hurt a stream of
small batches over Delta on few cores; each says why.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from streaming_jobs.errors import SessionError, last_line, said

_LOG4J: Final = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%xEx{{40}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.state.name = {state_server}
logger.state.level = warn
logger.state.filter.absent.type = RegexFilter
logger.state.filter.absent.regex = .*doesn't contain (key|a value).*
logger.state.filter.absent.onMatch = DENY
logger.state.filter.absent.onMismatch = NEUTRAL
"""
STATE_SERVER: Final = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
"""It warns of each key that is asked for and is not there, which is how new chunks begin: three megabytes an hour."""

log = logging.getLogger(__name__)

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHECKPOINTING: Final = "org.apache.spark.sql.execution.streaming.checkpointing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """`jars`: Delta's jars, which PySpark does not bring. `driver_memory` is the JVM's heap; Python workers come on
    top. `shuffle_partitions` is fixed for a query by its first run. `java_home`: None takes the environment's.
    `java_options` come after ours, `extra` replaces Spark settings of ours."""

    jars: Sequence[Path]
    logs: Path
    cores: int = 2
    driver_memory: str = "2g"
    shuffle_partitions: int = 4
    java_home: Path | None = None
    ui: bool = False
    scratch: Path | None = None
    java_options: Sequence[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


def spark_conf(settings: SessionSettings) -> dict[str, str]:
    """Spark's configuration for these settings. Pure: nothing is started or written."""
    logs = settings.logs.absolute()
    java_options = [
        f"-Dlog4j2.configurationFile=file:{logs / 'log4j2.properties'}",
        "-Xss16m",  # stopping a query serialises a deep plan; 1 MiB overflows
        "-Djava.net.preferIPv4Stack=true",
        "-Duser.timezone=UTC",
        # The work is done in Python and in native code; compiling the JVM's share of it well took more processor time
        # (21 s in the first minute, measured) than it ever gave back, and doubled the start.
        "-XX:TieredStopAtLevel=1",
        # What lives is small, and the cores are few: G1's threads and tables cost more than they save.
        "-XX:+UseSerialGC",
        "-Xms128m",
        "-XX:MinHeapFreeRatio=20",
        "-XX:MaxHeapFreeRatio=40",
        *settings.java_options,
    ]
    conf = {
        "spark.master": f"local[{settings.cores}]",
        "spark.app.name": "offsetwatch",
        "spark.jars": ",".join(str(jar.absolute()) for jar in settings.jars),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",  # a stateful query cannot use it, and others here are tiny
        # Delta reads its own log through Spark jobs of 50 tasks unless told otherwise.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.stats.skipping": "false",
        # State: changelog checkpoints write what changed, not whole files; few versions are kept.
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # Spark's own choice has a process of its own (readlink) started for each file it renames, thirty a batch. Both
        # write beside, rename, and keep Hadoop's checksums.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # With nothing new, the log is looked at again after so long; at Spark's own 10 ms that is a tenth of a core.
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
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
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # With any bound in bytes Spark adds up the size of all columns after each row: ten times the time of the rest.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "streaming_jobs.worker_daemon",
        # Set for one kind of Python function alone, it would give each kind workers of its own.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.cleaner.periodicGC.interval": "10min",
    }
    if settings.scratch is not None:
        scratch = str(settings.scratch.absolute())
        conf |= {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
    return conf | dict(settings.extra)


def _say_to_the_log(session: SparkSession) -> None:
    """The server that takes the JVM's accumulators prints a stack trace to stderr when the JVM goes."""
    server: Any = session.sparkContext._accumulatorServer
    if server is not None:
        server.handle_error = lambda request, address: log.debug("the JVM has left its accumulators", exc_info=True)


def _open_callbacks(gateway: Any) -> None:
    """Begin to listen for the JVM's calls into this process, by which batches reach us.

    py4j listens with select(), which knows descriptors below 1,024 only: begun by the first query of a process that has
    more files open, it would end without a word, and the query wait for ever."""
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    if probe >= _SELECTABLE:
        raise SessionError(
            f"Spark could not be started: this process has {probe} files open, {_SELECTABLE} are too many."
        )
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]


_SELECTABLE: Final = 1_000


def kill() -> None:
    """End the JVM and its workers at once, whatever they are doing; what they have written survives it. A session can
    be started again afterwards."""
    context: Any = SparkContext  # PySpark keeps its one gateway here alone, and has no word for losing it
    gateway, context._gateway, context._jvm = context._gateway, None, None
    context._active_spark_context = None
    cast(Any, SparkSession)._instantiatedSession = None
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        with suppress(OSError):
            os.killpg(gateway.proc.pid, signal.SIGKILL)
        gateway.proc.wait()
        with suppress(Exception):
            gateway.shutdown()


class Planners:
    """The Python processes in which Spark asks what a source is and how it reads.

    A query needs them as it begins, and Spark keeps them: 60 MiB each of three kinds. It would go on to ask those that
    have been ended, unless it looks for others: it knows them by their environment, of which a bound of memory is part
    that none of them comes near."""

    def __init__(self) -> None:
        self._mib = _PLANNER_MIB
        self._ended = False

    def wanted(self, spark: SparkSession) -> None:
        """A query is about to begin: have Spark start others where they have been ended."""
        if self._ended:
            self._mib += 1
            self._ended = False
        spark.conf.set("spark.sql.planner.pythonExecution.memory", f"{self._mib}m")

    def end(self) -> None:
        """No query is about to begin."""
        proc = getattr(SparkContext._gateway, "proc", None)
        if proc is None:
            return
        self._ended = True
        with suppress(psutil.Error):
            for child in psutil.Process(proc.pid).children():
                with suppress(psutil.Error):
                    if any(word.startswith("pyspark.sql.worker.") for word in child.cmdline()):
                        for forked in child.children():
                            forked.terminate()
                        child.terminate()


_PLANNER_MIB: Final = 8_192
planners: Final = Planners()


def start(settings: SessionSettings) -> SparkSession:
    """A running session; a second call in one process returns the first one's.

    Raises `SessionError` where Java is missing or too old, or the JVM does not come up."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    # py4j logs a stack trace wherever a call into Python raises; these errors reach their caller anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    missing = [jar for jar in settings.jars if not jar.is_file()]
    if missing or not settings.jars:
        raise SessionError(f"Delta's jars are missing ({missing[0] if missing else 'none given'}): run make setup.")
    logs = settings.logs.absolute()
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "log4j2.properties").write_text(_LOG4J.format(log=logs / "spark.log", state_server=STATE_SERVER))
    if settings.scratch is not None:
        settings.scratch.mkdir(parents=True, exist_ok=True)
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = str(settings.java_home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of the C library, for each of the JVM's hundreds of threads
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable  # PySpark reads no setting here
    conf = SparkConf(loadDefaults=False).setAll(list(spark_conf(settings).items()))
    output = (logs / "spark.out").open("ab")
    try:
        # Started here and not by the builder, because only so the JVM's and the workers' output can be kept off the
        # terminal.
        # In a session of its own: a SIGTERM to our process group (systemd's way, and timeout's) would end it under us.
        popen = {"stdout": output, "stderr": output, "start_new_session": True}
        gateway = cast(Any, launch_gateway)(conf=conf, popen_kwargs=popen)
        session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        _say_to_the_log(session)
        _open_callbacks(gateway)
        return session
    except PySparkException as error:
        raise SessionError(
            f"Spark could not be started ({error.getCondition() or type(error).__name__}): Java 17 or newer is needed, "
            f"and {logs / 'spark.out'} says more."
        ) from error
    except Py4JError as error:
        why = last_line(said(error))  # while there is somebody to ask
        kill()
        raise SessionError(f"Spark could not be started: {why}; {logs / 'spark.log'} may say more.") from None
    except OSError as error:
        raise SessionError(f"Spark could not be started: {error}.") from error
    finally:
        output.close()
