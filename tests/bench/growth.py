"""How what the monitor takes grows: with partitions, and with processes.

A canary's rows (20 a partition and second: sends of 4 records, polls of two readers, offsets, marks) come a commit a
second, to the monitor alone. What is doubled first are partitions, with a writer each; then, of 64 partitions, the
writers. The rows of a partition and second stay the same, so that a line of the curve is what one more costs.

BENCH_GROWTH_PARTITIONS, BENCH_GROWTH_WRITERS: what is tried, separated by commas ("16,32,64,128,256,512,1024", and
"1,4,16" for each partition). BENCH_GROWTH_SECONDS: how long each is measured (45), after BENCH_GROWTH_WARM (45: in
the first thirty seconds each commit is checked at once).
BENCH_GROWTH_CORES: on so many cores alone (all). BENCH_GROWTH_SPARK: with so many workers of a standalone Spark, of a
core each, instead of Spark in the monitor (0); what that takes, its master among it, is counted too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from probes.log.commits.history import History
from tests.bench import replayed
from tests.bench.canary import Traffic
from tests.bench.report import machine, show
from tests.streaming_jobs.clusters.standalone import Standalone

FIRST = 5
ROWS = 20
PER_SEND, INTERVAL = 4, 0.25
OF_WRITERS = 64
"""So many partitions have the writers that are doubled."""
SITE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.pyspark.python": sys.executable,
}
"""What a site would set for a small standalone Spark on this machine."""


def run(root: Path) -> None:
    """Measure each size in a process of its own, and print the curves."""
    print(machine(), flush=True)
    for partitions in _asked("PARTITIONS", "16,32,64,128,256,512,1024"):
        _measured_apart(root, partitions, 1)
    for writers in _asked("WRITERS", "4,16"):
        _measured_apart(root, OF_WRITERS, writers)


def _asked(name: str, default: str) -> list[int]:
    return [int(one) for one in os.environ.get(f"BENCH_GROWTH_{name}", default).split(",") if one]


def _measured_apart(root: Path, partitions: int, writers: int) -> None:
    size = json.dumps({"partitions": partitions, "writers": writers})
    environment = os.environ | {"BENCH_GROWTH_ONE": size}
    command = [sys.executable, "-m", "tests.bench", "growth"]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise SystemExit(f"growth at {size} failed")


def one(root: Path, partitions: int, writers: int) -> None:
    """Measure one size and print it."""
    cores = int(os.environ.get("BENCH_GROWTH_CORES", "0"))
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    seconds, warm = (float(os.environ.get(f"BENCH_GROWTH_{n}", d)) for n, d in (("SECONDS", "45"), ("WARM", "45")))
    recorded = root / "growth" / "recorded"
    shutil.rmtree(recorded, ignore_errors=True)
    record(recorded, partitions, writers, FIRST + round(warm + seconds))
    data = root / "growth" / "data"
    workers = int(os.environ.get("BENCH_GROWTH_SPARK", "0"))
    with spark(root / "growth" / "spark", workers) as settings:
        took = replayed.measure(recorded, data, first=FIRST, warm=warm, seconds=seconds, settings=settings)
    spent = sum(took.spent.values())
    shown = sum(len(batch.phases) > 0 for batch in took.batches)
    kept = sum(file.stat().st_size for file in (data / "checkpoints").rglob("*") if file.is_file())
    show(
        f"{partitions} partitions, {partitions * writers} writers on {len(os.sched_getaffinity(0))} cores,"
        f"{f' {workers} workers,' if workers else ''}"
        f" {partitions * ROWS:,} rows and {partitions * PER_SEND / INTERVAL:,.0f} records a second",
        {
            "batch, median": f"{took.batch:.2f} s",
            "batches": f"{shown} in {took.seconds:.0f} s, load {took.load:.1f}",
            "processor time": f"{spent / took.seconds:.2f} cores",
            "for a partition and second": f"{1000 * spent / took.seconds / partitions:.2f} ms",
            "memory": f"{sum(took.memory.values()) / 2**20:,.0f} MiB",
            "checkpoint": f"{kept / 2**20:,.1f} MiB",
            "findings (none is planted)": DeltaTable(str(data / "tables" / "findings")).count(),
        },
    )
    shutil.rmtree(recorded)


@contextmanager
def spark(folder: Path, workers: int) -> Iterator[dict[str, str]]:
    """The monitor's settings for a standalone Spark with so many workers; none for its own."""
    if not workers:
        yield {}
        return
    shutil.rmtree(folder, ignore_errors=True)
    with Standalone(folder / "cluster", workers) as cluster:
        (folder / "spark-defaults.conf").write_text("\n".join(f"{name} {value}" for name, value in SITE.items()))
        os.environ |= {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        yield {"OFFSETWATCH_JOB__SPARK__MASTER": cluster.url}


def record(table: Path, partitions: int, writers: int, commits: int) -> None:
    """The probe log of so many seconds, a commit each."""
    history, sends = History(str(table)), round(1 / INTERVAL)
    traffic = [
        Traffic(per_send=PER_SEND, interval=INTERVAL, writers=writers, restart=600.0, partition=partition)
        for partition in range(partitions)
    ]
    for second in range(commits):
        rows = pa.concat_tables([one.window(second * sends, sends) for one in traffic])
        history.last_version("bench")  # as a committer asks before each
        history.append(rows, "bench", second + 1)
