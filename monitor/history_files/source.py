"""The bytes of a history, wherever they are: in a file or on standard input, compressed with gzip or not.

What is compressed is known by its first bytes, not by its name. Nothing is read twice, so that a pipe will do.
"""

from __future__ import annotations

import errno
import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

STANDARD_INPUT: Final = Path("-")
"""The path that stands for standard input."""

_GZIP: Final = b"\x1f\x8b"
_BUFFER: Final = 2**20


def called(path: Path) -> str:
    """What a history is called in a sentence."""
    return "standard input" if path == STANDARD_INPUT else str(path)


class Counted(io.BufferedReader):
    """A stream that counts the newlines which a decoder was given of it, so that it can tell where one failed."""

    newlines = 0

    def read1(self, size: int = -1, /) -> bytes:
        given = super().read1(size)
        self.newlines += given.count(b"\n")
        return given

    def line_of(self, error: UnicodeDecodeError) -> int:
        """The line, from 1 on, of the byte that could not be decoded."""
        return 1 + self.newlines - error.object.count(b"\n", error.start)


class _Resumed(io.RawIOBase):
    """A stream of which a part was read already, from its beginning again. Closing it leaves the stream open."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase | BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._head:
            size = min(len(buffer), len(self._head))
            buffer[:size], self._head = self._head[:size], self._head[size:]
            return size
        given = self._rest.read(len(buffer))
        buffer[: len(given)] = given
        return len(given)


def beginning(stream: io.BufferedIOBase | BinaryIO, size: int) -> tuple[bytes, Counted]:
    """The first bytes of a stream, at most `size` of them, and the stream from its beginning."""
    head = stream.read(size)
    return head, Counted(_Resumed(head, stream), _BUFFER)


@contextmanager
def opened(path: Path) -> Iterator[Counted]:
    """The bytes of a history. Raises `OSError` where it cannot be opened; reading them raises `OSError`, `EOFError` or
    `zlib.error` where what is compressed is broken."""
    if path == STANDARD_INPUT and sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    if path == STANDARD_INPUT:
        yield _decompressed(sys.stdin.buffer)
        return
    with path.open("rb") as file:
        yield _decompressed(file)


def _decompressed(stream: BinaryIO) -> Counted:
    head, stream = beginning(stream, len(_GZIP))
    if head == _GZIP:
        return Counted(gzip.GzipFile(fileobj=stream), _BUFFER)
    return stream
