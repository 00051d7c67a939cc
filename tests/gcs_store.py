"""Google's object store for tests: fake-gcs-server, of Go's registry, which decides conditional puts by generations as
Google's does. Skips where Go is not, or has it not.

It speaks Google's JSON API whole, and deltalake's client writes by the XML API, of which the server lacks conditional
puts and `start-after` of listings. What stands in front of it says the same in JSON, and leaves the decision to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from tests.waiting import first_answer

VERSION = "v1.56.1"
MODULE = "github.com/fsouza/fake-gcs-server"
CHECKOUT = Path(__file__).resolve().parent.parent


def installed() -> Path:
    """Its program. Kept beside what else was fetched for this checkout, since it takes a minute of two cores."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    folder = CHECKOUT / ".offsetwatch" / f"fake-gcs-server-{VERSION}"
    program = folder / "fake-gcs-server"
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [go, "install", "-buildvcs=false", f"{MODULE}@{VERSION}"]
        mine = os.environ | {"GOBIN": str(folder)}
        had = subprocess.run(command, env=mine, capture_output=True, text=True, check=False)
        if had.returncode:
            pytest.skip(f"{MODULE} cannot be had: {had.stderr.strip()[-200:]}")
    return program


@contextmanager
def store() -> Iterator[int]:
    """A store with a bucket named `bucket`; its port."""
    program = installed()
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, front = free.getsockname()[1], other.getsockname()[1]
    asked = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    quiet = ["-backend", "memory", "-log-level", "error"]
    # Processes of their own: deltalake's access to objects holds the interpreter while it waits for an answer.
    with (
        subprocess.Popen([program, *asked, *quiet], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        subprocess.Popen([sys.executable, "-m", __name__, str(front), str(port)], cwd=CHECKOUT) as in_xml,
    ):
        try:
            _make_bucket(port)
            _make_bucket(front)
            yield front
        finally:
            process.terminate()
            in_xml.terminate()


def environment(port: int) -> dict[str, str]:
    """How a process is told of the store, or of the proxy, at this port."""
    account = {"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}


def _make_bucket(port: int) -> None:
    """Make it as soon as the store answers. Raises TimeoutError."""
    told = json.dumps({"name": "bucket"}), {"Content-Type": "application/json"}
    status, said = first_answer(port, lambda asked: asked.request("POST", "/storage/v1/b?project=test", *told))
    assert status in (200, 409), said  # the second time it is there


class _InXml(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, behind: int) -> None:
        super().__init__(("127.0.0.1", port), _Pass)
        self.behind = behind

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up too."""


class _Pass(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _InXml

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, method = self.path, self.command
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        if method == "PUT":
            bucket, _, name = urlsplit(path).path.lstrip("/").partition("/")
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
            wanted = self.headers.get("x-goog-if-generation-match")
            path += f"&ifGenerationMatch={wanted}" if wanted is not None else ""
            method, headers = "POST", {"Content-Type": "application/octet-stream"}
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        behind.request(method, path, body, headers)
        answer = behind.getresponse()
        said, told = answer.read(), answer.getheaders()
        behind.close()
        if self.command == "PUT" and answer.status == 200:
            generation = json.loads(said)["generation"]
            said, told = b"", [("ETag", f'"{generation}"'), ("x-goog-generation", generation)]
        for after in parse_qs(urlsplit(self.path).query).get("start-after", ()):
            said = _listed_after(said, unquote(after).encode())
        self.send_response(answer.status)
        left_out = {"transfer-encoding", "connection", "server", "date", "content-length"}
        for name, value in told:
            if name.lower() not in left_out:
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(said))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        pass


def _listed_after(listing: bytes, key: bytes) -> bytes:
    """A listing without what does not come after this key."""

    def kept(entry: re.Match[bytes]) -> bytes:
        own = re.search(rb"<Key>(.*?)</Key>", entry[0])
        return entry[0] if own is not None and own[1] > key else b""

    return re.sub(rb"<Contents>.*?</Contents>", kept, listing, flags=re.DOTALL)


if __name__ == "__main__":
    with _InXml(*map(int, sys.argv[1:3])) as front:
        front.serve_forever()
