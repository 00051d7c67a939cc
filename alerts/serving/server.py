"""Serves an application in a thread of its own, with an event loop of its own, beside the work of the process."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from alerts.serving.connection import Limits, connections

_STOPPED: Final = 5.0


class PortTaken(Exception):
    """The address for the metrics cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate, with the chain to what its readers trust, and its key; PEM."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises OSError or ssl.SSLError where they cannot be read, or do not belong together."""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)


class Server:
    """A running server. Port 0 takes a free one; `url` says which. Raises PortTaken."""

    def __init__(
        self, app: ASGIApp, *, host: str, port: int = 0, tls: Tls | None = None, limits: Limits | None = None
    ) -> None:
        bounds = limits or Limits.of_process()
        self._socket = _listening(host, port)
        config = uvicorn.Config(
            app,
            http=connections(bounds),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,  # a line per view helps nobody, and addresses may hold a token
            server_header=False,
            proxy_headers=False,
            limit_concurrency=bounds.connections,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=1,
            ssl_certfile=tls.certificate if tls is not None else None,
            ssl_keyfile=tls.key if tls is not None else None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http-server", daemon=True
        )
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls is not None else 'http'}://{shown}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """End it. Requests in hand are given a second."""
        self._server.should_exit = True
        self._thread.join(_STOPPED)
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise PortTaken(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from error
    return made
