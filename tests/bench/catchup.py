"""The integrity job in catch-up: availableNow over a healthy history, all rules on, the first batch left out."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import write_deltalake
from pyspark.sql import SparkSession

from streaming_jobs.config import JobConfig
from streaming_jobs.integrity_job import Batch, BatchProgress, IntegrityJob, Listeners
from tests.bench.histories import Plan, commits
from tests.bench.memory import Peak
from tests.bench.report import mib, rate, show

LOG_SECONDS = 10
"""Log time that one commit of the prepared table covers."""


def prepare(plan: Plan, path: Path) -> int:
    """Write the history as a Delta table, unless it is there; the number of commits."""
    if not (path / "prepared").exists():
        shutil.rmtree(path, ignore_errors=True)
        count = 0
        for rows in commits(plan, LOG_SECONDS):
            write_deltalake(
                str(path), rows, mode="append", partition_by=["date"], configuration={"delta.checkpointInterval": "100"}
            )
            count += 1
        (path / "prepared").write_text(str(count))
    return int((path / "prepared").read_text())


def run(plan: Plan, root: Path, spark: SparkSession, batches: int) -> float:
    """Polled records per second. Raises SystemExit where a healthy history has findings."""
    history = root / f"history-{plan.shape}-{plan.polled}"
    count = prepare(plan, history)
    state = root / f"run-{plan.shape}"
    shutil.rmtree(state, ignore_errors=True)
    config = JobConfig(root=state, history=history, max_files=max(1, -(-count // batches)), max_bytes=1 << 40)
    done: list[Batch] = []
    told: list[BatchProgress] = []
    used: list[tuple[float, float]] = []
    listeners = Listeners(on_batch=[done.append, lambda _: used.append(Peak.cpu())], on_progress=[told.append])
    job = IntegrityJob(config, spark, listeners)
    with Peak() as peak:
        job.run_available_now()
    jvm, workers = (last - first for last, first in zip(used[-1], used[0], strict=True))
    warm = [b for b in done if b.number]
    seconds = {p.batch: p.duration for p in told}
    spent = sum(seconds[b.number] for b in warm if b.number is not None)
    polled = sum(b.stats.polled for b in warm)
    findings = sum(b.findings.num_rows for b in done)
    partitions = sum(b.stats.partitions for b in warm)
    written = sum(b.stats.state_bytes for b in warm)
    largest = max(b.stats.state_bytes_max for b in done)
    phases = {name: sum(p.phases.get(name, 0) for p in told if p.batch) for name in (told[-1].phases if told else ())}
    show(
        f"catch-up, {plan.shape}: {sum(b.stats.polled for b in done):,} polled records, "
        f"{sum(b.stats.slices for b in done):,} slices, {count} commits, {len(done)} batches",
        {
            "polled records": rate(polled, spent),
            "slices": f"{sum(b.stats.slices for b in warm) / spent:,.0f} /s",
            "seconds (first batch / others)": f"{seconds.get(0, 0):.1f} / {spent:.1f}",
            "processor seconds (JVM / workers)": f"{jvm:.1f} / {workers:.1f}, {rate(polled, (jvm + workers))} a core",
            "in the rules, core seconds": f"{sum(b.stats.check_seconds for b in warm):.1f}",
            "in the state store, core seconds": f"{sum(b.stats.state_seconds for b in warm):.1f}",
            "writing our tables, seconds": f"{sum(b.stats.write_seconds for b in warm):.2f}",
            "Spark's phases, seconds": ", ".join(f"{name} {s:.1f}" for name, s in phases.items() if s >= 0.05),
            "state written per partition and batch": f"{written / partitions:,.0f} B mean, {largest:,} B max",
            "peak memory (JVM, workers, both)": f"{mib(peak.jvm)}, {mib(peak.workers)}, {mib(peak.total)}",
            "findings": findings,
        },
    )
    if findings:
        raise SystemExit("a healthy history has findings")
    return polled / spent
