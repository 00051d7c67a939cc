"""Frames: how a journal's bytes are cut, and how damage is told from an unfinished end.

A frame is a marker (2 bytes), the length and a CRC32C (4 bytes each, little-endian) of what follows: a byte that says
how the payload is held, and the payload, compressed. Payloads of one life repeat each other more than themselves, so
they are one stream of raw deflate, flushed after each (without the four bytes that end every flush): a canary's
journals take a third of what they took with each compressed alone, measured. Whoever reads begins at a segment's first
frame, and whoever writes may begin a new stream with any frame.

The checksum covers the length too, so that a region of zeros is no frame; where one does not verify, a later good frame
is found by its marker. What does not verify at the end of a file, with no good frame after it, is a *torn* end: a write
that death or a full disk cut short. A good frame after it proves that the file is *broken* in the middle; nothing is
guessed about that.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

import cramjam
from crc32c import crc32c

MARKER: Final = b"\xffJ"
_HEADER: Final = struct.Struct("<2sII")
_LENGTH: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
LARGEST_PAYLOAD: Final = 64 << 20
PACKED: Final = b"\x01"
"""An LZ4 block by itself, as earlier versions wrote; smaller payloads they wrote as they are, which is JSON."""
BEGUN: Final = b"\x02"
"""Compressed, the first of a stream."""
CONTINUED: Final = b"\x03"
"""Compressed, in the stream of the frames before it."""
_FLUSHED: Final = b"\x00\x00\xff\xff"
_LEVEL, _WINDOW, _MEMORY = 6, 13, 6
"""zlib's: 8 kB of what came before, and 50 kB for each stream. With its defaults (270 kB) two dozen streams are never
where the processor finds them quickly: half of the time for a twentieth of the bytes, measured."""

Ending = Literal["clean", "torn", "broken"]


class Frame(NamedTuple):
    held: bytes
    """What `Unpacker` makes a payload of."""
    end: int
    """Where the next frame begins, in the data that was read."""


class Packer:
    """Makes frames of payloads, in the order in which they are written."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new stream: in a new segment, and where the last frame may not have been written."""
        self._stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW, _MEMORY)
        self._how = BEGUN

    def frame(self, payload: bytes) -> bytes:
        """The payload as the next frame. Raises `ValueError` where it is empty or larger than any journal's payload."""
        if not 0 < len(payload) <= LARGEST_PAYLOAD:
            raise ValueError(f"a frame holds 1 to {LARGEST_PAYLOAD} bytes, not {len(payload)}")
        packed = self._stream.compress(payload) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        held = self._how + packed.removesuffix(_FLUSHED)
        self._how = CONTINUED
        return framed(held)


class Unpacker:
    """Makes payloads of what frames hold, in the order in which they were written, from a segment's first on."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)

    def payload(self, held: bytes) -> bytes:
        """Raises `ValueError` where it is none."""
        how = held[:1]
        if how not in (PACKED, BEGUN, CONTINUED):
            return held
        try:
            if how == PACKED:
                return bytes(cramjam.lz4.decompress_block(held[1:]))
            if how == BEGUN:
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._stream.decompress(held[1:] + _FLUSHED)
        except (zlib.error, cramjam.DecompressionError) as broken:
            raise ValueError(f"it cannot be decompressed: {broken}") from broken


def framed(held: bytes) -> bytes:
    """These bytes as a frame."""
    return _HEADER.pack(MARKER, len(held), _checksum(held)) + held


def payloads(found: Iterable[Frame]) -> Iterator[bytes]:
    """Those of a segment's frames, from the first on. Raises `ValueError` as `Unpacker` does."""
    unpacker = Unpacker()
    return (unpacker.payload(one.held) for one in found)


def frames(data: bytes, at: int = 0) -> tuple[list[Frame], Ending]:
    """The good frames from `at` on, up to the first that does not verify, and how the data ends after them."""
    found: list[Frame] = []
    while (one := _frame_at(data, at)) is not None:
        found.append(one)
        at = one.end
    if at == len(data):
        return found, "clean"
    return found, "broken" if _any_frame_after(data, at) else "torn"


def _checksum(held: bytes) -> int:
    checksum: int = crc32c(held, crc32c(_LENGTH.pack(len(held))))
    return checksum


def _frame_at(data: bytes, at: int) -> Frame | None:
    if at + HEADER_BYTES > len(data):
        return None
    marker, length, checksum = _HEADER.unpack_from(data, at)
    end = at + HEADER_BYTES + length
    if marker != MARKER or not 0 < length <= LARGEST_PAYLOAD or end > len(data):
        return None
    held = data[at + HEADER_BYTES : end]
    if _checksum(held) != checksum:
        return None
    return Frame(held, end)


def _any_frame_after(data: bytes, at: int) -> bool:
    while (at := data.find(MARKER, at + 1)) >= 0:
        if _frame_at(data, at) is not None:
            return True
    return False
