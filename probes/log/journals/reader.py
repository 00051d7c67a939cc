"""Reading a journal while its process goes on writing it, from any offset, one batch of whole frames after another.

What does not verify at the end is left alone: a living process may be in the middle of writing it, and recovery cuts it
off once the process is dead. A journal that is broken in the middle is read up to there and never further.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from probes.log.journals.copies import Piece
from probes.log.journals.differences import MessageUnpacker
from probes.log.journals.frames import HEADER_BYTES, LARGEST_PAYLOAD, Frame, frames
from probes.log.journals.progress import Inconsistent, Life, LifeProgress, from_head
from probes.log.journals.segments import segments
from probes.log.rows import Row

_FIRST_READ: Final = 1 << 16


class BrokenJournal(Exception):
    """The journal does not tell what its process did; `str()` says where."""


class LifeReader:
    """One life's journal, read from offset `at` on.

    `progress` is the life's as of `offset`, the end of what was read. `broken` says where reading had to stop for ever.
    """

    def __init__(self, folder: Path, at: int = 0) -> None:
        """Raises `BrokenJournal` where the segment that holds `at` is missing or does not begin as it must."""
        self.folder = folder
        self.broken: str | None = None
        self.offset = at
        self._descriptor = -1
        try:
            self.life, self.progress = self._open_segment(at)
            if at != self._base:
                self.read_to(at)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self.folder.name

    def read(self, limit: int, pieces: list[Piece] | None = None) -> list[Row]:
        """The rows of the next whole frames, up to the one that ends `limit` bytes or more from here. `pieces` gets the
        bytes that they are made of, but for heads of segments, which are synced before they are there.

        Frames may bring no rows: at the end of the journal `offset` stays where it is."""
        rows: list[Row] = []
        stop = self.offset + limit
        while self.broken is None and self.offset < stop:
            found = self._next_frames(stop - self.offset)
            if not found and not self._next_segment():
                break
            begin = self.offset
            for one in found:
                try:
                    rows += self.progress.apply(self._unpacker.message(one.held))
                except (Inconsistent, LookupError, TypeError, ValueError) as reason:
                    # Good bytes with impossible content: the same as broken bytes.
                    self.broken = f"at byte {self.offset}: {reason}"
                    break
                self.offset = self._base + one.end
                if self.offset >= stop:
                    break
            if pieces is not None and self.offset > begin:
                at = begin - self._base
                pieces.append(Piece(self._path, at, os.pread(self._descriptor, self.offset - begin, at)))
        return rows

    def read_to(self, end: int) -> list[Row]:
        """The rows up to exactly `end`, as they were read before. Raises `BrokenJournal` where that cannot be."""
        rows: list[Row] = []
        while self.offset < end:
            before = self.offset
            rows += self.read(end - self.offset)
            if self.offset == before:
                break
        if self.offset != end:
            raise BrokenJournal(f"{self.name} no longer holds what was read of it up to byte {end}")
        return rows

    def is_cut_short(self) -> bool:
        """Does the journal end before what was read of it does?"""
        last = segments(self.folder)
        return bool(last) and last[-1][0] + last[-1][1].stat().st_size < self.offset

    def unread(self) -> int:
        """Bytes in the journal after what was read."""
        last = segments(self.folder)
        return max(0, last[-1][0] + last[-1][1].stat().st_size - self.offset) if last else 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def _open_segment(self, at: int) -> tuple[Life, LifeProgress]:
        """Open the last segment that begins at or before `at`; `offset` is then the end of its head."""
        begun = [segment for segment in segments(self.folder) if segment[0] <= at]
        if not begun:
            raise BrokenJournal(f"{self.folder} holds no segment with byte {at}")
        self.close()
        self._base, self._path = begun[-1]
        self._descriptor = os.open(self._path, os.O_RDONLY)
        self.offset = self._base
        self._unpacker = MessageUnpacker()
        first = self._next_frames(1)
        try:
            life, progress, offset = from_head(self._unpacker.message(first[0].held))
        except (Inconsistent, LookupError, TypeError, ValueError) as reason:
            self.close()
            raise BrokenJournal(f"{self._path} does not begin with a head that can be read") from reason
        if offset != self._base:
            raise BrokenJournal(f"{self._path} begins at byte {offset}")
        self.offset = self._base + first[0].end
        return life, progress

    def _next_segment(self) -> bool:
        """Go on to the segment that begins where this one ends, if it is there."""
        if all(base != self.offset for base, _ in segments(self.folder)):
            return False
        ours = self.progress
        try:
            _, theirs = self._open_segment(self.offset)
        except BrokenJournal as reason:
            self.broken = str(reason)
            return False
        if theirs != ours:
            self.broken = f"at byte {self._base}: the segment continues another history"
        return self.broken is None

    def _next_frames(self, limit: int) -> list[Frame]:
        """Whole frames from `offset` on; their ends count from the segment's begin."""
        size = max(_FIRST_READ, limit)
        at = self.offset - self._base
        while True:
            data = os.pread(self._descriptor, size, at)
            found, ending = frames(data)
            if ending == "broken" and not found:
                self.broken = f"at byte {self.offset}: a damaged frame with good ones after it"
            if found or len(data) < size or self.broken is not None:
                return [Frame(one.held, at + one.end) for one in found]
            if size > LARGEST_PAYLOAD + HEADER_BYTES:
                self.broken = f"at byte {self.offset}: no frame"
                return []
            size *= 4
