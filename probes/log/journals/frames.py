"""Frames: how a journal's bytes are cut, and how damage is told from an unfinished end.

A frame is a marker (2 bytes), the payload's length and a CRC32C (4 bytes each, little-endian) and the payload. The
checksum covers the length too, so that a region of zeros is no frame. Payloads are UTF-8, which never holds the
marker's first byte: where a frame does not verify, a later good frame can be found by its marker.

What does not verify at the end of a file, with no good frame after it, is a *torn* end: a write that death or a full
disk cut short. A good frame after it proves that the file is *broken* in the middle; nothing is guessed about that.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, NamedTuple

from crc32c import crc32c

MARKER: Final = b"\xffJ"
_HEADER: Final = struct.Struct("<2sII")
_LENGTH: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
LARGEST_PAYLOAD: Final = 64 << 20

Ending = Literal["clean", "torn", "broken"]


class Frame(NamedTuple):
    payload: bytes
    end: int
    """Where the next frame begins, in the data that was read."""


def frame(payload: bytes) -> bytes:
    """The payload as one frame. Raises `ValueError` where it is empty or larger than any journal's payload."""
    if not 0 < len(payload) <= LARGEST_PAYLOAD:
        raise ValueError(f"a frame holds 1 to {LARGEST_PAYLOAD} bytes, not {len(payload)}")
    return _HEADER.pack(MARKER, len(payload), _checksum(payload)) + payload


def frames(data: bytes, at: int = 0) -> tuple[list[Frame], Ending]:
    """The good frames from `at` on, up to the first that does not verify, and how the data ends after them."""
    found: list[Frame] = []
    while (one := _frame_at(data, at)) is not None:
        found.append(one)
        at = one.end
    if at == len(data):
        return found, "clean"
    return found, "broken" if _any_frame_after(data, at) else "torn"


def _checksum(payload: bytes) -> int:
    checksum: int = crc32c(payload, crc32c(_LENGTH.pack(len(payload))))
    return checksum


def _frame_at(data: bytes, at: int) -> Frame | None:
    if at + HEADER_BYTES > len(data):
        return None
    marker, length, checksum = _HEADER.unpack_from(data, at)
    end = at + HEADER_BYTES + length
    if marker != MARKER or not 0 < length <= LARGEST_PAYLOAD or end > len(data):
        return None
    payload = data[at + HEADER_BYTES : end]
    return Frame(payload, end) if _checksum(payload) == checksum else None


def _any_frame_after(data: bytes, at: int) -> bool:
    while (at := data.find(MARKER, at + 1)) >= 0:
        if _frame_at(data, at) is not None:
            return True
    return False
