"""`make demo`: a real cluster on this machine is watched, and a real violation on it is caught.

Local brokers, the probes in a process of their own and the monitor run in one command. Once the checks are at work a
story happens to the cluster (`monitor.demo.leaderless`; `monitor.demo.duplicates` where one broker has to do); what it
makes true must be found with its evidence. Everything is in one folder, `.offsetwatch/demo-<time>`, and stays there;
those of earlier demonstrations are removed.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alerts.event import FindingEvent
from deploy.local_kafka import LocalKafka
from monitor.config.config import Config
from monitor.demo.duplicates import Duplicates
from monitor.demo.figures import Figures, Standing
from monitor.demo.leaderless import LeaderlessTransactions
from monitor.demo.probes import ProbeProcess
from monitor.demo.showing import display
from monitor.demo.story import NotProvoked, Provoked, Scene, Stopped, Story
from monitor.demo.surroundings import ROOT, affordable_brokers, command, configuration, remove_earlier
from monitor.demo.verdict import Verdict, summary, verdict
from monitor.demo.view import Snapshot
from monitor.errors import UserError
from monitor.postmortem.report_command import write as write_report
from monitor.postmortem.stretch import Stretch
from monitor.process.program_log import configure
from monitor.process.signals import stop_on_signal
from monitor.process.watch import Audience, Watch
from streaming_jobs.errors import TableError
from streaming_jobs.tables.findings import current_findings

if TYPE_CHECKING:
    from streaming_jobs.integrity_job import Batch, BatchProgress

PROVOKE_AFTER: Final = 30.0
"""Seconds from the start of the demonstration; later where the checks are not at work by then."""
STEADY_BATCHES: Final = 2
"""Batches that must have been checked before anything is provoked."""
NEARLY: Final = 5
"""Appends to the probe log that the checks may be behind when it is provoked: what waits before it is not its own."""
NO_LONGER: Final = 150.0
"""Seconds from the start after which they may be behind by any number: they will never catch up on this machine."""
LATE: Final = 240.0
"""Seconds that findings may come after the end of the time that was asked for, after the checks have begun, or after
the story's end, whichever is last."""
CHECKS_BEGIN_WITHIN: Final = 420.0
"""Seconds after the time that was asked for."""
UNCHECKED_AFTER: Final = 120.0
"""Seconds after that time from which nobody waits for the checks: what happens then they find when they begin."""
CATCH_UP: Final = 15.0
BEFORE: Final = timedelta(seconds=45)
"""How much of the time before the story the report shows."""
_TICK: Final = 0.5
_START_LIMIT: Final = 90.0
_STORY_ENDS_WITHIN: Final = 60.0

STORIES: Final = {story.name: story for story in (LeaderlessTransactions, Duplicates)}


def run(*, seconds: float, keep: bool, brokers: int, story: str | None, debug: bool = False) -> int:
    """Run the demonstration; 0 if what was provoked was found, and nothing else, 1 if not.

    `seconds`: stop by itself after so long, 0 for never. `brokers`: 0 chooses by the memory available. `story`: one of
    `STORIES`, None for the first that the brokers are enough for. Raises the errors of what could not be started."""
    count = brokers or affordable_brokers()
    chosen = _chosen(story, count, _why(brokers))
    if not keep:
        remove_earlier(ROOT)
    data = ROOT / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    configure(debug=debug, file=data / "logs" / "demo.log", quiet=True)
    with stop_on_signal() as stop:
        demo = _Demo(data, stop, seconds, count, chosen())
        if story is None and chosen is not LeaderlessTransactions:
            demo.tell(
                f"{LeaderlessTransactions.title} takes {LeaderlessTransactions.brokers} brokers ({_why(brokers)}):"
            )
            demo.tell(f"{chosen.title} instead")
        return demo.run()


def _chosen(story: str | None, brokers: int, why: str) -> type[Story]:
    if story is None:
        return next(one for one in STORIES.values() if one.brokers <= brokers)
    chosen = STORIES[story]
    if chosen.brokers > brokers:
        raise UserError(f"--story {story} takes {chosen.brokers} brokers, and there is {brokers}: {why}")
    return chosen


def _why(brokers: int) -> str:
    return f"--brokers {brokers}" if brokers else "memory is short; --brokers 3 tries all the same"


class _Demo:
    """One demonstration. The main thread draws; one thread starts things and keeps the checks at work, one plays the
    story; those of the job bring what was found."""

    def __init__(self, data: Path, stop: threading.Event, seconds: float, brokers: int, story: Story) -> None:
        self._data, self._stop, self._limit, self._brokers, self._story = data, stop, seconds, brokers, story
        self._figures = Figures(seconds)
        self._closing = threading.Event()
        self._started = threading.Event()
        self._kafka: LocalKafka | None = None
        self._probes: ProbeProcess | None = None
        self._watch: Watch | None = None
        self._config: Config | None = None
        self._failed: Exception | None = None
        self._player: threading.Thread | None = None
        self._played: float | None = None
        """Seconds from the start to the story's end."""
        self._provoked: list[Provoked] = []
        self._looking = threading.Lock()
        self._raised: list[dict[str, Any]] = []
        self._found: dict[str, float] = {}
        """Seconds from what was done to the first finding of it, by its name."""
        self.tell = self._figures.tell

    # Running

    def run(self) -> int:
        with ExitStack() as ending:
            starter = threading.Thread(target=self._start, args=(ending,), name="start-demo", daemon=True)
            starter.start()
            with display(self._snapshot) as show:
                while not self._over():
                    show()
                    self._stop.wait(_TICK)
                self._say("stopping: the probes, then the checks of what they did, then the brokers")
                self._closing.set()
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
            self._fail(error)

    def _keep_at_work(self) -> None:
        """What ends the checks is told and begins again, as in the monitor, until everything is to end."""
        while self._watch is not None and not (self._stop.is_set() or self._closing.is_set()):
            if self._watch.wait(_TICK) and not (self._stop.is_set() or self._closing.is_set()):
                raise UserError("the integrity job ended without being asked to")

    def _start_all(self, ending: ExitStack) -> None:
        count = self._brokers
        self._say(f"starting Kafka with {count} broker{'s' * (count > 1)}; the first time its jars are fetched")
        kafka = self._kafka = LocalKafka(self._data / "kafka", brokers=count, say=self._say)
        ending.callback(kafka.stop)
        kafka.start()
        self._figures.cluster = f"Kafka {kafka.version}, {count} broker{'s' * (count > 1)}"
        self._config = configuration(self._data, kafka.bootstrap, count)
        if self._stop.is_set():
            return
        self._say(f"{self._figures.cluster}; starting the probes and Spark")
        self._story.prepare(kafka, self._config)
        self._probes = ProbeProcess(self._config, self._data / "logs" / "probes.log", self._say)
        audience = Audience(
            channels=[Standing(self._figures.on_stalled)], events=[self._on_batch], progress=[self._on_progress]
        )
        self._watch = Watch(self._config, say=self._say, fleet=self._probes, audience=audience)
        self._watch.start()

    def _end(self, starter: threading.Thread, ending: ExitStack) -> None:
        """Stop in order. The last rows are checked before the checks end: what was provoked late is still found."""
        try:
            if self._player is not None:
                self._player.join(_STORY_ENDS_WITHIN)
            if self._watch is not None:
                if not self._started.is_set():
                    self._watch.ask_to_stop()
                self._watch.stop_probes()
            starter.join(_START_LIMIT)
            limit = time.monotonic() + (CATCH_UP if self._figures.batches and self._failed is None else 0.0)
            while time.monotonic() < limit and not self._caught_up():
                time.sleep(_TICK / 2)
            if self._watch is not None:
                self._watch.stop()
            ending.close()
        except Exception as error:  # the main thread raises it
            self._failed = self._failed or error

    def _caught_up(self) -> bool:
        progress = self._figures.progress
        return progress is not None and progress.lag_versions == 0

    # The end

    def _conclude(self) -> int:
        judged = self._judge()
        print()
        if not self._figures.batches:
            print("nothing was checked: the checks did not begin in time on this machine")
        for line in summary(judged, min(self._found.values(), default=None)):
            print(line)
        print("\nlook at it again:")
        print(f"  {command()} findings --data {self._data}")
        self._report()
        return judged.exit_code

    def _report(self) -> None:
        """What happened, as one page that outlives the demonstration; nothing depends on it."""
        if self._config is None or not self._figures.batches:
            return
        page = self._data / "report.html"
        try:
            begin = f"{self._provoked[0].at - BEFORE:%Y-%m-%dT%H:%M:%S}" if self._provoked else None
            write_report(page, Stretch(begin), self._config, None)
        except (UserError, TableError) as error:
            print(f"no report could be made: {error}")
        else:
            print(f"what happened, as one page: {page}")

    def _judge(self) -> Verdict:
        tables = self._data / "tables"
        rows = current_findings(tables).to_pylist() if tables.is_dir() else []
        return verdict(rows, self._provoked)

    # The story

    def _over(self) -> bool:
        """Whether to stop; what is due is done here."""
        elapsed = self._figures.elapsed
        if self._watch is not None:
            self._figures.url = self._watch.url
        if self._probes is not None and self._started.is_set() and not self._probes.running and not self._stop.is_set():
            self._fail(UserError(f"the probes' process ended by itself; {self._data / 'logs' / 'probes.log'}"))
        if self._stop.is_set():
            return True
        if self._player is None and self._time_to_provoke(elapsed):
            self._player = threading.Thread(target=self._play, name="story", daemon=True)
            self._player.start()
        if not self._limit or elapsed < self._limit:
            return False
        if not self._figures.batches:  # a slow machine: nothing can be found before the checks have begun
            return elapsed >= self._limit + CHECKS_BEGIN_WITHIN
        if self._player is None:
            return elapsed >= max(self._limit, self._figures.checking_since) + LATE
        if self._played is None:
            return False
        return not self._missing() or elapsed >= max(self._limit, self._figures.checking_since, self._played) + LATE

    def _time_to_provoke(self, elapsed: float) -> bool:
        if self._probes is None or not any(probe.acknowledged for probe in self._probes.status().probes):
            return False
        if self._figures.batches >= STEADY_BATCHES and elapsed >= PROVOKE_AFTER:
            progress = self._figures.progress
            if (progress is not None and progress.lag_versions <= NEARLY) or elapsed >= NO_LONGER:
                return True
        return bool(self._limit) and elapsed >= self._limit + UNCHECKED_AFTER

    def _play(self) -> None:
        """In a thread of its own."""
        assert self._kafka is not None and self._config is not None and self._probes is not None
        scene = Scene(
            kafka=self._kafka, config=self._config, probes=self._probes, tell=self._figures.tell, stop=self._stop
        )
        self._say("the story is on")
        try:
            try:
                self._happened(self._story.act(scene))
            except NotProvoked as reason:
                if isinstance(self._story, Duplicates):
                    raise
                if reason.tried is not None:
                    self._provoked.append(reason.tried)
                self._figures.tell(f"{reason}; {Duplicates.title} instead")
                self._happened(Duplicates().act(scene))
        except Stopped:
            return
        except Exception as error:  # the main thread raises it
            self._fail(error)
        finally:
            self._played = self._figures.elapsed

    def _happened(self, provoked: Provoked) -> None:
        self._say("waiting for what must be found")
        with self._looking:
            self._provoked.append(provoked)
            self._look()

    def _look(self) -> None:
        """Tell what has been found of what was provoked, each name once."""
        for one in self._provoked:
            for row in self._raised:
                name = row["anomaly"]
                if name not in self._found and one.is_expected(row):
                    after = self._found[name] = (row["counted"] - one.at).total_seconds()
                    self._figures.tell(f"FOUND {after:.1f} s after {one.since}: {name}", found=True)
                    self._figures.tell(f"      {one.words[name]}", found=True)
        if self._provoked and not self._missing():
            self._say("all of it is found; Ctrl-C ends with the report")

    def _missing(self) -> bool:
        return any(one.missing([row for row in self._raised if one.is_expected(row)]) for one in self._provoked)

    # Showing

    def _snapshot(self) -> Snapshot:
        return self._figures.snapshot(self._probes.status().probes if self._probes is not None else ())

    def _say(self, step: str) -> None:
        if not self._closing.is_set():
            self._figures.step = step

    def _fail(self, error: Exception) -> None:
        self._failed = self._failed or error
        self._stop.set()

    # The job's threads

    def _on_batch(self, events: list[FindingEvent], batch: Batch) -> None:
        self._figures.on_batch(events, batch)
        with self._looking:
            self._raised += [_row(event) for event in events if event.event == "raised"]
            self._look()

    def _on_progress(self, progress: BatchProgress) -> None:
        self._figures.progress = progress
        if self._player is None:
            self._say("the checks are at work; all is well so far")


def _row(event: FindingEvent) -> dict[str, Any]:
    """The fields of an event that a story looks at."""
    names = ("id", "anomaly", "severity", "topic", "partition", "evidence", "message", "counted")
    return {name: getattr(event, name) for name in names}
