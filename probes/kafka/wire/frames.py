"""Frames on a connection: four bytes of length, and so many bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from probes.kafka.wire.errors import Undecodable

BUFFER: Final = 1024 * 1024
"""Bytes that a connection reads ahead."""
_LENGTH: Final = struct.Struct(">I")
_LARGEST: Final = 512 * 1024 * 1024
"""Bytes. Brokers refuse requests over 100 MiB; what is larger than this is no length at all but another protocol."""


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame without its length, or None where the other side has ended. Raises `Undecodable`, `OSError`."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _LARGEST:
            raise Undecodable(f"a frame of {length} bytes: this is not Kafka's protocol")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None


async def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Returns when the connection has room for more. Raises `OSError`."""
    writer.writelines((_LENGTH.pack(len(frame)), frame))
    await writer.drain()
