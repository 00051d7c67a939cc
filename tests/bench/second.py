"""What a quiet second of a canary costs the checks: steps of a recorded probe log, one a commit, in this process alone.

BENCH_HISTORY: the probe log's table (default: what `canary` left; with BENCH_CANARY_HOLD=0 a commit is a second, else
five). The commits before BENCH_SECOND_FIRST (60) bring the
states to where they are; the BENCH_SECOND_STEPS (60) after them are made BENCH_SECOND_ROUNDS (5) times each, and of a
step the least time counts, so that what else runs on the machine tells least. Calls are counted once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rules.arrays.columns import by_place
from rules.step import Stored, prepare
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import SLICE_SCHEMA, Place
from tests.bench.report import machine, show

Step = tuple[bytes | None, dict[str, bytes], pa.Table]
"""A hot value, the chunks that are asked for, and the rows that come."""


def run(root: Path) -> None:
    """Measure, topic by topic."""
    recorded = Path(os.environ.get("BENCH_HISTORY", root / "canary" / "data" / "tables" / "history"))
    defaults = (("FIRST", "60"), ("STEPS", "60"), ("ROUNDS", "5"))
    first, steps, rounds = (int(os.environ.get(f"BENCH_SECOND_{name}", number)) for name, number in defaults)
    of_topic: dict[str, list[Step]] = defaultdict(list)
    stored: dict[Place, Stored] = {}
    for commit, rows in enumerate(commits(recorded)[: first + steps]):
        for place, slices in by_place(rows).items():
            kept = stored.setdefault(place, Stored())
            prepared = prepare(kept.hot, slices)
            chunks = {name: kept.chunks[name] for name in prepared.chunks if name in kept.chunks}
            if commit >= first:
                of_topic[slices["topic"][0].as_py()].append((kept.hot, chunks, slices))
            kept.take(prepared.step(chunks, Objectives()))
    figures = {topic: _told(made, rounds) for topic, made in sorted(of_topic.items())}
    every = _told([step for made in of_topic.values() for step in made], rounds)
    show("a quiet second of one partition", {"machine": machine(), **figures, "all of them": every})


def commits(recorded: Path) -> list[pa.Table]:
    """The rows of each commit that added some."""
    tables = []
    for log in sorted(recorded.glob("_delta_log/*.json")):
        added = [told["add"]["path"] for line in log.read_text().splitlines() if "add" in (told := json.loads(line))]
        if added:
            tables.append(pa.concat_tables([_whole(pq.read_table(recorded / unquote(path))) for path in added]))
    return tables


def _whole(table: pa.Table) -> pa.Table:
    """With the columns in which no row says anything, and which the file does not hold."""
    columns = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
        for f in SLICE_SCHEMA
    ]
    return pa.table(columns, schema=SLICE_SCHEMA).combine_chunks()


def _told(steps: list[Step], rounds: int) -> str:
    took = np.array([[_seconds(step) for step in steps] for _ in range(rounds)])
    rows = sum(len(slices) for _, _, slices in steps) / len(steps)
    calls = sum(map(_calls, steps)) / len(steps)
    return f"{1000 * took.min(axis=0).mean():.2f} ms, {calls:,.0f} calls ({rows:.0f} rows)"


def _seconds(step: Step) -> float:
    hot, chunks, slices = step
    began = time.process_time()
    prepare(hot, slices).step(chunks, Objectives())
    return time.process_time() - began


def _calls(step: Step) -> int:
    count = 0

    def note(frame: object, event: str, what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        _seconds(step)
    finally:
        sys.setprofile(None)
    return count
