"""Copies of what journals held, so that a committer syncs one file each second, and not one for each life.

The table must not hold what the loss of the host could take back, so what was read of the journals is synced before it
is appended. Two dozen journals that are synced each second cost a page each: 100 kB a second, measured, for 30 kB of
rows. So what was read is written here, in one file that is synced; the journals are synced when the file is full, and
it begins anew. After the loss of a host, or of its disk for a while, the journals get back from it what they lack.

A frame of the file is a line of JSON, [boot, [[path below the folder, offset in that file, length], ...]], the bytes,
and zeros up to the end of a page: the next one writes none of its pages again, which saves half of one each second.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from probes.log.journals.frames import framed, frames
from probes.log.journals.segments import is_held

COPIES: Final = "copies"
FULL: Final = 5 << 18
"""Bytes: a minute and a half of a canary."""
PAGE: Final = 4096


class Piece(NamedTuple):
    """Bytes of a journal's segment."""

    path: Path
    at: int
    data: bytes


class Copies:
    """The copies of one journal folder, for the committer that holds it. Methods raise OSError."""

    def __init__(self, folder: Path, boot: str) -> None:
        self._folder, self._boot = folder, boot
        self._descriptor = -1
        self._size = 0
        self._unsynced: set[Path] = set()

    def open(self) -> None:
        """Before anybody looks at the journals: give them back what is here and not there. Those that a living process
        has are as it left them."""
        self._descriptor = os.open(self._folder / COPIES, os.O_RDWR | os.O_CREAT, 0o644)
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        living: dict[Path, bool] = {}
        for boot, piece in self._kept(data):
            life = piece.path.parent
            if boot == self._boot and life not in living:
                living[life] = is_held(life)
            if not living.get(life):
                _put_back(piece)
            self._unsynced.add(piece.path)
        self._begin()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def keep(self, pieces: Sequence[Piece]) -> None:
        """What was read of the journals survives the loss of the host when this returns."""
        if not pieces:
            return
        self._unsynced.update(piece.path for piece in pieces)
        if self._size + sum(len(piece.data) for piece in pieces) > FULL:
            self._begin()
            return
        told = [[str(piece.path.relative_to(self._folder)), piece.at, len(piece.data)] for piece in pieces]
        head = orjson.dumps([self._boot, told])
        held = b"\n".join([head, b"".join(piece.data for piece in pieces)])
        entry = memoryview(framed(held + bytes(-len(framed(held)) % PAGE)))
        end = self._size
        while entry:
            written = os.pwrite(self._descriptor, entry, end)
            entry, end = entry[written:], end + written
        os.fdatasync(self._descriptor)
        self._size = end

    def _begin(self) -> None:
        """Begin anew, once the journals themselves are synced."""
        for path in self._unsynced:
            with contextlib.suppress(FileNotFoundError):
                _sync(path)
        # Should the loss of the host undo this, what is put back is what stands there.
        os.ftruncate(self._descriptor, 0)
        self._size = 0
        self._unsynced.clear()

    def _kept(self, data: bytes) -> Iterable[tuple[str, Piece]]:
        for one in frames(data)[0]:
            head, _, rest = one.held.partition(b"\n")
            boot, told = orjson.loads(head)
            for path, at, length in told:
                yield boot, Piece(self._folder / path, at, rest[:length])
                rest = rest[length:]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _put_back(piece: Piece) -> None:
    """Write the bytes where they were, unless they are there, or the file is gone: it was deleted."""
    try:
        descriptor = os.open(piece.path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        if os.pread(descriptor, len(piece.data), piece.at) != piece.data:
            os.pwrite(descriptor, piece.data, piece.at)
    finally:
        os.close(descriptor)
