"""What the monitor takes for a recorded log, which comes a commit a second: no broker and no probes beside it.

BENCH_HISTORY: the probe log's table (default: what `canary` left, with BENCH_CANARY_HOLD=0). The commits before
BENCH_REPLAY_FIRST (30) are there at the start; then it is measured for BENCH_REPLAY_SECONDS (60), after
BENCH_REPLAY_WARM (50: in the first thirty each commit is checked at once). BENCH_REPLAY_TRIGGER: the shortest time
between two batches' starts (0). BENCH_REPLAY_HOLD: the same while nothing stands out (what a monitor has by itself).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from monitor.config.config import from_environment
from monitor.process.watch import Audience, Watch
from streaming_jobs.integrity_job import BatchProgress
from tests.bench.footprint import taken
from tests.bench.report import machine, mib, show


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What `seconds` of a log took: seconds of processor time and bytes of memory by kind of process, and the batches
    of that time."""

    seconds: float
    load: float
    spent: Mapping[str, float]
    memory: Mapping[str, int]
    threads: int
    written: int
    batches: Sequence[BatchProgress]

    @property
    def batch(self) -> float:
        """How long a batch took, in seconds; the median."""
        return float(np.median([one.duration for one in self.batches])) if self.batches else np.nan


def run(root: Path) -> None:
    """Measure once and print it."""
    recorded = Path(os.environ.get("BENCH_HISTORY", root / "canary" / "data" / "tables" / "history"))
    seconds, warm, first = (
        float(os.environ.get(f"BENCH_REPLAY_{name}", default))
        for name, default in (("SECONDS", "60"), ("WARM", "50"), ("FIRST", "30"))
    )
    told = machine()
    trigger = os.environ.get("BENCH_REPLAY_TRIGGER", "0")
    settings = {"OFFSETWATCH_JOB__TRIGGER": trigger}
    if hold := os.environ.get("BENCH_REPLAY_HOLD"):
        settings["OFFSETWATCH_JOB__HOLD"] = hold
    took = measure(recorded, root / "replayed", first=int(first), warm=warm, seconds=seconds, settings=settings)
    cores = {kind: spent / took.seconds for kind, spent in took.spent.items()}
    phases = {name: np.median([one.phases.get(name, 0.0) for one in took.batches]) for name in PHASES}
    show(
        "a recorded log, a commit a second",
        {
            "machine": told,
            "measured": f"{took.seconds:.0f} s, load {took.load:.1f} at the end",
            "processor time": f"{sum(cores.values()):.2f} cores ({_listed(cores, _hundredths)})",
            "memory": f"{mib(sum(took.memory.values()))} ({_listed(took.memory, mib)})",
            "threads": took.threads,
            "written to disk": f"{mib(took.written / took.seconds * 3600)}/h",
            "batches a second": f"{len(took.batches) / took.seconds:.2f}",
            "processor time of a batch": f"{sum(took.spent.values()) / max(1, len(took.batches)):.2f} s",
            "batch, median": f"{took.batch:.2f} s",
            "of it": ", ".join(f"{name} {spent:.2f}" for name, spent in phases.items()),
        },
    )


def measure(
    recorded: Path, data: Path, *, first: int, warm: float, seconds: float, settings: Mapping[str, str]
) -> Measured:
    """Check a recorded table in a new data folder, with these settings: `first` commits are there at the start, then
    there is one a second, and what comes after `warm` seconds is measured."""
    shutil.rmtree(data, ignore_errors=True)
    log = Recorded(recorded, data / "tables" / "history")
    log.commit(first)
    with watched(data, **settings) as done:
        log.play(warm)
        before, since, began = taken(psutil.Process()), len(done), time.monotonic()
        log.play(seconds)
        after, batches, passed = taken(psutil.Process()), done[since:], time.monotonic() - began
    return Measured(
        seconds=passed,
        load=os.getloadavg()[0],
        spent={kind: after.seconds[kind] - before.seconds.get(kind, 0.0) for kind in after.seconds},
        memory=after.memory,
        threads=after.threads,
        written=sum(after.written.values()) - sum(before.written.values()),
        batches=batches,
    )


@contextmanager
def watched(data: Path, **more: str) -> Iterator[list[BatchProgress]]:
    """A monitor of the data folder, from its first batch on: the batches that it has made. `more`: settings."""
    done: list[BatchProgress] = []
    settings = {
        "OFFSETWATCH_DATA": str(data),
        "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
        "OFFSETWATCH_ALERTS__LOG": str(data.with_suffix(".jsonl")),
    }
    watch = Watch(from_environment(settings | more), say=print, audience=Audience(progress=[done.append]))
    try:
        watch.start()
        while not done:
            if watch.wait(0.25):
                raise SystemExit("the checks ended before their first batch")
        yield done
    finally:
        watch.stop()


PHASES = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")


class Recorded:
    """A recorded table, of which commit after commit is laid into another folder, as its writer did. `begin`: the first
    commit that is, `version`: as which; a table that is there already keeps what it says of itself."""

    def __init__(self, source: Path, target: Path, *, begin: int = 0, version: int = 0) -> None:
        self._source, self._target = source, target
        self._next, self._shift = begin, version - begin
        (target / "_delta_log").mkdir(parents=True, exist_ok=bool(version))

    def commit(self, count: int) -> None:
        """The next `count` commits, as far as there are so many."""
        for _ in range(count):
            commit = self._source / "_delta_log" / f"{self._next:020d}.json"
            name = f"{self._next + self._shift:020d}.json"
            if not commit.is_file():
                raise SystemExit(f"{self._source} has no commit {self._next}")
            for line in commit.read_text().splitlines():
                if added := json.loads(line).get("add"):
                    file = self._target / added["path"]
                    file.parent.mkdir(exist_ok=True)
                    shutil.copyfile(self._source / added["path"], file)
            beside = self._target / "_delta_log" / f".{name}.tmp"
            shutil.copyfile(commit, beside)
            beside.rename(beside.with_name(name))
            self._next += 1

    def play(self, seconds: float) -> None:
        """A commit a second."""
        began = time.monotonic()
        for second in range(round(seconds)):
            time.sleep(max(0.0, began + second - time.monotonic()))
            self.commit(1)
        time.sleep(max(0.0, began + seconds - time.monotonic()))


def _listed(figures: Mapping[str, float], told: Callable[[float], str]) -> str:
    return ", ".join(f"{kind} {told(figure)}" for kind, figure in figures.items())


def _hundredths(figure: float) -> str:
    return f"{figure:.2f}"
