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
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import pyarrow as pa

from rules.vocabulary.row_columns import Int32, columns, items

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
`register` is a read or a write of a register kept on top of the log; `zombie` is a request of a producer's life, a
group member's, or a member's generation, that was over."""

FUNCTIONS: Final[tuple[str, ...]] = get_args(Function)

Outcome = Literal["ok", "fail", "info"]
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)

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
    partition: Int32 | None = None
    run: str | None = None


MAX_COUNT: Final = 2**40
"""What one life of a client counts: at ten thousand operations or records a second it comes here after three years."""

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
    leader_epoch: Int32 | None = None


class LeaderEpoch(NamedTuple):
    """The leader epoch as of which records were appended that an operation polled, as their brokers tell it: of those
    from `offset` on, absent of the first ones that it polled, and up to the next such entry."""

    epoch: Int32
    offset: int | None = None


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


FORMER_TOPIC_ID: Final = "former_topic_id"
"""The setting of a start row by which a process tells that its topic was deleted and made again since its run began:
the id of the one before."""

FORMER_CLUSTER: Final = "former_cluster"
"""The setting of a start row by which a process tells that another cluster answers at the addresses of the one that its
probes had worked in: that one's id."""

NO_LOGIN: Final = {
    "_AUTHENTICATION": "the login is refused (_AUTHENTICATION)",
    "_SSL": "a broker's certificate, or ours, is not accepted (_SSL)",
}
"""Errors of a client that does not get as far as asking, and how people are told of them."""
LOGIN_REFUSED: Final = frozenset(NO_LOGIN)

DIED: Final = "process-died"
"""The error of rows that are written for a process that was found dead."""
APPENDS_MISSING: Final = "appends-missing"
"""The error of mark rows behind appends of their committer that are missing for good: what they count and is not here
by then will not come."""
DECLARED_GONE: Final = "declared-gone"
"""The error of mark rows by which a person declares that a host does not come back: nothing is waited for of the
processes that they name. Who writes them is no host."""
UNWRITABLE: Final = "journal-unwritable"
"""The error of a life that ended because its journal could not be written."""


_TOUCHED: Final = pa.struct([pa.field("topic", pa.string(), False), pa.field("partition", pa.int32(), False)])


@dataclass(slots=True, kw_only=True)
class Slice:
    """One row of the probe log: what one operation did in one partition. `SLICE_SCHEMA` is made of these fields.

    Times are UTC. Offsets are Kafka offsets; what is unknown is absent.

    An `offsets` row may carry `settings`, what the cluster says of the topic, which brokers do not answer, and who
    leads or coordinates; so may a `txn` row, who coordinates its transactional id: see `probes/topics/settings.py`,
    `probes/workloads/observer.py` and `probes/kafka/coordinators.py`. Those of a `zombie` row say what was asked, for
    whom, and when its life was over: see `probes/workloads/zombies.py`."""

    # Which slice this is. (process, slice) is unique within a place for ever.
    cluster: str
    topic_id: str
    topic: str
    partition: Int32
    run: str
    process: int
    op: int
    slice: int
    # What was done and how it ended.
    f: Function
    type: Outcome
    error: str | None = None
    # The transaction, if any.
    transactional_id: str | None = None
    txn: int | None = None
    txn_partitions: Annotated[Sequence[tuple[str, int]] | None, pa.list_(_TOUCHED)] = None
    txn_intent: Literal["commit", "abort"] | None = None
    end_invoked: datetime | None = None
    """When its commit or abort was invoked, absent where it never was."""
    mono_end_invoked: int | None = None
    # When: the wall clock, and the host's monotonic clock in ns, comparable within one boot id.
    invoked: datetime
    completed: datetime
    boot: str | None = None
    mono_invoked: int | None = None
    mono_completed: int | None = None
    # The records.
    sent: Sequence[Run] = ()
    polled: Sequence[Run] = ()
    irregular: Sequence[Irregular] = ()
    altered: Sequence[Altered] = ()
    epochs: Sequence[LeaderEpoch] = ()
    """Of the polled records, irregular ones as well; empty where brokers tell none."""
    sources: Sequence[Run] = ()
    """The input records that a transform's output records (`sent`, in the order of their seqs) reflect: their writer
    and seq, and the offset in the input partition of the same number; the row's `group` is the transform's."""
    registers: Sequence[RegisterOp] = ()
    # What was observed of the partition.
    position_before: int | None = None
    """A consumer's position before a poll. A `position` row with `txn` tells where a consumer stands after that
    transaction was aborted: `position_before` when it began, `reached` when its polls had ended, `position_after` after
    the abort."""
    position_after: int | None = None
    reached: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    """The read_uncommitted end, one past the last record."""
    last_stable: int | None = None
    """The read_committed end."""
    committed: int | None = None
    """A committed offset of `group`, written (`commit`) or read back (`offsets`)."""
    group: str | None = None
    # How the process reads.
    isolation: Isolation | None = None
    mode: Mode | None = None
    assigned: bool | None = None
    """Whether this partition is in the process's assignment once an assign, subscribe or revoke has completed."""
    rebalanced: bool | None = None
    # What the process is (start rows), and how far its log is complete (mark rows).
    kind: str | None = None
    settings: Mapping[str, str] | None = None
    marks: Sequence[Mark] = ()

    @property
    def place(self) -> Place:
        return Place(self.cluster, self.topic_id, self.partition)


SLICE_SCHEMA: Final = pa.schema([*columns(Slice), pa.field("date", pa.date32(), nullable=False)])
"""Slices as a table, and the day of `completed`, which is Delta's partition column."""
ITEMS: Final = items(Slice)
"""The columns that are lists, and what they list."""

_FIELDS: Final = tuple(f.name for f in fields(Slice))
_TOLD: Final = attrgetter(*_FIELDS)
_TYPES: Final = {f.name: f.type for f in SLICE_SCHEMA}
_FEW: Final = 64
"""No more rows than this share the columns in which they say nothing."""


def _column(name: str, values: Sequence[Any]) -> Sequence[object]:
    if name in ITEMS:
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
