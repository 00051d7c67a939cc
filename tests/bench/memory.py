"""Memory and processor time of this process's children: the driver's JVM and the Python workers it forks."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil


class Peak:
    """Samples, while entered, the proportional share (PSS) of memory of all descendants, by kind, in bytes. Shared
    pages of forked workers are counted once so; where PSS is not to be had, resident size stands in for it."""

    def __init__(self, interval: float = 0.5) -> None:
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.jvm = self.workers = self.total = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    @staticmethod
    def cpu() -> tuple[float, float]:
        """Processor seconds spent so far by the JVM and by the workers that are alive."""
        jvm = workers = 0.0
        for child in psutil.Process().children(recursive=True):
            try:
                spent = child.cpu_times()
                if "java" in child.name():
                    jvm += spent.user + spent.system
                else:
                    workers += spent.user + spent.system
            except psutil.Error:
                continue
        return jvm, workers

    def _sample(self) -> None:
        me = psutil.Process()
        while not self._done.wait(self._interval):
            jvm = workers = 0
            for child in me.children(recursive=True):
                try:
                    full = child.memory_full_info()
                    size = getattr(full, "pss", 0) or full.rss
                    if "java" in child.name():
                        jvm += size
                    else:
                        workers += size
                except psutil.Error:
                    continue
            self.jvm, self.workers = max(self.jvm, jvm), max(self.workers, workers)
            self.total = max(self.total, jvm + workers)
