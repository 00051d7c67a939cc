"""One-line helpers for the probe log's tests: a clock that stands still, lives that behave as probes do, and what must
hold of every table that a committer has written."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from probes.log.commits.holding import Holding
from probes.log.journals.journal import Journal, Life
from rules.vocabulary.slices import SLICE_SCHEMA, Run, Slice
from rules.vocabulary.times import micros
from tests.waiting import looks

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPIC_ID, TOPIC = "topic-id", "probe"
JOURNALLED = timedelta(seconds=5)
"""So late after its completion a row may be in its journal: log time waits for no longer."""


@dataclass
class StillClock:
    """Time goes on only when it is told to."""

    time: datetime = BEGIN
    boot: str = "boot-1"

    def now(self) -> datetime:
        return self.time

    def monotonic_ns(self) -> int:
        return micros(self.time) * 1000

    def both(self) -> tuple[datetime, int]:
        return self.now(), self.monotonic_ns()

    def follow(self, said: datetime, at: int | None) -> None:
        """It is set by hand alone."""

    def tick(self, seconds: float = 0.1) -> datetime:
        self.time += timedelta(seconds=seconds)
        return self.time


def a_life(process: int, *, boot: str = "boot-1", kind: str = "writer", transactional_id: str | None = None) -> Life:
    return Life(
        cluster="c",
        run="run",
        process=process,
        kind=kind,
        writer=process * 10 if kind == "writer" else None,
        transactional_id=transactional_id,
        boot=boot,
        settings={"acks": "all"},
    )


@dataclass
class Prober:
    """A client's life as the contract has it: open before the request, append after, alive in between.

    `told` is what its log must hold in the end, by partition; `in_flight` what it has opened and not finished."""

    clock: StillClock
    journal: Journal
    op: int = 0
    seq: dict[int, int] = field(default_factory=dict)
    told: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    in_flight: dict[int, list[Slice]] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, process: int, clock: StillClock, partitions: int = 2, **life: Any) -> Prober:
        segment_bytes = life.pop("segment_bytes", 1 << 20)
        of = a_life(process, boot=clock.boot, **life)
        prober = cls(clock, Journal.create(folder, of, segment_bytes=segment_bytes))
        prober.append([prober.row(p, "start", kind=of.kind, settings=of.settings) for p in range(partitions)])
        for partition in range(partitions):
            if of.writer is not None:
                prober.journal.reserve(TOPIC_ID, TOPIC, partition, 1000)
        return prober

    def row(self, partition: int, f: Any, **more: Any) -> Slice:
        (now, mono), life = self.clock.both(), self.journal.life
        values = {
            "cluster": life.cluster,
            "topic_id": TOPIC_ID,
            "topic": TOPIC,
            "run": life.run,
            "process": life.process,
            "op": self.op,
            "slice": -1,
            "type": "ok",
            "invoked": now,
            "completed": now,
            "boot": life.boot,
            "mono_invoked": mono,
            "mono_completed": mono,
            "transactional_id": life.transactional_id,
        }
        return Slice(partition=partition, f=f, **{**values, **more})

    def append(self, rows: list[Slice]) -> None:
        self.journal.append(rows)
        for row in rows:
            self.told[row.partition].append(row)
        self.op += 1

    def invoke(self, *partitions: int, length: int = 5) -> int:
        """Open a send of `length` records to each partition; returns its op."""
        rows = []
        for partition in partitions or (0,):
            seq = self.seq.get(partition, 0)
            self.seq[partition] = seq + length
            run = Run(self.journal.life.writer or 1, seq, None, length)
            rows.append(self.row(partition, "send", type="info", sent=(run,)))
        self.journal.opened(self.op, rows)
        self.in_flight[self.op] = rows
        self.op += 1
        return self.op - 1

    def complete(self, op: int, outcome: str = "ok") -> None:
        rows = self.in_flight[op]
        for row in rows:
            row.type, row.completed = outcome, self.clock.now()  # type: ignore[assignment]
        self.journal.append(rows)
        del self.in_flight[op]
        for row in rows:
            self.told[row.partition].append(row)

    def send(self, *partitions: int) -> None:
        op = self.invoke(*partitions)
        self.clock.tick()
        self.complete(op)

    def poll(self, partition: int = 0) -> None:
        invoked = self.clock.now()
        self.clock.tick()
        self.append([self.row(partition, "poll", invoked=invoked, polled=(Run(7, self.op, self.op, 3),))])

    def alive(self) -> None:
        self.journal.alive(self.clock.now())

    def close(self) -> None:
        self.append([self.row(p, "close") for p in list(self.told)])
        self.journal.close()

    def kill(self) -> None:
        """As `kill -9` leaves it."""
        self.journal.release()

    def must_be_logged(self) -> dict[int, list[tuple[int, str, str, list[dict[str, Any]] | None]]]:
        """(op, f, type, sent) in order, by partition, once this life is dead and recovered; without its close rows."""
        must = {p: [_gist(row, row.type) for row in rows if row.f != "close"] for p, rows in self.told.items()}
        for rows in self.in_flight.values():
            for row in rows:
                must.setdefault(row.partition, []).append(_gist(row, "info"))
        return must


def always_waits() -> Holding:
    """A turn that may wait does."""
    holding = Holding(lambda rows: False, longest=1e9, alert=0)
    holding.appended()
    return holding


def _gist(row: Slice, outcome: str) -> tuple[int, str, str, list[dict[str, Any]] | None]:
    return row.op, row.f, outcome, [run._asdict() for run in row.sent] or None


def logged(rows: list[dict[str, Any]], process: int) -> dict[int, list[tuple[Any, ...]]]:
    """The same of a table's rows."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in sorted((r for r in rows if r["process"] == process and r["f"] != "close"), key=lambda r: r["slice"]):
        found[row["partition"]].append((row["op"], row["f"], row["type"], row["sent"]))
    return dict(found)


def closes(rows: list[dict[str, Any]], process: int) -> dict[int, list[str]]:
    """The types of a process's close rows by partition."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if row["process"] == process and row["f"] == "close":
            found[row["partition"]].append(row["type"])
    return dict(found)


def table_rows(table: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(table)):
        return []
    rows: list[dict[str, Any]] = pa.table(DeltaTable(str(table)).scan().read_all()).to_pylist()
    return rows


def check_slices(rows: list[dict[str, Any]]) -> None:
    """Each process's slices of a partition are 0, 1, 2, ... without a gap, each once."""
    numbers = defaultdict(list)
    for row in rows:
        numbers[row["process"], row["cluster"], row["topic_id"], row["partition"]].append(row["slice"])
    for key, found in numbers.items():
        assert sorted(found) == list(range(len(found))), key


def appends(table: Path) -> list[list[dict[str, Any]]]:
    """The rows that each commit of the table brought, in the order of the commits."""
    brought = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        added = [json.loads(line).get("add") for line in commit.read_text().splitlines()]
        files = [table / add["path"] for add in added if add]
        # A file leaves out the columns of which it has no values.
        every = dict.fromkeys(SLICE_SCHEMA.names)
        brought.append([every | row for file in files for row in pq.ParquetFile(file).read().to_pylist()])
    return brought


def check_marks(table: Path) -> int:
    """No mark ever promised what was not in the table with it; returns the number of marks looked at.

    Looked at commit by commit: a mark's slices are there, and no later commit brings a row of that process and
    partition that was invoked before the time it promised, nor one that had completed `JOURNALLED` before the
    time through which its mark row says that journals had been read."""
    read: dict[int, datetime] = {}
    checked = 0
    present: set[tuple[int, int, int]] = set()
    promised: dict[tuple[int, int], datetime] = {}
    for version, rows in enumerate(appends(table)):
        for row in rows:
            key = row["process"], row["partition"]
            assert row["invoked"] >= promised.get(key, row["invoked"]), (version, row, promised[key])
            known = read.get(row["partition"], BEGIN) - JOURNALLED
            assert row["f"] == "mark" or row["completed"] >= known, (version, row)
            present.add((*key, row["slice"]))
        for row in rows:
            if row["f"] == "mark":
                read[row["partition"]] = row["invoked"]
            for mark in row["marks"] or []:
                checked += 1
                key = mark["process"], row["partition"]
                assert all((*key, number) in present for number in range(mark["slices"])), (version, mark)
                promised[key] = max(promised.get(key, mark["through"]), mark["through"])
    return checked


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    for _ in looks(0.01):
        if condition():
            return
        assert time.monotonic() < until


def marks_of(rows: list[dict[str, Any]], version: int, partition: int = 0) -> dict[int, tuple[int, Any]]:
    """{process: (slices, through)} in the mark row that version `version` brought for the partition."""
    (row,) = [r for r in rows if r["f"] == "mark" and r["op"] == version and r["partition"] == partition]
    return {mark["process"]: (mark["slices"], mark["through"]) for mark in row["marks"] or []}


def ends_of(rows: list[dict[str, Any]], version: int) -> dict[int, tuple[object, bool]]:
    """{process: (by when it was over, whether its end may be missing)} of those that are over, or broken."""
    (row,) = [r for r in rows if r["f"] == "mark" and r["op"] == version and r["partition"] == 0]
    marks = [mark for mark in row["marks"] or [] if mark["ended"] is not None or mark["lost"]]
    return {mark["process"]: (mark["ended"], mark["lost"]) for mark in marks}
