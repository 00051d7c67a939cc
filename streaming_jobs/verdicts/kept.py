"""What is kept of a group's partitions between two batches, as one value of the state store, and back.

Spark's stores are reached through a socket: a value for each partition would be a call for each, forth and back. The
hot values in it are the checks' own (`rules.kept.state`), compressed already, and stand here as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from rules.step import UnknownFormat


@dataclass(slots=True)
class Kept:
    """What is kept of one partition: the hot value, the error that quarantined it, the slices left unchecked since."""

    hot: bytes | None = None
    failed: str | None = None
    behind: int = 0


class Chunks(Protocol):
    """One partition's chunks, wherever they are."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, chunk: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


_MAGIC: Final = b"OWG1"
_ENTRY: Final = struct.Struct("<iqii")
"""The partition, `behind`, and the lengths of `failed` and `hot`, which follow; -1 where there is none."""


def dump(kept: Mapping[int, Kept]) -> bytes:
    """The partitions of a group as one value, in their order: equal states make equal bytes."""
    parts = [_MAGIC]
    for partition in sorted(kept):
        one = kept[partition]
        failed = None if one.failed is None else one.failed.encode()
        sizes = (-1 if told is None else len(told) for told in (failed, one.hot))
        parts += _ENTRY.pack(partition, one.behind, *sizes), failed or b"", one.hot or b""
    return b"".join(parts)


def load(data: bytes) -> dict[int, Kept]:
    """What `dump` wrote. Raises `UnknownFormat`."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise UnknownFormat("a group's state was written by another version than this one, or is none")
    kept = {}
    at = len(_MAGIC)
    try:
        while at < len(data):
            partition, behind, failed, hot = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            error = None if failed < 0 else data[at : at + failed].decode()
            at += max(0, failed)
            kept[partition] = Kept(None if hot < 0 else bytes(data[at : at + hot]), error, behind)
            at += max(0, hot)
    except (struct.error, UnicodeDecodeError) as error_:
        raise UnknownFormat(f"a group's state cannot be read: {error_}") from error_
    if at != len(data):
        raise UnknownFormat("a group's state ends in the midst of a partition's")
    return kept
