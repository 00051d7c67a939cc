"""Frames and messages: the header that is always looked at, and the payload that is decoded when somebody asks.

A frame is what follows its four bytes of length. Payloads are kio's classes, one for each API and version; `build`
makes them, whatever of their fields a version has. A request that kio does not know has no payload here, but its
header can still be read, and it passes.
"""

from __future__ import annotations

import io
import struct
import types
import typing
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from enum import IntEnum
from functools import cache
from typing import Any, Final

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta, i64Timedelta

from probes.kafka.wire.errors import Undecodable

Payload = Any
"""An instance of one of kio's request or response classes."""

NULLABLE_LENGTH: Final = struct.Struct(">h")
_HEAD: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")


class Api(IntEnum):
    """The requests that lies speak of; the rest go by their number."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    SASL_AUTHENTICATE = 36
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79


ALL_APIS: Final = frozenset(api_key_map)
"""Every API that kio knows."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """`body_at` is where the payload begins in the frame, or None where the request is not known here."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    body_at: int | None


def request_class(api: int, version: int) -> type[Payload] | None:
    return _classes(api, version)[0]


def response_class(api: int, version: int) -> type[Payload] | None:
    return _classes(api, version)[1]


@cache
def _classes(api: int, version: int) -> tuple[type[Payload] | None, type[Payload] | None]:
    try:
        return load_request_schema(api, version), load_response_schema(api, version)
    except KioIndexError:
        return None, None


def request_head(frame: bytes) -> RequestHead:
    """Raises `Undecodable` where this is no Kafka request at all."""
    try:
        api, version, correlation = _HEAD.unpack_from(frame)
        (length,) = NULLABLE_LENGTH.unpack_from(frame, _HEAD.size)
        at = _HEAD.size + NULLABLE_LENGTH.size
        client_id = frame[at : at + length].decode() if length >= 0 else None
        at += max(0, length)
        kind = request_class(api, version)
        if kind is None:
            return RequestHead(api, version, correlation, client_id, None)
        return RequestHead(api, version, correlation, client_id, _behind_tags(frame, at, kind))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Undecodable(f"a frame of {len(frame)} bytes is no Kafka request: {error}") from error


def correlation_of(frame: bytes) -> int:
    """The correlation id with which a response begins. Raises `Undecodable`."""
    if len(frame) < _CORRELATION.size:
        raise Undecodable(f"a frame of {len(frame)} bytes is no Kafka response")
    return int(_CORRELATION.unpack_from(frame)[0])


def decode_request(head: RequestHead, frame: bytes) -> Payload:
    """Raises `Undecodable`."""
    kind = request_class(head.api, head.version)
    if kind is None or head.body_at is None:
        raise Undecodable(f"request {head.api} of version {head.version} is not known to kio")
    return _read(kind, frame, head.body_at)


def new_request(api: int, version: int, correlation: int, client_id: str, payload: Payload) -> bytes:
    """The frame of a request of one's own."""
    header = type(payload).__header_schema__(
        request_api_key=api, request_api_version=version, correlation_id=correlation, client_id=client_id
    )
    return _written(header) + _written(payload)


def encode_request(head: RequestHead, frame: bytes, payload: Payload) -> bytes:
    """The frame with another payload; its header stays as it was."""
    return frame[: head.body_at] + _written(payload)


def decode_response(api: int, version: int, frame: bytes) -> Payload:
    """Raises `Undecodable`. An answer to ApiVersions of a version that the broker lacks is in version 0."""
    if api == Api.API_VERSIONS and frame[4:6] == _UNSUPPORTED:
        version = 0
    kind = response_class(api, version)
    if kind is None:
        raise Undecodable(f"response {api} of version {version} is not known to kio")
    return _read(kind, frame, _behind_tags(frame, _CORRELATION.size, kind))


def encode_response(correlation: int, payload: Payload) -> bytes:
    tags = b"\x00" if type(payload).__header_schema__.__flexible__ else b""
    return _CORRELATION.pack(correlation) + tags + _written(payload)


_UNSUPPORTED: Final = struct.pack(">h", ErrorCode.unsupported_version.value)


def _read(kind: type[Payload], frame: bytes, at: int) -> Payload:
    try:
        payload, size = entity_reader(kind)(frame, at)
    except Exception as error:  # kio lets through KeyError for an unknown tag, ValueError for an unknown error code ...
        raise Undecodable(f"{kind.__name__} of version {kind.__version__}: {error!r}") from error
    if at + size != len(frame):
        left = len(frame) - at - size
        raise Undecodable(f"{kind.__name__} of version {kind.__version__}: {left} bytes are left over")
    return payload


def _written(payload: Payload) -> bytes:
    out = io.BytesIO()
    entity_writer(type(payload))(out, payload)
    return out.getvalue()


def _behind_tags(frame: bytes, at: int, kind: type[Payload]) -> int:
    if not kind.__header_schema__.__flexible__:
        return at
    count, at = _unsigned(frame, at)
    for _ in range(count):
        _, at = _unsigned(frame, at)
        size, at = _unsigned(frame, at)
        at += size
    return at


def _unsigned(frame: bytes, at: int) -> tuple[int, int]:
    value = shifted = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shifted
        if byte < 0x80:
            return value, at
        shifted += 7


def acknowledged(head: RequestHead, frame: bytes) -> bool:
    """Whether a Produce request will be answered at all: with acks=0 it is not. Looks at three fields only."""
    if head.api != Api.PRODUCE or head.body_at is None:
        return True
    if head.version >= 9:
        length, at = _unsigned(frame, head.body_at)
        at += max(0, length - 1)
    else:
        (length,) = NULLABLE_LENGTH.unpack_from(frame, head.body_at)
        at = head.body_at + NULLABLE_LENGTH.size + max(0, length)
    return bool(NULLABLE_LENGTH.unpack_from(frame, at)[0])


def build(kind: type[Payload], **values: Any) -> Payload:
    """An instance with these values, as far as the version has such fields, and zero, empty or null everywhere else."""
    own = fields(kind)
    given = {one.name: values[one.name] for one in own if one.name in values}
    for one in own:
        if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
            given[one.name] = _zero(one)
    return kind(**given)


def element(kind: type[Payload], name: str) -> type[Payload]:
    """The class of the elements of an array field. Raises `KeyError` where the version has no such field."""
    (one,) = (field for field in fields(kind) if field.name == name) if _has(kind, name) else (None,)
    if one is None:
        raise KeyError(f"{kind.__name__} of version {kind.__version__} has no field {name}")
    return typing.cast(type[Payload], next(part for part in _parts(one.type) if hasattr(part, "__flexible__")))


def _has(kind: type[Payload], name: str) -> bool:
    return any(field.name == name for field in fields(kind))


def _parts(annotation: Any) -> list[Any]:
    inner = typing.get_args(annotation)
    return [annotation, *(part for one in inner for part in _parts(one))]


_ZEROES: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": i32Timedelta.parse(timedelta(0)),
    "timedelta_i64": i64Timedelta.parse(timedelta(0)),
    "datetime_i64": None,
}


def _zero(one: Field[Any]) -> Any:
    outer = typing.get_origin(one.type)
    options = typing.get_args(one.type) if outer in (typing.Union, types.UnionType) else (one.type,)
    if any(typing.get_origin(option) is tuple for option in options):
        return ()
    if type(None) in options:
        return None
    kafka_type = one.metadata.get("kafka_type")
    if kafka_type is None:
        return build(typing.cast(type[Payload], one.type))
    return _ZEROES.get(kafka_type, 0)


def milliseconds(count: int) -> timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
