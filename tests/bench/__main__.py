"""`python -m tests.bench [rules] [partition] [check] [cycles] [registers] [resolution] [plain] [catchup] [latency]
[proxy]`

All where none is named, a process for each. `soak` (ten minutes of a real fleet), `canary` (seven minutes of one, and
what it takes of its host), `replayed` (the log that this left, to the monitor alone), `second` (what a second of it
costs the checks), `growth` (how that grows with partitions and processes), `month` (what a month does to the tables)
and `day` (24 hours of log time) run by name alone.

BENCH_RECORDS: polled records of the bulk history (default 40 M); the transactional one has a twentieth. BENCH_ROOT:
where the prepared histories are kept (default .offsetwatch/bench). BENCH_SHAPE: bulk or transactional alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deploy.jars import spark_jars
from streaming_jobs.session import SessionSettings, start
from tests.bench import catchup, plain, rules
from tests.bench.histories import Plan
from tests.bench.report import machine, show

PIECES = ("rules", "partition", "check", "cycles", "registers", "resolution", "plain", "catchup", "latency", "proxy")
ASKED_FOR = ("soak", "canary", "replayed", "second", "growth", "month", "day")  # many minutes long: run by name alone
BATCHES = 10


def plans() -> list[Plan]:
    try:
        polled = int(os.environ.get("BENCH_RECORDS", "40000000").replace("_", ""))
    except ValueError:
        raise SystemExit("BENCH_RECORDS is not a number of records") from None
    every = [Plan("bulk", polled), Plan("transactional", polled // 20, rate=62.5)]
    shape = os.environ.get("BENCH_SHAPE")
    return [plan for plan in every if shape in (None, plan.shape)]


def _spark(root: Path, java_options: tuple[str, ...] = ()) -> SparkSession:
    return start(
        SessionSettings(jars=spark_jars(), logs=root / "logs", scratch=root / "spark", java_options=java_options)
    )


def _piece(name: str, root: Path) -> None:
    """Run one piece for every plan, and leave its records per second where the others find them."""
    if name == "rules":
        for plan in plans():
            rules.run(plan, BATCHES)
        return
    if name in ("partition", "day"):
        from tests.bench import kept

        raise SystemExit(0 if getattr(kept, name)() else 1)
    if name == "check":
        from tests.bench import check

        raise SystemExit(0 if check.run(root) else 1)
    if name == "cycles":
        from tests.bench import cycles

        cycles.run()
        return
    if name == "registers":
        from tests.bench import registers

        registers.run(root)
        return
    if name == "resolution":
        from tests.bench import resolution

        raise SystemExit(0 if resolution.run() else 1)
    if name == "proxy":
        from tests.bench import proxy

        raise SystemExit(0 if proxy.run() else 1)
    if name == "latency":
        from tests.bench import latency  # it needs all of the product, the others a part

        latency.run(root)
        return
    if name == "soak":
        from tests.bench import soak

        raise SystemExit(1 if soak.run(root) else 0)
    if name == "canary":
        from tests.bench import footprint

        footprint.run(root)
        return
    if name == "replayed":
        from tests.bench import replayed

        replayed.run(root)
        return
    if name == "month":
        from tests.bench import month

        folder = os.environ.get("BENCH_MONTH_FOLDER")
        if folder is None:
            month.run(root)
        else:
            month.pass_days(Path(folder))
        return
    if name == "second":
        from tests.bench import second

        second.run(root)
        return
    if name == "growth":
        from tests.bench import growth

        size = os.environ.get("BENCH_GROWTH_ONE")
        if size is None:
            growth.run(root)
        else:
            growth.one(root, **json.loads(size))
        return
    spark = _spark(root, plain.JAVA_OPTIONS if name == "plain" else ())
    figures: dict[str, float] = {}
    try:
        for plan in plans():
            if name == "plain":
                figures[plan.shape] = plain.run(plan, root / f"plain-{plan.shape}-{plan.polled}", spark)
            else:
                figures[plan.shape] = catchup.run(plan, root, spark, BATCHES)
    finally:
        spark.stop()
    (root / f"{name}.json").write_text(json.dumps(figures))


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PIECES + ASKED_FOR]
    if unknown:
        print(f"no such benchmark: {unknown[0]} (there are {', '.join(PIECES + ASKED_FOR)})", file=sys.stderr)
        raise SystemExit(2)
    root = Path(os.environ.get("BENCH_ROOT", ".offsetwatch/bench")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    if len(names) == 1:
        _piece(names[0], root)
        return
    chosen = names or list(PIECES)
    print(machine(), flush=True)
    for name in chosen:  # a process each: one can hold no two JVMs, and these want different ones
        if subprocess.run([sys.executable, "-m", "tests.bench", name], check=False).returncode:
            raise SystemExit(f"the benchmark {name} failed")
    if {"plain", "catchup"} <= set(chosen):
        yardstick, ours = (json.loads((root / f"{name}.json").read_text()) for name in ("plain", "catchup"))
        ratios = {shape: f"1 : {yardstick[shape] / ours[shape]:.1f}" for shape in ours if shape in yardstick}
        show("catch-up beside plain Spark SQL", ratios)


main(sys.argv[1:])
