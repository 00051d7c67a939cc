"""The tag: what a probe writes into a record's value, so that whoever reads it back can tell everything about it.

Layout, little-endian, format version 1:

    bytes   field          meaning
    0-2     magic          b"OWT"
    3       version        1
    4       flags          bit 0: the record belongs to a transaction; bit 1: it reflects an input record;
                           bit 2: it carries a payload; bit 3: its key and timestamp are made of the tag, and
                           bit 4: so is its header (probes/records/envelope.py)
    5       run length     bytes of the probe run's id
    6       topic length   bytes of the topic's name
    7       reserved       0
    8-11    partition      int32, the partition it was meant for
    12-19   writer         int64, new in each life of a writer
    20-27   seq            int64, counted per (writer, partition) from 0
    28-35   sent           int64, wall clock when it was handed to the client, microseconds since the epoch
    36-43   txn            int64, the transaction it belongs to (0 without the flag)
    44-     run, topic     UTF-8
    then    source         only with the flag: int64 writer, int64 seq, int64 offset of the input record
    then    payload        only with the flag: uint16 length and as many bytes, whose meaning is its probe's
            padding        zeros up to the configured record size
    last 4  checksum       CRC32C of every byte before it

A record's identity is (writer, intended topic, intended partition, seq). The checksum stands last because the CRC32C of
a message followed by its own CRC is one constant: a whole value is verified without cutting it up, and a change of any
byte, padding and checksum included, breaks it.

Reading never raises: a value that is broken becomes an `Irregular` that says what is broken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from rules.vocabulary.slices import MAX_COUNT, UNTOLD_HASH, Irregular, Irregularity, Run

VERSION: Final = 1
MAGIC: Final = b"OWT"
MAX_RUN_BYTES: Final = 64
TRANSACTIONAL: Final = 1
SOURCED: Final = 2
LADEN: Final = 4
ENVELOPED: Final = 8
HEADED: Final = 16

_HEAD: Final = struct.Struct("<3sBBBBBiqqqq")
HEAD_BYTES: Final = _HEAD.size
"""Where the run's id begins."""
RUN_LENGTH: Final = 5
"""Where the length of the run's id stands."""
COLUMNS: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("flags", "u1"),
        ("run_length", "u1"),
        ("topic_length", "u1"),
        ("reserved", "u1"),
        ("partition", "<i4"),
        ("writer", "<i8"),
        ("seq", "<i8"),
        ("sent", "<i8"),
        ("txn", "<i8"),
    ]
)
_SOURCE: Final = struct.Struct("<qqq")
_SEQ_AT: Final = 20
_FLAGS_AT: Final = 4
KEY: Final = slice(12, 28)
"""Where writer and seq stand."""
CHECKSUM: Final = 4
_LEAST: Final = HEAD_BYTES + CHECKSUM
_LENGTH: Final = 2
_MAGIC_AND_VERSION: Final = int.from_bytes(MAGIC + bytes([VERSION]), "little")
_RESIDUE: Final = UNTOLD_HASH
"""The CRC32C of any value that ends in its own CRC32C."""

Numbers = npt.NDArray[np.int64]


class Source(NamedTuple):
    """The input record that a transform's output record reflects, and its offset in the input partition."""

    writer: int
    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tag:
    """What one record's value says. `sent` is in microseconds since the epoch."""

    run: str
    writer: int
    seq: int
    topic: str
    partition: int
    sent: int
    txn: int | None = None
    source: Source | None = None
    version: int = VERSION
    payload: bytes | None = None


class Decoded(NamedTuple):
    """The records of one poll of one partition, in the order they came. Of many irregular ones some may be listed
    (probes/records/allowance.py)."""

    runs: list[Run]
    irregular: list[Irregular]


def smallest(run: str, topic: str, *, source: bool = False, payload: int | None = None) -> int:
    """The least record size in bytes that holds a tag of this run and topic, with or without a source, and with a
    payload of so many bytes if any."""
    more = (_SOURCE.size if source else 0) + (0 if payload is None else _LENGTH + payload)
    return _HEAD.size + len(run.encode()) + len(topic.encode()) + more + CHECKSUM


class Encoder:
    """Makes the values of one writer's records for one partition, `size` bytes each.

    Raises ValueError where the size is too small for the tag, or the run's id is too long."""

    def __init__(self, *, run: str, writer: int, topic: str, partition: int, size: int) -> None:
        if not 0 < len(run.encode()) <= MAX_RUN_BYTES:
            raise ValueError(f"a run's id has 1 to {MAX_RUN_BYTES} bytes, this one has {len(run.encode())}")
        needed = smallest(run, topic)
        if size < needed:
            raise ValueError(f"records of {size} bytes are too small for a tag in topic {topic}: at least {needed}")
        self._run, self._topic = run.encode(), topic.encode()
        self._writer, self._partition, self._size = writer, partition, size

    def encode(
        self,
        seqs: range,
        *,
        sent: int,
        txn: int | None = None,
        sources: Sequence[Run] = (),
        payloads: Sequence[bytes] = (),
        enveloped: bool = False,
    ) -> list[bytes]:
        """The values of records with these consecutive sequence numbers; `sent` in microseconds since the epoch.

        `sources`: the runs of the input records that they reflect, in that order and as many; none if not given.
        `payloads`: one for each record; none if not given. `enveloped`: they promise what `envelope` sends with
        them. Raises ValueError where sources or payloads are not as many as the records, or the records too small."""
        size, count = self._size, len(seqs)
        flags = (0 if txn is None else TRANSACTIONAL) | (SOURCED if sources else 0) | (LADEN if payloads else 0)
        flags |= ENVELOPED if enveloped else 0
        head = _HEAD.pack(
            MAGIC,
            VERSION,
            flags,
            len(self._run),
            len(self._topic),
            0,
            self._partition,
            self._writer,
            0,
            sent,
            txn or 0,
        )
        template = (head + self._run + self._topic).ljust(size, b"\0")
        block = np.empty((count, size), dtype=np.uint8)
        block[:] = np.frombuffer(template, dtype=np.uint8)
        if enveloped and count:
            block[0, _FLAGS_AT] |= HEADED
        numbers = np.arange(seqs.start, seqs.stop, dtype="<i8")
        block[:, _SEQ_AT : _SEQ_AT + 8] = numbers.view(np.uint8).reshape(count, 8)
        at = len(head) + len(self._run) + len(self._topic)
        if sources:
            if at + _SOURCE.size + CHECKSUM > size:
                raise ValueError(f"records of {size} bytes are too small to name their source")
            block[:, at : at + _SOURCE.size] = _unfolded(sources, count).view(np.uint8).reshape(count, _SOURCE.size)
            at += _SOURCE.size
        if payloads:
            _load(block, at, size - CHECKSUM, payloads)
        flat = block.reshape(-1).data
        starts = range(0, count * size, size)
        sums = np.array([crc32c(flat[at : at + size - CHECKSUM]) for at in starts], dtype="<u4")
        block[:, size - CHECKSUM :] = sums.view(np.uint8).reshape(count, CHECKSUM)
        raw = block.tobytes()
        return [raw[at : at + size] for at in starts]


def intact(value: bytes) -> bool:
    """Whether the value ends in its own checksum, and begins like a tag."""
    return len(value) >= _HEAD.size + CHECKSUM and value.startswith(MAGIC) and crc32c(value) == _RESIDUE


def read(value: bytes | None) -> Tag | None:
    """The tag of one value; None where its checksum, its form or its version is not ours."""
    if value is None or not intact(value):
        return None
    _, version, flags, run_length, topic_length, _, partition, writer, seq, sent, txn = _HEAD.unpack_from(value)
    end = _HEAD.size + run_length + topic_length
    limit = len(value) - CHECKSUM
    then = end + (_SOURCE.size if flags & SOURCED else 0)
    if version != VERSION or then + (_LENGTH if flags & LADEN else 0) > limit:
        return None
    begin = then + _LENGTH
    until = begin + int.from_bytes(value[then:begin], "little") if flags & LADEN else then
    if until > limit:
        return None
    try:
        run = value[_HEAD.size : _HEAD.size + run_length].decode()
        topic = value[_HEAD.size + run_length : end].decode()
    except UnicodeDecodeError:
        return None
    source = Source(*_SOURCE.unpack_from(value, end)) if flags & SOURCED else None
    own = txn if flags & TRANSACTIONAL else None
    payload = value[begin:until] if flags & LADEN else None
    return Tag(run, writer, seq, topic, partition, sent, own, source, version, payload)


@lru_cache(64)
def names(topic: str, runs: frozenset[str]) -> frozenset[bytes]:
    """What the tags of these runs' values for this topic say of both."""
    return frozenset(run.encode() + topic.encode() for run in runs)


def stamp(
    value: bytes | None, partition: int, topic_length: int, ours: frozenset[bytes]
) -> tuple[int, int, int, int] | None:
    """(flags, writer, seq, sent) of a value's tag; None where it would be part of no run if it was polled from this
    partition of a topic whose name has so many bytes. `ours`: `names` of that topic."""
    if value is None or len(value) < _LEAST or crc32c(value) != _RESIDUE:
        return None
    magic, version, flags, run_length, topic_bytes, _, meant, writer, seq, sent, _ = _HEAD.unpack_from(value)
    if magic != MAGIC or version != VERSION or meant != partition or topic_bytes != topic_length:
        return None
    if writer < 0 or not 0 <= seq < MAX_COUNT:
        return None
    end = HEAD_BYTES + run_length + topic_bytes
    if value[HEAD_BYTES:end] not in ours:
        return None
    limit = len(value) - CHECKSUM
    if flags & (SOURCED | LADEN):
        end += _SOURCE.size if flags & SOURCED else 0
        if flags & LADEN and end + _LENGTH <= limit:
            end += int.from_bytes(value[end : end + _LENGTH], "little")
        end += _LENGTH if flags & LADEN else 0
    return (flags, writer, seq, sent) if end <= limit else None


def decode(
    values: Sequence[bytes | None], offsets: Sequence[int], *, topic: str, partition: int, runs: Iterable[str]
) -> Decoded:
    """What one poll of (topic, partition) returned: `values` and their `offsets`, in the order they came.

    Records of the known `runs`, meant for this very place, become runs; every other becomes an `Irregular`:
    corrupted where the tag is broken or bears numbers that no probe gives, foreign where it is whole and of no known
    run (or of another version of the format), relocated where it is ours and was meant for another topic or partition.
    """
    known = frozenset(runs)
    ((folded, odd),) = fold_partitions(values, offsets, {partition: len(values)}, topic=topic, runs=known)
    return Decoded(folded, [irregular(i, offsets[i], values[i], known) for i in odd.tolist()])


def fold_partitions(
    values: Sequence[bytes | None],
    offsets: Sequence[int],
    counts: Mapping[int, int],
    *,
    topic: str,
    runs: Iterable[str],
) -> list[tuple[list[Run], Numbers]]:
    """Of each of a topic's partitions the runs that one poll returned, as `decode` has them, and the places of its
    irregular records. `values` and `offsets` are those of one partition after the other, `counts` says how many each
    has."""
    known = [run.encode() for run in sorted(set(runs))]
    lengths = np.fromiter(counts.values(), np.int64, len(counts))
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    number = np.repeat(np.arange(len(counts)), lengths)
    partition = np.repeat(np.fromiter(counts, np.int64, len(counts)), lengths)
    regular, writers, seqs = _columns(values, topic.encode(), partition, known)
    at = np.asarray(offsets, dtype=np.int64)
    # No place follows another one across two partitions: none of their runs is one.
    places = np.arange(len(values)) + number
    if regular.all():
        first, folded = _fold_cut(writers, seqs, at, places)
        odd = np.zeros(0, np.int64)
    else:
        ours = np.flatnonzero(regular)
        first, folded = _fold_cut(writers[ours], seqs[ours], at[ours], places[ours])
        first, odd = ours[first], np.flatnonzero(~regular)
    cuts, odd_cuts = (np.searchsorted(found, bounds).tolist() for found in (first, odd))
    return [(folded[cuts[i] : cuts[i + 1]], odd[odd_cuts[i] : odd_cuts[i + 1]] - bounds[i]) for i in range(len(counts))]


def fold(writer: int, seqs: Numbers, offsets: Numbers | None) -> list[Run]:
    """One writer's records as runs, in ascending order of seq. Without `offsets` the runs have none."""
    order = np.argsort(seqs, kind="stable")
    seqs = seqs[order]
    if offsets is not None:
        offsets = offsets[order]
        return _fold_cut(np.full(len(seqs), writer, dtype=np.int64), seqs, offsets, np.arange(len(seqs)))[1]
    cuts = np.flatnonzero(np.diff(seqs) != 1) + 1
    bounds = [0, *cuts.tolist(), len(seqs)]
    return [Run(writer, int(seqs[a]), None, b - a) for a, b in pairwise(bounds) if b > a]


def sequence_numbers(values: Sequence[bytes]) -> Numbers:
    """The seqs of values that this process encoded itself, all of one size: nothing is verified."""
    size = len(values[0]) if values else _HEAD.size
    block = np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), size)
    return np.ascontiguousarray(block[:, _SEQ_AT : _SEQ_AT + 8]).view("<i8").reshape(-1).astype(np.int64, copy=False)


def sequence_number(value: bytes) -> int:
    """The seq of a value that this process encoded itself."""
    return int.from_bytes(value[_SEQ_AT : _SEQ_AT + 8], "little", signed=True)


def _unfolded(sources: Sequence[Run], count: int) -> Numbers:
    """(count, 3): writer, seq and offset of every record of the runs."""
    lengths = [run.length for run in sources]
    if sum(lengths) != count:
        raise ValueError(f"{count} records are to reflect {sum(lengths)}")
    heads = np.array([(run.writer, run.seq, run.offset or 0) for run in sources], dtype="<i8")
    steps = np.arange(count) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    rows = np.repeat(heads, lengths, axis=0)
    rows[:, 1:] += steps[:, None]
    return np.ascontiguousarray(rows, dtype="<i8")


def _load(block: npt.NDArray[np.uint8], at: int, end: int, payloads: Sequence[bytes]) -> None:
    """Write each record's payload into its row, between `at` and `end`."""
    for row, payload in zip(block, payloads, strict=True):
        laden = len(payload).to_bytes(_LENGTH, "little") + payload
        if at + len(laden) > end:
            raise ValueError(f"records of {block.shape[1]} bytes have no room for a payload of {len(payload)}")
        row[at : at + len(laden)] = np.frombuffer(laden, dtype=np.uint8)


def _roomy(block: npt.NDArray[np.uint8], flags: npt.NDArray[np.uint8], end: int) -> npt.NDArray[np.bool_]:
    """Whether each record has room for the source and the payload that its flags promise after `end`."""
    limit = block.shape[1] - CHECKSUM
    if not (flags & (SOURCED | LADEN)).any():
        return np.full(len(flags), end <= limit)
    need = end + np.where(flags & SOURCED, _SOURCE.size, 0)
    laden = np.flatnonzero((flags & LADEN) != 0)
    fits = laden[need[laden] + _LENGTH <= limit]
    need[laden] += _LENGTH
    low, high = (block[fits, need[fits] - i].astype(np.int64) for i in (2, 1))
    need[fits] += low + 256 * high
    return np.asarray(need <= limit, dtype=bool)


def _columns(
    values: Sequence[bytes | None], topic: bytes, partition: Numbers, known: Sequence[bytes]
) -> tuple[npt.NDArray[np.bool_], Numbers, Numbers]:
    """(regular, writer, seq) of each value, polled from `partition`; writer and seq mean nothing where it is not
    regular."""
    count = len(values)
    lengths = np.fromiter((-1 if v is None else len(v) for v in values), dtype=np.int64, count=count)
    if count and (lengths == lengths[0]).all():
        return _columns_of_size(values, int(lengths[0]), topic, partition, known)
    regular = np.zeros(count, dtype=bool)
    writers, seqs = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    # A stranger's records may have as many sizes as there are records: those that are no tags are not looked at.
    begins = MAGIC + bytes([VERSION])
    tagged = np.fromiter((v is not None and v.startswith(begins) for v in values), dtype=bool, count=count)
    for size in np.unique(lengths[tagged]).tolist():
        places = np.flatnonzero(tagged & (lengths == size))
        part = _columns_of_size([values[i] for i in places.tolist()], size, topic, partition[places], known)
        regular[places], writers[places], seqs[places] = part
    return regular, writers, seqs


def _columns_of_size(
    values: Sequence[bytes | None], size: int, topic: bytes, partition: Numbers, known: Sequence[bytes]
) -> tuple[npt.NDArray[np.bool_], Numbers, Numbers]:
    count = len(values)
    if size < _HEAD.size + CHECKSUM:
        none = np.zeros(count, dtype=np.int64)
        return np.zeros(count, dtype=bool), none, none
    block = np.frombuffer(b"".join(values), dtype=np.uint8).reshape(count, size)  # type: ignore[arg-type]
    head = np.ascontiguousarray(block[:, : _HEAD.size]).view(COLUMNS).reshape(-1)
    whole = (head["magic"] == _MAGIC_AND_VERSION) & (head["partition"] == partition)
    whole &= (head["topic_length"] == len(topic)) & (head["writer"] >= 0)
    whole &= (head["seq"] >= 0) & (head["seq"] < MAX_COUNT)
    likely = values if whole.all() else [values[i] for i in np.flatnonzero(whole).tolist()]
    whole[whole] = np.fromiter(map(crc32c, likely), dtype=np.uint32, count=len(likely)) == _RESIDUE
    ours = np.zeros(count, dtype=bool)
    for run in known:
        text = np.frombuffer(run + topic, dtype=np.uint8)
        end = _HEAD.size + len(text)
        if end + CHECKSUM <= size:
            roomy = _roomy(block, head["flags"], end)
            ours |= (head["run_length"] == len(run)) & (block[:, _HEAD.size : end] == text).all(axis=1) & roomy
    return whole & ours, head["writer"].astype(np.int64), head["seq"].astype(np.int64)


def _fold_cut(writers: Numbers, seqs: Numbers, offsets: Numbers, places: Numbers) -> tuple[Numbers, list[Run]]:
    """(where each begins, the runs) of neighbouring records; `places` are their positions in the poll: an irregular
    between two cuts a run."""
    if not len(seqs):
        return np.zeros(0, np.int64), []
    cut = (np.diff(seqs) != 1) | (np.diff(offsets) != 1) | (np.diff(writers) != 0) | (np.diff(places) != 1)
    first = np.concatenate(([0], np.flatnonzero(cut) + 1))
    lengths = np.diff(np.concatenate((first, [len(seqs)])))
    columns = (writers[first].tolist(), seqs[first].tolist(), offsets[first].tolist(), lengths.tolist())
    return first, [Run(w, s, o, n) for w, s, o, n in zip(*columns, strict=True)]


def irregular(index: int, offset: int, value: bytes | None, known: Iterable[str]) -> Irregular:
    """What is wrong with one value; `known` are the runs that are ours."""
    digest = crc32c(value or b"")
    if value is not None and digest == _RESIDUE:  # as of every intact one: what tells it apart is its own checksum
        digest = int.from_bytes(value[-CHECKSUM:], "little")
    tag = read(value)
    if tag is None:
        other_version = value is not None and intact(value) and value[len(MAGIC)] != VERSION
        return Irregular(index, offset, "foreign" if other_version else "corrupted", digest)
    status: Irregularity = "relocated" if tag.run in known else "foreign"
    if status == "relocated" and not (tag.writer >= 0 and 0 <= tag.seq < MAX_COUNT and tag.partition >= 0):
        return Irregular(index, offset, "corrupted", digest)
    return Irregular(index, offset, status, digest, tag.writer, tag.seq, tag.topic, tag.partition, tag.run)
