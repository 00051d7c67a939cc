"""`python -m tests.bench [rules] [plain] [catchup]`: all of them where none is named.

BENCH_RECORDS: polled records of the bulk history (default 40 M); the transactional one has a twentieth. BENCH_ROOT:
where the prepared histories are kept (default .offsetwatch/bench). BENCH_SHAPE: bulk or transactional alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deploy.jars import spark_jars
from streaming_jobs.session import SessionSettings, start
from tests.bench import catchup, plain, rules
from tests.bench.histories import Plan
from tests.bench.report import machine, show

PIECES = ("rules", "plain", "catchup")
BATCHES = 10


def plans() -> list[Plan]:
    try:
        polled = int(os.environ.get("BENCH_RECORDS", "40000000").replace("_", ""))
    except ValueError:
        raise SystemExit("BENCH_RECORDS is not a number of records") from None
    every = [Plan("bulk", polled), Plan("transactional", polled // 20, rate=62.5)]
    shape = os.environ.get("BENCH_SHAPE")
    return [plan for plan in every if shape in (None, plan.shape)]


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PIECES]
    if unknown:
        print(f"no such benchmark: {unknown[0]} (there are {', '.join(PIECES)})", file=sys.stderr)
        raise SystemExit(2)
    chosen = names or list(PIECES)
    root = Path(os.environ.get("BENCH_ROOT", ".offsetwatch/bench")).absolute()
    print(machine())
    if "rules" in chosen:
        for plan in plans():
            rules.run(plan, BATCHES)
    if not {"plain", "catchup"} & set(chosen):
        return
    settings = SessionSettings(jars=spark_jars(), logs=root / "logs", scratch=root / "spark", driver_memory="2g")
    spark = start(settings)
    try:
        for plan in plans():
            checked = catchup.run(plan, root, spark, BATCHES) if "catchup" in chosen else None
            summed = plain.run(plan, root / f"plain-{plan.shape}-{plan.polled}", spark) if "plain" in chosen else None
            if checked and summed:
                show(f"ratio, {plan.shape}", {"catch-up : plain Spark SQL": f"1 : {summed / checked:.1f}"})
    finally:
        spark.stop()


main(sys.argv[1:])
