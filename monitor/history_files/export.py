"""A range of the probe log in the form of Jepsen's Kafka workload: the inverse of `operations` and `slices`.

Sends, polls, transactions, assigns and subscribes are written, each as its invocation and its completion, in the order
of their times. A key is topic/partition (with the topic's id, where the topic was made again). A value is a number: the
writer's, shifted, and the writer's own count of its records. Processes are numbered. The first event is a nemesis' one,
which checkers pass over: it tells what the numbers stand for.

A range has two ends, and no anomaly may come from them: a checker would take a record that was sent before the range
for one that nobody sent, and one that is polled after it for lost. So the file is about the records that were sent in
the range: polls are told without what was sent earlier, and go on for `SETTLE` after the range, in which nothing
further is sent. What Jepsen's form has no word for is left out and counted: polls at read_uncommitted, commits,
positions, offsets that were listed or read back, registers, and what clients say of themselves. A record whose tag is
broken, foreign or of another place stands for itself, as text that nobody sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from monitor.errors import UserError
from rules.vocabulary.times import micros
from streaming_jobs.location import TableLocation, opened

SETTLE: Final = timedelta(seconds=60)
MOST: Final = 5_000_000
"""Rows of the probe log that one file may be made of: beyond, a smaller range has to be asked for."""
_COLUMNS: Final = (
    "cluster",
    "topic_id",
    "topic",
    "partition",
    "process",
    "op",
    "slice",
    "f",
    "type",
    "error",
    "txn",
    "invoked",
    "completed",
    "boot",
    "sent",
    "polled",
    "irregular",
    "isolation",
    "mode",
    "assigned",
    "rebalanced",
)
_TOLD: Final = ("send", "poll", "txn", "assign", "subscribe", "revoke")
_READ: Final = ("send", "poll", "txn")
_WITHOUT_WORDS: Final = {
    "rows of commits": ("commit",),
    "rows of offsets that were listed or read back": ("offsets",),
    "rows of positions": ("position",),
    "rows of operations on registers": ("register",),
    "rows of what was asked as a life that was over": ("zombie",),
    "rows of what clients and hosts say of themselves (close, init, mark, start)": ("close", "init", "mark", "start"),
}

Event = dict[str, Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is exported: operations that completed from `since` to `until`, of these topics or of all, and of
    the cluster with this id or of all; None bounds nothing."""

    since: datetime | None = None
    until: datetime | None = None
    topics: Sequence[str] = ()
    cluster: str | None = None


@dataclass(slots=True)
class FileContents:
    """What the file holds, and what it leaves out, by what that is. `hosts`: how many clocks its times are of."""

    operations: int = 0
    records: int = 0
    hosts: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def events(
    history: TableLocation, wanted: Range, named: Callable[[Collection[int]], Mapping[int, str]], told: FileContents
) -> Iterator[Event]:
    """The events, in the order of their times. `named`: what processes are called. `told` is filled on the way.

    Raises UserError where the range holds nothing, or too much."""
    log = _Log(_rows(history, wanted, told), wanted, told)
    yield log.legend(named(log.processes))
    invoked, completed = log.times()
    order = np.argsort(np.concatenate((invoked, completed)), kind="stable").tolist()
    count = len(invoked)
    for index, at in enumerate(order, 1):
        number, ends = at % count, at >= count
        event = log.completion(number) if ends else log.invocation(number)
        yield event | {"time": int((completed if ends else invoked)[number]), "index": index}


def _rows(history: TableLocation, wanted: Range, told: FileContents) -> pa.Table:
    """The rows of the range, the rows of one operation beside each other, operations in the order of completion."""
    column = ds.field
    within = ds.scalar(True)
    last = None if wanted.until is None else wanted.until + SETTLE
    if wanted.topics:
        within &= column("topic").isin(list(wanted.topics))
    if wanted.cluster is not None:
        within &= column("cluster") == wanted.cluster
    if wanted.since is not None:
        within &= (column("date") >= wanted.since.astimezone(UTC).date()) & (column("completed") >= wanted.since)
    if last is not None:
        within &= (column("date") <= last.astimezone(UTC).date()) & (column("completed") <= last)
    chosen = within & column("f").isin(_TOLD)
    log = opened(history)
    assert log is not None  # looked for by who asks
    data = log.to_pyarrow_dataset()
    number = data.count_rows(filter=chosen)
    if number > MOST:
        raise UserError(f"the range has {number:,} rows of the probe log, more than {MOST:,}: narrow it with --since")
    uncommitted = column("f").isin(["poll"]) & column("isolation").isin(["read_uncommitted"])
    told.left_out["rows of polls at read_uncommitted"] = data.count_rows(filter=chosen & uncommitted)
    in_time = within if wanted.until is None else within & (column("completed") <= wanted.until)
    told.left_out.update(_without_words(data, in_time))
    table = data.to_table(columns=list(_COLUMNS), filter=chosen & ~uncommitted)
    if not table.num_rows:
        raise UserError("the range holds no operation: give another --since, --until or --topic")
    keys = [(name, "ascending") for name in ("completed", "process", "op", "slice")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def _without_words(data: ds.Dataset, within: Any) -> Counter[str]:
    """How many rows there are of each kind of operation that the form has no word for."""
    kinds = {f: what for what, fs in _WITHOUT_WORDS.items() for f in fs}
    found: Counter[str] = Counter()
    for batch in data.to_batches(columns=["f"], filter=within & ds.field("f").isin(list(kinds))):
        for one in pc.value_counts(batch["f"]).to_pylist():
            found[kinds[one["values"]]] += one["counts"]
    return found


class _Log:
    """The rows as flat columns; operations by their number, in the order of completion."""

    def __init__(self, rows: pa.Table, wanted: Range, told: FileContents) -> None:
        self._told = told
        self._process = _numbers(rows, "process")
        op = _numbers(rows, "op")
        new = np.flatnonzero((np.diff(self._process) != 0) | (np.diff(op) != 0)) + 1
        self._first: list[int] = [0, *new.tolist()]
        self._end: list[int] = [*new.tolist(), rows.num_rows]
        self._f, self._type = rows["f"].to_pylist(), rows["type"].to_pylist()
        self._error, self._mode = rows["error"].to_pylist(), rows["mode"].to_pylist()
        self._assigned, self._rebalanced = rows["assigned"].to_pylist(), rows["rebalanced"].to_pylist()
        self._keys = _keys(rows)
        self._held: dict[int, dict[str, None]] = {}
        self._invoked = rows["invoked"].cast(pa.int64()).to_numpy()
        self._completed = rows["completed"].cast(pa.int64()).to_numpy()
        self._ids, codes = np.unique(self._process, return_inverse=True)
        self._codes: list[int] = codes.tolist()
        self.processes: list[int] = self._ids.tolist()
        self._cluster = rows["cluster"][0].as_py()
        self._range = wanted
        sent, polled = _Runs(rows["sent"]), _Runs(rows["polled"])
        self._irregular = {
            row: one for row, one in enumerate(rows["irregular"].to_pylist()) if one
        }  # few, and each is an anomaly
        told.hosts = len(pc.unique(rows["boot"].drop_null()))
        late = None if wanted.until is None else self._completed > micros(wanted.until)
        if late is not None:
            told.left_out["records that were sent after the range"] += sent.drop(late)
        if wanted.since is not None or late is not None:
            told.left_out["polled records that were not sent in the range"] += polled.keep_sent(sent, self._keys)
        self._writers, self._shift = np.unique(np.concatenate((sent.writer, polled.writer))), _width(sent, polled)
        self._sent, self._polled = sent.listed(self._writers), polled.listed(self._writers)

    def legend(self, names: Mapping[int, str]) -> Event:
        """What the numbers of the file stand for, told by a nemesis."""
        value = {
            "cluster": self._cluster,
            "since": self._range.since,
            "until": self._range.until,
            "processes": {
                str(code): f"{names.get(int(number), 'process')} {number}" for code, number in enumerate(self._ids)
            },
            "writers": {str(code): str(number) for code, number in enumerate(self._writers.tolist())},
            "value": f"the writer's number here, times 2^{self._shift}, and the writer's own count of its records",
        }
        plain = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in value.items() if v is not None}
        return {"type": "info", "process": "nemesis", "f": "legend", "value": plain, "index": 0}

    def times(self) -> tuple[Ints, Ints]:
        """When each operation was invoked and completed, nanoseconds: who asks at a time asks before whoever is told
        then, but for one process, which asks again after it was told."""
        invoked = np.array([self._invoked[a:b].min() for a, b in self._bounds()], np.int64) * 1_000
        completed = np.array([self._completed[a] for a in self._first], np.int64) * 1_000 + 999
        ended: dict[int, int] = {}
        for number, a in enumerate(self._first):
            process = self._codes[a]
            if invoked[number] <= ended.get(process, -1):
                invoked[number] = ended[process] + 1
                completed[number] = max(completed[number], invoked[number] + 1)
            ended[process] = int(completed[number])
        return invoked, completed

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self._first, self._end, strict=True)

    def invocation(self, number: int) -> Event:
        """The operation as it was asked for."""
        a = self._first[number]
        if self._f[a] not in _READ:
            return self._event(a, "invoke", self._holding(number))
        value: list[Any] = [["send", key, sent] for key, _, sent in self._sends(number)]
        return self._event(a, "invoke", [*value, ["poll"]] if self._f[a] != "send" else value)

    def completion(self, number: int) -> Event:
        """The operation as it ended."""
        a, b = self._first[number], self._end[number]
        self._told.operations += 1
        if self._f[a] not in _READ:
            # A client that is given partitions anew begins where it was told to.
            return self._event(a, self._type[a], self._holding(number)) | {"seek-to-beginning?": True}
        value: list[Any] = [
            ["send", key, sent if offset < 0 else [offset, sent]] for key, offset, sent in self._sends(number)
        ]
        self._told.records += len(value)
        if self._f[a] != "send":
            value.append(["poll", self._given(number)])
        event = self._event(a, self._type[a], value)
        if self._type[a] != "ok" and self._error[a] is not None:
            event["error"] = self._error[a]
        rebalanced = [self._keys[row] for row in range(a, b) if self._rebalanced[row]]
        return event | ({"rebalance-log": [{"keys": rebalanced}]} if rebalanced else {})

    def _event(self, row: int, kind: str, value: Any) -> Event:
        """What a group gives to its members, and takes, is told as a subscription to what they hold then."""
        f = self._f[row]
        if f not in _READ:
            f = "subscribe" if f == "subscribe" or self._mode[row] == "subscribe" else "assign"
        return {"type": kind, "process": self._codes[row], "f": f, "value": value}

    def _holding(self, number: int) -> list[str]:
        """The keys that the process holds once an assign, subscribe or revoke has completed."""
        a = self._first[number]
        held = self._held.setdefault(self._codes[a], {})
        if self._type[a] != "fail":
            for row in range(a, self._end[number]):
                if self._assigned[row]:
                    held[self._keys[row]] = None
                else:
                    held.pop(self._keys[row], None)
        return list(held)

    def _sends(self, number: int) -> Iterator[tuple[str, int, int]]:
        for row in range(self._first[number], self._end[number]):
            for writer, seq, offset, length in self._sent[row]:
                for i in range(length):
                    yield self._keys[row], offset + i if offset >= 0 else -1, (writer << self._shift) + seq + i

    def _given(self, number: int) -> dict[str, list[list[Any]]]:
        given: dict[str, list[list[Any]]] = {}
        for row in range(self._first[number], self._end[number]):
            records: list[list[Any]] = [
                [offset + i if offset >= 0 else None, (writer << self._shift) + seq + i]
                for writer, seq, offset, length in self._polled[row]
                for i in range(length)
            ]
            for one in self._irregular.get(row, ()):
                records.insert(one["index"], [one["offset"], f"{one['status']} {one['hash']:08x}"])
            if records:
                given.setdefault(self._keys[row], []).extend(records)
                self._told.records += len(records)
        return given


class _Runs:
    """The runs of one column, flat: of which row each is, and what it holds. An offset of -1 is unknown."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        self.row: Ints = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        flat = pc.list_flatten(lists)
        self.writer, self.seq, self.offset, self.length = (
            pc.fill_null(pc.struct_field(flat, name), -1).to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("writer", "seq", "offset", "length")
        )
        self._rows = len(lists)

    def _take(self, kept: NDArray[Any]) -> None:
        for name in ("row", "writer", "seq", "offset", "length"):
            setattr(self, name, getattr(self, name)[kept])

    def drop(self, rows: NDArray[np.bool_]) -> int:
        """Leave out the runs of these rows; returns how many records those were."""
        gone = rows[self.row]
        number = int(self.length[gone].sum())
        self._take(~gone)
        return number

    def keep_sent(self, sent: _Runs, keys: Sequence[str]) -> int:
        """Leave out what a writer counted before or after all that it sent in the range; returns how many records.

        What is in between and was sent by nobody stays: that is an anomaly, and no matter of the range."""
        _, place = np.unique(np.array(keys), return_inverse=True)
        first: dict[tuple[int, int], int] = {}
        after: dict[tuple[int, int], int] = {}
        sends = (place[sent.row].tolist(), sent.writer.tolist(), sent.seq.tolist(), sent.length.tolist())
        for where, writer, seq, length in zip(*sends, strict=True):
            own = (where, writer)
            first[own] = min(first.get(own, seq), seq)
            after[own] = max(after.get(own, 0), seq + length)
        owners = list(zip(place[self.row].tolist(), self.writer.tolist(), strict=True))
        low = np.array([first.get(own, 0) for own in owners], np.int64)
        high = np.array([after.get(own, 0) for own in owners], np.int64)
        before = int(self.length.sum())
        start, end = np.maximum(self.seq, low), np.minimum(self.seq + self.length, high)
        self.offset = np.where(self.offset >= 0, self.offset + start - self.seq, -1)
        self.seq, self.length = start, end - start
        self._take(self.length > 0)
        return before - int(self.length.sum())

    def listed(self, writers: Ints) -> list[list[tuple[int, int, int, int]]]:
        """For each row its runs, with the writer's place among `writers`."""
        found: list[list[tuple[int, int, int, int]]] = [[] for _ in range(self._rows)]
        codes = np.searchsorted(writers, self.writer)
        columns = (one.tolist() for one in (self.row, codes, self.seq, self.offset, self.length))
        for row, writer, seq, offset, length in zip(*columns, strict=True):
            found[row].append((writer, seq, offset, length))
        return found


def _width(*runs: _Runs) -> int:
    """Bits that every writer's count fits into."""
    highest = max((int((one.seq + one.length).max()) for one in runs if len(one.seq)), default=0)
    return max(highest.bit_length(), 1)


def _numbers(rows: pa.Table, name: str) -> Ints:
    found: Ints = rows[name].to_numpy()
    return found


def _keys(rows: pa.Table) -> list[str]:
    """What each row's partition is called in the file."""
    topics, ids = rows["topic"].to_pylist(), rows["topic_id"].to_pylist()
    lives: dict[str, set[str]] = {}
    for topic, topic_id in set(zip(topics, ids, strict=True)):
        lives.setdefault(topic, set()).add(topic_id)
    return [
        f"{topic}/{partition}" if len(lives[topic]) == 1 else f"{topic}#{topic_id}/{partition}"
        for topic, topic_id, partition in zip(topics, ids, rows["partition"].to_pylist(), strict=True)
    ]
