"""Registers: a million operations of eight clients on one register, stepped as the job does, a few seconds of log time
at once, beside reading the same rows from Parquet into memory and adding their ids up."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rules.registers.blocks import NEVER, Op
from rules.registers.check import NAME
from rules.store import MemoryStore
from rules.vocabulary.slices import Mark, Place, RegisterOp, Slice, to_table
from tests.bench.report import show
from tests.rules.cycles.linearizations import Steady
from tests.rules.histories import START

OPERATIONS = 1_000_000
AT_ONCE = 50_000
CLIENTS = 8
BATCH = 5_000  # milliseconds of log time


def run(root: Path) -> None:
    """Raises SystemExit where a healthy history has findings."""
    path = root / "registers.parquet"
    if not path.exists():
        _write(path)
    batches = pq.ParquetFile(path)
    store, place = MemoryStore(), Place("bench", "id", 0)
    seconds, findings, sizes = 0.0, 0, []
    for number in range(batches.num_row_groups):
        rows = batches.read_row_group(number)
        began = time.process_time()
        stepped = store.step_one(place, rows)
        seconds += time.process_time() - began
        findings += len(stepped.findings)
        sizes.append(len(store.stored[place].chunks[NAME]))
    plainly = _read_plainly(path)
    show(
        f"registers: {OPERATIONS:,} operations of {CLIENTS} clients on one register, {len(sizes)} steps, one core",
        {
            "operations": f"{OPERATIONS / seconds:,.0f} /s",
            "beside reading the file": f"1 : {seconds / plainly:.1f}",
            "state after a step, compressed": f"{sum(sizes) / len(sizes):,.0f} B mean, {max(sizes):,} B max",
            "findings": findings,
        },
    )
    if findings:
        raise SystemExit("a healthy history has findings")


def _read_plainly(path: Path) -> float:
    """Seconds of CPU."""
    began = time.process_time()
    rows = pq.read_table(path, use_threads=False)
    pc.sum(pc.list_flatten(rows["registers"].combine_chunks()).field("id"))
    return time.process_time() - began


def _write(path: Path) -> None:
    slices: dict[int, int] = defaultdict(int)
    with pq.ParquetWriter(path, to_table([]).schema) as file:
        for batch, complete in _batches():
            file.write_table(_rows(batch, complete, slices), row_group_size=10**9)


def _batches() -> Iterator[tuple[list[Op], int]]:
    """The operations by the time that they completed, a few seconds at once, and until when they are complete then."""
    clients, left, end = Steady(CLIENTS, 1), [], 0
    for _ in range(OPERATIONS // AT_ONCE):
        left += clients.more(AT_ONCE)
        while end + BATCH < min(clients.free):
            end += BATCH
            done, left = [one for one in left if one.done < end], [one for one in left if one.done >= end]
            yield done, min(end, *(one.at for one in left))
    yield left, max(one.done for one in left)


def _rows(ops: list[Op], complete: int, slices: dict[int, int]) -> pa.Table:
    rows = []
    for one in sorted(ops, key=lambda one: one.op):
        told = RegisterOp(1, one.action, one.id, one.expected, one.observed)  # type: ignore[arg-type]
        rows.append(_row(one.process, one.op, slices, "register", one.type, one.at, one.done, [told]))
        rows[-1].mono_invoked = one.start * 1_000_000
        rows[-1].mono_completed = (one.done if one.end == NEVER else one.end) * 1_000_000
    last = max(one.done for one in ops)
    through = START + timedelta(milliseconds=complete)
    mark = _row(99, 0, slices, "mark", "ok", last, last, [])
    mark.marks = [Mark(process, slices[process], through) for process in range(CLIENTS)]
    return to_table([*rows, mark])


def _row(
    process: int, op: int, slices: dict[int, int], f: str, type: str, at: int, done: int, told: list[RegisterOp]
) -> Slice:
    number = slices[process]
    slices[process] += 1
    return Slice(
        cluster="bench",
        topic_id="id",
        topic="bench",
        partition=0,
        run="run",
        process=process,
        op=op,
        slice=number,
        f=f,  # type: ignore[arg-type]
        type=type,  # type: ignore[arg-type]
        boot="boot",
        registers=told,
        invoked=START + timedelta(milliseconds=at),
        completed=START + timedelta(milliseconds=done),
    )
