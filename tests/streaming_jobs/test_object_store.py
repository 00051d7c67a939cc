"""The probe log in an object store: appended by deltalake and read by the stream's source, through a server that
speaks S3 (moto's, where it is installed) and a proxy in front of it that fails as networks do."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from deltalake import DeltaTable

from probes.log.commits.history import History
from probes.log.errors import HistoryConflict
from rules.vocabulary.slices import to_table
from streaming_jobs.errors import GONE
from streaming_jobs.history.files import tables
from streaming_jobs.history.log_source import ProbeLogReader
from streaming_jobs.location import TableUrl
from tests.streaming_jobs.probe_log import duplicates

MOTO = shutil.which("moto_server")
PARTS = [to_table(rows) for rows in duplicates(3)]
APP = "committer"


class Proxy(ThreadingHTTPServer):
    """Passes requests on. `unavailable` of them are answered 503 instead; of `lost` commits the answer never comes."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.behind, self.unavailable, self.lost, self.delay = port, 0, 0, 0.0


class _Pass(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(self.server.delay)
        if self.server.unavailable:
            self.server.unavailable -= 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        told = answer.read()
        behind.close()
        if self.server.lost and self.command == "PUT" and self.path.endswith(".json") and answer.status == 200:
            self.server.lost -= 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("server", "date", "connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.headers.get("Content-Length") or str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    if MOTO is None:
        pytest.skip("moto_server is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [MOTO, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            try:
                asked = http.client.HTTPConnection("127.0.0.1", port)
                asked.request("PUT", "/bucket")
                assert asked.getresponse().read() is not None
                asked.close()
                break
            except ConnectionError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy(server) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        given = {"ENDPOINT_URL": f"http://127.0.0.1:{made.server_port}", "ALLOW_HTTP": "true", "REGION": "us-east-1"}
        for name, value in {**given, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("DIRECT", f"http://127.0.0.1:{server}")
        yield made
        made.shutdown()


@pytest.fixture
def log(proxy: Proxy, request: pytest.FixtureRequest) -> History:
    return History(f"s3://bucket/some prefix/{proxy.server_port}/history")


def rows_of(log: History, start: int = 0) -> int:
    """The rows from a commit on, as the stream's source gives them to its tasks. Without the proxy: deltalake's file
    system holds the interpreter while it waits, and so the proxy's threads."""
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": str(start), "files": "1000", "bytes": str(1 << 30)})
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    tasks = reader.partitions(begin, end)
    return sum(part.num_rows for task in tasks for part in tables(task.blocks))  # type: ignore[attr-defined]


def append(log: History, *, version: int) -> None:
    """As the committer does: it asks first, and after an error."""
    assert (log.last_version(APP) or 0) == version - 1
    log.append(PARTS[version - 1], APP, version)


def test_what_is_appended_at_a_url_is_read_there(log: History) -> None:
    for version in (1, 2, 3):
        append(log, version=version)
    assert rows_of(log) == sum(part.num_rows for part in PARTS) == DeltaTable(log.uri).count()


def test_a_commit_whose_answer_is_lost_is_known_and_not_made_twice(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    assert log.last_version(APP) == 1
    proxy.lost = 1
    with pytest.raises(HistoryConflict):  # asked again by the client, the store says that the commit is there
        log.append(PARTS[1], APP, 2)
    assert log.last_version(APP) == 2
    assert rows_of(log) == PARTS[0].num_rows + PARTS[1].num_rows


def test_a_store_that_is_slow_and_refuses_now_and_then_loses_nothing(log: History, proxy: Proxy) -> None:
    append(log, version=1)
    proxy.delay, proxy.unavailable = 0.05, 2
    append(log, version=2)
    assert rows_of(log) == PARTS[0].num_rows + PARTS[1].num_rows


def test_a_commit_that_retention_has_taken_ends_the_stream(log: History) -> None:
    append(log, version=1)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": "-1", "files": "9", "bytes": "9"})
    with pytest.raises(FileNotFoundError, match=GONE):
        reader.latestOffset({"version": -1, "file": 0}, reader.getDefaultReadLimit())


def test_a_store_is_not_asked_for_the_next_commit_all_the_time(log: History, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, version=1)
    os.environ["AWS_ENDPOINT_URL"] = os.environ["DIRECT"]
    reader = ProbeLogReader({"path": log.uri, "version": "2", "files": "9", "bytes": "9"})
    asked: list[str] = []
    monkeypatch.setattr(TableUrl, "read_text", lambda place: asked.append(place.name) or (_ for _ in ()).throw(
        FileNotFoundError(place.name)))  # fmt: skip
    for _ in range(20):
        assert reader.latestOffset({"version": 2, "file": 0}, reader.getDefaultReadLimit()) == {"version": 2, "file": 0}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://b/x", "not of 'http'"),
        ("s3:///x", "no bucket"),
        ("s3://k:SECRET@b/x", "credentials"),
        ("s3://b?a", "no"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        TableUrl(url)
    assert "SECRET" not in str(refused.value)
