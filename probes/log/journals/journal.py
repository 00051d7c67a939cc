"""The journal of one client's life: what it is about to do and what came of it, on a disk that outlives the process.

Before anything is sent, its sequence numbers are reserved (`reserve`, which survives the loss of the host) and the
operation is opened (`opened`: from here on a `kill -9` leaves it `info`, never forgotten and never `fail`). Polls are
appended before their offsets are committed, outcomes before the next operation is invoked. When the life ends in order,
its close rows are appended and the journal is closed. When it does not, `probes.log.commits.recovery` finishes it.

A journal belongs to one thread. The lock that tells the living from the dead is inherited by `fork`: do not fork from a
process that holds a journal and let the child outlive it (subprocesses that exec are no matter).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from probes.log.errors import JournalDamaged, JournalUnwritable
from probes.log.journals import written
from probes.log.journals.differences import MessagePacker
from probes.log.journals.progress import Life, LifeProgress, PlaceKey, head
from probes.log.journals.segments import BROKEN, LIVES, NEW, OVER, life_name, lock, segment_name, sync
from probes.log.journals.written import Told
from probes.log.rows import AT, Row, pack
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros

SEGMENT_BYTES: Final = 256 << 10
"""Some minutes of a canary's client. Who goes on with a life that was killed reads its last segment from its beginning,
and so does who looks how far it had come: with those of hours a start took minutes."""

__all__ = ["Journal", "JournalUnwritable", "Life"]


class OpenSegment(NamedTuple):
    """A segment that is written: `size` good bytes, which begin at offset `base` of the journal. `told`: by which it is
    told how far the journal was written; recovery tells nothing."""

    descriptor: int
    base: int
    size: int
    told: Told | None = None


class Journal:
    """One life's journal, open for writing. Make one with `create`.

    Every method that writes raises `JournalUnwritable` where the disk refuses; nothing of that call is then in the
    journal, and the same call may be made again. `slice` numbers are assigned here, on `append`: probes leave -1."""

    def __init__(
        self,
        folder: Path,
        life: Life,
        progress: LifeProgress,
        lock_descriptor: int,
        segment: OpenSegment,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """For `create` and recovery: take over a lock and an open segment."""
        self.life = life
        self.folder = folder
        self.progress = progress
        self._shared = life.shared
        self._lock = lock_descriptor
        self._descriptor, self._base, self._size, self._told = segment
        self._segment_bytes = segment_bytes
        self._packer = MessagePacker()
        self._damaged = False

    @classmethod
    def create(cls, folder: Path, life: Life, *, segment_bytes: int = SEGMENT_BYTES) -> Journal:
        """Begin the journal of a new life under `folder` (made where it is missing) and hold its lock.

        The life is on disk, or nothing of it is, when the host is lost. Raises `JournalUnwritable`, also where a
        journal of the same process is there already."""
        final = folder / LIVES / life_name(life.kind, life.process)
        new = final.with_name(final.name + NEW)
        try:
            new.mkdir(parents=True)
            held = lock(new)
            if held is None:
                raise OSError(f"{new} is held by another process")
            try:
                progress = LifeProgress()
                first = MessagePacker().frame(head(life, progress, 0))
                segment = _begin(new, first)
                # A folder does not replace one that holds files: an old journal is never overwritten.
                new.rename(final)
                sync(final.parent)
            except BaseException:
                os.close(held)
                raise
        except OSError as refused:
            raise JournalUnwritable(f"cannot begin a journal in {folder}: {refused.strerror or refused}") from refused
        return cls(final, life, progress, held, segment, segment_bytes)

    @property
    def offset(self) -> int:
        """Bytes written so far, over all segments."""
        return self._base + self._size

    def reserve(self, topic_id: str, topic: str, partition: int, upto: int) -> None:
        """Leave to use the life's sequence numbers below `upto` in this partition. On disk when it returns."""
        self._write(["reserve", topic_id, topic, partition, upto], sync=True)

    def opened(self, op: int, rows: Sequence[Slice]) -> None:
        """Before the requests of operation `op` leave: the `info` rows to log if this life dies in mid-flight."""
        if rows:
            self._write(["opened", op, [pack(row, self._shared, -1) for row in rows]])

    def append(self, rows: Sequence[Slice]) -> None:
        """The outcome of an operation, one row per partition; closes it if it was opened. Sets each row's `slice`."""
        if not rows:
            return
        packed = self._numbered(rows)
        self._write(["rows", packed])
        for row, one in zip(rows, packed, strict=True):
            row.slice = one[_SLICE]

    def alive(self, at: datetime) -> None:
        """Whatever was invoked before `at` is appended, or open. Call it at least every half second.

        Raises `JournalDamaged`, once, where somebody has cut the journal or taken it away, or who reads it found it
        broken: the probe log gets nothing of what is written from here on. The life has to end, and may do so in order.
        """
        if not self._damaged:
            self._look()
        self._write(["alive", micros(at)])

    def _look(self) -> None:
        there = os.fstat(self._descriptor) if self._descriptor >= 0 else None
        reason = None
        if there is not None and (there.st_size < self._size or not there.st_nlink):
            reason = "it was cut, or taken away"
        elif (note := self.folder / BROKEN).exists():
            reason = note.read_text()
        if reason is not None:
            self._damaged = True
            raise JournalDamaged(f"the journal {self.folder} is damaged: {reason}")

    def close(self) -> None:
        """End the life, after the close rows were appended, and let go of it. May be called twice.

        Where an operation is still open or a partition has no close row, recovery will finish the life instead."""
        if self._descriptor < 0:
            return
        try:
            if self.progress.complete and not self.progress.over:
                self._write(["closed", []])
            if self.progress.over:
                # Only a hint: whoever misses it reads the journal.
                with contextlib.suppress(OSError):
                    (self.folder / OVER).touch()
        finally:
            self.release()

    def release(self) -> None:
        """Let go of the journal as it is, as the process's death would."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._lock)
            if self._told is not None:
                self._told.close()
            self._descriptor, self._lock, self._told = -1, -1, None

    def __del__(self) -> None:
        # Whoever forgets a journal must not run the process out of descriptors; nobody can write it any more.
        if getattr(self, "_descriptor", -1) >= 0:
            self.release()

    def finish(self, rows: Sequence[Slice], *, lost_by: datetime | None = None) -> None:
        """For recovery: the life's last rows and its end, both or neither. Let go of it with `close`.

        `lost_by`: the life's log may miss its end, and it was over by then."""
        packed = self._numbered(rows)
        self._write(["closed", packed] if lost_by is None else ["lost", packed, micros(lost_by)])
        # Only now: a torn end is what tells another recovery, should this one die, that something is missing.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._size)

    def _numbered(self, rows: Sequence[Slice]) -> list[Row]:
        given: dict[PlaceKey, int] = {}
        packed = []
        for row in rows:
            key = (row.topic_id, row.partition)
            number = given.get(key)
            if number is None:
                number = self.progress.next_slice(key)
            given[key] = number + 1
            packed.append(pack(row, self._shared, number))
        return packed

    def _write(self, message: list[Any], *, sync: bool = False) -> None:
        if self._descriptor < 0:
            raise ValueError("the journal is closed")
        try:
            if self._size >= self._segment_bytes:
                self._roll()
            data = self._packer.frame(message)
            # At a position of our own keeping: what a refused write left behind is written over.
            _write_at(self._descriptor, data, self._size)
            if sync:
                os.fdatasync(self._descriptor)
            if self._told is not None:
                self._told.tell(self.offset + len(data))
        except OSError as refused:
            self._packer.restart()
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise JournalUnwritable(f"cannot write the journal {self.folder}: {refused.strerror}") from refused
        self._size += len(data)
        self.progress.apply(message)

    def _roll(self) -> None:
        os.fdatasync(self._descriptor)
        self._packer.restart()
        first = self._packer.frame(head(self.life, self.progress, self.offset))
        descriptor = _begin_segment(self.folder, self.offset, first)
        sync(self.folder)
        os.close(self._descriptor)
        self._descriptor, self._base, self._size = descriptor, self.offset, len(first)


_SLICE: Final = AT["slice"]


def _begin(folder: Path, first: bytes) -> OpenSegment:
    """A new journal's first segment, with its first frame."""
    descriptor = _begin_segment(folder, 0, first)
    try:
        return OpenSegment(descriptor, 0, len(first), written.begin(folder, len(first)))
    except BaseException:
        os.close(descriptor)
        raise


def _begin_segment(folder: Path, offset: int, first: bytes) -> int:
    """A new segment with its first frame, on disk before it has its name: under its name it is never torn there."""
    new = folder / (segment_name(offset) + NEW)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_at(descriptor, first, 0)
        os.fdatasync(descriptor)
        new.rename(folder / segment_name(offset))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_at(descriptor: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest, position = rest[written:], position + written
