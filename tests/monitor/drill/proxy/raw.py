"""A client that sends any frame in any order: for what no real client can be made to do on purpose."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from probes.kafka.wire.messages import Payload, build, decode_response, new_request, request_class

LIMIT_S = 120.0


class Raw:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), LIMIT_S)

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(frame)) + frame)

    def send(self, api: int, version: int, correlation: int, **values: Any) -> None:
        kind = request_class(api, version)
        assert kind is not None
        self.send_frame(new_request(api, version, correlation, "raw", build(kind, **values)))

    def receive(self) -> bytes | None:
        """The next frame, or None where the connection was closed, in order or not."""
        try:
            length = self._exactly(4)
            return self._exactly(struct.unpack(">I", length)[0]) if length else None
        except ConnectionResetError:
            return None

    def call(self, api: int, version: int, **values: Any) -> Payload:
        self.send(api, version, 1, **values)
        frame = self.receive()
        assert frame is not None, "the connection was closed"
        return decode_response(api, version, frame)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                return b""
            parts += part
        return bytes(parts)


def correlation(frame: bytes | None) -> int:
    assert frame is not None, "the connection was closed"
    return int(struct.unpack_from(">i", frame)[0])
