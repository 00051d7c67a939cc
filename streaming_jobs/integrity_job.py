"""The integrity job: starts the query, gives its batches to the sink, watches it, and ends it in order.

Three threads touch it: the caller's, Spark's (which calls `_on_batch` for each micro-batch), and the job's own watch,
which looks every half second for finished batches, a failed query and a silent probe log, and runs the tables' upkeep
in between. None of the checks depends on any of these clocks.

Where the stream cannot begin or go on (`rebuild.reason_to_rebuild`, `StateUnusable`) the state is rebuilt
from the probe log, and another query goes on with it. A query that ends so before its first batch is not rebuilt again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rules.vocabulary.finding import Finding
from rules.vocabulary.table_errors import in_words
from streaming_jobs.batch_progress import BatchProgress, from_spark
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import (
    UNREADABLE,
    EvidenceGap,
    FileUnreadable,
    JobError,
    JobFailed,
    StateFormat,
    StateUnusable,
    translated,
)
from streaming_jobs.history import damage
from streaming_jobs.history.gap import gap, open_gaps
from streaming_jobs.history.handover import handover
from streaming_jobs.history.layout import make_ready
from streaming_jobs.history.source import NewestVersion, await_history, stream
from streaming_jobs.location import is_at_s3, spark_url
from streaming_jobs.log_watch import Clocks, LogWatch, machine_time, steady
from streaming_jobs.query import await_commit, ended_by, has_read_all, is_active, told_since
from streaming_jobs.rebuild.rebuild import Rebuild, RebuildStopped, reason_to_rebuild
from streaming_jobs.session import SessionSettings, planners
from streaming_jobs.spark_conf import is_local, store_conf
from streaming_jobs.tables.findings import current_findings
from streaming_jobs.tables.upkeep import Upkeep
from streaming_jobs.verdicts.checks import Check
from streaming_jobs.verdicts.lookups import Lookups
from streaming_jobs.verdicts.operator import STATE_DDL, verdict_rows, verdicts
from streaming_jobs.verdicts.recheck import Rechecks
from streaming_jobs.verdicts.sink import Batch, Listener, Sink, Unwritten, query_id
from streaming_jobs.warming import warm

log = logging.getLogger(__name__)

_TICK: Final = 0.5
_THREADS_END: Final = 10.0
"""Seconds for the job's threads, all together, to finish the call that they are in: a table is compacted, say."""
_RECHECK: Final = 2.0
_PROGRESS_KEPT: Final = 100
"""Batches that Spark still tells of."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Whom the job tells, each in order, on the job's threads: be quick. `on_failure` is called once, when the query
    ended by itself. `on_rebuild` is given lines for the user while the state is rebuilt."""

    on_batch: Sequence[Listener] = ()
    on_progress: Sequence[Callable[[BatchProgress], None]] = ()
    on_failure: Sequence[Callable[[JobError], None]] = ()
    on_rebuild: Sequence[Callable[[str], None]] = ()


class _Stopping(Exception):
    """A batch began while the job was being stopped: it is left for the next start."""


def session_settings(config: JobConfig, jars: Sequence[object], **more: object) -> SessionSettings:
    """The Spark session that this job wants; `more` are other fields of `SessionSettings`."""
    return SessionSettings(
        **{
            "jars": jars,
            "logs": config.root / "logs",
            "scratch": config.root / "spark" / config.name,
            "master": config.spark.master,
            "extra": (store_conf(os.environ) if is_at_s3(config.checkpoint_path) else {}) | config.spark.conf,
            "cores": config.cores,
            "driver_memory": config.driver_memory,
            "shuffle_partitions": config.shuffle_partitions,
            **more,
        }  # type: ignore[arg-type]
    )


class IntegrityJob:
    """One run of the job over one checkpoint. `start` or `run_available_now` once, then `stop`.

    `check` is the checks' entry point, replaced only where the job itself is tested. `unwritten`: what the job before
    this one told and could not write."""

    def __init__(
        self,
        config: JobConfig,
        spark: SparkSession,
        listeners: Listeners | None = None,
        *,
        check: Check | None = None,
        clocks: Clocks | None = None,
        unwritten: Sequence[Unwritten] = (),
    ) -> None:
        self._config = config
        self._spark = spark
        self._listeners = listeners or Listeners()
        self._check = check
        self._clocks = clocks or Clocks(machine_time, steady(machine_time))
        self._clock = self._clocks.counted
        self._query: StreamingQuery | None = None
        self._sink: Sink | None = None
        self._unwritten = list(unwritten)
        self._log_watch: LogWatch | None = None
        self._stopping = threading.Event()
        self._busy = threading.Lock()  # held while a batch is in our hands
        self._busy_since: float | None = None
        self._asked_since: float | None = None  # Spark for what is in the batch, whose checks run then
        self._sink_lock = threading.Lock()
        self._ended = threading.Event()
        self._failure: JobError | None = None
        self._cause: JobError | None = None
        self._last_batch = -1
        self._seen_progress = -1
        self._planned = False
        self._newest = NewestVersion(config.history_path)
        self._rows: dict[int, int] = {}  # of the last batches
        self._threads: list[threading.Thread] = []
        self._trigger: dict[str, Any] = {}
        self._format_rebuilt = False
        self._rebuilding = False
        self._rechecks: Rechecks | None = None
        self._lookups: Lookups | None = None

    # Running

    def start(self) -> None:
        """Start the endless query and the watch. Raises `JobError`s: no probe log, no such table, a bad checkpoint."""
        self._spawn(lambda: warm(self._spark), "integrity-warming")
        self._launch({"processingTime": f"{round(self._config.trigger * 1000)} milliseconds"})
        if self._query is None:
            return  # stopped meanwhile
        self._spawn(lambda: self._again_and_again(self._tick), "integrity-watch")
        self._spawn(lambda: self._again_and_again(self._look_at_log), "integrity-log-watch")
        self._spawn(self._recheck, "integrity-recheck")
        if self._config.upkeep.enabled:
            self._spawn(self._keep_up, "integrity-upkeep")

    def run_available_now(self) -> None:
        """Check what the probe log holds now, in batches, and return. Raises the `JobError` that ended it."""
        self._launch({"availableNow": True})
        while self._query is not None:
            try:
                while not self._query.awaitTermination(1):
                    self._tell_progress()
                break
            except PySparkException as error:
                if not self._recovered(error):
                    raise self._failed(error) from None
        self._tell_progress()
        self._answer(self._stopping.is_set, last=True)
        self._ended.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Until the query has ended, by `stop` or by itself; False when `timeout` seconds have passed first. Raises the
        `JobError` by which it ended."""
        done = self._ended.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return done

    @property
    def failure(self) -> JobError | None:
        """The error by which the query ended by itself, if it has."""
        return self._failure

    def stop(self) -> None:
        """End the query in order: the batch that is running is finished and committed, none is begun after it.

        Safe to call twice, and before `start` has returned (which then raises `HistoryMissing` if it was waiting)."""
        self._stopping.set()
        query = self._query
        with self._busy:  # the running batch's writes, or a rebuild's
            number = self._last_batch
        if query is not None and not self._ended.is_set():  # nor abandoned
            await_commit(query, self._config.checkpoint_path / "commits", number)
        if query is not None:
            try:
                query.stop()
            except (PySparkException, Py4JError, OSError) as error:
                log.debug("the query ended while it was being stopped: %s", error)
        self._ended.set()
        until = time.monotonic() + _THREADS_END
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))

    def abandon(self) -> None:
        """Leave everything as it is, for the JVM is gone, or goes: nothing is finished, and nothing begun."""
        self._stopping.set()
        self._ended.set()

    def busy_for(self) -> float:
        """Seconds since the running batch was given to us, or since there are rows and no batch came, beyond what they
        wait on purpose; else 0, and so while state is rebuilt."""
        if self._busy_since is not None:
            return time.monotonic() - self._busy_since
        if self._log_watch is None or self._rebuilding:
            return 0.0
        return max(0.0, self._log_watch.waiting() - self._config.hold - self._config.trigger)

    def waits_for_spark(self) -> float:
        """Seconds since there are rows and Spark has not given us a batch, or, where it runs on this machine, what its
        checks found; 0 while we have that."""
        if self._busy_since is None:
            return self.busy_for()
        asked = self._asked_since
        if asked is None or not is_local(self._spark.sparkContext.master or ""):
            return 0.0
        return time.monotonic() - asked

    @property
    def rebuilding(self) -> bool:
        """Is the state being rebuilt?"""
        return self._rebuilding

    @property
    def unwritten(self) -> list[Unwritten]:
        """What has been told and could not be written yet, for the job that follows."""
        return self._unwritten if self._sink is None else self._sink.unwritten

    def record(self, findings: Sequence[Finding]) -> None:
        """Write findings that no batch made, once there is a query; what cannot be written now is written before the
        next batch."""
        self._open_sink().report(findings, put_off=True)

    def _spawn(self, run: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _launch(self, trigger: dict[str, Any]) -> None:
        config = self._config
        if self._query is not None:
            raise JobFailed("The integrity job has been started already.")
        self._trigger = trigger
        await_history(config.history_path, config.history_wait, stopping=self._stopping.is_set)
        why = reason_to_rebuild(config)
        if why is not None and not self._rebuilt(why):
            return
        self._run_query()

    def _run_query(self) -> None:
        """A query over the checkpoint as it is; with the state that was handed over to it, if it has not begun."""
        config = self._config
        make_ready(self._spark, config.checkpoint_path)
        # Fixed by the first run of a checkpoint; set here so that a session shared by several queries serves each.
        self._spark.conf.set("spark.sql.shuffle.partitions", str(config.shuffle_partitions))
        handed = handover(config.checkpoint_path)
        initial = None
        if handed is not None and handed.state is not None:
            initial = self._spark.read.schema(STATE_DDL).parquet(spark_url(handed.state))
        self._planned = False
        history = stream(self._spark, config, None if handed is None else handed.plan)
        frame = verdicts(history, config.objectives.objectives(), self._check, initial)
        writer = (
            frame.writeStream.foreachBatch(self._on_batch)
            .outputMode("update")
            .queryName(f"{config.name}-{id(self):x}")
            .option("checkpointLocation", spark_url(config.checkpoint_path))
            .trigger(**self._trigger)
        )
        try:
            self._query = writer.start()
        except PySparkException as error:
            raise translated(error, checkpoint=str(config.checkpoint_path)) from None
        if self._stopping.is_set():
            self._query.stop()
        self._open_sink()

    def _rebuilt(self, why: str) -> bool:
        """Rebuild the state; False where a stop came first, and the next start goes on with it."""
        config = self._config
        rebuild = Rebuild(
            config,
            self._listeners.on_batch,
            check=self._check,
            say=self._say,
            clock=self._clock,
            stopping=self._stopping.is_set,
        )
        self._rebuilding = True
        try:
            with self._busy:
                rebuild.run(why)
        except RebuildStopped as stopped:
            log.info("%s", stopped)
            self._ended.set()
            return False
        finally:
            self._rebuilding = False
            if self._log_watch is not None:
                self._log_watch.batch_ended()  # rows have waited for us, and not for Spark
        return True

    def _recovered(self, error: BaseException) -> bool:
        """Whether a query that ended by `error` was followed by another one, with its state rebuilt. Raises the
        `JobError` by which the rebuild failed."""
        cause = self._cause or translated(error, checkpoint=str(self._config.checkpoint_path))
        if not isinstance(cause, StateUnusable | FileUnreadable) or self._stopping.is_set():
            return False
        if isinstance(cause, EvidenceGap | FileUnreadable) and self._goes_on_without(cause):
            return True
        if isinstance(cause, FileUnreadable):
            return False
        handed = handover(self._config.checkpoint_path)
        if handed is not None and handed.state is not None:
            return False  # the state was rebuilt and has served no batch: it would be the same again
        if isinstance(cause, StateFormat):
            if self._format_rebuilt:
                return False  # what these very checks wrote they cannot read
            self._format_rebuilt = True
        sink = self._open_sink()
        if isinstance(cause, EvidenceGap):
            known = set(open_gaps(current_findings(self._config.tables_path)))
            sink.report(gap("opened", (set(sink.clusters) or {""}) - known, self._clock(), str(cause)))
        log.warning("%s", cause)
        self._say(str(cause))
        self._leave_query()
        if self._rebuilt(cause.why):
            self._run_query()
        return True

    def _leave_query(self) -> None:
        """Another one follows, and writes what this one has told and could not write."""
        self._unwritten = self.unwritten
        self._query, self._sink, self._cause = None, None, None
        self._last_batch = self._seen_progress = -1

    def _goes_on_without(self, cause: JobError) -> bool:
        """Whether the log had lost files, and another query goes on without them."""
        history = self._config.history_path
        if not (lost := damage.found(history, str(cause))):
            return False
        damage.give_up(history, lost, tended=self._config.upkeep.enabled)
        sink = self._open_sink()
        known = set(open_gaps(current_findings(self._config.tables_path)))
        sink.report(gap("opened", (set(sink.clusters) or {""}) - known, self._clock(), damaged=lost))
        log.warning("%s", damage.told(lost))
        self._leave_query()
        self._run_query()
        return True

    def _say(self, line: str) -> None:
        for listener in self._listeners.on_rebuild:
            listener(line)

    def _open_sink(self) -> Sink:
        """The sink, once the query has its id; whichever thread comes first makes it."""
        with self._sink_lock:
            if self._sink is None:
                config = self._config
                app = f"{config.name}:{query_id(config.checkpoint_path)}"
                sink = Sink(
                    config.tables_path,
                    app,
                    [self._ask, *self._listeners.on_batch],
                    clock=self._clock,
                    objectives=config.objectives.objectives(),
                )
                sink.hold_plans(config.checkpoint_path / "offsets")
                sink.take_over(self._unwritten)
                self._rechecks = Rechecks(config.history_path, config.tables_path, sink.report, clock=self._clock)
                self._lookups = Lookups(config.history_path, config.tables_path, sink.report, clock=self._clock)
                found = current_findings(config.tables_path, [one.rows for one in self._unwritten])
                self._log_watch = LogWatch(config, self._newest, sink.clusters, found, self._clocks.silence)
                self._sink = sink
                sink.report(gap("closed", open_gaps(found), self._clock()))
            return self._sink

    # Spark's thread

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._stopping.is_set():
                raise _Stopping
            self._busy_since = time.monotonic()
            try:
                sink = self._open_sink()
                assert self._log_watch is not None
                came = self._log_watch.taken()
                self._asked_since = time.monotonic()
                verdict = verdict_rows(frame.toArrow())  # once: every action would run the stateful stage again
                self._asked_since = None
                batch = sink.accept(number, verdict)
                self._rows[number] = batch.stats.slices + batch.stats.rejected
                self._rows.pop(number - _PROGRESS_KEPT, None)
                checked = set(verdict.filter(pc.greater(verdict["slices"], 0))["cluster"].to_pylist())
                told = batch.states.group_by("cluster").aggregate([("now", "max")]).to_pylist()
                newest = dict.fromkeys(checked) | {r["cluster"]: r["now_max"] for r in told if r["cluster"] in checked}
                sink.report(self._log_watch.checked_rows(newest, came))
            except Exception as error:  # Spark would hand back no more than that a Python function failed
                self._cause = translated(error, checkpoint=str(self._config.checkpoint_path))
                raise
            finally:
                self._busy_since = self._asked_since = None
                if self._log_watch is not None:
                    self._log_watch.batch_ended()
            self._last_batch = number

    def _ask(self, batch: Batch) -> None:
        if self._rechecks is not None:
            self._rechecks.ask(batch.rechecks)
        if self._lookups is not None:
            self._lookups.ask(batch.lookups)

    # The thread that asks the rows of the log

    def _recheck(self) -> None:
        while not self._ended.wait(_RECHECK):
            try:
                self._answer(self._ended.is_set)
            except (JobError, DeltaError, OSError) as error:  # nothing is lost: it is asked again
                log.warning("questions to the probe log are put off: %s", in_words(error))

    def _answer(self, stopping: Callable[[], bool], *, last: bool = False) -> None:
        """What readers saw differently, and what else was seen of transactions of which a value is absent."""
        if self._lookups is not None:
            self._lookups.answer(stopping, last=last)
        if self._rechecks is not None:
            self._rechecks.answer(stopping, last=last)

    # The threads that watch

    def _again_and_again(self, look: Callable[[], None]) -> None:
        while not self._ended.wait(_TICK):
            try:
                look()
            except (Py4JError, ConnectionError) as gone:
                log.debug("the JVM went while it was asked, which the next look finds: %s", type(gone).__name__)
            except Exception:
                log.exception("the watch over the integrity job failed; it goes on")

    def _tick(self) -> None:
        if self._stopping.is_set() or self._query is None:
            return
        if not is_active(self._query):
            if self._stopping.is_set():
                return  # it was stopped between the two questions
            error = self._ended_by(self._query)
            try:
                if not self._recovered(error):
                    self._failed(error)
            except JobError as failed:
                self._cause = failed
                self._failed(failed)
            return
        self._tell_progress()
        if not self._planned and self._last_batch >= 0:
            self._planned = True
            planners.end()

    def _look_at_log(self) -> None:
        """A thread of its own does: a JVM that hangs keeps whoever asks it waiting, and rows wait then."""
        watch, sink, query = self._log_watch, self._sink, self._query
        if watch is None or sink is None or query is None or self._stopping.is_set() or self._rebuilding:
            return
        sink.report(watch.look(lambda: has_read_all(query)), put_off=True)
        # While a batch is running there are rows: the log is not silent, however long it takes.
        if self._busy.acquire(blocking=False):
            try:
                if not self._stopping.is_set():
                    sink.report(watch.silence(), put_off=True)
            finally:
                self._busy.release()

    def _ended_by(self, query: StreamingQuery) -> BaseException:
        error = ended_by(query)
        if error is None:
            error = self._cause = JobFailed("Spark's Java process has gone.")
        return error

    def _failed(self, error: BaseException) -> JobError:
        if self._failure is None:
            self._failure = self._cause or translated(error, checkpoint=str(self._config.checkpoint_path))
            self._ended.set()
            for listener in self._listeners.on_failure:
                listener(self._failure)
        return self._failure

    def _tell_progress(self) -> None:
        reached = self._last_batch
        if self._query is None or reached <= self._seen_progress:
            return
        # An idle query tells of the batch that comes next, without rows.
        fresh = [told for told in told_since(self._query, self._seen_progress) if told.get("numInputRows")]
        if not fresh:
            return
        try:
            latest = self._newest.version()
        except (DeltaError, OSError):
            return
        for told in fresh:
            self._seen_progress = told["batchId"]
            progress = from_spark(told, latest, self._rows.get(told["batchId"]))
            if self._log_watch is not None:
                self._log_watch.checked(latest - progress.lag_versions, latest)
            for listener in self._listeners.on_progress:
                listener(progress)

    def _keep_up(self) -> None:
        upkeep = Upkeep(self._config)
        while not self._ended.wait(self._config.upkeep.every):
            for line in upkeep.run(machine_time(), self._ended.is_set):
                log.info("%s", line)
                self._give_up_if_told(line)

    def _give_up_if_told(self, trouble: str) -> None:
        """Upkeep was told that a file of the log is damaged: one that the query has left behind it, so it goes on as it
        is."""
        if UNREADABLE not in trouble or not self._config.upkeep.enabled:
            return
        try:
            if lost := damage.found(self._config.history_path, everything=True):
                damage.give_up(self._config.history_path, lost, tended=True)
                clusters, now = set(self._open_sink().clusters) or {""}, self._clock()
                self.record([*gap("opened", clusters, now, damaged=lost), *gap("closed", clusters, now)])
                log.warning("%s", damage.told(lost))
        except JobError as error:
            log.warning("%s", error)


__all__ = ["Batch", "BatchProgress", "IntegrityJob", "Listeners", "session_settings"]
