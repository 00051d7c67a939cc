"""What is kept of a group's partitions between two batches, as one value of the state store, and back.

Spark's stores are reached through a socket: a value for each partition would be a call for each, forth and back. The
hot values in it are the checks' own (`rules.kept.state`), compressed already, and stand here as they are. So do the
chunks that the checks asked for lately (`recent`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from rules.step import UnknownFormat


@dataclass(slots=True)
class Recent:
    """A chunk that was asked for lately (None: there is none), whether the store has it otherwise, and how many of the
    partition's batches have not asked for it since."""

    chunk: bytes | None
    changed: bool
    idle: int = 0


@dataclass(slots=True)
class Kept:
    """What is kept of one partition: the hot value, the error that quarantined it, the slices left unchecked since, and
    the chunks that were asked for lately (`recent`)."""

    hot: bytes | None = None
    failed: str | None = None
    behind: int = 0
    recent: dict[str, Recent] = field(default_factory=dict)


class Chunks(Protocol):
    """One partition's chunks, wherever they are."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, chunk: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


_MAGIC: Final = b"OWG2"
_ENTRY: Final = struct.Struct("<iqiiI")
"""The partition, `behind`, the lengths of `failed` and `hot`, -1 where there is none, and how many `recent` follow."""
_RECENT: Final = struct.Struct("<HBBi")
"""The length of a chunk's name, `idle`, `changed`, and the length of the chunk, -1 where there is none."""


def dump(kept: Mapping[int, Kept]) -> bytes:
    """The partitions of a group as one value, in their order: equal states make equal bytes."""
    parts = [_MAGIC]
    for partition in sorted(kept):
        one = kept[partition]
        failed = None if one.failed is None else one.failed.encode()
        parts += _ENTRY.pack(partition, one.behind, _size(failed), _size(one.hot), len(one.recent)), failed or b""
        parts.append(one.hot or b"")
        for name in sorted(one.recent):
            recent, named = one.recent[name], name.encode()
            parts += _RECENT.pack(len(named), recent.idle, recent.changed, _size(recent.chunk)), named
            parts.append(recent.chunk or b"")
    return b"".join(parts)


def _size(told: bytes | None) -> int:
    return -1 if told is None else len(told)


def load(data: bytes) -> dict[int, Kept]:
    """What `dump` wrote. Raises `UnknownFormat`."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise UnknownFormat("what is kept of several partitions was written by another version than this one")
    kept = {}
    reader = _Reader(data, len(_MAGIC))
    try:
        while reader.at < len(data):
            partition, behind, failed, hot, recent = reader.numbers(_ENTRY)
            error = reader.bytes(failed)
            one = Kept(reader.bytes(hot), None if error is None else error.decode(), behind)
            for _ in range(recent):
                length, idle, changed, size = reader.numbers(_RECENT)
                name = (reader.bytes(length) or b"").decode()
                one.recent[name] = Recent(reader.bytes(size), bool(changed), idle)
            kept[partition] = one
    except (struct.error, UnicodeDecodeError) as error_:
        raise UnknownFormat(f"what is kept of several partitions cannot be read: {error_}") from error_
    if reader.at != len(data):
        raise UnknownFormat("what is kept of several partitions ends in the midst of one")
    return kept


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        begin, self.at = self.at, self.at + form.size
        return form.unpack_from(self._data, begin)

    def bytes(self, size: int) -> bytes | None:
        if size < 0:
            return None
        begin, self.at = self.at, self.at + size
        return self._data[begin : self.at]
