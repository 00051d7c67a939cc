"""Serves `/metrics`, `/live` and `/ready` over HTTP, on this machine alone unless told otherwise.

`/live` answers 200 as long as the process does. `/ready` answers 200 once it does its work, and else 503 with the
reason. Read-only; anything else is 404.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

Ready = Callable[[], str | None]
"""Why the process does not do its work, None where it does."""

_STARTED: Final = "<a href='/metrics'>/metrics</a> <a href='/live'>/live</a> <a href='/ready'>/ready</a>"


class PortTaken(Exception):
    """The address for the metrics cannot be listened on."""


class _Quiet(WSGIRequestHandler):
    def log_message(self, *given: object) -> None:
        """A line per scrape helps nobody."""


class _Server(ThreadingWSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def _always() -> str | None:
    return None


class Exposition:
    """A running HTTP server for one registry. Port 0 takes a free one; `url` says which."""

    def __init__(
        self, registry: CollectorRegistry, *, host: str = "127.0.0.1", port: int = 0, ready: Ready = _always
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # when a series began doubles their number, and nobody asks
        server = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, _pages(registry, ready), server, handler_class=_Quiet)
        except OSError as error:
            raise PortTaken(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="exposition", daemon=True)
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _pages(registry: CollectorRegistry, ready: Ready) -> Any:
    metrics = make_wsgi_app(registry)

    def pages(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            answered: Iterable[bytes] = metrics(environ, start)
            return answered
        reason = ready() if path == "/ready" else None
        if path in ("/live", "/ready"):
            status, text = ("503 Service Unavailable", reason) if reason is not None else ("200 OK", "ok")
        elif path == "/":
            start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [_STARTED.encode()]
        else:
            status, text = "404 Not Found", "there are /metrics, /live and /ready"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return pages
