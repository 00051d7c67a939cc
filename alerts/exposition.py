"""Serves `/metrics` over HTTP, on this machine alone unless told otherwise."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server


class PortTaken(Exception):
    """The address for the metrics cannot be listened on."""


class Exposition:
    """A running HTTP server for one registry. Port 0 takes a free one; `url` says which."""

    def __init__(self, registry: CollectorRegistry, *, host: str = "127.0.0.1", port: int = 0) -> None:
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise PortTaken(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
