"""An object store for tests: moto's server, which speaks S3, as a process of its own, and a proxy in front of it that
fails as networks do. Of its own because deltalake's file system holds the interpreter while it waits for an answer."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

import pytest

from streaming_jobs import location

SECRET = "SECRET-access-key"
ONE_AFTER_THE_OTHER = """
import io, sys, threading
import moto.server as server

begun, lock = server.DomainDispatcherApplication.__call__, threading.Lock()

def call(app, environ, start_response):
    if "HTTP_IF_NONE_MATCH" not in environ:
        return begun(app, environ, start_response)
    whole = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(whole)  # nobody waits for a client that was cut off
    with lock:
        return begun(app, environ, start_response)

server.DomainDispatcherApplication.__call__ = call
server.main(sys.argv[1:])
"""
"""moto looks whether an object is there, and then puts it: of two that ask at once both may be told yes."""


@contextmanager
def store() -> Iterator[int]:
    """A store with a bucket named `bucket`; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(1200):
            try:
                asked = http.client.HTTPConnection("127.0.0.1", port)
                asked.request("PUT", "/bucket")
                asked.getresponse().read()
                asked.close()
                break
            except ConnectionError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def environment(port: int) -> dict[str, str]:
    """How a process is told of the store, or of the proxy, at this port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


@contextmanager
def known_here(told: int | Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is told of the store at a port, or of one of another kind by its `environment`, and keeps no
    connection to another one."""
    for name, value in (environment(told) if isinstance(told, int) else told).items():
        monkeypatch.setenv(name, value)
    location._store.cache_clear()
    yield
    location._store.cache_clear()


class Proxy(ThreadingHTTPServer):
    """Passes requests on. `unavailable` of them are answered 503 instead, and while it is `away` none is answered; of
    `lost` commits the answer never comes. `refusal`, where it is set, is the answer to everything. With `overwrites` an
    object is put although there is one. `without`: what is below a path with these words in it is answered 503. Where
    it is `verbose`, it prints what it is asked for."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.behind, self.unavailable, self.lost, self.delay = port, 0, 0, 0.0
        self.away = self.overwrites = self.verbose = False
        self.refusal: tuple[int, bytes] | None = None
        self.without: str | None = None

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up too."""


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    with Proxy(port) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


class _Pass(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.verbose:
            print(self.command, self.path, flush=True)
        time.sleep(self.server.delay)
        if self.server.away:
            self.close_connection = True
            return
        if self.server.refusal is not None:
            self._answer(*self.server.refusal)
            return
        if self.server.without is not None and self.server.without in self.path:
            self._answer(503, b"")
            return
        if self.server.unavailable:
            self.server.unavailable -= 1
            self._answer(503, b"")
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        told = dict(self.headers)
        if self.server.overwrites:
            told = {name: value for name, value in told.items() if name.lower() != "if-none-match"}
        behind.request(self.command, self.path, body, told)
        answer = behind.getresponse()
        said = answer.read()
        behind.close()
        if (
            self.server.lost
            and self.command == "PUT"
            and unquote(self.path).endswith(".json")
            and answer.status in (200, 201)
        ):
            self.server.lost -= 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        pass
