"""`make demo`: a real cluster on this machine is watched, and a real violation on it is caught.

Local brokers, the probes and the monitor run in one command. About half a minute after the start a producer without
idempotence sends a few tagged records twice (`monitor.demo.provocation`); the duplicates must be found with their
evidence. Everything is in one folder, `.offsetwatch/demo-<time>`, and stays there; those of earlier demonstrations are
removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.live import Live

from alerts.event import FindingEvent
from deploy.local_kafka import LocalKafka
from monitor.config.config import Config, from_environment
from monitor.demo import view as demo_view
from monitor.demo.provocation import Provoked, send_twice
from monitor.demo.verdict import JUDGING, Verdict, is_provoked, summary, verdict
from monitor.demo.view import Snapshot
from monitor.errors import UserError
from monitor.process.machine import available_memory
from monitor.process.probing import open_fleet
from monitor.process.program_log import configure
from monitor.process.reach import connection
from monitor.process.signals import stop_on_signal
from monitor.process.watch import Watch
from probes.clock import SystemClock
from streaming_jobs.checks_stalled import NAME as CHECKS_STALLED
from streaming_jobs.tables.findings import current_findings

if TYPE_CHECKING:
    from probes.running.fleet import Fleet
    from streaming_jobs.integrity_job import Batch, Progress

PROVOKE_AFTER: Final = 30.0
"""Seconds from the start of the demonstration; later where the checks are not at work by then."""
LATEST: Final = 0.6
"""The share of the time asked for after which it is provoked in any case."""
STEADY_BATCHES: Final = 2
"""Batches that must have been checked before anything is provoked."""
PROVOKED_RECORDS: Final = 3
LATE: Final = 45.0
"""Seconds that a finding may come after the end of the time that was asked for."""
CATCH_UP: Final = 15.0
THREE_BROKERS_NEED: Final = 6 * 2**30
"""Bytes of available memory: three brokers of some 400 MiB each, Spark's JVM and its workers, and room for others."""
ROOT: Final = Path(".offsetwatch")
_TICK: Final = 0.5
_LINE_EVERY: Final = 5.0
_RATE_OVER: Final = 5.0
_START_LIMIT: Final = 90.0


def run(*, seconds: float, keep: bool, brokers: int, debug: bool = False) -> int:
    """Run the demonstration; 0 if what was provoked was found, and nothing else, 1 if not.

    `seconds`: stop by itself after so long, 0 for never. `brokers`: 0 chooses by the memory available.
    Raises the errors of what could not be started."""
    if not keep:
        remove_earlier(ROOT)
    data = ROOT / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    configure(debug=debug, file=data / "logs" / "demo.log", quiet=True)
    with stop_on_signal() as stop:
        return _Demo(data, stop, seconds, brokers or affordable_brokers()).run()


def affordable_brokers() -> int:
    """Three brokers, or one where memory is short."""
    return 3 if available_memory() >= THREE_BROKERS_NEED else 1


def remove_earlier(root: Path) -> None:
    """Remove the folders of earlier demonstrations, except those that still run."""
    for folder in root.glob("demo-*"):
        with suppress(OSError):
            lock = os.open(folder / "kafka" / ".lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """One demonstration. The main thread draws; one thread starts things and keeps the checks at work; those of the job
    bring what was found."""

    def __init__(self, data: Path, stop: threading.Event, seconds: float, brokers: int) -> None:
        self._data, self._stop, self._limit, self._brokers = data, stop, seconds, brokers
        self._began = time.monotonic()
        self._step = "starting"
        self._closing = False
        self._started = threading.Event()
        self._cluster = ""
        self._lock = threading.Lock()
        self._states: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._events: list[FindingEvent] = []
        self._allowed = 0
        self._progress: Progress | None = None
        self._batches = 0
        self._past: deque[tuple[float, int, int, int]] = deque()
        self._fleet: Fleet | None = None
        self._watch: Watch | None = None
        self._config: Config | None = None
        self._failed: Exception | None = None
        self._provoked: Provoked | None = None
        self._found_after: float | None = None
        self._console = Console()

    # Running

    def run(self) -> int:
        with ExitStack() as ending:
            starter = threading.Thread(target=self._start, args=(ending,), name="start-demo", daemon=True)
            starter.start()
            with self._display() as show:
                while not self._over():
                    show()
                    self._stop.wait(_TICK)
                self._say("stopping: the probes, then the checks of what they did, then the brokers")
                self._closing = True
                closer = threading.Thread(target=self._end, args=(starter, ending), name="end-demo", daemon=True)
                closer.start()
                while closer.is_alive():
                    show()
                    closer.join(_TICK)
                show()
        if self._failed is not None:
            raise self._failed
        return self._conclude()

    def _start(self, ending: ExitStack) -> None:
        try:
            self._start_all(ending)
            self._started.set()
            self._keep_at_work()
        except Exception as error:  # the main thread raises it, once everything has ended
            self._failed = error
            self._stop.set()

    def _keep_at_work(self) -> None:
        """What ends the checks is told and begins again, as in the monitor, until everything is to end."""
        while self._watch is not None and not (self._stop.is_set() or self._closing):
            if self._watch.wait(_TICK) and not (self._stop.is_set() or self._closing):
                raise UserError("the integrity job ended without being asked to")

    def _start_all(self, ending: ExitStack) -> None:
        count = self._brokers
        self._say(f"starting Apache Kafka with {count} broker{'s' * (count > 1)}; the first time its jars are fetched")
        kafka = LocalKafka(self._data / "kafka", brokers=count, say=self._say)
        ending.callback(kafka.stop)
        kafka.start()
        self._cluster = f"Kafka {kafka.version}, {count} broker{'s' * (count > 1)}"
        self._config = configuration(self._data, kafka.bootstrap, count)
        if self._stop.is_set():
            return
        self._say("starting the probes")
        self._fleet = open_fleet(self._config, self._say)
        self._watch = Watch(
            self._config, say=self._say, fleet=self._fleet, channels=[Standing(self._on_stalled)],
            listeners=[self._on_batch], on_progress=[self._on_progress],
        )  # fmt: skip
        self._watch.start()
        self._say("waiting for the first checks")

    def _end(self, starter: threading.Thread, ending: ExitStack) -> None:
        """Stop in order. The last rows are checked before the checks end: what was provoked late is still found."""
        try:
            if self._watch is not None:
                if not self._started.is_set():
                    self._watch.ask_to_stop()
                self._watch.stop_probes()
            starter.join(_START_LIMIT)
            limit = time.monotonic() + (CATCH_UP if self._batches and self._failed is None else 0.0)
            while time.monotonic() < limit and not self._caught_up():
                time.sleep(_TICK / 2)
            if self._watch is not None:
                self._watch.stop()
            ending.close()
        except Exception as error:  # the main thread raises it
            self._failed = self._failed or error

    def _caught_up(self) -> bool:
        return self._progress is not None and self._progress.lag_versions == 0

    def _conclude(self) -> int:
        judged = self._judge()
        print()
        for line in summary(judged, self._found_after):
            print(line)
        print(f"the tables are in {self._data / 'tables'}; look at the findings again with")
        print(f"  {_command()} findings --data {self._data}")
        return judged.exit_code

    def _judge(self) -> Verdict:
        tables = self._data / "tables"
        rows = current_findings(tables).to_pylist() if tables.is_dir() else []
        return verdict(rows, self._provoked)

    # Showing

    @contextmanager
    def _display(self) -> Iterator[Callable[[], None]]:
        """Something to call again and again: it shows how things stand, on a screen or line by line."""
        if not self._console.is_terminal:
            yield _Lines(self._snapshot)
            return
        with Live(console=self._console, auto_refresh=False, screen=True) as live:
            yield lambda: live.update(self._screen(), refresh=True)

    def _screen(self) -> RenderableType:
        size = self._console.size
        return demo_view.screen(self._snapshot(), width=size.width, height=size.height)

    def _over(self) -> bool:
        """Whether to stop; what is due is done here."""
        elapsed = time.monotonic() - self._began
        if self._stop.is_set():
            return True
        if self._provoked is None and self._time_to_provoke(elapsed):
            self._provoke()
        if not self._limit or elapsed < self._limit:
            return False
        waiting = self._provoked is None or self._found_after is None
        return not waiting or elapsed >= self._limit + LATE

    def _time_to_provoke(self, elapsed: float) -> bool:
        if self._fleet is None or not any(probe.acknowledged for probe in self._fleet.status().probes):
            return False
        if self._batches >= STEADY_BATCHES and elapsed >= PROVOKE_AFTER:
            return True
        # On a slow machine the checks may only begin late; they find it then, too.
        return bool(self._limit) and elapsed >= LATEST * self._limit

    def _provoke(self) -> None:
        assert self._fleet is not None and self._config is not None
        status = self._fleet.status()
        assert status.layout is not None
        topic = self._config.probes.topics.records
        where = max(status.layout.partitions(topic))
        try:
            self._provoked = send_twice(
                connection(self._config), self._config.journals, run=status.run, layout=status.layout, where=where,
                records=PROVOKED_RECORDS, clock=SystemClock(),
            )  # fmt: skip
        except Exception as error:
            self._failed = error
            self._stop.set()
        else:
            self._say(f"provoked: {self._provoked}")

    def _snapshot(self) -> Snapshot:
        now = time.monotonic()
        probes = self._fleet.status().probes if self._fleet is not None else ()
        totals = {
            name: sum(getattr(probe, name) for probe in probes)
            for name in ("sent", "acknowledged", "polled", "errors", "transactions_committed", "transactions_aborted")
        }
        self._past.append((now, totals["sent"], totals["acknowledged"], totals["polled"]))
        while now - self._past[0][0] > _RATE_OVER:
            self._past.popleft()
        first, span = self._past[0], max(now - self._past[0][0], _TICK)
        rates = [(total - before) / span for total, before in zip(self._past[-1][1:], first[1:], strict=True)]
        with self._lock:
            states, events, progress = list(self._states.values()), list(self._events), self._progress
        reached = [state["now"] for state in states if state["now"] is not None]
        return Snapshot(
            step=self._step,
            elapsed=now - self._began,
            limit=self._limit or None,
            cluster=self._cluster,
            url=self._watch.url if self._watch is not None else None,
            sent=totals["sent"],
            acknowledged=totals["acknowledged"],
            polled=totals["polled"],
            errors=totals["errors"],
            committed=totals["transactions_committed"],
            aborted=totals["transactions_aborted"],
            sent_rate=rates[0],
            acknowledged_rate=rates[1],
            polled_rate=rates[2],
            states=states,
            checked_until=max(0.0, (datetime.now(UTC) - min(reached)).total_seconds()) if reached else None,
            batches=self._batches,
            batch_seconds=progress.duration if progress else None,
            rows_rate=progress.input_rows_per_second if progress else None,
            unread_commits=progress.lag_versions if progress else None,
            events=events,
            allowed=self._allowed,
        )

    def _say(self, step: str) -> None:
        if not self._closing:
            self._step = step

    # The job's threads

    def _on_batch(self, events: list[FindingEvent], batch: Batch) -> None:
        with self._lock:
            self._batches += batch.number is not None
            for state in batch.states.to_pylist():
                self._states[(state["topic"], state["partition"])] = state
            judging = [event for event in events if event.severity in JUDGING]
            self._events += judging
            self._allowed += len(events) - len(judging)
        provoked = self._provoked
        for event in events:
            row = {
                "anomaly": event.anomaly,
                "topic": event.topic,
                "partition": event.partition,
                "evidence": event.evidence,
            }
            if provoked is not None and self._found_after is None and is_provoked(row, provoked):
                self._found_after = (event.counted - provoked.at).total_seconds()
                self._say(f"found {self._found_after:.1f} s after the second copy was acknowledged")

    def _on_stalled(self, event: FindingEvent) -> None:
        with self._lock:
            self._events.append(event)

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        if self._step == "waiting for the first checks":
            self._say("healthy so far; a violation is provoked in a moment")


class Standing:
    """Passes on at once that the checks stand still: no batch can tell of it until they go on."""

    name = "demo"

    def __init__(self, told: Callable[[FindingEvent], None]) -> None:
        self._told = told

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        for event in events:
            if event.anomaly == CHECKS_STALLED and event.event == "opened":
                self._told(event)


class _Lines:
    """Prints what is new since the last call, and the figures every few seconds."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._step, self._told, self._due = "", 0, 0.0

    def __call__(self) -> None:
        now = self._snapshot()
        for event in now.events[self._told :]:
            for text in demo_view.event_lines(event):
                print(f"        {text}", flush=True)
        self._told = len(now.events)
        if now.step != self._step:
            self._step = now.step
            print(f"{now.elapsed:4.0f} s  {now.step}", flush=True)
        if now.batches and now.elapsed >= self._due:
            self._due = now.elapsed + _LINE_EVERY
            print(demo_view.line(now), flush=True)


def configuration(data: Path, bootstrap: str, brokers: int) -> Config:
    """The defaults and the environment's overrides, on the demonstration's own cluster and folder; it asks for no more
    replicas than there are `brokers`."""
    given = {name: value for name, value in os.environ.items() if name.startswith("OFFSETWATCH_")}
    given |= {
        "OFFSETWATCH_DATA": str(data),
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": bootstrap,
        "OFFSETWATCH_ALERTS__LOG": str(data / "logs" / "findings.jsonl"),
    }
    few = {"REPLICATION": brokers, "MIN_IN_SYNC": max(1, brokers - 1)}
    chosen = {f"OFFSETWATCH_PROBES__TOPICS__{name}": str(number) for name, number in few.items()}
    return from_environment({"OFFSETWATCH_ALERTS__METRICS_PORT": "0"} | chosen | given)


def _command() -> str:
    """How this program can be called again: by its name where the shell finds it, else as it was called now."""
    return "offsetwatch" if shutil.which("offsetwatch") else sys.argv[0]
