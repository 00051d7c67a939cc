"""An append to the probe log as messages of a topic: Arrow's IPC stream, compressed, cut into parts.

The headers of each message say whose append it is part of:

    app      the committer's name, made with its folder
    version  which of its appends, 1, 2, ...
    start    which of its starts has made it; an earlier version did not tell
    part     "0/3": the first of three
    format   that of the probe log's rows

An append is one transaction, so whoever reads committed messages sees each part of it or none. It may be there twice,
where a committer could not know how its transaction ended: version for version the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from probes.log.commits.numbers import NUMBER_BITS, START_BITS
from rules.vocabulary.slices import FORMAT_VERSION, SLICE_SCHEMA

PART_BYTES: Final = 768 * 1024
"""Brokers take messages of one MiB unless they are told otherwise."""
MOST_PARTS: Final = 10_000
_CODEC: Final = "zstd"

Headers = Sequence[tuple[str, bytes]]


class NotOurs(ValueError):
    """A message that no committer wrote, or that is damaged."""


class Newer(ValueError):
    """A message of a later version of Offsetwatch, whose rows are not known here."""


@dataclass(frozen=True, slots=True)
class Append:
    """One append, whole. `first`: the offset of its first message."""

    app: str
    version: int
    rows: pa.Table
    first: int
    start: int = 0


def packed(
    rows: pa.Table, app: str, version: int, start: int = 0
) -> Iterator[tuple[list[tuple[str, bytes]], memoryview]]:
    """The headers and the value of each message of an append."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_CODEC)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    whole = memoryview(sink.getvalue())
    begins = range(0, len(whole), PART_BYTES)
    for part, begin in enumerate(begins):
        headers = {"app": app, "version": version, "start": start}
        headers |= {"part": f"{part}/{len(begins)}", "format": FORMAT_VERSION}
        yield [(key, str(value).encode()) for key, value in headers.items()], whole[begin : begin + PART_BYTES]


class Assembly:
    """Puts parts together again, of many committers' appends, which may stand between each other."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, int], tuple[int, list[bytes]]] = {}

    @property
    def first(self) -> int | None:
        """The offset from which an append that is not whole yet begins; None where there is none."""
        return min((offset for offset, _ in self._open.values()), default=None)

    def take(self, offset: int, headers: Headers | None, value: bytes | None) -> Append | None:
        """The append that this message completes, None where there is more to come. Raises NotOurs and Newer."""
        app, version, start, part, parts = _told(headers)
        key = app, version, start
        if part == 0:  # also where the same append is there again
            self._open[key] = offset, []
        first, before = self._open.get(key, (offset, []))
        if part != len(before):
            return None  # its beginning was removed from the topic before it was read
        before.append(value or b"")
        if len(before) < parts:
            return None
        del self._open[key]
        return Append(app, version, _rows(before), first, start)


def _told(headers: Headers | None) -> tuple[str, int, int, int, int]:
    told = dict(headers or ())
    try:
        form = int(told["format"])
        part, _, parts = told["part"].decode().partition("/")
        start = int(told.get("start", b"0"))
        found = told["app"].decode(), int(told["version"]), start, int(part), int(parts)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise NotOurs("it is no part of a probe log") from error
    if form > FORMAT_VERSION:
        raise Newer(f"rows of format {form} stand in it, and this version of Offsetwatch reads format {FORMAT_VERSION}")
    _, version, start, number, count = found
    known = 0 < version < 1 << NUMBER_BITS and 0 <= start < 1 << START_BITS
    if form != FORMAT_VERSION or not known or not 0 <= number < count <= MOST_PARTS:
        raise NotOurs("it is no part of a probe log")
    return found


def _rows(parts: Sequence[bytes]) -> pa.Table:
    """The rows, as `SLICE_SCHEMA` has them: an earlier version's lack columns."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(b"".join(parts))) as stream:
            told = stream.read_all()
        names = set(told.column_names)
        columns = [told[f.name] if f.name in names else pa.nulls(told.num_rows, f.type) for f in SLICE_SCHEMA]
        return pa.table(columns, schema=SLICE_SCHEMA)
    except Exception as error:  # Arrow has many for bytes that were cut or changed, OSError among them
        raise NotOurs(f"it cannot be read: {error}") from error
