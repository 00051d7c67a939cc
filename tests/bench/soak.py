"""Healthy running: three brokers, all probes with their unrest, and one broker restarted. No violation may be found.

`python -m tests.bench soak`, SOAK_SECONDS (default 600) long; the restart comes after a third of it. Exit code 1 where
a violation was found, whose history stays in the data folder.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from alerts.event import FindingEvent
from rules.vocabulary.catalogue import CATALOGUE
from streaming_jobs.integrity_job import Batch, BatchProgress
from tests.bench.live import live
from tests.bench.report import machine, show


def run(root: Path) -> int:
    """Run once; returns the number of violations."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    counts: Counter[tuple[str, str, str]] = Counter()
    violations: list[str] = []
    durations: list[float] = []
    lock = threading.Lock()

    def on_batch(events: list[FindingEvent], batch: Batch) -> None:
        with lock:
            for event in events:
                counts[event.anomaly, event.event, event.severity] += 1
                if CATALOGUE[event.anomaly].kind == "violation" and event.severity in ("critical", "warning"):
                    violations.append(f"{event.topic}/{event.partition}: {event.message}")

    def on_progress(progress: BatchProgress) -> None:
        durations.append(progress.duration)

    began = time.monotonic()
    told = machine()
    with live(root / "soak", brokers=3, settings={}, on_batch=on_batch, on_progress=on_progress) as running:
        restarted = False
        while (left := began + seconds - time.monotonic()) > 0:
            if not restarted and left < seconds * 2 / 3:
                restarted = True
                broker = running.kafka.broker(2)
                broker.terminate()
                time.sleep(5)
                broker.start()
            time.sleep(min(1.0, left))
        sent = running.sent
        polled = sum(probe.polled for probe in running.fleet.status().probes)
        lives = sum(probe.lives for probe in running.fleet.status().probes)
    show(
        "healthy running with a broker restart",
        {
            "machine": told,
            "minutes": f"{seconds / 60:.1f}",
            "records sent, polled": f"{sent:,}, {polled:,}",
            "clients' lives": lives,
            "batches, median": f"{len(durations)}, {np.median(durations or [np.nan]):.2f} s",
            "findings": ", ".join(f"{' '.join(key)} {n}" for key, n in sorted(counts.items())) or "none",
            "violations": len(violations),
        },
    )
    for violation in violations[:20]:
        print(f"  {violation}")
    return len(violations)
