"""The vocabulary of a history: operations, the slices that record them, and the runs that hold their records.

An *operation* is something that one client (a *process*) asked of the cluster: a batch of sends, a poll, a
transaction. It was invoked, and it ended `ok` (it happened), `fail` (it certainly did not) or `info` (unknown: it
may have happened, or may yet). The probe log holds one row per operation and partition that it touched, a *slice*.

A record's identity, its *value*, is (writer, intended topic, intended partition, seq). Writers count their sequence
numbers per partition, so that a healthy log is made of *runs*: `length` records at offset, offset+1, ... that carry one
writer's seq, seq+1, ... Slices, state and rules hold records as runs; what does not fit into one (a corrupt tag, a
record outside its intended place) is listed singly as *irregular*. A record whose value is whole, and whose key,
headers or timestamp are not those that were sent, stays in its run and is listed beside the runs as *altered*.

Every process numbers its slices per partition 0, 1, 2, ... without a gap. Rows may arrive late and in any order; the
counter tells what is still missing. `mark` rows, written by each host's committer once a second, say how far the log
of every process on that host is complete: see `Mark`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

FORMAT_VERSION: Final = 1
"""Of the rows of a probe log; another one is not read."""
FORMAT_PROPERTY: Final = "offsetwatch.format"
"""The property of a probe log's table that tells its rows' format."""

Function = Literal[
    "send",
    "poll",
    "txn",
    "init",
    "assign",
    "subscribe",
    "revoke",
    "commit",
    "position",
    "offsets",
    "start",
    "close",
    "mark",
    "register",
    "zombie",
]
"""What an operation did. `offsets` is the observer's reading of a partition; `mark` is the committer's heartbeat;
`register` is a read or a write of a register kept on top of the log; `zombie` is a request of a producer's life, or a
group member's, that was over."""

FUNCTIONS: Final[tuple[str, ...]] = (
    "send", "poll", "txn", "init", "assign", "subscribe", "revoke", "commit", "position", "offsets",
    "start", "close", "mark", "register", "zombie",
)  # fmt: skip

Outcome = Literal["ok", "fail", "info"]
OUTCOMES: Final[tuple[str, ...]] = ("ok", "fail", "info")

Isolation = Literal["read_committed", "read_uncommitted"]
Mode = Literal["assign", "subscribe"]

Irregularity = Literal["corrupted", "foreign", "relocated"]
"""`corrupted`: the tag's checksum or form is broken. `foreign`: well formed, of a run this log does not know.
`relocated`: well formed, and meant for another topic or partition than the one it was read from."""


class Run(NamedTuple):
    """`length` records of one writer at consecutive sequence numbers and, if `offset` is known, consecutive offsets."""

    writer: int
    seq: int
    offset: int | None
    length: int


class Irregular(NamedTuple):
    """One polled record that belongs to no run. `index` is its position among the records that the poll's row tells of,
    0-based: of a flood of irregular records a row lists some, the first and the last among them."""

    index: int  # type: ignore[assignment]
    offset: int
    status: Irregularity
    hash: int
    """CRC32C of the record's value bytes, of an intact tag without its checksum: see `UNTOLD_HASH`."""
    writer: int | None = None
    seq: int | None = None
    topic: str | None = None
    partition: int | None = None
    run: str | None = None


UNTOLD_HASH: Final = 0x48674BC7
"""The CRC32C of any bytes that end with their own CRC32C, which probes once told of every intact record: no hash of it,
but one number for all. Logs of that time still hold it."""


class Altered(NamedTuple):
    """`length` neighbouring records of a polled run that differ in the same respects from what was sent, beside their
    values: consecutive sequence numbers at consecutive offsets.

    `what` names the respects, joined by commas in this order: key, headers, timestamp (a time that was not sent),
    timestamp-type (the broker's time instead of it, which a topic with LogAppendTime is asked to do). `sent` and `told`
    are what was sent and what was polled of the first of them, as text."""

    writer: int
    seq: int
    offset: int
    length: int
    what: str
    sent: str
    told: str
    leader_epoch: int | None = None


class Mark(NamedTuple):
    """How far one process's log is complete, as its host's committer knew it when it wrote the mark.

    Every operation that `process` invoked before `through` is in the log of this partition, among its slices
    0 .. slices-1. A process with an operation in flight holds `through` at that operation's invocation. Through the
    time at which a mark's row was invoked, the committer had read the journals of all processes of its host.

    `ended`: the process is over, and invoked nothing at or after this time; absent while it lives. A process that is
    over and not `lost` has no slice beyond these, ever. Of one that is `lost` (its host went down, its journal is
    broken or gone) what it did between `through` and `ended` may be missing for good, and nothing else."""

    process: int
    slices: int
    through: datetime
    ended: datetime | None = None
    lost: bool = False


RegisterAction = Literal["write", "cas", "read"]


class RegisterOp(NamedTuple):
    """One operation on a register. Every write carries an id of its own; 0 is the id of the register's first value.

    `write` and `cas` (a write that takes effect only where the register holds `expected`) have an `id`; `observed` is
    the id that a read returned, or that a refused cas found."""

    register: int
    action: RegisterAction
    id: int | None = None
    expected: int | None = None
    observed: int | None = None


class Place(NamedTuple):
    """One partition of one topic's life: topics that are deleted and created again have a new topic id."""

    cluster: str
    topic_id: str
    partition: int


_RUN: Final = pa.struct(
    [
        pa.field("writer", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64(), nullable=False),
    ]
)
_IRREGULAR: Final = pa.struct(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("hash", pa.int64(), nullable=False),
        pa.field("writer", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("run", pa.string()),
    ]
)
_ALTERED: Final = pa.struct(
    [
        pa.field("writer", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("what", pa.string(), nullable=False),
        pa.field("sent", pa.string(), nullable=False),
        pa.field("told", pa.string(), nullable=False),
        pa.field("leader_epoch", pa.int32()),
    ]
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_MARK: Final = pa.struct(
    [
        pa.field("process", pa.int64(), nullable=False),
        pa.field("slices", pa.int64(), nullable=False),
        pa.field("through", _TIME, nullable=False),
        pa.field("ended", _TIME),
        pa.field("lost", pa.bool_()),
    ]
)
_REGISTER: Final = pa.struct(
    [
        pa.field("register", pa.int64(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("expected", pa.int64()),
        pa.field("observed", pa.int64()),
    ]
)
_TOUCHED: Final = pa.struct(
    [pa.field("topic", pa.string(), nullable=False), pa.field("partition", pa.int32(), nullable=False)]
)

SLICE_SCHEMA: Final = pa.schema(
    [
        # Which slice this is. (process, slice) is unique within a place for ever.
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("op", pa.int64(), nullable=False),
        pa.field("slice", pa.int64(), nullable=False),
        # What was done and how it ended.
        pa.field("f", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        # The transaction, if any.
        pa.field("transactional_id", pa.string()),
        pa.field("txn", pa.int64()),
        pa.field("txn_partitions", pa.list_(_TOUCHED)),
        pa.field("txn_intent", pa.string()),
        pa.field("end_invoked", _TIME),
        pa.field("mono_end_invoked", pa.int64()),
        # When: wall clock in UTC, and the host's monotonic clock in ns, comparable within one boot id.
        pa.field("invoked", _TIME, nullable=False),
        pa.field("completed", _TIME, nullable=False),
        pa.field("boot", pa.string()),
        pa.field("mono_invoked", pa.int64()),
        pa.field("mono_completed", pa.int64()),
        # The records.
        pa.field("sent", pa.list_(_RUN)),
        pa.field("polled", pa.list_(_RUN)),
        pa.field("irregular", pa.list_(_IRREGULAR)),
        pa.field("altered", pa.list_(_ALTERED)),
        pa.field("sources", pa.list_(_RUN)),
        pa.field("registers", pa.list_(_REGISTER)),
        # What was observed of the partition.
        pa.field("position_before", pa.int64()),
        pa.field("position_after", pa.int64()),
        pa.field("reached", pa.int64()),
        pa.field("log_start", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("last_stable", pa.int64()),
        pa.field("committed", pa.int64()),
        pa.field("group", pa.string()),
        # How the process reads.
        pa.field("isolation", pa.string()),
        pa.field("mode", pa.string()),
        pa.field("assigned", pa.bool_()),
        pa.field("rebalanced", pa.bool_()),
        # What the process is (start rows), and how far its log is complete (mark rows).
        pa.field("kind", pa.string()),
        pa.field("settings", pa.map_(pa.string(), pa.string())),
        pa.field("marks", pa.list_(_MARK)),
        # Delta's partition column: the day of `completed`.
        pa.field("date", pa.date32(), nullable=False),
    ]
)
"""One slice. Offsets are Kafka offsets, absent where unknown; `log_end` is the read_uncommitted end (one past the last
record), `last_stable` the read_committed one. `position_before` and `position_after` are a consumer's position around
a poll. `assigned` tells whether this partition is in the process's assignment once an assign, subscribe or revoke has
completed. `committed` with `group` is a committed offset, written (`commit`) or read back (`offsets`).

`end_invoked` is when a transaction's commit or abort was invoked, absent where it never was. `sources` are the input
records that a transform's output records (`sent`, in the order of their seqs) reflect: their writer and seq, and the
offset in the input partition of the same number; the row's `group` is the transform's. A `position` row with `txn`
tells where a consumer stands after that transaction was aborted: `position_before` when it began, `reached` when its
polls had ended, `position_after` after the abort. An `offsets` row may carry `settings`, what the cluster says of the
topic, which brokers do not answer, and who leads or coordinates; so may a `txn` row, who coordinates its transactional
id: see `probes/topics/settings.py`, `probes/workloads/observer.py` and `probes/kafka/coordinators.py`. Those of a
`zombie` row say what was asked, for whom, and when its life was over: see `probes/workloads/zombies.py`."""


FORMER_TOPIC_ID: Final = "former_topic_id"
"""The setting of a start row by which a process tells that its topic was deleted and made again since its run began:
the id of the one before."""

DIED: Final = "process-died"
"""The error of rows that are written for a process that was found dead."""
UNWRITABLE: Final = "journal-unwritable"
"""The error of a life that ended because its journal could not be written."""


@dataclass(slots=True, kw_only=True)
class Slice:
    """One row of the probe log, as the probes make it. The fields are those of `SLICE_SCHEMA`."""

    cluster: str
    topic_id: str
    topic: str
    partition: int
    run: str
    process: int
    op: int
    slice: int
    f: Function
    type: Outcome
    invoked: datetime
    completed: datetime
    error: str | None = None
    transactional_id: str | None = None
    txn: int | None = None
    txn_partitions: Sequence[tuple[str, int]] | None = None
    txn_intent: Literal["commit", "abort"] | None = None
    end_invoked: datetime | None = None
    mono_end_invoked: int | None = None
    boot: str | None = None
    mono_invoked: int | None = None
    mono_completed: int | None = None
    sent: Sequence[Run] = ()
    polled: Sequence[Run] = ()
    irregular: Sequence[Irregular] = ()
    altered: Sequence[Altered] = ()
    sources: Sequence[Run] = ()
    registers: Sequence[RegisterOp] = ()
    position_before: int | None = None
    position_after: int | None = None
    reached: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    last_stable: int | None = None
    committed: int | None = None
    group: str | None = None
    isolation: Isolation | None = None
    mode: Mode | None = None
    assigned: bool | None = None
    rebalanced: bool | None = None
    kind: str | None = None
    settings: Mapping[str, str] | None = field(default=None)
    marks: Sequence[Mark] = ()

    @property
    def place(self) -> Place:
        return Place(self.cluster, self.topic_id, self.partition)


_FIELDS: Final = tuple(f.name for f in fields(Slice))
_TOLD: Final = attrgetter(*_FIELDS)
_TYPES: Final = {f.name: f.type for f in SLICE_SCHEMA}
_FEW: Final = 64
"""No more rows than this share the columns in which they say nothing."""


def _column(name: str, values: Sequence[Any]) -> Sequence[object]:
    if name in ("sent", "polled", "irregular", "altered", "marks", "sources", "registers"):
        return [[v._asdict() for v in runs] if runs else None for runs in values]
    if name == "txn_partitions":
        return [[{"topic": t, "partition": p} for t, p in touched] if touched else None for touched in values]
    if name == "settings":
        return [list(settings.items()) if settings else None for settings in values]
    return values


def to_table(rows: Iterable[Slice]) -> pa.Table:
    """The rows as an Arrow table of `SLICE_SCHEMA`, in the order given."""
    told = list(zip(*map(_TOLD, rows), strict=True)) or [()] * len(_FIELDS)
    arrays = {name: _column(name, values) for name, values in zip(_FIELDS, told, strict=True)}
    arrays["date"] = [completed.astimezone(UTC).date() for completed in told[_FIELDS.index("completed")]]
    return pa.table([_array(name, arrays[name]) for name in _TYPES], schema=SLICE_SCHEMA)


def _array(name: str, values: Sequence[object]) -> pa.Array:
    """Most rows say nothing in most columns, and lists of nothing are slow to look through for what they say."""
    if values.count(None) == len(values):
        return _nothing(name, len(values)) if len(values) <= _FEW else pa.nulls(len(values), _TYPES[name])
    return pa.array(values, type=_TYPES[name])


@cache
def _nothing(name: str, rows: int) -> pa.Array:
    return pa.nulls(rows, _TYPES[name])
