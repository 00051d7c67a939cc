"""What a canary takes of its host: the default fleet beside a broker, probes and monitor as two commands.

Processor time is what the processes were given, so that it says something on a busy machine too; a busy machine has
fewer batches, which is why their number is printed beside it. BENCH_CANARY_SECONDS: how long to measure (default 300),
after BENCH_CANARY_WARM seconds (90). BENCH_CANARY_BROKERS: 1. BENCH_CANARY_ALONE=1: the probes, without a monitor.
BENCH_CANARY_HOLD: `probes.hold` and `job.hold` (what they are by themselves); 0 makes a log with a commit a second,
which `replayed`, `second` and `month` want.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.local_kafka import LocalKafka
from tests.bench.report import machine, mib, show

GOALS = {"probes": "0.20 cores, 150 threads, 200 MiB", "monitor": "0.35 cores, 1,229 MiB"}


@dataclass(slots=True)
class Taken:
    """Of one program with all its children: seconds of processor time, bytes, threads; by kind of process."""

    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    threads: int = 0
    written: dict[str, int] = field(default_factory=dict)
    """Without what was removed before it had reached the disk."""
    gone: int = 0
    """That."""


def run(root: Path) -> None:
    """Measure once and print it beside the goals."""
    seconds = float(os.environ.get("BENCH_CANARY_SECONDS", "300"))
    warm = float(os.environ.get("BENCH_CANARY_WARM", "90"))
    brokers = int(os.environ.get("BENCH_CANARY_BROKERS", "1"))
    data = root / "canary"
    shutil.rmtree(data, ignore_errors=True)
    told = machine()
    with LocalKafka(data / "kafka", brokers=brokers) as kafka:
        settings = {
            "OFFSETWATCH_DATA": str(data / "data"),
            "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
            "OFFSETWATCH_ALERTS__METRICS_PORT": "0",
            "OFFSETWATCH_ALERTS__PROBES_PORT": "0",
        }
        if (hold := os.environ.get("BENCH_CANARY_HOLD")) is not None:
            settings |= {"OFFSETWATCH_PROBES__HOLD": hold, "OFFSETWATCH_JOB__HOLD": hold}
        with ExitStack() as ending:
            programs = {}
            said = data / "probes.txt"
            programs["probes"] = ending.enter_context(command("probe", "run", said=said, settings=settings))
            history = data / "data" / "tables" / "history" / "_delta_log"
            eventually(lambda: history.is_dir() and any(history.glob("*.json")), programs["probes"])
            commits = data / "data" / "checkpoints"
            if not os.environ.get("BENCH_CANARY_ALONE"):
                said = data / "monitor.txt"
                programs["monitor"] = ending.enter_context(command("monitor", said=said, settings=settings))
                eventually(lambda: batches(commits) > 2, programs["monitor"])
            time.sleep(warm)
            before = {name: taken(one) for name, one in programs.items()}
            first, began, appends = batches(commits), time.monotonic(), versions(history)
            time.sleep(seconds)
            after = {name: taken(one) for name, one in programs.items()}
            passed = time.monotonic() - began
            checked, appended = batches(commits) - first, versions(history) - appends
            files = sum(len(names) for _, _, names in os.walk(data / "data"))
    figures: dict[str, object] = {
        "machine": told,
        "measured": f"{passed:.0f} s, load {os.getloadavg()[0]:.1f} at the end",
    }
    for name in programs:
        goal, one, earlier = GOALS[name], after[name], before[name]
        spent = {kind: (one.seconds[kind] - earlier.seconds.get(kind, 0.0)) / passed for kind in one.seconds}
        parts = ", ".join(f"{kind} {share:.2f}" for kind, share in spent.items()) if len(spent) > 1 else ""
        held = ", ".join(f"{kind} {mib(size)}" for kind, size in one.memory.items()) if len(one.memory) > 1 else ""
        hourly = {kind: (one.written[kind] - earlier.written.get(kind, 0)) / passed * 3600 for kind in one.written}
        by = ", ".join(f"{kind} {mib(size)}/h" for kind, size in hourly.items()) if len(hourly) > 1 else ""
        removed = (one.gone - earlier.gone) / passed * 3600
        figures[f"{name}: processor time"] = f"{sum(spent.values()):.2f} cores{f' ({parts})' if parts else ''}"
        figures[f"{name}: memory"] = f"{mib(sum(one.memory.values()))}{f' ({held})' if held else ''}"
        figures[f"{name}: threads"] = one.threads
        total = f"{mib(sum(hourly.values()))}/h{f' ({by})' if by else ''}"
        figures[f"{name}: written to disk"] = f"{total}, and {mib(removed)}/h removed before"
        figures[f"{name}: the goal"] = goal
    figures["appends and batches a second"] = f"{appended / passed:.2f}, {checked / passed:.2f}"
    figures["files in the data folder"] = f"{files:,}"
    show("what a canary takes", figures)


@contextmanager
def command(*words: str, said: Path, settings: dict[str, str]) -> Iterator[psutil.Popen]:
    """`offsetwatch` with these words; ended in order."""
    with said.open("wb") as output:
        child = psutil.Popen(
            [sys.executable, "-m", "monitor.cli", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            with suppress(psutil.NoSuchProcess):
                child.terminate()
            child.wait(60)


def eventually(holds: Callable[[], bool], child: psutil.Popen) -> None:
    limit = time.monotonic() + 300
    while not holds():
        if child.poll() is not None or time.monotonic() > limit:
            raise SystemExit(f"{' '.join(child.args[1:])} did not come up; its output is in the data folder")
        time.sleep(0.25)


def taken(program: psutil.Process) -> Taken:
    found = Taken()
    for process in (program, *program.children(recursive=True)):
        try:
            with process.oneshot():
                kind = "itself" if process == program else "JVM" if process.name() == "java" else "workers"
                times = process.cpu_times()
                # Of children that have ended too: Spark's workers come and go.
                spent = times.user + times.system + times.children_user + times.children_system
                found.seconds[kind] = found.seconds.get(kind, 0.0) + spent
                found.memory[kind] = found.memory.get(kind, 0) + process.memory_full_info().pss
                found.threads += process.num_threads()
                written, gone = disk(process.pid)
                found.written[kind] = found.written.get(kind, 0) + written - gone
                found.gone += gone
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile
    return found


def disk(pid: int) -> tuple[int, int]:
    """Bytes that a process had the kernel keep in files, and how many of them it has removed before they were
    written to the disk."""
    told = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(told["write_bytes"]), int(told["cancelled_write_bytes"])


def versions(log: Path) -> int:
    return max((int(one.stem) for one in log.glob("*.json") if one.stem.isdigit()), default=0)


def batches(data: Path) -> int:
    """How many batches the integrity job has committed."""
    return max((int(one.name) for one in data.glob("*/commits/*") if one.name.isdigit()), default=-1) + 1
