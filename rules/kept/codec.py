"""State as bytes, and back: any dataclass of plain values, tables of integers and other such dataclasses.

What a dataclass holds is written by the order of its fields, without their names. So that no state is ever read by
code that means something else by it, the bytes begin with a fingerprint of all names and types: whatever changes the
shape of the state changes it, and the state is rebuilt from the probe log (`UnknownFormat`).

The columns of all tables are written one after the other as differences of neighbours, each in as few bytes as it
needs (one, or four or eight beside it), which zstd makes small: most columns ascend or repeat. Measured, that takes a
quarter less than bytes of equal weight together, and no more time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
import orjson
import pyarrow as pa

from rules.arrays.intervals import EMPTY, Ints

_MAGIC: Final = b"OWY"
"""Another one with each change of how things are written that is none of the shape of what is."""
_HEAD: Final = struct.Struct("<3sIIII")
_SHORT: Final = 2**8 - 1
_LONG: Final = 2**32 - 1
"""A difference that is as large stands among those of more bytes."""
_CODEC: Final = pa.Codec("zstd", 3)


class UnknownFormat(ValueError):
    """The state was written by another version: rebuild it from the probe log."""


class Table:
    """Columns of equal length, one entry a row: the base of the dataclasses whose fields are all arrays of integers."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        first = attrgetter(next(iter(cls.__annotations__)))
        cls.__len__ = lambda self: first(self).size  # type: ignore[method-assign]

    def __len__(self) -> int:
        """How many rows it has: each kind's own looks at its first column."""
        raise NotImplementedError


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _once(function: F) -> F:
    """`functools.cache`, whose type refuses classes as arguments."""
    return cast(F, cache(function))


@_once
def names(kind: type) -> tuple[str, ...]:
    """The names of a dataclass's fields, in their order."""
    return tuple(f.name for f in fields(kind))


def _getter_of(listed: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(listed) > 1:
        return attrgetter(*listed)
    return lambda one: tuple(getattr(one, name) for name in listed)


class _Getters(dict[type, Callable[[Any], tuple[Any, ...]]]):
    def __missing__(self, kind: type) -> Callable[[Any], tuple[Any, ...]]:
        made = self[kind] = _getter_of(names(kind))
        return made


_ALL_OF: Final = _Getters()
"""By dataclass, what gives all its fields as a tuple."""


class _NoRows(dict[type, tuple[Ints, ...]]):
    def __missing__(self, kind: type) -> tuple[Ints, ...]:
        made = self[kind] = (EMPTY,) * len(names(kind))
        return made


_NO_ROWS: Final = _NoRows()
"""The columns of a table without rows. Looked up, like `_ALL_OF`: a step does it some two hundred times."""


def empty(kind: type[T]) -> T:
    """A table without rows: what `kind()` makes, which asks for each column anew."""
    return kind(*_NO_ROWS[kind])


def take(table: T, keep: Any) -> T:
    """The rows of a table that a mask or an index array picks."""
    kind = type(table)
    columns = _ALL_OF[kind](table)
    size = columns[0].size
    if not size:
        return table
    if isinstance(keep, np.ndarray) and keep.dtype == bool:
        keep = keep.nonzero()[0]
        if keep.size == size:
            return kind(*columns)
        if not keep.size:
            return empty(kind)
    return kind(*map(itemgetter(keep), columns))


def concat(first: T, second: T) -> T:
    """One table after another of its kind; one of them where the other is empty."""
    kind = type(first)
    before, after = _ALL_OF[kind](first), _ALL_OF[kind](second)
    if not before[0].size:
        return second
    if not after[0].size:
        return first
    return kind(*map(np.concatenate, zip(before, after, strict=True)))


def dump(state: object, more: Mapping[str, object], kinds: Mapping[str, type]) -> bytes:
    """`state`, and by name the dataclasses of `more` (those that say nothing are left out); `kinds`: the types that
    `more` may hold."""
    arrays: list[Ints] = []
    own: dict[str, list[Any]] = {}
    plain = [_plain(state, arrays), own]
    for name, one in more.items():
        before = len(arrays)
        told = _plain(one, arrays)
        if len(arrays) > before or told != _nothing(type(one)):
            own[name] = told
    head = orjson.dumps(plain)
    numbers = np.concatenate(arrays, dtype=np.int64) if arrays else EMPTY
    body = b"".join((head, *_packed(numbers)))
    stamp = fingerprint(type(state), kinds)
    return b"".join(
        (_HEAD.pack(_MAGIC, stamp, len(head), len(body), numbers.size), _CODEC.compress(body, asbytes=True))
    )


def load(data: bytes, kind: type[T], more: Mapping[str, type]) -> tuple[T, dict[str, Any]]:
    """What `dump` wrote: the state, and of `more` those that said something. Raises `UnknownFormat`."""
    known = fingerprint(kind, more)
    if len(data) < _HEAD.size or data[:3] != _MAGIC or _HEAD.unpack_from(data)[1] != known:
        raise UnknownFormat("a partition's state was written by another version than this one, or is none")
    _, _, size, whole, count = _HEAD.unpack_from(data)
    body = _CODEC.decompress(data[_HEAD.size :], whole, asbytes=True)
    plain, rest = orjson.loads(body[:size])
    numbers = _Numbers(_unpacked(body, size, count))
    state = _built(kind, plain, numbers)
    return state, {name: _built(more[name], told, numbers) for name, told in rest.items()}


def _packed(numbers: Ints) -> tuple[bytes, bytes, bytes]:
    """The differences of neighbours: a byte each, then four of each that needs more, then eight of each that needs
    more than that. Their signs stand in the lowest bit, so that small ones are small."""
    steps = numbers.copy()
    steps[1:] -= numbers[:-1]
    wide = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    long = wide[wide >= _SHORT]
    longest = long[long >= _LONG]
    short = np.minimum(wide, _SHORT).astype(np.uint8)
    return short.tobytes(), np.minimum(long, _LONG).astype("<u4").tobytes(), longest.astype("<u8").tobytes()


def _unpacked(body: bytes, at: int, count: int) -> Ints:
    """The `count` numbers that were `_packed` from `at` on."""
    wide = np.frombuffer(body, np.uint8, count, at).astype(np.uint64)
    which = (wide == _SHORT).nonzero()[0]
    at += count
    long = np.frombuffer(body, "<u4", which.size, at).astype(np.uint64)
    longest = (long == _LONG).nonzero()[0]
    long[longest] = np.frombuffer(body, "<u8", longest.size, at + 4 * which.size)
    wide[which] = long
    steps: Ints = (wide >> 1).view(np.int64) ^ -(wide & 1).view(np.int64)
    return steps.cumsum()


class _Numbers:
    """The columns of all tables, one after the other."""

    def __init__(self, numbers: Ints) -> None:
        self._numbers = numbers
        self._at = 0

    def take(self, columns: int, rows: int) -> Ints:
        start, self._at = self._at, self._at + columns * rows
        return self._numbers[start : self._at].reshape(columns, rows)


class _Plan(NamedTuple):
    """How a dataclass is written: `values` gives all its fields that are; of these, by their places, `tables` with
    their kinds and their columns without rows, `entries` of a kind by key, and other dataclasses (`parts`)."""

    values: Callable[[Any], tuple[Any, ...]]
    tables: list[tuple[int, Any, tuple[Ints, ...]]]
    entries: list[tuple[int, Any]]
    parts: list[tuple[int, Any]]


@_once
def _plan(kind: type) -> _Plan:
    together = _together(kind)
    made = [(i, _default_kind(f)) for i, f in enumerate(together)]
    of = [(i, f.metadata["of"]) for i, f in enumerate(together) if "of" in f.metadata]
    return _Plan(
        _getter_of(tuple(f.name for f in together)),
        [(i, one, _NO_ROWS[one]) for i, one in made if one is not None and issubclass(one, Table)],
        of,
        [(i, one) for i, one in made if one is not None and is_dataclass(one) and not issubclass(one, Table)],
    )


def _plain(value: Any, arrays: list[Ints]) -> list[Any]:
    plan = _plan(type(value))
    told = list(plan.values(value))
    for i, kind, _ in plan.tables:
        columns = _ALL_OF[kind](told[i])
        told[i] = rows = columns[0].size
        if rows:
            arrays.extend(columns)
    for i, kind in plan.entries:
        values = _ALL_OF[kind]
        told[i] = [[key, *values(entry)] for key, entry in told[i].items()]
    for i, _ in plan.parts:
        told[i] = _plain(told[i], arrays)
    return told


@_once
def _together(kind: type) -> tuple[Field[Any], ...]:
    """The fields that are written with it: all, but those at its end that are written apart."""
    return tuple(f for f in fields(kind) if not f.metadata.get("apart"))


@_once
def _nothing(kind: type) -> list[Any]:
    return _plain(kind(), [])


def _built(kind: type[T], told: list[Any], numbers: _Numbers) -> T:
    plan = _plan(kind)
    for i, made, nothing in plan.tables:
        told[i] = made(*(numbers.take(len(nothing), told[i]) if told[i] else nothing))
    for i, of in plan.entries:
        told[i] = {key: of(*entry) for key, *entry in told[i]}
    for i, made in plan.parts:
        told[i] = _built(made, told[i], numbers)
    return kind(*told)


def _default_kind(f: Field[Any]) -> type | None:
    factory = f.default_factory
    return factory if factory is not MISSING and isinstance(factory, type) else None


@_once
def _shape(kind: type) -> str:
    parts = []
    for f in _together(kind):
        made = _default_kind(f) or f.metadata.get("of")
        inner = _shape(made) if made is not None and is_dataclass(made) else str(f.type)
        parts.append(f"{f.name}:{inner}")
    return f"({','.join(parts)})"


def fingerprint(kind: type, more: Mapping[str, type]) -> int:
    """A number that changes with the shape of the state."""
    return _fingerprint(kind, tuple(more.items()))


@_once
def _fingerprint(kind: type, more: tuple[tuple[str, type], ...]) -> int:
    return zlib.crc32("".join([_shape(kind), *(f"{name}{_shape(one)}" for name, one in sorted(more))]).encode())
