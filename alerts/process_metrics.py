"""What the program itself takes: processor time, memory, threads, open files, of its process and of those it started;
what they read and write, and what its data take of the disk.

Spark runs in a JVM and in Python workers of its own; probes may have processes of their own. They are told apart by
`process`: `self`, `jvm`, `worker` (all others together).
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PROCESSES: Final = ("self", "jvm", "worker")
TABLES: Final = "tables"
SIZE_INTERVAL: Final = 60.0
"""Seconds between two looks at every file of the data folder."""


class ProcessMetrics(Collector):
    """Collected at each scrape. Processor time of workers that have ended still counts. `written`: the data folder, and
    others that may be on other disks; of several disks the one is told of that has the least room for its size."""

    def __init__(self, written: Sequence[Path] = ()) -> None:
        self._self = psutil.Process()
        self._written = written
        self._measured: tuple[float, dict[str, int]] | None = None
        self._seconds: dict[tuple[int, float], tuple[str, float]] = {}

    def collect(self) -> Iterable[Metric]:
        memory: dict[str, int] = defaultdict(int)
        threads: dict[str, int] = defaultdict(int)
        files: dict[str, int] = defaultdict(int)
        for process in (self._self, *self._self.children(recursive=True)):
            try:
                with process.oneshot():
                    kind = "self" if process == self._self else "jvm" if process.name() == "java" else "worker"
                    times = process.cpu_times()
                    self._seconds[process.pid, process.create_time()] = kind, times.user + times.system
                    memory[kind] += process.memory_info().rss
                    threads[kind] += process.num_threads()
                    files[kind] += process.num_fds()
            except psutil.Error:
                continue  # it has ended meanwhile, or is a zombie
        seconds: dict[str, float] = defaultdict(float)
        for kind, spent in self._seconds.values():
            seconds[kind] += spent
        self._fold()
        cpu = CounterMetricFamily(
            "offsetwatch_process_cpu_seconds", "Processor time taken, user and system.", labels=("process",)
        )
        for kind in PROCESSES:
            if kind in seconds:
                cpu.add_metric((kind,), seconds[kind])
        yield cpu
        for name, text, values in (
            (
                "offsetwatch_process_resident_memory_bytes",
                "Memory that is resident: of the JVM, more than its heap.",
                memory,
            ),
            ("offsetwatch_process_threads", "Threads that they run.", threads),
            ("offsetwatch_process_open_files", "Open file descriptors.", files),
        ):
            family = GaugeMetricFamily(name, text, labels=("process",))
            for kind in PROCESSES:
                if kind in values:
                    family.add_metric((kind,), values[kind])
            yield family

        yield from self._disk()

    def _disk(self) -> Iterable[Metric]:
        disks = []
        for folder in self._written:
            with suppress(OSError):  # not made yet, or out of reach
                disks.append(psutil.disk_usage(str(folder)))
        if not disks:
            return
        used = min(disks, key=lambda disk: disk.free / disk.total)
        yield GaugeMetricFamily(
            "offsetwatch_disk_free_bytes",
            "What is free on the disk of the data folder; of several, on the fullest.",
            value=used.free,
        )
        yield GaugeMetricFamily("offsetwatch_disk_size_bytes", "The size of that disk.", value=used.total)
        parts = self._sizes(self._written[0])
        yield GaugeMetricFamily(
            "offsetwatch_data_bytes",
            "What the data folder takes: tables, checkpoints, journals, logs; looked at once a minute.",
            value=sum(parts.values()),
        )
        of_each = GaugeMetricFamily(
            "offsetwatch_data_part_bytes", "The same by folder, of the tables by table.", labels=("part",)
        )
        for part, size in sorted(parts.items()):
            of_each.add_metric((part,), size)
        yield of_each

    def _sizes(self, folder: Path) -> dict[str, int]:
        now = time.monotonic()
        if self._measured is None or now - self._measured[0] > SIZE_INTERVAL:
            self._measured = now, _sizes_of(folder)
        return self._measured[1]

    def _fold(self) -> None:
        """Processes come and go; the time of those that have gone is kept as one sum by kind."""
        gone = [key for key in self._seconds if key[0] > 0 and not psutil.pid_exists(key[0])]
        for key in gone:
            kind, spent = self._seconds.pop(key)
            known = self._seconds.get((-PROCESSES.index(kind), 0.0), (kind, 0.0))[1]
            self._seconds[-PROCESSES.index(kind), 0.0] = kind, known + spent


def _sizes_of(folder: Path) -> dict[str, int]:
    """Bytes by the parts of a data folder: what lies in it, of the tables each by itself."""
    sizes: dict[str, int] = {}
    with suppress(OSError):
        for part in sorted(folder.iterdir()):
            if part.name == TABLES and part.is_dir():
                sizes |= {f"{TABLES}/{table.name}": _size_of(table) for table in part.iterdir()}
            else:
                sizes[part.name] = _size_of(part)
    return sizes


def _size_of(folder: Path) -> int:
    """Bytes of all files below a folder, or of a file. What goes away meanwhile is not counted."""
    if not folder.is_dir():
        with suppress(OSError):
            return folder.lstat().st_size
        return 0
    total, folders = 0, [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
