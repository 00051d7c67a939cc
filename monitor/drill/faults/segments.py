"""A partition's newest segment is cut while its only broker is down: what was acknowledged is gone.

This is what the loss of the page cache does to a partition of one replica that was not flushed, and what the loss of
its disk's last writes does. A follower would bring the records back, so there must be none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import Fault, Moment, now
from monitor.drill.faults.replicas import placement

_HEADER: Final = struct.Struct(">qiibIhi")
"""Of a record batch: base offset, length of what follows the length, leader epoch, magic, checksum, attributes, and the
offset of the last record less the base offset."""
_BEFORE_LENGTH_ENDS: Final = 12
_OF_SEGMENT: Final = (".index", ".timeindex", ".txnindex")


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch in a segment: its first byte, the byte after its last, its first and last offsets."""

    start: int
    end: int
    first: int
    last: int


def batches(segment: bytes) -> list[Batch]:
    """The whole record batches of a segment, in order; what is torn at the end is left out. Pure."""
    found: list[Batch] = []
    at = 0
    while at + _HEADER.size <= len(segment):
        base, length, _, _, _, _, last = _HEADER.unpack_from(segment, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if length <= 0 or end > len(segment):
            break
        found.append(Batch(at, end, base, base + last))
        at = end
    return found


def cut_for(found: list[Batch], records: int) -> Batch | None:
    """The batch to cut at, so that whole batches with at least `records` offsets go; None where there are fewer. Pure.

    (Offsets, as of the records and of transactions' markers alike.)"""
    if not found:
        return None
    keep = found[-1].last + 1 - records
    return next((batch for batch in reversed(found) if batch.first <= keep), None)


class TruncatedSegment(Fault):
    """The only replica's broker is killed, at least the last `records` offsets of the partition's newest segment are
    cut from its disk, in whole batches, and it is started again. `begin` returns when it serves, with `log_end` (the
    offset that will be given next) lower than `log_end_before`. There is no undoing it: `end` only starts the broker,
    where it is down."""

    def __init__(self, topic: str, partition: int, *, records: int = 1, clock: Callable[[], Moment] = now) -> None:
        super().__init__(clock=clock)
        if records < 1:
            raise ValueError(f"records is {records}: at least one has to be cut")
        self.topic, self.partition, self.records = topic, partition, records
        self.log_end_before: int | None = None
        self.log_end: int | None = None

    def describe(self) -> str:
        lost = f", from offset {self.log_end} on" if self.log_end is not None else f", {self.records} records or more"
        return f"cut the end of {self.topic}/{self.partition}'s newest segment{lost}"

    def _missing(self, cluster: LocalKafka) -> list[str]:
        try:
            place = placement(cluster, self.topic, self.partition)
        except OSError as error:
            return [f"no broker answers: {error}"]
        if place is None or not place.replicas:
            return [f"there is no partition {self.topic}/{self.partition}"]
        if len(place.replicas) > 1:
            return [
                f"{self.topic}/{self.partition} has {len(place.replicas)} replicas, the others would bring back what is"
                " cut: it has to have one"
            ]
        return []

    def _begin(self, cluster: LocalKafka) -> None:
        place = placement(cluster, self.topic, self.partition)
        assert place is not None
        self.node = place.replicas[0]
        broker = cluster.broker(self.node)
        broker.kill()
        try:
            self._cut(broker.log_dir / f"{self.topic}-{self.partition}")
        finally:
            broker.start()

    def _cut(self, folder: Path) -> None:
        segments = sorted(folder.glob("*.log"))
        if not segments:
            raise DrillFailed(f"{folder} holds no segment")
        newest = segments[-1]
        found = batches(newest.read_bytes())
        at = cut_for(found, self.records)
        if at is None:
            raise DrillFailed(f"the newest segment of {self.topic}/{self.partition} holds fewer than {self.records}")
        self.log_end_before, self.log_end = found[-1].last + 1, at.first
        with newest.open("r+b") as file:
            file.truncate(at.start)
        # What tells of offsets that are gone: the broker makes the indexes anew, and state of producers by reading.
        for suffix in _OF_SEGMENT:
            newest.with_suffix(suffix).unlink(missing_ok=True)
        for snapshot in folder.glob("*.snapshot"):
            if int(snapshot.stem) > at.first:
                snapshot.unlink()

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None:
            cluster.broker(self.node).start()
