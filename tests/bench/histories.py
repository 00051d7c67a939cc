"""Healthy histories at scale, made with arrays and not row by row.

Two shapes. `bulk`: three writers whose batches of 500 records interleave in the log, so that a send or a poll of 500
records holds three or four runs. `transactional`: transactions of one to four records, each followed by its marker,
one in twenty aborted; polls of the same size. In both, `readers` readers in assign mode read everything, an observer
reads each partition's offsets once a second, and a committer marks each partition once a second. Operations of one
process on one partition follow one another; nothing is wrong with any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rules.vocabulary.slices import SLICE_SCHEMA

Shape = Literal["bulk", "transactional"]
Ints = np.ndarray[Any, np.dtype[np.int64]]

BASE = 1_735_689_600_000_000  # 2025-01-01, microseconds
SECOND = 1_000_000
PROCESSES = {"observer": 900, "committer": 901}
BATCH = 500
CHUNK = 167  # three writers' batches lie in the log in pieces of this size


@dataclass(frozen=True)
class Plan:
    """`polled` counts records over all readers; `rate` is records per second and partition, in log time."""

    shape: Shape
    polled: int
    partitions: int = 16
    readers: int = 2
    rate: float = 1250.0
    seed: int = 1

    @property
    def records(self) -> int:
        """Records of one partition."""
        return self.polled // self.partitions // self.readers


@dataclass
class Runs:
    """Runs of records, sorted by offset."""

    writer: Ints
    seq: Ints
    offset: Ints
    length: Ints

    def cut(self, at: Ints) -> Runs:
        """The same records, with a run's end at each of the record counts `at`."""
        begin = np.concatenate(([0], np.cumsum(self.length)))
        edges = np.union1d(begin, at)
        edges = edges[edges <= begin[-1]]
        owner = np.searchsorted(begin, edges[:-1], side="right") - 1
        inside = edges[:-1] - begin[owner]
        return Runs(self.writer[owner], self.seq[owner] + inside, self.offset[owner] + inside, np.diff(edges))


def lists(counts: Ints, runs: Runs) -> pa.ListArray:
    """Runs as a list column: so many of them for each row."""
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    kind = SLICE_SCHEMA.field("sent").type
    values = pa.StructArray.from_arrays(
        [pa.array(runs.writer), pa.array(runs.seq), pa.array(runs.offset), pa.array(runs.length)],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def made_rows(partition: int, count: int, **columns: Any) -> pa.Table:
    """`count` rows; a column is an array, an Arrow array or one value for all, and null where it is not given."""
    fixed = {"cluster": "bench", "topic_id": "bench-topic-id", "topic": "bench", "partition": partition, "run": "run"}
    fixed |= {"type": "ok", "boot": "boot"}
    arrays = []
    for field in SLICE_SCHEMA:
        value = columns.get(field.name, fixed.get(field.name))
        if field.name == "date":
            days = np.asarray(columns["completed"]) // (86_400 * SECOND)
            array = pa.array(days.astype(np.int32)).cast(pa.date32())
        elif value is None:
            array = pa.nulls(count, field.type)
        elif isinstance(value, np.ndarray):
            array = pa.array(value).cast(field.type)
        elif isinstance(value, pa.Array | pa.ChunkedArray):
            array = value
        else:
            array = pa.repeat(pa.scalar(value, field.type), count)
        arrays.append(array)
    return pa.table(arrays, schema=SLICE_SCHEMA)


@dataclass
class _Operations:
    """The operations of one process on one partition, in order: times, for the marks and for slice numbers."""

    process: int
    invoked: Ints
    completed: Ints


@dataclass
class _Log:
    """One partition's log: runs in order, and for each the send operation that wrote it and whether it was aborted."""

    runs: Runs
    operation: Ints
    aborted: np.ndarray[Any, np.dtype[np.bool_]]
    invoked: Ints  # of each operation
    completed: Ints
    process: Ints


def _bulk_log(plan: Plan, partition: int) -> _Log:
    rounds = max(1, plan.records // (3 * BATCH))
    pieces = np.tile(np.array([CHUNK, CHUNK, BATCH - 2 * CHUNK]).repeat(3), rounds)
    writer = np.tile(np.array([0, 1, 2] * 3), rounds)
    offset = np.concatenate(([0], np.cumsum(pieces)[:-1]))
    seq = np.empty(len(pieces), np.int64)
    for w in range(3):
        own = writer == w
        seq[own] = np.concatenate(([0], np.cumsum(pieces[own])[:-1]))
    operation = np.repeat(np.arange(rounds), 9) * 3 + writer
    length = 3 * BATCH * SECOND / plan.rate  # microseconds of log time that a round takes
    start = (BASE + SECOND + np.arange(rounds) * length + partition * 1000).astype(np.int64)
    invoked = (start[:, None] + np.arange(3) * 700).reshape(-1)
    completed = (start[:, None] + int(length * 0.8) + np.arange(3) * 700).reshape(-1)
    process = np.tile(np.array([100, 101, 102]), rounds)
    runs = Runs(writer + 1, seq, offset, pieces)
    return _Log(runs, operation, np.zeros(len(pieces), bool), invoked, completed, process)


def _transactional_log(plan: Plan, partition: int) -> _Log:
    random = np.random.default_rng(plan.seed * 1000 + partition)
    transactions = max(4, int(plan.records / 2.5))
    length = random.integers(1, 5, transactions)
    aborted = random.random(transactions) < 0.05
    writer = np.arange(transactions) % 4
    offset = np.concatenate(([0], np.cumsum(length + 1)[:-1]))  # one offset more for the marker
    seq = np.empty(transactions, np.int64)
    for w in range(4):
        own = writer == w
        seq[own] = np.concatenate(([0], np.cumsum(length[own])[:-1]))
    gap = 2.5 * SECOND / plan.rate
    invoked = (BASE + SECOND + np.arange(transactions) * gap + partition * 1000).astype(np.int64)
    completed = invoked + int(gap * 3)  # four writers take turns, so that each one's transactions do not overlap
    runs = Runs(writer + 1, seq, offset, length)
    return _Log(runs, np.arange(transactions), aborted, invoked, completed, 100 + writer)


def _sends(plan: Plan, partition: int, log: _Log) -> Iterator[tuple[_Operations, pa.Table]]:
    owner = log.process[log.operation]
    for process in np.unique(log.process).tolist():
        operations = np.flatnonzero(log.process == process)
        mine = np.flatnonzero(owner == process)
        order = np.argsort(log.operation[mine], kind="stable")
        mine = mine[order]
        numbers = np.searchsorted(operations, log.operation[mine])
        counts = np.bincount(numbers, minlength=len(operations))
        runs = Runs(log.runs.writer[mine], log.runs.seq[mine], log.runs.offset[mine], log.runs.length[mine])
        made = _Operations(process, log.invoked[operations], log.completed[operations])
        more: dict[str, Any] = {"f": "send", "type": "ok"}
        if plan.shape == "transactional":
            gone = np.zeros(len(log.invoked), bool)
            gone[log.operation] = log.aborted
            more = {
                "f": "txn",
                "type": pa.array(np.where(gone[operations], "fail", "ok")),
                "txn_intent": pa.array(np.where(gone[operations], "abort", "commit")),
                "txn": process * (1 << 40) + operations * plan.partitions + partition,
                "transactional_id": f"bench-{process}",
            }
        yield (
            made,
            made_rows(
                partition,
                len(operations),
                process=process,
                op=operations * plan.partitions + partition,
                invoked=made.invoked,
                completed=made.completed,
                sent=lists(counts, runs),
                **more,
            ),
        )


def _polls(plan: Plan, partition: int, log: _Log) -> Iterator[tuple[_Operations, pa.Table]]:
    visible = ~log.aborted
    runs = Runs(*(c[visible] for c in (log.runs.writer, log.runs.seq, log.runs.offset, log.runs.length)))
    ready = log.completed[log.operation][visible]
    total = int(runs.length.sum())
    for reader in range(plan.readers):
        if plan.shape == "bulk":
            ends = np.append(np.arange(BATCH - 100 * reader, total, BATCH), total)
        else:
            random = np.random.default_rng(plan.seed * 77 + partition * 10 + reader)
            ends = np.cumsum(random.integers(1, 5, total // 2))
            ends = np.append(ends[ends < total], total)
        cut = runs.cut(ends)
        reached = np.cumsum(cut.length)
        number = np.searchsorted(ends, reached)
        counts = np.bincount(number, minlength=len(ends))
        last = np.cumsum(counts) - 1
        whole = np.cumsum(runs.length)
        available = np.maximum.accumulate(ready)[np.searchsorted(whole, ends)]
        completed = available + 200_000 + reader * 50_000
        completed = np.maximum.accumulate(completed + np.arange(len(ends)))  # no two end at once
        invoked = np.concatenate(([int(BASE + SECOND // 2)], completed[:-1] + 1))
        invoked = np.minimum(invoked, completed)
        after = cut.offset[last] + cut.length[last]
        process = 500 + reader
        made = _Operations(process, invoked, completed)
        yield (
            made,
            made_rows(
                partition,
                len(ends),
                process=process,
                op=np.arange(len(ends)) * plan.partitions + partition,
                f="txn" if plan.shape == "transactional" and reader else "poll",
                invoked=invoked,
                completed=completed,
                polled=lists(counts, cut),
                position_before=np.concatenate(([0], after[:-1])),
                position_after=after,
                isolation="read_committed",
                mode="assign",
            ),
        )


def _numbered(table: pa.Table, numbers: Ints) -> pa.Table:
    return table.set_column(table.schema.get_field_index("slice"), SLICE_SCHEMA.field("slice"), pa.array(numbers))


def _seconds(end: int, partition: int) -> Ints:
    return np.arange(BASE + SECOND, end + 16 * SECOND, SECOND, dtype=np.int64) + partition * 2_000


def _observed(partition: int, log: _Log, end: int) -> tuple[_Operations, pa.Table]:
    at = _seconds(end, partition) + 300_000
    tops = log.runs.offset + log.runs.length
    times = log.completed[log.operation]
    order = np.argsort(times, kind="stable")
    stable = np.concatenate(([0], np.maximum.accumulate(tops[order])))[np.searchsorted(times[order], at)]
    made = _Operations(PROCESSES["observer"], at, at + 2_000)
    return made, made_rows(
        partition,
        len(at),
        process=made.process,
        op=np.arange(len(at)),
        f="offsets",
        invoked=made.invoked,
        completed=made.completed,
        log_start=0,
        log_end=stable,
        last_stable=stable,
    )


def _marked(partition: int, operations: list[_Operations], first: dict[int, int], end: int) -> pa.Table:
    at = _seconds(end, partition) + 500_000
    slices, through = [], []
    for made in operations:
        begun = np.searchsorted(made.invoked, at)
        before = np.maximum(begun - 1, 0)
        flying = (begun > 0) & (made.completed[before] > at)
        slices.append(np.where(flying, begun - 1, begun) + first[made.process])
        through.append(np.where(flying, made.invoked[before], at))
    kind = SLICE_SCHEMA.field("marks").type
    values = pa.StructArray.from_arrays(
        [
            pa.array(np.tile(np.array([made.process for made in operations]), len(at))),
            pa.array(np.array(slices).T.reshape(-1)),
            pa.array(np.array(through).T.reshape(-1)).cast(pa.timestamp("us", tz="UTC")),
            *(pa.nulls(len(at) * len(operations), kind.value_type.field(name).type) for name in ("ended", "lost")),
        ],
        fields=list(kind.value_type),
    )
    ends = (np.arange(len(at) + 1) * len(operations)).astype(np.int32)
    return made_rows(
        partition,
        len(at),
        process=PROCESSES["committer"],
        op=np.arange(len(at)),
        slice=np.arange(len(at)),
        f="mark",
        invoked=at,
        completed=at,
        marks=pa.ListArray.from_arrays(pa.array(ends), values, type=kind),
    )


def partition_rows(plan: Plan, partition: int) -> pa.Table:
    """All rows of one partition, sorted by the time they were completed."""
    log = (_bulk_log if plan.shape == "bulk" else _transactional_log)(plan, partition)
    made = [*_sends(plan, partition, log), *_polls(plan, partition, log)]
    end = max(int(operations.completed[-1]) for operations, _ in made)
    made.append(_observed(partition, log, end))
    tables, first = [], {}
    for operations, rows in made:
        reader = 500 <= operations.process < 600
        first[operations.process] = 2 if reader else 1
        at = np.array([BASE, BASE + 1])[: first[operations.process]]
        functions = ["start", "assign"][: len(at)]
        beginning = made_rows(
            partition,
            len(at),
            process=operations.process,
            op=np.arange(len(at)) - 2,
            slice=np.arange(len(at)),
            f=pa.array(functions),
            invoked=at,
            completed=at,
            mode="assign" if reader else None,
            isolation="read_committed" if reader else None,
            assigned=pa.array([None, True][: len(at)], pa.bool_()) if reader else None,
        )
        shifted = pa.compute.add(rows["op"], 2)
        rows = rows.set_column(rows.schema.get_field_index("op"), SLICE_SCHEMA.field("op"), shifted)
        beginning = beginning.set_column(
            beginning.schema.get_field_index("op"), SLICE_SCHEMA.field("op"), pa.array(np.arange(len(at)))
        )
        tables += [beginning, _numbered(rows, np.arange(rows.num_rows) + len(at))]
    tables.append(_marked(partition, [operations for operations, _ in made], first, end))
    whole = pa.concat_tables(tables)
    order = np.argsort(whole["completed"].cast(pa.int64()).to_numpy(), kind="stable")
    return whole.take(pa.array(order))


def commits(plan: Plan, seconds: float) -> Iterator[pa.Table]:
    """The history as its committer would append it, `seconds` of log time at a time, all partitions together."""
    parts = [partition_rows(plan, p) for p in range(plan.partitions)]
    times = [part["completed"].cast(pa.int64()).to_numpy() for part in parts]
    begin, end = BASE, max(int(t[-1]) for t in times)
    step = int(seconds * SECOND)
    while begin <= end:
        bounds = [(int(np.searchsorted(t, begin)), int(np.searchsorted(t, begin + step))) for t in times]
        rows = [part.slice(a, b - a) for part, (a, b) in zip(parts, bounds, strict=True) if b > a]
        if rows:
            yield pa.concat_tables(rows)
        begin += step
