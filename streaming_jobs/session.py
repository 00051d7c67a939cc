"""The Spark session of the jobs, quiet on the terminal: a local one on loopback alone, or the driver of one elsewhere.

Its JVM is started here, or was by the `spark-submit` that started this process (`is_given`). Everything that a JVM of
ours and its Python workers have to say goes to `<logs>/spark.log` and `<logs>/spark.out`: a stopped query must not
print stack traces over a live view. Which settings it has, and why, is `spark_conf`; what workers elsewhere are sent of
ours is `shipping`.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from streaming_jobs.errors import SessionError, last_line, said
from streaming_jobs.shipping import archive
from streaming_jobs.spark_conf import LOGS, WORKERS_PYTHON, SessionSettings, java_options, launch_conf, spark_conf

__all__ = ["STATE_SERVER", "Planners", "SessionSettings", "is_given", "kill", "planners", "start"]

STATE_SERVER: Final = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
"""It warns of each key that is asked for and is not there, which is how new chunks begin: three megabytes an hour."""
_LOG4J: Final = f"""\
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:{LOGS}}}/spark.log
appender.file.filePattern = ${{sys:{LOGS}}}/spark.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%xEx{{40}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.state.name = {STATE_SERVER}
logger.state.level = warn
logger.state.filter.absent.type = RegexFilter
logger.state.filter.absent.regex = .*doesn't contain (key|a value).*
logger.state.filter.absent.onMatch = DENY
logger.state.filter.absent.onMismatch = NEUTRAL
"""


log = logging.getLogger(__name__)


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


_LEFT_BY_JVMS: Final = ("spark-*", "blockmgr-*")
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


def processes() -> list[int]:
    """The numbers of the JVM's process and of all that it has begun; none where it is not ours, or gone."""
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return []
    with suppress(psutil.Error):
        first = psutil.Process(gateway.proc.pid)
        return [first.pid, *(child.pid for child in first.children(recursive=True))]
    return []


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
        gateway: Any = SparkContext._gateway
        if gateway is None:
            return
        self._ended = True
        with suppress(psutil.Error, Py4JError, OSError):
            for child in psutil.Process(gateway.jvm.java.lang.ProcessHandle.current().pid()).children():
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
    _prepare(settings)
    said_in = settings.logs.absolute() / "spark.out"
    output = said_in.open("ab")
    try:
        gateway = _gateway(settings, output)
        session = _session(settings, gateway)
        _say_to_the_log(session)
        _open_callbacks(gateway)
        return session
    except PySparkException as error:
        raise SessionError(
            f"Spark could not be started ({error.getCondition() or type(error).__name__}): Java 17 or newer is needed, "
            f"and {said_in} says more."
        ) from error
    except Py4JError as error:
        why = last_line(said(error))  # while there is somebody to ask
        kill()
        raise SessionError(f"Spark could not be started: {why}; {said_in.with_suffix('.log')} may say more.") from None
    except OSError as error:
        raise SessionError(f"Spark could not be started: {error}.") from error
    finally:
        output.close()


def is_given() -> bool:
    """Whether `spark-submit` started this process: the JVM is its parent then, and no second one can be had."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare(settings: SessionSettings) -> None:
    """The files and the environment that a JVM begins with."""
    logs = settings.logs.absolute()
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "log4j2.properties").write_text(_LOG4J, encoding="ascii")
    if settings.scratch is not None:
        settings.scratch.mkdir(parents=True, exist_ok=True)
        _clear(settings.scratch)
    if is_given():
        return  # with what its class path holds
    missing = [jar for jar in settings.jars if not jar.is_file()]
    if missing or not settings.jars:
        raise SessionError(f"Delta's jars are missing ({missing[0] if missing else 'none given'}): run make setup.")
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = str(settings.java_home)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of the C library, for each of the JVM's hundreds of threads
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable  # PySpark reads no setting here
    else:
        # So a site's own settings of the driver's JVM come after these, and win.
        before = os.environ.get("SPARK_SUBMIT_OPTS", "")
        own = [option for option in map(shlex.quote, java_options(settings)) if f" {option} " not in f" {before} "]
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*own, before]).strip()
        os.environ.setdefault("SPARK_DRIVER_MEMORY", settings.driver_memory)


def _clear(scratch: Path) -> None:
    """Remove what JVMs have left there that ended without a shutdown of their own, as on a full disk. The folder is one
    data folder's, of which one job at most is at work."""
    for left in (one for pattern in _LEFT_BY_JVMS for one in scratch.glob(pattern)):
        shutil.rmtree(left, ignore_errors=True)


def _gateway(settings: SessionSettings, output: BinaryIO) -> Any:
    """A JVM started here and not by the session's builder, because only so its and the workers' output can be kept off
    the terminal; or the one that `spark-submit` started."""
    conf = SparkConf(loadDefaults=False).setAll(list(launch_conf(settings, _site_defaults()).items()))
    # In a session of its own: a SIGTERM to our process group (systemd's way, and timeout's) would end it under us.
    popen = {"stdout": output, "stderr": output, "start_new_session": True}
    with _path_of_workers() if settings.is_local else nullcontext():
        return cast(Any, launch_gateway)(conf=conf, popen_kwargs=popen)


@contextmanager
def _path_of_workers() -> Iterator[None]:
    """What is started meanwhile, and what that starts, has `worker_start` on Python's path."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent / "worker_start"), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _session(settings: SessionSettings, gateway: Any) -> SparkSession:
    site: dict[str, str] = {}
    if is_given() or not settings.is_local:
        site = dict(SparkConf(loadDefaults=True, _jvm=gateway.jvm).getAll())
    master = site.get("spark.master", settings.master)
    if settings.master not in ("local", master):
        raise SessionError(f"spark-submit was told the master {master}, and the configuration says {settings.master}.")
    settings = replace(settings, master=master)
    conf = spark_conf(settings, site)
    if not settings.is_local:
        wanted = conf.get(WORKERS_PYTHON) or site.get(WORKERS_PYTHON)
        os.environ["PYSPARK_PYTHON"] = wanted or os.environ.get("PYSPARK_PYTHON") or sys.executable
    context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    if not settings.is_local:
        _ship(context, settings)
    return SparkSession(context)


def _ship(context: SparkContext, settings: SessionSettings) -> None:
    """Our packages for workers elsewhere.

    A worker's own process is forked from one that is to have them already (`worker_daemon`), before PySpark puts what
    was shipped on its path. So that path is in the environment of the first: an executor keeps shipped files in its
    working folder, and the driver's planners find the archive where it is."""
    packed = archive((settings.scratch or settings.logs).absolute() / "shipped")
    context.addPyFile(str(packed))
    paths = [packed.name, str(packed), context.environment.get("PYTHONPATH")]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _site_defaults() -> dict[str, str]:
    """The settings that the driver's Spark has by default. A JVM reads them itself, but what it is started with would
    replace those of the same name, so lists must be known before."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    told = (re.split(r"\s*[=:]\s*|\s+", line.strip(), maxsplit=1) for line in lines)
    return {pair[0]: pair[1].strip() for pair in told if len(pair) == 2 and not pair[0].startswith("#")}
