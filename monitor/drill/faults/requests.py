"""Requests to brokers that the client library has no call for: one request, one answer, on a connection of its own.

(What it has is used: but its listing of a group's offsets crashes the process, and it cannot ask who coordinates a
transactional id, who is the controller, or for replicas to be moved.)
"""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from kio.serial import entity_reader, entity_writer

from deploy.local_kafka import LocalKafka
from deploy.ports import HOST
from monitor.drill.errors import DrillFailed

_CORRELATION: Final = 1
_CLIENT: Final = "offsetwatch-drill"
_LENGTH: Final = struct.Struct(">i")
_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.1

T = TypeVar("T")


def ask(host: str, port: int, request: Any, answer: type[T], timeout: float = _TIMEOUT_S) -> T:
    """Send a request of kio to one broker and return its answer, of the type `answer` and the same version.

    Raises OSError where the broker does not answer within `timeout` seconds."""
    kind = type(request)
    body = io.BytesIO()
    header = kind.__header_schema__(
        request_api_key=kind.__api_key__,
        request_api_version=kind.__version__,
        correlation_id=_CORRELATION,
        client_id=_CLIENT,
    )
    entity_writer(type(header))(body, header)
    entity_writer(kind)(body, request)
    with socket.create_connection((host, port), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(_LENGTH.pack(body.tell()) + body.getvalue())
        (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
        frame = _read(connection, length)
    _, at = entity_reader(answer.__header_schema__)(frame, 0)  # type: ignore[attr-defined]
    answered, _ = entity_reader(answer)(frame, at)  # type: ignore[type-var]
    return answered


def ask_any(cluster: LocalKafka, request: Any, answer: type[T]) -> T:
    """As `ask`, of the first running broker that answers. Raises OSError where none does."""
    for told in _ask_each([broker.port for broker in cluster.brokers if broker.running], request, answer):
        return told
    raise ConnectionError(f"no broker of the cluster in {cluster.folder} answers")


def ask_controllers(cluster: LocalKafka, request: Any, answer: type[T]) -> Iterator[T]:
    """As `ask`, of every controller itself, one after the other; those that do not answer are passed over.

    A broker would pass the request on to whom it takes for the active controller, for half a minute also to one that is
    cut off."""
    ports = [cluster.controller_port(broker.id) for broker in cluster.brokers if broker.running]
    return _ask_each([port for port in ports if port is not None], request, answer)


def _ask_each(ports: Iterable[int], request: Any, answer: type[T]) -> Iterator[T]:
    for port in ports:
        with suppress(OSError):
            yield ask(HOST, port, request, answer)


def until(look: Callable[[], T | None], seconds: float, what: str) -> T:
    """What `look` returns, as soon as it is not None; an OSError is no answer yet.

    Raises DrillFailed after `seconds`, naming `what` was waited for."""
    limit = time.monotonic() + seconds
    while True:
        try:
            seen = look()
        except OSError:
            seen = None
        if seen is not None:
            return seen
        if time.monotonic() > limit:
            raise DrillFailed(f"{what} was not there within {seconds:.0f} s")
        time.sleep(_PAUSE_S)


def _read(connection: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise ConnectionResetError("the broker closed the connection before it had answered")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
