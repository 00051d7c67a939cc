"""The dependencies between operations, from which cycles are searched: nodes and edges, as arrays.

*Nodes* are the send, poll and txn operations of every outcome; an operation is (cluster, process, op), and may have a
slice in each of many partitions. *Edges* say that one operation came before another:

- write-read: the one that wrote a value -> each other operation that polled it, at whatever outcome. A poll at
  read_uncommitted gives one as well, marked as such: it may rightly see what is not committed.
- write-write, only on request: the writer of a value -> the writer of the next value of the log. The log is what was
  polled at read_committed and what was acknowledged of visible writes, in the order of offsets, without holes. A value
  at several offsets counts at the last, and what stands on both sides of an earlier place are neighbours; an offset
  with several values says nothing about order, so that no edge touches it.
- process: an operation -> the next one of its process, by their numbers.
- realtime: a completion -> every operation invoked strictly after it, by one clock: within one boot of one host, whose
  monotonic clock both operations have. Hosts whose clocks have no known skew give each other no edge.

A value that several operations wrote has no writer of its own: it gives no edge.

**Linear size.** All pairs of the realtime relation would grow with the square of the history. Instead each clock has a
chain of *time nodes*, one for each invocation time that follows a completion: a completion points at the first one
after it, a time node at the next one and at the operations invoked from then until the next one. One operation then
reaches another through time nodes exactly where it completed before the other's invocation. At most two nodes and four
edges come from an operation, not counting what it wrote and polled. The same holds for process order: a chain.

Everything is done on runs of records, and across all slices at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rules.arrays.columns import INFO, OK, POLL, SEND, TXN, Codes, Runs, codes_of, integers, is_text, runs_of
from rules.arrays.intervals import Bools, Ints, deeper, merge_grouped
from rules.cycles.writers import Written, overlaps, written
from rules.vocabulary.slices import FUNCTIONS, OUTCOMES

T = TypeVar("T")

WW, WR, PROCESS, REALTIME = range(4)
KINDS: Final = ("ww", "wr", "process", "realtime")

_FUNCTION_SET: Final = pa.array(FUNCTIONS)
_OUTCOME_SET: Final = pa.array(OUTCOMES)


@dataclass(slots=True)
class Operations:
    """The nodes, sorted by (cluster, process, op). `clock` numbers the boots, -1 where an operation has no monotonic
    time; `begun` and `ended` are its nanoseconds there. `invoked` and `completed` are microseconds of log time."""

    cluster: Ints
    process: Ints
    op: Ints
    f: Codes
    type: Codes
    invoked: Ints
    completed: Ints
    clock: Ints
    begun: Ints
    ended: Ints
    clusters: list[str]

    def __len__(self) -> int:
        return len(self.process)


@dataclass(slots=True)
class Partitions:
    """The partitions, numbered in the order of (cluster, topic id, partition)."""

    cluster: list[str]
    topic_id: list[str]
    topic: list[str]
    partition: list[int]


@dataclass(slots=True)
class Dependencies:
    """Write-read and write-write edges, each with what proves it: for the value that `source` wrote, its writer, seq
    and offset (-1 unknown); for write-write, also those of the value that `target` wrote next."""

    source: Ints
    target: Ints
    kind: Codes
    uncommitted: Bools
    place: Ints
    writer: Ints
    seq: Ints
    offset: Ints
    next_writer: Ints
    next_seq: Ints
    next_offset: Ints

    def __len__(self) -> int:
        return len(self.source)


@dataclass(slots=True)
class _Records:
    """Runs of records of many places. `group` numbers (place, writer); `node` is the operation that has them."""

    place: Ints
    group: Ints
    seq: Ints
    offset: Ints
    length: Ints
    node: Ints

    def take(self, keep: NDArray[Any]) -> _Records:
        return _Records(*(getattr(self, f.name)[keep] for f in fields(self)))

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(slots=True)
class History:
    """What was read from a table of slices: who did what, and how that depends on each other."""

    operations: Operations
    partitions: Partitions
    dependencies: Dependencies


def read(table: pa.Table, *, ww: bool = False) -> History:
    """The operations of a table of `SLICE_SCHEMA` (any partitions, any order) and their dependencies; write-write ones
    only where `ww`. Rows that are no send, poll or txn are passed over; a row that comes twice counts once."""
    kept = pc.is_in(table["f"], value_set=pa.array([FUNCTIONS[f] for f in (SEND, POLL, TXN)]))
    table = table.select(COLUMNS)
    if table.num_rows and not pc.all(kept).as_py():
        table = table.filter(kept)
    cluster, clusters = _numbered(table["cluster"])
    operations, node = _operations(table, cluster, clusters)
    place, partitions = _partitions(table, cluster, clusters)
    committed = ~is_text(table["isolation"], "read_uncommitted")
    sent, polled = runs_of(table["sent"]), runs_of(table["polled"])
    writers, number = np.unique(np.concatenate((sent.writer, polled.writer)), return_inverse=True)
    count = max(len(writers), 1)
    sends = _records(sent, number[: len(sent)], count, place, node)
    polls = _records(polled, number[len(sent) :], count, place, node)
    committed = committed[polled.row]
    del sent, polled, number, table
    wrote = written(sends.group, sends.seq, sends.seq + sends.length, sends.node)
    dependencies = _write_read(wrote, polls, committed, count)
    if ww:
        shown = dependencies.source[(operations.type[dependencies.target] == OK) & ~dependencies.uncommitted]
        visible = operations.type == OK
        visible[shown[operations.type[shown] == INFO]] = True
        acknowledged = sends.take(visible[sends.node] & (sends.offset >= 0))
        log = _joined(polls.take(committed & (polls.offset >= 0)), acknowledged)
        dependencies = _joined(dependencies, _write_write(wrote, log, count))
    for name in ("writer", "next_writer"):
        own = getattr(dependencies, name)
        if len(writers):
            setattr(dependencies, name, np.where(own >= 0, writers[own], own))
    return History(operations, partitions, dependencies)


COLUMNS: Final = [
    "cluster",
    "topic_id",
    "topic",
    "partition",
    "process",
    "op",
    "f",
    "type",
    "boot",
    "mono_invoked",
    "mono_completed",
    "invoked",
    "completed",
    "sent",
    "polled",
    "isolation",
]
"""Those that a search reads."""


def _numbered(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Texts as numbers 0 .. n-1 in alphabetical order, and the texts; -1 for null."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    texts = encoded.dictionary.to_pylist() if len(encoded) else []
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts) + 1, np.int64)
    rank[order] = np.arange(len(texts))
    rank[-1] = -1
    return rank[integers(pa.chunked_array([encoded.indices], pa.int32()))], [texts[i] for i in order]


def _operations(table: pa.Table, cluster: Ints, clusters: list[str]) -> tuple[Operations, Ints]:
    """The nodes, and the node of each row."""
    process, op = integers(table["process"]), integers(table["op"])
    processes, number = np.unique(process, return_inverse=True)
    width = int(op.max(initial=0)) + 1
    if len(clusters) * len(processes) * width >= 2**62:
        raise OverflowError("operations are numbered too high to be compared")
    key = (cluster * len(processes) + number) * width + op
    _, row, node = np.unique(key, return_index=True, return_inverse=True)
    clock, _ = _numbered(table["boot"])
    begun, ended = integers(table["mono_invoked"])[row], integers(table["mono_completed"])[row]
    timed = (begun >= 0) & (ended >= begun)
    operations = Operations(
        cluster[row],
        process[row],
        op[row],
        codes_of(table["f"], _FUNCTION_SET)[row],
        codes_of(table["type"], _OUTCOME_SET)[row],
        integers(table["invoked"])[row],
        integers(table["completed"])[row],
        np.where(timed, clock[row], -1),
        begun,
        ended,
        clusters,
    )
    return operations, node.astype(np.int64)


def _partitions(table: pa.Table, cluster: Ints, clusters: list[str]) -> tuple[Ints, Partitions]:
    topic_id, ids = _numbered(table["topic_id"])
    partition = integers(table["partition"])
    width = int(partition.max(initial=0)) + 1
    _, row, place = np.unique(
        (cluster * max(len(ids), 1) + topic_id) * width + partition, return_index=True, return_inverse=True
    )
    topics = table["topic"].take(pa.array(row)).to_pylist()
    found = Partitions(
        [clusters[i] for i in cluster[row]], [ids[i] for i in topic_id[row]], topics, partition[row].tolist()
    )
    return place.astype(np.int64), found


def _records(runs: Runs, writer: Ints, writers: int, place: Ints, node: Ints) -> _Records:
    at = place[runs.row]
    return _Records(at, at * writers + writer, runs.seq, runs.offset, runs.length, node[runs.row])


def _joined(one: T, other: T) -> T:
    """The entries of both, of one class of arrays."""
    names = [f.name for f in fields(one)]  # type: ignore[arg-type]
    return type(one)(*(np.concatenate((getattr(one, name), getattr(other, name))) for name in names))


def _write_read(wrote: Written, polls: _Records, committed: Bools, writers: int) -> Dependencies:
    run, source, seq, _ = wrote.meet(polls.group, polls.seq, polls.seq + polls.length)
    other = source != polls.node[run]
    run, source, seq = run[other], source[other], seq[other]
    offset = polls.offset[run]
    offset = np.where(offset >= 0, offset + seq - polls.seq[run], -1)
    none = np.full(len(run), -1, np.int64)
    return Dependencies(
        source,
        polls.node[run],
        np.full(len(run), WR, np.int8),
        ~committed[run],
        polls.place[run],
        polls.group[run] % writers,
        seq,
        offset,
        none,
        none,
        none,
    )


def _write_write(wrote: Written, log: _Records, writers: int) -> Dependencies:
    """An edge from each value's writer to that of the next value. `log` holds runs that were seen any number of
    times."""
    log = _once(log)
    base = int(log.offset.max(initial=0) + log.length.max(initial=0)) + 2
    low = log.place * base + log.offset
    barred = deeper(low, low + log.length)  # where an offset has several values
    log = _last_places(log)
    # Everything in its order: runs of values, cut where an offset has several, which bars what stands on both sides.
    low = log.place * base + log.offset
    free_start = np.concatenate(([0], barred[1])).astype(np.int64)
    free_end = np.concatenate((barred[0], [np.iinfo(np.int64).max])).astype(np.int64)
    run, free = overlaps(low, low + log.length, free_start, free_end)
    begin = np.maximum(low[run], free_start[free])
    length = np.minimum(low[run] + log.length[run], free_end[free]) - begin
    bars = np.concatenate((np.zeros(len(run), bool), np.ones(len(barred[0]), bool)))
    at = np.concatenate((begin, barred[0]))
    order = np.argsort(at, kind="stable")
    # The index of each run's first value; partitions and bars lie one apart from what is beside them.
    size = np.concatenate((length, np.ones(len(barred[0]), np.int64)))[order]
    place = at[order] // base
    apart = np.concatenate(([0], np.cumsum(place[1:] != place[:-1]))) if len(place) else place
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(size) - size + apart
    index = index[~bars]
    seq = log.seq[run] + begin - low[run]
    piece, node, first, after = wrote.meet(log.group[run], seq, seq + length)
    start, end = index[piece] + first - seq[piece], index[piece] + after - seq[piece]
    order = np.argsort(start, kind="stable")
    piece, node, first, after, start, end = (a[order] for a in (piece, node, first, after, start, end))
    follows = np.flatnonzero((start[1:] == end[:-1]) & (node[1:] != node[:-1]))
    following = follows + 1
    shift = begin % base - seq  # offset less seq
    group = log.group[run][piece] % writers
    return Dependencies(
        node[follows],
        node[following],
        np.full(len(follows), WW, np.int8),
        np.zeros(len(follows), bool),
        log.place[run][piece][follows],
        group[follows],
        after[follows] - 1,
        after[follows] - 1 + shift[piece[follows]],
        group[following],
        first[following],
        first[following] + shift[piece[following]],
    )


def _once(log: _Records) -> _Records:
    """Each (value, offset) once: runs of one writer whose offsets lie equally far from their seqs, united."""
    if not len(log):
        return log
    shift = log.offset - log.seq
    order = np.lexsort((shift, log.group))
    group, by = log.group[order], shift[order]
    line = np.cumsum(np.concatenate(([0], (group[1:] != group[:-1]) | (by[1:] != by[:-1]))))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = line
    of, start, end = merge_grouped(numbers, log.offset, log.offset + log.length)
    one = np.empty(int(line[-1]) + 1, np.int64)
    one[numbers] = np.arange(len(log))
    kept = one[of]
    return _Records(log.place[kept], log.group[kept], start - shift[kept], start, end - start, log.node[kept])


def _last_places(log: _Records) -> _Records:
    """Each value at the last of its offsets only. Values at several are rare: their runs are taken apart singly."""
    if not len(log):
        return log
    width = int((log.seq + log.length).max()) + 2
    low = log.group * width + log.seq
    again = deeper(low, low + log.length)
    if not len(again[0]):
        return log
    met = np.zeros(len(log), bool)
    met[overlaps(low, low + log.length, *again)[0]] = True
    rest, apart = log.take(~met), log.take(met)
    one = np.repeat(np.arange(len(apart)), apart.length)
    inside = np.arange(len(one)) - np.repeat(np.cumsum(apart.length) - apart.length, apart.length)
    seq, offset, group = apart.seq[one] + inside, apart.offset[one] + inside, apart.group[one]
    order = np.lexsort((offset, seq, group))
    last = np.append((group[order][1:] != group[order][:-1]) | (seq[order][1:] != seq[order][:-1]), True)
    kept = order[last]
    single = _Records(
        apart.place[one][kept],
        group[kept],
        seq[kept],
        offset[kept],
        np.ones(len(kept), np.int64),
        apart.node[one][kept],
    )
    return _joined(rest, single)
