"""The chunks that a partition's checks ask for at each batch, kept with its hot value while they do.

A chunk is a hundred bytes or so, and the same few are asked for and changed second after second: thirty partitions did
so 356 times a batch, measured, and one in nine that they asked for was not there. Each would be a question to the JVM.
Kept with the hot value, which crosses anyway, they make that an eighth larger, and few questions are left.

What is not asked for any more goes to the store, or leaves it, and so does what is large: it is not worth being written
again with each batch.
"""

from __future__ import annotations

from typing import Final

from streaming_jobs.verdicts.kept import Chunks, Recent

IDLE: Final = 10
"""Batches of the partition for which a chunk is kept here that none of them asks for."""
LARGE: Final = 4_096
"""Bytes of a chunk that is never kept here."""
ROOM: Final = 16_384
"""Bytes for one partition. Where more chunks are touched at once, a backlog is checked: few will be touched again."""
_BESIDE: Final = 8
"""Bytes that a chunk takes beside its name and itself (`kept`)."""


class RecentChunks:
    """One partition's chunks: those of `recent`, over those of `stored`."""

    def __init__(self, recent: dict[str, Recent], stored: Chunks) -> None:
        self._recent = recent
        self._stored = stored

    def get(self, name: str) -> bytes | None:
        known = self._recent.get(name)
        if known is None:
            chunk = self._stored.get(name)
            if chunk is not None and len(chunk) > LARGE:
                return chunk
            known = self._recent[name] = Recent(chunk, changed=False)
        known.idle = 0
        return known.chunk

    def put(self, name: str, chunk: bytes) -> None:
        if len(chunk) > LARGE:
            self._recent.pop(name, None)
            self._stored.put(name, chunk)
        else:
            self._recent[name] = Recent(chunk, changed=True)

    def remove(self, name: str) -> None:
        self._recent[name] = Recent(None, changed=True)

    def settle(self) -> None:
        """A batch is over: what has been idle for long, or finds no room, is the store's alone."""
        room = ROOM
        for name, one in sorted(self._recent.items(), key=_last_asked_for):
            room -= _BESIDE + len(name) + len(one.chunk or b"")
            if one.idle >= IDLE or room < 0:
                self._evict(name, one)
            one.idle += 1

    def _evict(self, name: str, one: Recent) -> None:
        del self._recent[name]
        if not one.changed:
            return
        if one.chunk is None:
            self._stored.remove(name)
        else:
            self._stored.put(name, one.chunk)


def _last_asked_for(item: tuple[str, Recent]) -> tuple[int, str]:
    return item[1].idle, item[0]
