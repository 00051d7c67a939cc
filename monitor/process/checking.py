"""Spark, the integrity job and the search for cycles, kept at work: what fails begins again.

A monitor is always on. Its JVM may be killed for want of memory, the disk be full for an hour, a batch hang for ever (a
state server of Spark's that cannot write leaves its worker waiting: neither does anything then, which is seen in a
minute, and not only by the time that a batch may take). So once a batch has been checked, whatever ends
the checks is told once (`checks-stalled`), and they begin again, in a new JVM, until they go on; nothing is lost by it,
since a batch that was not committed is checked again. What is wrong before the first batch is the user's to mend, and
ends the command; a query that fails there is tried a few times. But a store that has gone away since the tables were
found there comes back: a monitor that took over, and reads state anew for minutes, waits for it as any other.

While the checks stand still the findings table may not be writable either: channels are told at once, and the table
when they go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from monitor.config.config import Config
from monitor.errors import known_errors
from monitor.process.idleness import Idleness
from monitor.process.stall_note import StallNote
from rules.vocabulary.finding import Finding
from streaming_jobs.checks_stalled import stalled
from streaming_jobs.errors import HistoryMissing, JobFailed, TableError, WorkerLate, said, translated
from streaming_jobs.history.reachable import require_reachable
from streaming_jobs.location import TableUrl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming_jobs.cycles.search import CycleJob, Searched
    from streaming_jobs.integrity_job import Batch, BatchProgress, IntegrityJob
    from streaming_jobs.verdicts.sink import Unwritten

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 2.0
FIRST_ATTEMPTS: Final = 3
"""How often a query may fail that has not checked a batch yet. What the tables or the configuration stand in the way of
fails once; that a worker was late (`WorkerLate`) does not count, up to `LATE_WORKERS` times."""
LATE_WORKERS: Final = 10
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to go on."""
SUSPICIOUS: Final = 10.0
"""Seconds that a batch may take before it is looked whether Spark is at work."""
STANDS_STILL: Final = 60.0
"""Seconds in which Spark does nothing, and rows wait for it."""


def _spark_processes() -> list[int]:
    from streaming_jobs.session import processes

    return processes()


@dataclass(frozen=True, slots=True)
class CheckingListeners:
    """Who is told: of each batch's findings, of each batch that is done, of cycles, of a condition of the checks
    themselves; `say` is given lines for the user."""

    say: Callable[[str], None]
    on_batch: Callable[[Batch], None]
    on_progress: Sequence[Callable[[BatchProgress], None]]
    on_cycles: Callable[[Searched], None]
    on_condition: Callable[[Finding], None]


class Checks:
    """One run of the checks over one checkpoint, through all its failures. `start` once, `wait` again and again by one
    thread, `stop` at the end."""

    def __init__(
        self, config: Config, told: CheckingListeners, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._config = config
        self._told = told
        self._clock = clock
        self._note = StallNote()
        self._left: tuple[datetime, Finding] | None = None
        self._stopping = threading.Event()
        self._session: SparkSession | None = None
        self._prepared = False  # long ago, maybe
        self._job: IntegrityJob | None = None
        self._cycles: CycleJob | None = None
        self._served = False
        self._failures = 0
        self._late_workers = 0
        self._lock = threading.Lock()
        self._since: datetime | None = None
        self._opened: Finding | None = None
        self._pause = FIRST_PAUSE
        self._idleness = Idleness(_spark_processes)
        self._unwritten: Sequence[Unwritten] = ()

    def prepare(self) -> None:
        """Start Spark before there is anything to check. What fails is tried again by `start`."""
        try:
            from streaming_jobs.warming import prepare

            self._session = self._open_session()
            self._prepared = True
            prepare(self._session, self._config.job.checkpoint_path)
        except Exception as error:
            log.info("Spark is started later: %s", said(error))

    def take_over(self, note: StallNote, recorded: pa.Table) -> None:
        """Go on where the monitor before this one ended: a stop that it told of, and did not write to the findings
        (`recorded`), lasts until the first batch. To be called before `start`."""
        self._note, self._left = note, note.left(recorded)
        if self._left is not None:
            self._told.on_condition(self._left[1])
        else:
            note.clear()

    def start(self) -> None:
        """Up to the first batch. Raises what stands in the way: `SessionError`, `JobError`s, those of Java and jars.
        Where the store has gone away meanwhile they begin again, by `wait`."""
        try:
            self._start()
        except Exception as error:
            from streaming_jobs.session import is_given

            if self._stopping.is_set() or is_given() or not self._store_is_away():
                raise
            self._begin_again(error)

    def _start(self) -> None:
        try:
            prepared, self._prepared = self._prepared, False
            if prepared and self._session is not None and not _is_there(self._session):
                from streaming_jobs.session import kill

                self._session = None
                kill()
            if self._session is None:
                self._session = self._open_session()
            if not self._stopping.is_set():
                self._start_job(self._session)
        except Exception as error:
            if (ours := self._ours(error)) is error:
                raise
            raise ours from error

    def wait(self, seconds: float) -> bool:
        """Whether the checks have ended for good, after at most `seconds`. Raises the error by which they did, if they
        never checked a batch in some attempts; else they begin again."""
        if self._job is None and self._opened is None and not self._late_workers:
            return self._stopping.wait(seconds)
        try:
            if self._job is None:
                self._start()
                return self._stopping.is_set()
            ended = self._job.wait(seconds)
            if self._stopping.is_set():
                return ended
            limit = self._config.job.batch_limit
            hangs = (
                f"a batch hangs, for more than {limit:g} s" if self._job.busy_for() > limit else self._stands_still()
            )
            if not ended and not hangs:
                return False
            raise JobFailed("the query ended without an error" if ended else hangs)
        except Exception as error:  # whatever it is: a JVM that goes leaves errors of Spark's, py4j's and Python's own
            if self._stopping.is_set():
                return True
            if not self._served and isinstance(error, WorkerLate) and self._late_workers < LATE_WORKERS:
                self._try_again(error)
                return False
            self._failures += 1
            from streaming_jobs.session import is_given

            if is_given():  # there is no second JVM: who submitted this process starts it again
                if (ours := self._ours(error)) is error:
                    raise
                raise ours from error
            may_pass = self._may_pass(error) and self._failures < FIRST_ATTEMPTS
            if not self._served and not may_pass and not self._store_is_away():
                raise
            self._begin_again(error)
            return False

    def _stands_still(self) -> str:
        """Why a batch will not end, where it waits for what will not come. One whose tables are in a store may wait for
        that: it is given the whole limit."""
        if self._job is None or isinstance(self._config.job.tables_path, TableUrl):
            return ""
        waits = self._job.waits_for_spark()
        idle = self._idleness.seconds() if waits > SUSPICIOUS else 0.0
        if min(waits, idle) < STANDS_STILL:
            return ""
        return f"a batch stands still, and Spark has done nothing for {idle:.0f} s"

    @property
    def stalled(self) -> bool:
        """Have the checks stopped, to begin again?"""
        return self._opened is not None

    @property
    def rebuilding(self) -> bool:
        """Is their state being rebuilt?"""
        job = self._job
        return job is not None and job.rebuilding

    def ask_to_stop(self) -> None:
        """Begin to stop: `start` returns soon, no further batch is begun. Does not wait."""
        self._stopping.set()
        job = self._job
        if job is not None:
            threading.Thread(target=job.stop, name="stop-job", daemon=True).start()

    def abandon(self) -> None:
        """End at once: nothing is finished, and nothing written any more."""
        self._stopping.set()
        if self._job is not None:
            self._job.abandon()
        from streaming_jobs.session import kill

        kill()

    def stop(self) -> None:
        """Finish the running batch, then end Spark. May be called twice."""
        self._stopping.set()
        if self._job is not None:
            self._job.stop()
        if self._cycles is not None:
            self._cycles.stop()
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the JVM may have gone already; what it had is on disk
                session.stop()

    # Beginning again

    def _ours(self, error: Exception) -> Exception:
        """The error as the user sees it: Spark's and py4j's are translated, and whatever Python says of a JVM that has
        gone; a defect of ours stays what it is."""
        if not isinstance(error, known_errors()) and self._session is not None and not _is_there(self._session):
            log.info("Spark's Java process has gone", exc_info=error)
            return JobFailed("The integrity job ended: Spark's Java process has gone, and its log may say why.")
        foreign = type(error).__module__.partition(".")[0] in ("py4j", "pyspark")
        return translated(error, checkpoint=str(self._config.job.checkpoint_path)) if foreign else error

    def _may_pass(self, error: Exception) -> bool:
        """Whether another attempt may do what this one could not: a query that failed, a store that did not answer."""
        at_url = isinstance(self._config.job.tables_path, TableUrl)
        return type(error) is JobFailed or (at_url and type(error) is TableError)

    def _store_is_away(self) -> bool:
        """Whether the tables' or the probe log's store does not answer: both did when the checks were begun."""
        try:
            require_reachable(self._config.job.tables_path)
            require_reachable(self._config.job.history_path)
        except TableError:
            return True
        return False

    def _try_again(self, late: WorkerLate) -> None:
        """The next `wait` starts another query in the same session. Nothing had been checked: nothing has stopped."""
        self._late_workers += 1
        log.info("%s", late)
        self._told.say("Spark's workers are slow to start; trying again")
        self._leave()
        if self._cycles is not None:
            self._cycles.stop()
            self._cycles = None

    def _begin_again(self, error: Exception) -> None:
        """Leave what failed behind; the next `wait` starts anew."""
        if not isinstance(error, known_errors()):
            log.info("the checks failed by an error that is not ours", exc_info=error)
        why = " ".join(said(self._ours(error)).split()).rstrip(".") or type(error).__name__
        with self._lock:
            if self._opened is None:
                if self._left is not None:
                    (self._since, self._opened), self._left = self._left, None
                else:
                    now = self._clock()
                    waited = 0.0 if self._job is None else self._job.busy_for()
                    self._since = now - timedelta(seconds=waited)
                    self._opened = stalled("opened", now, self._since, why)
                    self._note.keep(self._since, why)
                    self._told.on_condition(self._opened)
                self._told.say(f"the checks have stopped and begin again until they go on: {why}")
        from streaming_jobs.session import kill

        self._leave()
        cycles, self._cycles, self._session = self._cycles, None, None
        kill()
        if cycles is not None:
            cycles.stop()
        self._stopping.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _leave(self) -> None:
        """Another job follows; what this one has told and could not write, that one writes."""
        job, self._job = self._job, None
        if job is not None:
            job.abandon()
            self._unwritten = job.unwritten

    def _on_done(self, progress: BatchProgress) -> None:
        self._served = True
        with self._lock:
            opened, self._opened = self._opened, None
            since, self._pause = self._since, FIRST_PAUSE
            if self._left is not None:
                since, opened = self._left
                self._left = None
        if opened is None or since is None or self._job is None:
            return
        now = self._clock()
        self._told.say(f"the checks go on, after {(now - since).total_seconds():.0f} s")
        self._job.record([opened, stalled("closed", now, since)])
        self._note.clear()

    # Starting

    @property
    def _first_time(self) -> bool:
        return self._opened is None and not self._late_workers

    def _open_session(self) -> SparkSession:
        if self._first_time:
            self._told.say("starting Spark")
        # Imported here: a stop, a help text and a check of a file must not wait for them.
        from deploy import class_archive
        from deploy.jars import graphframes_jars, s3a_jars, spark_jars
        from deploy.java import java, java_home
        from streaming_jobs.integrity_job import session_settings
        from streaming_jobs.location import is_at_s3
        from streaming_jobs.session import is_given, start
        from streaming_jobs.spark_conf import is_local

        say, job = self._told.say, self._config.job
        if is_given():
            return start(session_settings(job, ()))
        jars = spark_jars(say)
        given = any("graphframes" in job.spark.conf.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
        if job.cycles.engine == "graphframes" and job.cycles.enabled and not given:
            jars = [*jars, *graphframes_jars(say)]
        local = is_local(job.spark.master)
        s3a = s3a_jars(say) if local and is_at_s3(job.checkpoint_path) else []
        archived = class_archive.taking(class_archive.of_spark(java(say))) if local else []
        return start(session_settings(job, jars, java_home=java_home(say), java_options=archived, beside=s3a))

    def _start_job(self, session: SparkSession) -> None:
        from streaming_jobs.integrity_job import IntegrityJob, Listeners
        from streaming_jobs.log_watch import Clocks, machine_time, steady

        job = self._config.job
        listeners = Listeners(
            on_batch=[self._told.on_batch],
            on_progress=[self._on_done, *self._told.on_progress],
            on_rebuild=[self._told.say],
        )
        self._job = IntegrityJob(
            job, session, listeners, clocks=Clocks(self._clock, steady(machine_time)), unwritten=self._unwritten
        )
        if self._stopping.is_set():
            return
        if self._first_time:
            self._told.say(f"checking the probe log in {job.history_path}")
        try:
            self._job.start()
        except HistoryMissing:
            if not self._stopping.is_set():
                raise
            return
        if job.cycles.enabled:
            self._cycles = self._cycle_job(session)
            self._cycles.start()

    def _cycle_job(self, session: SparkSession) -> CycleJob:
        from streaming_jobs.cycles.search import CycleJob

        job, listeners = self._config.job, [self._told.on_cycles]
        if job.cycles.engine == "graphframes":
            from streaming_jobs.cycles.graph_frames import components, unavailable

            reason = unavailable(session)
            if reason is None:
                divided = components(session, self._config.data / "spark" / "graphframes")
                return CycleJob(job, listeners, components=divided, engine="graphframes", clock=self._clock)
            self._told.say(f"cycles are searched in memory: {reason}")
        return CycleJob(job, listeners, clock=self._clock)


def _is_there(session: SparkSession) -> bool:
    """Whether the JVM of a session that was started long ago answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
