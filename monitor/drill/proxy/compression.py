"""The codecs of record batches, as Kafka frames them.

Each codec has its peculiarity: snappy is either one raw block (librdkafka) or blocks in a frame of snappy-java's own
(Java clients), and every client reads both; LZ4 frames must have independent blocks, which Java insists on, and which
the library's own frames do not have. So LZ4 frames are assembled here from blocks, with the one header that Kafka's
own writer uses too.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from probes.kafka.wire.errors import Undecodable


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
"""The magic and two version numbers."""

_LZ4_HEAD: Final = bytes.fromhex("04224d18604082")
"""Magic; version 1, independent blocks, no checksums, no size; blocks of up to 64 KiB; checksum of these."""
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_STORED: Final = 1 << 31
"""Set in a block's length: the block is not compressed."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def compress(codec: Codec, data: bytes) -> bytes:
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            packer = zlib.compressobj(wbits=_GZIP)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def decompress(codec: Codec, data: bytes) -> bytes:
    """Raises `Undecodable`."""
    try:
        match codec:
            case Codec.NONE:
                return data
            case Codec.GZIP:
                return zlib.decompress(data, wbits=_GZIP)
            case Codec.SNAPPY:
                return _decompress_snappy(data)
            case Codec.LZ4:
                return bytes(cramjam.lz4.decompress(data))
            case Codec.ZSTD:
                return bytes(cramjam.zstd.decompress(data))
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        raise Undecodable(f"a batch's {codec.name.lower()} payload of {len(data)} bytes is broken: {error}") from error


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts, at = [], _XERIAL_HEADER
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        parts.append(bytes(cramjam.snappy.decompress_raw(data[at : at + length])))
        at += length
    return b"".join(parts)


def _compress_lz4(data: bytes) -> bytes:
    parts = [_LZ4_HEAD]
    for at in range(0, len(data), _LZ4_BLOCK):
        plain = data[at : at + _LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(packed) < len(plain):
            parts += (struct.pack("<I", len(packed)), packed)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_STORED), plain)
    return b"".join([*parts, struct.pack("<I", 0)])
