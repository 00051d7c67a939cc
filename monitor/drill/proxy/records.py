"""Record batches (message format 2): taken apart, changed, put together again.

What a fetch returns or a producer sends for a partition is batches one after the other; a fetch may end in a part of
one. A batch that is only parsed and encoded gives the same bytes again. One whose header is changed keeps its records
as they were compressed; one whose records are changed is compressed anew with its own codec. The checksum is always
made to fit: a client must not see that anybody was in between.

Records keep their offset relative to the batch. Leaving some out, as compaction does, moves no other; a batch left
with none still takes its offsets, and clients go on behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from monitor.drill.proxy.compression import Codec, compress, decompress
from probes.kafka.wire.errors import Undecodable

_PREFIX: Final = struct.Struct(">qi")
"""Base offset, and the length of what follows it."""
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""The part of the header that the checksum covers, before the records."""
_CHECKED_FROM: Final = _HEADER.size - _CHECKED.size
_MAGIC: Final = 2

NO_PRODUCER: Final = -1

_CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@dataclass(frozen=True, slots=True)
class Record:
    """`offset_delta` counts from the batch's base offset, `timestamp_delta` (ms) from its base timestamp."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    attributes: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """`payload` holds `count` records, compressed as `attributes` say. Timestamps are milliseconds since 1970."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    payload: bytes

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & _CODEC_BITS)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's marker instead of records."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_append_time(self) -> bool:
        """Whether the broker's time of appending stands for the records' own."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    def records(self) -> tuple[Record, ...]:
        """Raises `Undecodable`."""
        data = decompress(self.codec, self.payload)
        reader = _Reader(data)
        try:
            found = tuple(reader.record() for _ in range(self.count))
        except IndexError:
            raise Undecodable(f"the batch at {self.base_offset} ends within its {self.count} records") from None
        if reader.at != len(data):
            raise Undecodable(f"the batch at {self.base_offset} goes on behind its {self.count} records")
        return found

    def with_records(self, records: Sequence[Record]) -> Batch:
        """The same batch with these records, its offsets and producer untouched. None at all is allowed."""
        payload = compress(self.codec, b"".join(map(_record_bytes, records))) if records else b""
        newest = self.base_timestamp + max((record.timestamp_delta for record in records), default=0)
        return replace(
            self,
            payload=payload,
            count=len(records),
            # Without records nothing is compressed, and nothing must be unpacked.
            attributes=self.attributes if records else self.attributes & ~_CODEC_BITS,
            max_timestamp=self.max_timestamp if self.has_append_time or not records else newest,
        )

    def with_records_of(self, other: Batch) -> Batch:
        """The same batch with another's records, at the times that they have there."""
        later = other.base_timestamp - self.base_timestamp
        return self.with_records(
            [replace(record, timestamp_delta=record.timestamp_delta + later) for record in other.records()]
        )

    def with_append_time(self) -> Batch:
        """As the broker writes it in a topic with LogAppendTime: its one time stands for all records'."""
        return replace(self, attributes=self.attributes | _LOG_APPEND_TIME)

    def without_producer(self) -> Batch:
        """As a producer without idempotence and outside any transaction would have sent it."""
        return replace(
            self,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
            base_sequence=NO_PRODUCER,
            attributes=self.attributes & ~_TRANSACTIONAL,
        )

    def of_producer(self, producer_id: int, epoch: int, sequence: int, *, transactional: bool) -> Batch:
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=self.attributes | _TRANSACTIONAL if transactional else self.attributes & ~_TRANSACTIONAL,
        )

    def encode(self) -> bytes:
        checked = (
            _CHECKED.pack(
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.count,
            )
            + self.payload
        )
        length = _CHECKED_FROM - _PREFIX.size + len(checked)
        return struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, _MAGIC, crc32c(checked)) + checked


def batch_of(records: Sequence[tuple[bytes | None, bytes | None]], timestamp: int, codec: Codec = Codec.NONE) -> Batch:
    """A new batch of (key, value) at one timestamp (ms), without a producer; the broker gives it its offsets."""
    made = [Record(delta, 0, key, value) for delta, (key, value) in enumerate(records)]
    header = Batch(0, -1, codec, max(0, len(made) - 1), timestamp, timestamp, -1, -1, -1, 0, b"")
    return header.with_records(made)


def parse(data: bytes) -> tuple[list[Batch], bytes]:
    """The batches in `data`, and what is left: the part of a batch in which a fetch may end, or nothing.

    Raises `Undecodable` at a batch of another format, or one whose checksum is wrong."""
    found: list[Batch] = []
    at = 0
    while at + _PREFIX.size <= len(data):
        base_offset, length = _PREFIX.unpack_from(data, at)
        end = at + _PREFIX.size + length
        if end > len(data) or at + _HEADER.size > len(data):
            break
        _, _, epoch, magic, checksum, attributes, last, oldest, newest, producer, era, sequence, count = (
            _HEADER.unpack_from(data, at)
        )
        if magic != _MAGIC:
            raise Undecodable(f"the batch at {base_offset} has message format {magic}, not {_MAGIC}")
        if crc32c(memoryview(data)[at + _CHECKED_FROM : end]) != checksum:
            raise Undecodable(f"the batch at {base_offset} does not have the checksum that it says")
        payload = data[at + _HEADER.size : end]
        found.append(
            Batch(base_offset, epoch, attributes, last, oldest, newest, producer, era, sequence, count, payload)
        )
        at = end
    return found, data[at:]


def encode(batches: Iterable[Batch], rest: bytes = b"") -> bytes:
    return b"".join([*(batch.encode() for batch in batches), rest])


class _Reader:
    """Reads records from their uncompressed bytes. Raises `IndexError` behind the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def record(self) -> Record:
        self._varint()  # its length
        attributes = self._data[self.at]
        self.at += 1
        timestamp, offset = self._varint(), self._varint()
        key, value = self._bytes(), self._bytes()
        headers = tuple((self._bytes() or b"", self._bytes()) for _ in range(self._varint()))
        return Record(offset, timestamp, key, value, headers, attributes)

    def _bytes(self) -> bytes | None:
        length = self._varint()
        if length < 0:
            return None
        start, self.at = self.at, self.at + length
        if self.at > len(self._data):
            raise IndexError
        return self._data[start : self.at]

    def _varint(self) -> int:
        shifted = value = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shifted
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shifted += 7


def _record_bytes(record: Record) -> bytes:
    parts = [
        bytes([record.attributes]),
        _varint(record.timestamp_delta),
        _varint(record.offset_delta),
        _sized(record.key),
        _sized(record.value),
        _varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += (_sized(key), _sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
