"""What is known of a writer's values, as bitmaps over 8,192 consecutive sequence numbers each.

A partition's history has no end, and its state must. What can be folded away offset by offset is; what must be
remembered of every value for ever (did it fail? was it placed, polled?) is one bit per sequence number, and far less
where neighbours share their fate: Roaring's run containers hold a healthy chunk in some thirty bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from rules.arrays.intervals import EMPTY, Ints, indices, merge_grouped

SPAN: Final = 8192
_SHIFT: Final = 13
Aspect = Literal["placed", "polled", "failed", "duplicated", "exposed", "reflected", "delivered", "lost"]
ASPECTS: Final[tuple[Aspect, ...]] = (
    "placed",
    "polled",
    "failed",
    "duplicated",
    "exposed",
    "reflected",
    "delivered",
    "lost",
)
"""`placed`: stands in the log at some offset. `polled`: returned by an ok operation at read_committed. `failed`: its
write certainly failed or its transaction aborted. `duplicated`, `exposed`: reported as duplicate, as G1a. `reflected`:
an input that a group's committed output in this partition reflects, in chunks of its own for each group (see
`rules.checks.transactions.transforms`). `delivered`: returned by an ok operation at read_uncommitted, which is no proof
of a commit, and yet no loss. `lost`: reported as lost."""

Values = tuple[Ints, Ints, Ints]
"""Values as (writer, first seq, end of seq), arrays of equal length; merged where a function says so."""

NO_VALUES: Final[Values] = (EMPTY, EMPTY, EMPTY)

_PLACED: Final = ASPECTS.index("placed")
_HEAD: Final = struct.Struct("<BBBBqHI")
_CODEC: Final = pa.Codec("zstd", 3)
_SMALL: Final = 64
"""Bytes that are not worth compressing."""
_FEW: Final = 32
"""So many bytes are a handful of stretches."""
_COUNTS: Final = struct.Struct("<HHH")
_LONG: Final = 255
_RUNS: Final = struct.pack("<HH", 12347, 0)
"""How Roaring's bytes begin where they hold one container of runs, or may: its cookie, and one container less one."""
_ONE_KEY: Final = struct.Struct("<BHHH")
"""Which containers are of runs, the highest bits of the values, how many values there are less one, how many runs."""
_RUNS_AT: Final = len(_RUNS) + _ONE_KEY.size


def values(writer: Ints, seq: Ints, length: Ints) -> Values:
    """The merged values of some runs."""
    return merge_grouped(writer, seq, seq + length)


def chunk_names(writer: Ints, seq: Ints, length: Ints) -> set[str]:
    """The chunks that hold any value of these runs."""
    if not writer.size:
        return set()
    writers, first, last = writer.tolist(), seq >> _SHIFT, (seq + length - 1) >> _SHIFT
    ends = {*zip(writers, first.tolist(), strict=True), *zip(writers, last.tolist(), strict=True)}
    names = {chunk_name(*one) for one in ends}
    for i in indices(last - first > 1).tolist():  # few runs are so long
        names.update(chunk_name(writers[i], number) for number in range(int(first[i]) + 1, int(last[i])))
    return names


def _pieces(of: Values) -> Iterator[tuple[int, int, int, int]]:
    """(writer, chunk number, low, high) of each value interval cut at chunk bounds; low and high within the chunk."""
    for writer, start, end in zip(*(a.tolist() for a in of), strict=True):
        while start < end:
            number = start >> _SHIFT
            base = number << _SHIFT
            stop = min(end, base + SPAN)
            yield writer, number, start - base, stop - base
            start = stop


def chunk_name(writer: int, number: int) -> str:
    """The name of the chunk that holds a writer's values `number` * 8,192 onwards."""
    return f"{writer:x}.{number:x}"


T = TypeVar("T")


class Undeclared(LookupError):
    """A check touched a chunk that it had not declared: what is not asked for is not there, and must not be written."""


class Chunks:
    """The chunks of one partition, decoded when first touched; `changed` gives back those that were written to.

    `declared` are the names that were asked for: touching any other raises `Undeclared`, since what was not asked for
    looks absent, and writing it would replace what is stored. None allows all, where nothing was ever stored."""

    def __init__(self, stored: Mapping[str, bytes], declared: Collection[str] | None) -> None:
        self._stored = stored
        self._declared = declared
        self._open: dict[tuple[int, int], list[BitMap]] = {}
        self._changed: set[tuple[int, int]] = set()
        self._tops: dict[tuple[int, int], int] = {}
        self._blobs: dict[str, bytes | None] = {}
        self._decoded: dict[str, Any] = {}
        self._dumps: dict[str, Callable[[Any], bytes]] = {}

    def _chunk(self, writer: int, number: int) -> list[BitMap]:
        key = (writer, number)
        chunk = self._open.get(key)
        if chunk is None:
            name = chunk_name(writer, number)
            self._check(name)
            stored = self._stored.get(name)
            chunk, self._tops[key] = _decode(stored) if stored else ([BitMap() for _ in ASPECTS], -1)
            self._open[key] = chunk
        return chunk

    def add(self, aspect: Aspect, of: Values) -> None:
        """Set the aspect of these values."""
        at = ASPECTS.index(aspect)
        for writer, number, low, high in _pieces(of):
            self._chunk(writer, number)[at].add_range(low, high)
            self._changed.add((writer, number))

    def top(self, writer: int, number: int) -> int:
        """The highest offset at which one of the chunk's values stands, -1 for none."""
        self._chunk(writer, number)
        return self._tops[writer, number]

    def stands(self, writer: int, number: int, offset: int) -> None:
        """One of the chunk's values stands at this offset."""
        if offset > self.top(writer, number):
            self._tops[writer, number] = offset
            self._changed.add((writer, number))

    def drop(self, writer: int, number: int) -> None:
        """Forget a chunk."""
        self._open.pop((writer, number), None)
        self._changed.discard((writer, number))
        self._blobs[chunk_name(writer, number)] = None

    def having(self, aspect: Aspect, of: Values) -> Values:
        """Which of these values have the aspect, merged."""
        return self._select(aspect, of, present=True)

    def lacking(self, aspect: Aspect, of: Values) -> Values:
        """Which of these values do not have the aspect, merged."""
        return self._select(aspect, of, present=False)

    def _select(self, aspect: Aspect, of: Values, *, present: bool) -> Values:
        at = ASPECTS.index(aspect)
        found: list[tuple[int, int, int]] = []
        for writer, number, low, high in _pieces(of):
            bits = self._chunk(writer, number)[at]
            count = bits.range_cardinality(low, high)
            base = number << _SHIFT
            if count == (high - low if present else 0):
                found.append((writer, base + low, base + high))
            elif count != (0 if present else high - low):
                inside = BitMap(range(low, high))
                inside = inside & bits if present else inside - bits
                found.extend((writer, base + a, base + b) for a, b in _stretches(inside))
        if not found:
            return NO_VALUES
        columns = np.array(found, np.int64).T
        apart = all(a[0] < b[0] or (a[0] == b[0] and a[2] < b[1]) for a, b in pairwise(found))
        return (columns[0], columns[1], columns[2]) if apart else merge_grouped(columns[0], columns[1], columns[2])

    def blob(self, name: str) -> bytes | None:
        """A chunk that is none of a writer's values: bytes under a name of its own. `chunks_needed` must have named it.

        Names of writers' chunks are two hexadecimal numbers with a dot between; others begin with a word."""
        self._check(name)
        return self._blobs[name] if name in self._blobs else self._stored.get(name)

    def put(self, name: str, data: bytes | None) -> None:
        """Replace a blob, or delete it (any: what is deleted need not be known)."""
        if data is not None:
            self._check(name)
        self._blobs[name] = data
        self._decoded.pop(name, None)
        self._dumps.pop(name, None)

    def decoded(self, name: str, load: Callable[[bytes | None], T]) -> T:
        """What `load` makes of a blob (None where there is none), once in a step: whoever changes it says `keep`."""
        if name not in self._decoded:
            self._decoded[name] = load(self.blob(name))
        found: T = self._decoded[name]
        return found

    def keep(self, name: str, dump: Callable[[Any], bytes]) -> None:
        """Write what was `decoded`, as it is at the end of the step."""
        self._dumps[name] = dump

    def declares(self, name: str) -> bool:
        """May this chunk be touched?"""
        return self._declared is None or name in self._declared

    def _check(self, name: str) -> None:
        if not self.declares(name):
            raise Undeclared(f"chunk {name} was touched, and not asked for")

    def changed(self) -> dict[str, bytes | None]:
        """The chunks that were written to, by name, as bytes; None where one was deleted."""
        written: dict[str, bytes | None] = {
            chunk_name(*key): _encode(self._open[key], self._tops[key]) for key in self._changed
        }
        decoded = {name: dump(self._decoded[name]) for name, dump in self._dumps.items()}
        return written | self._blobs | decoded


def _stretches(bits: BitMap) -> Iterable[tuple[int, int]]:
    members = np.array(bits.to_array(), np.int64)
    if not len(members):
        return []
    breaks = indices(np.diff(members) > 1)
    starts = members[np.append(0, breaks + 1)]
    ends = members[np.append(breaks, len(members) - 1)] + 1
    return zip(starts.tolist(), ends.tolist(), strict=True)


def _encode(chunk: list[BitMap], top: int) -> bytes:
    """Four bytes of a bit for each aspect (it differs from what it is like; all values have it; it is like `placed`; it
    is like the values that are not placed), the highest offset, where the values end of which anything is known, how
    long the rest is, and the rest: of each aspect that differs, where it does, as `_told`.

    Most that was placed was polled, and what was not has failed: a chunk in which every fifth transaction was aborted
    takes less than a third of what it would with each aspect by itself, measured."""
    differs = whole = placed_like = rest_like = 0
    placed = chunk[_PLACED]
    end = max((bits.max() + 1 for bits in chunk if bits), default=0)
    rest = _unplaced(placed, end)
    parts = []
    for i, bits in enumerate(chunk):
        if not bits:
            continue
        if len(bits) == SPAN:
            whole |= 1 << i
            continue
        if i != _PLACED:
            own, like, unlike = len(bits), *(bits.symmetric_difference_cardinality(one) for one in (placed, rest))
            if like < own and like <= unlike:
                placed_like |= 1 << i
                bits = bits ^ placed
            elif unlike < own:
                rest_like |= 1 << i
                bits = bits ^ rest
        if bits:
            differs |= 1 << i
            parts.append(_told(bits))
    told = b"".join(parts)
    packed = _CODEC.compress(told, asbytes=True) if len(told) > _SMALL else told
    return _HEAD.pack(differs, whole, placed_like, rest_like, top, end, len(told)) + packed


def _told(bits: BitMap) -> bytes:
    """Few stretches as Roaring tells them, their length first. Many as 0, how many they are, how many numbers take two
    bytes, and the numbers, a byte each, and those that need two beside that: how far each begins behind the end of the
    one before, then how long each is.

    What was aborted is spread over the log, a few values at a time: zstd makes half of that of what it makes of
    Roaring's starts and lengths, measured."""
    bits.run_optimize()
    data = bits.serialize()
    if len(data) <= _FEW:
        return len(data).to_bytes(2, "little") + data
    if data.startswith(_RUNS):
        starts, more = np.frombuffer(data, "<u2", offset=_RUNS_AT).astype(np.int64).reshape(-1, 2).T
        ends = starts + more + 1
    else:  # single values, or very many stretches
        members = np.frombuffer(bits.to_array(), np.uint32).astype(np.int64)
        breaks = indices(members[1:] - members[:-1] > 1)
        starts, ends = members[np.append(0, breaks + 1)], members[np.append(breaks, members.size - 1)] + 1
    gaps = starts.copy()
    gaps[1:] -= ends[:-1]
    numbers = np.concatenate((gaps, ends - starts))
    long = numbers[numbers >= _LONG].astype("<u2")
    counts = _COUNTS.pack(0, starts.size, long.size)
    return b"".join((counts, np.minimum(numbers, _LONG).astype(np.uint8).tobytes(), long.tobytes()))


def _heard(told: bytes, at: int) -> tuple[BitMap, int]:
    """What was `_told` there, and where it ends. Stretches are read as a container of runs, in the form that Roaring
    specifies."""
    size = int.from_bytes(told[at : at + 2], "little")
    if size:
        return BitMap.deserialize(told[at + 2 : at + 2 + size]), at + 2 + size
    _, count, long = _COUNTS.unpack_from(told, at)
    at += _COUNTS.size
    end = at + 2 * count + 2 * long
    numbers = np.frombuffer(told, np.uint8, 2 * count, at).astype(np.int64)
    numbers[numbers == _LONG] = np.frombuffer(told, "<u2", long, at + 2 * count)
    gaps, lengths = numbers.reshape(2, -1)
    starts = (gaps + lengths).cumsum() - lengths
    runs = np.stack((starts, lengths - 1), axis=1).astype("<u2").tobytes()
    head = _ONE_KEY.pack(1, 0, int(lengths.sum()) - 1, count)
    return BitMap.deserialize(b"".join((_RUNS, head, runs))), end


def _unplaced(placed: BitMap, end: int) -> BitMap:
    rest = BitMap()
    rest.add_range(0, end)
    rest -= placed
    return rest


def _decode(data: bytes) -> tuple[list[BitMap], int]:
    differs, whole, placed_like, rest_like, top, end, size = _HEAD.unpack_from(data)
    told = data[_HEAD.size :]
    if size > _SMALL:
        told = _CODEC.decompress(told, size, asbytes=True)
    chunk: list[BitMap] = []
    at = 0
    for i in range(len(ASPECTS)):
        bits = BitMap()
        if whole & (1 << i):
            bits.add_range(0, SPAN)
        elif differs & (1 << i):
            bits, at = _heard(told, at)
        if placed_like & (1 << i):
            bits ^= chunk[_PLACED]
        elif rest_like & (1 << i):
            bits ^= _unplaced(chunk[_PLACED], end)
        chunk.append(bits)
    return chunk, top
