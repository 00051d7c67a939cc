"""How far one life has come, as its journal tells it: the messages of a journal, and what follows from them.

The living process keeps a `LifeProgress` while it writes, the committer and recovery rebuild the same one by reading.
Each segment of a journal begins with a `head` message that holds the progress up to there, so that old segments can go.

Messages are JSON arrays, the kind first; in frames rows are told as differences (`differences`):

    head     format, offset, life, progress      first in each segment
    reserve  topic id, topic, partition, upto    sequence numbers below `upto` may be used
    opened   op, rows                            to be logged if the life dies before the operation's outcome is known
    rows     rows                                outcomes: what the probe log gets; closes the operations they name
    alive    time                                whatever was invoked before is logged, or open
    closed   rows                                the life is over and its log complete (rows: as above, may be none)
    lost     rows, time                          the life was over by then, and its log's end may be missing: the host
                                                 was lost, or the journal's end is
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from probes.log.rows import AT, Row, Shared

FORMAT: Final = 1

PlaceKey = tuple[str, int]
"""A partition within a life: (topic id, partition)."""

_TOPIC_ID, _TOPIC, _PARTITION, _OP, _SLICE = (AT[n] for n in ("topic_id", "topic", "partition", "op", "slice"))
_F, _INVOKED, _SENT = AT["f"], AT["invoked"], AT["sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One client's life: a crash or a reopened client starts another. `settings` holds no secrets."""

    cluster: str
    run: str
    process: int
    """Random, 63 bits, new in each life."""
    kind: str
    """writer, reader, transactions, observer, ..."""
    writer: int | None
    """Random, 63 bits, new in each life; None for those that send nothing."""
    transactional_id: str | None
    boot: str
    settings: Mapping[str, str]

    @property
    def shared(self) -> Shared:
        return Shared(self.cluster, self.run, self.process, self.boot)


@dataclass(slots=True)
class Sent:
    """What a life's writer may have sent to one partition: it used sequence numbers below `used`, as far as its
    journal tells, and had leave for those below `reserved`."""

    topic: str
    reserved: int = 0
    used: int = 0


class Inconsistent(ValueError):
    """A message that cannot follow the ones before it: the journal is broken."""


@dataclass(slots=True)
class LifeProgress:
    """The state that a journal's messages add up to. Bounded by the partitions and the operations open at once."""

    slices: dict[PlaceKey, int] = field(default_factory=dict)
    topics: dict[PlaceKey, str] = field(default_factory=dict)
    ended: set[PlaceKey] = field(default_factory=set)
    """Partitions that have their close row."""
    sent: dict[PlaceKey, Sent] = field(default_factory=dict)
    open: dict[int, list[Row]] = field(default_factory=dict)
    newest: int = 0
    """Everything invoked before this time (microseconds) is logged, or open."""
    last_op: int = -1
    closed: bool = False
    lost: bool = False
    over_by: int | None = None
    """By when a life that is lost was over, in microseconds; None where its journal does not tell."""

    @property
    def through(self) -> int:
        """Every operation invoked before this time is among the rows: see `rules.vocabulary.slices.Mark`."""
        earliest = min((row[_INVOKED] for rows in self.open.values() for row in rows), default=self.newest)
        return min(earliest, self.newest)

    @property
    def over(self) -> bool:
        """No message follows."""
        return self.closed or self.lost

    @property
    def complete(self) -> bool:
        """Nothing is open, and every partition has its close row."""
        return not self.open and self.ended == self.slices.keys()

    def next_slice(self, key: PlaceKey) -> int:
        return self.slices.get(key, 0)

    def apply(self, message: list[Any]) -> list[Row]:
        """Take in the next message; returns the rows that it adds to the probe log. Raises `Inconsistent`."""
        kind = message[0]
        if kind == "rows":
            return self._rows(message[1])
        if kind == "alive":
            self.newest = max(self.newest, message[1])
        elif kind == "opened":
            self._opened(message[1], message[2])
        elif kind == "reserve":
            _, topic_id, topic, partition, upto = message
            sent = self.sent.setdefault((topic_id, partition), Sent(topic))
            sent.reserved = max(sent.reserved, upto)
        elif kind in ("closed", "lost"):
            before = self.newest
            rows = self._rows(message[1])
            self.closed, self.lost = kind == "closed", kind == "lost"
            if self.lost:
                # What recovery says of it vouches for nothing that it did in between.
                self.newest, self.over_by = before, message[2] if len(message) > 2 else max(before, self.newest)
            return rows
        else:
            raise Inconsistent(f"unknown message {kind!r}")
        return []

    def _opened(self, op: int, rows: list[Row]) -> None:
        if self.over:
            raise Inconsistent("an operation was opened after the end")
        self.open[op] = rows
        self.last_op = max(self.last_op, op)
        for row in rows:
            if len(row) > _SENT and row[_SENT]:
                self._use((row[_TOPIC_ID], row[_PARTITION]), row)

    def _rows(self, rows: list[Row]) -> list[Row]:
        if self.over:
            raise Inconsistent("rows after the end")
        for row in rows:
            key = (row[_TOPIC_ID], row[_PARTITION])
            expected = self.slices.get(key, 0)
            if row[_SLICE] != expected:
                raise Inconsistent(f"slice {row[_SLICE]} where {expected} must follow")
            self.slices[key] = expected + 1
            if expected == 0:
                self.topics[key] = row[_TOPIC]
            if row[_F] == "close":
                self.ended.add(key)
            op, invoked = row[_OP], row[_INVOKED]
            self.open.pop(op, None)
            if op > self.last_op:
                self.last_op = op
            # Not its completion: what was invoked in between may be logged only after it.
            if invoked > self.newest:
                self.newest = invoked
            if len(row) > _SENT and row[_SENT]:
                self._use(key, row)
        return rows

    def _use(self, key: PlaceKey, row: Row) -> None:
        sent = self.sent.setdefault(key, Sent(row[_TOPIC]))
        sent.used = max(sent.used, *(seq + length for _, seq, _, length in row[_SENT]))


def head(life: Life, progress: LifeProgress, offset: int) -> list[Any]:
    """The first message of the segment that begins at `offset` of the journal."""
    state = {
        "places": [[*key, progress.topics[key], n, key in progress.ended] for key, n in progress.slices.items()],
        "sent": [[*key, s.topic, s.reserved, s.used] for key, s in progress.sent.items()],
        "open": list(progress.open.items()),
        "newest": progress.newest,
        "last_op": progress.last_op,
    }
    return ["head", FORMAT, offset, {**asdict(life), "settings": dict(life.settings)}, state]


def from_head(message: list[Any]) -> tuple[Life, LifeProgress, int]:
    """The life, its progress and the offset that a segment's first message tells. Raises `Inconsistent`."""
    if message[0] != "head" or message[1] != FORMAT:
        raise Inconsistent("a journal's segment begins with another message, or was written by another version")
    _, _, offset, life, state = message
    progress = LifeProgress(
        slices={(topic_id, partition): n for topic_id, partition, _, n, _ in state["places"]},
        topics={(topic_id, partition): topic for topic_id, partition, topic, _, _ in state["places"]},
        ended={(topic_id, partition) for topic_id, partition, _, _, ended in state["places"] if ended},
        sent={(topic_id, p): Sent(topic, upto, used) for topic_id, p, topic, upto, used in state["sent"]},
        open=dict(state["open"]),
        newest=state["newest"],
        last_op=state["last_op"],
    )
    return Life(**life), progress, offset


def encode(message: list[Any]) -> bytes:
    return orjson.dumps(message)


def decode(payload: bytes) -> list[Any]:
    """Raises `Inconsistent` for what is no message, although its checksum holds."""
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError as broken:
        raise Inconsistent(f"no message: {broken}") from broken
    if not isinstance(message, list) or not message:
        raise Inconsistent("no message")
    return message
