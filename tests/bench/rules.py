"""The checks alone, in this process on one core, fed as the job feeds them: one partition's batch at a time."""

from __future__ import annotations

import time

import pyarrow as pa

from rules.arrays.columns import by_place
from rules.store import MemoryStore
from tests.bench import plainly
from tests.bench.histories import Plan, commits
from tests.bench.report import rate, show


def run(plan: Plan, batches: int) -> None:
    """Raises SystemExit where a healthy history has findings."""
    tables = list(commits(plan, 10))
    per_batch = max(1, len(tables) // batches)
    store = MemoryStore()
    findings = polled = slices = 0
    seconds = plain = 0.0
    written: list[int] = []
    for first in range(0, len(tables), per_batch):
        parts = by_place(pa.concat_tables(tables[first : first + per_batch]))
        began = time.perf_counter()
        for place, rows in parts.items():
            stepped = store.step_one(place, rows)
            findings += len(stepped.findings)
            written.append(len(stepped.hot) + sum(len(chunk or b"") for chunk in stepped.chunks.values()))
        if first:  # the first batch left out
            seconds += time.perf_counter() - began
            plain += sum(plainly.seconds(rows) for rows in parts.values())
            slices += sum(rows.num_rows for rows in parts.values())
            polled += sum(_polled(rows) for rows in parts.values())
    mean = sum(written) / len(written)
    show(
        f"rules alone, {plan.shape}: {polled:,} polled records in {slices:,} slices, one core",
        {
            "polled records": rate(polled, seconds),
            "beside plain reading of the same rows": f"1 : {seconds / plain:.1f}",
            "slices": f"{slices / seconds:,.0f} /s",
            "state written per partition and batch": f"{mean:,.0f} B mean, {max(written):,} B max",
            "findings": findings,
        },
    )
    if findings:
        raise SystemExit("a healthy history has findings")


def _polled(rows: pa.Table) -> int:
    lists = rows["polled"].combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    return int(pa.compute.sum(pa.compute.list_flatten(lists).field("length")).as_py() or 0)
