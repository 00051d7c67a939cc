"""How long from the moment a finding can be decided to its being counted in the metrics, at 10,000 records/s.

One local broker, probes, Spark and the metrics share the machine, as in a small staging. Duplicates are provoked every
few seconds; each is decidable once its second place is known, so that no grace is in the figure.

BENCH_LATENCY_SECONDS: how long to watch after the first batches (default 120). BENCH_LATENCY_RATE: records/s (10,000).
BENCH_LATENCY_EVERY: seconds from one duplicate to the next (2); only where it is more than `job.hold`'s half minute, as
41, are those found that come into a healthy canary.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

from alerts.event import FindingEvent
from monitor.demo.provocation import send_twice
from monitor.process.reach import connection
from streaming_jobs.integrity_job import Batch, BatchProgress
from tests.bench.live import live
from tests.bench.report import machine, show

WARM_BATCHES = 5


def run(root: Path) -> None:
    """Measure once and print p50 and p99 of the latency, in seconds."""
    seconds = float(os.environ.get("BENCH_LATENCY_SECONDS", "120"))
    every = float(os.environ.get("BENCH_LATENCY_EVERY", "2"))
    rate = float(os.environ.get("BENCH_LATENCY_RATE", "10000"))
    latencies: list[float] = []
    durations: list[float] = []
    batches = threading.Event()
    lock = threading.Lock()
    others: list[str] = []
    warm = False

    def on_batch(events: list[FindingEvent], batch: Batch) -> None:
        with lock:
            for event in events:
                if event.anomaly == "duplicate" and warm:
                    latencies.append((event.counted - event.decidable).total_seconds())
                elif event.severity in ("critical", "warning") and event.anomaly != "duplicate":
                    others.append(event.anomaly)

    def on_progress(progress: BatchProgress) -> None:
        durations.append(progress.duration)
        if len(durations) >= WARM_BATCHES:
            batches.set()

    settings = {"OFFSETWATCH_PROBES__WRITER__RATE": str(rate / 2)}
    with live(root / "latency", brokers=1, settings=settings, on_batch=on_batch, on_progress=on_progress) as running:
        batches.wait(180)
        warm = True
        config, status = running.config, running.fleet.status()
        assert status.layout is not None
        where = list(status.layout.partitions(config.probes.topics.records))
        began, first = time.monotonic(), running.sent
        provoked = 0
        while time.monotonic() - began < seconds:
            send_twice(
                connection(config),
                config.journals,
                run=status.run,
                layout=status.layout,
                where=where[provoked % len(where)],
                records=1,
            )
            provoked += 1
            time.sleep(every)
        sent = (running.sent - first) / (time.monotonic() - began)
        time.sleep(15)
    p50, p99 = np.percentile(latencies, [50, 99])
    show(
        "detection latency",
        {
            "machine": machine(),
            "records sent": f"{sent:,.0f}/s",
            "provoked, found": f"{provoked}, {len(latencies)}",
            "decidable to counted": f"p50 {p50:.2f} s, p99 {p99:.2f} s, worst {max(latencies):.2f} s",
            "batch": f"median {np.median(durations[WARM_BATCHES:]):.2f} s, worst {max(durations[WARM_BATCHES:]):.2f} s",
            "other violations and warnings": ", ".join(sorted(set(others))) or "none",
        },
    )
