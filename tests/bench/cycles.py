"""The search for cycles in memory: time, and the memory of this whole process with the table in it."""

from __future__ import annotations

import os
import resource
import time

from rules.cycles.search import search
from tests.bench.report import show
from tests.bench.transactions import transactions

SECONDS = 60.0
GIB = 4.0


def run() -> None:
    """Raises SystemExit where a limit is exceeded, or where what was planted was not found."""
    count = int(os.environ.get("BENCH_TRANSACTIONS", "1000000").replace("_", ""))
    failed = []
    for title, late, ww in (
        ("healthy", 0, False),
        ("healthy, with write-write edges", 0, True),
        ("a cycle over 100 transactions", 100, False),
        ("a cycle over half of the history", count // 3, False),
    ):
        table = transactions(count, late=late)
        began, cpu = time.perf_counter(), time.process_time()
        found = search(table, ww=ww)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        named = sorted({f.anomaly for f in found.findings})
        show(
            f"cycles in memory, {title}: {found.operations:,} transactions, {found.dependencies:,} dependencies",
            {
                "time": f"{seconds:.1f} s ({cpu:.1f} s of processor time); allowed are {SECONDS:g}",
                "peak memory of the process so far": f"{peak:.2f} GiB; allowed are {GIB:g}",
                "nodes that could be in a cycle": f"{found.suspects:,}",
                "found": ", ".join(named) or "nothing",
                "shortest": min((len(f.evidence["operations"]) for f in found.findings), default=0),
            },
        )
        if seconds > SECONDS or peak > GIB or bool(named) != bool(late):
            failed.append(title)
        del table, found
    if failed:
        raise SystemExit(f"not as promised: {'; '.join(failed)}")
