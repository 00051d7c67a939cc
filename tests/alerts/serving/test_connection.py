"""Who connects and does not ask keeps nobody from the page."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from alerts.exposition import Exposition
from alerts.serving.connection import Limits, _origin
from alerts.serving.server import Server
from tests.monitor.status.serving import Monitor, Served, served, state

SHORT = 1.0
LONG = 120.0
"""Seconds in which a busy machine has done it, too."""


@contextmanager
def page(tables: Path, limits: Limits, token: str | None = None) -> Iterator[Served]:
    with served(Monitor().board(state()), tables, limits=limits, token=token) as made:
        yield made


def connected(to: Served) -> socket.socket:
    where = urlsplit(to.url)
    assert where.hostname is not None and where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=LONG)


def answered(to: Served) -> bool:
    try:
        return to.get("/live").status == 200
    except (OSError, HTTPException):
        return False


def comes(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + LONG
    while not (so := true()) and time.monotonic() < end:
        time.sleep(0.1)
    return so


def closed(connection: socket.socket) -> bool:
    """It is closed by the other side, after what that had to say; False where it is open for `LONG`."""
    try:
        while connection.recv(4_096):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n"], ids=["nothing", "half a head"])
def test_connections_that_do_not_ask_are_closed_and_others_answered(tmp_path: Path, sent: bytes) -> None:
    with page(tmp_path, Limits(200, SHORT)) as shown, ExitStack() as held:
        for _ in range(250):
            one = held.enter_context(closing(connected(shown)))
            with suppress(ConnectionError):  # it may be closed by now
                one.sendall(sent)
        assert comes(lambda: answered(shown))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /live HT",
    ],
    ids=["a page", "the form", "a second one"],
)
def test_the_rest_of_a_request_has_to_come_as_well(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with page(tmp_path, Limits(200, SHORT), token="secret") as shown, closing(connected(shown)) as slow:
        slow.sendall(sent)
        time.sleep(SHORT / 4)
        with suppress(ConnectionError):
            slow.sendall(b"x")
        assert closed(slow)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_connection_that_trickles_is_closed_like_one_that_is_silent(tmp_path: Path) -> None:
    with page(tmp_path, Limits(200, SHORT)) as shown, closing(connected(shown)) as slow:
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() < began + LONG:
                slow.sendall(b"G")
                time.sleep(SHORT / 5)


def kept(connection: socket.socket) -> bool:
    """It is open for longer than a request may take, and again. False also where the test itself stood still and asked
    too late."""
    for _ in range(3):
        answer = b""
        with suppress(ConnectionError):
            connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not answer.endswith(b"ok\n") and (more := connection.recv(4_096)):
                answer += more
        if not answer:
            return False
        assert answer.startswith(b"HTTP/1.1 200 ")
        time.sleep(SHORT * 1.5)
    return True


def test_one_that_asks_is_kept_longer_than_a_request_may_take(tmp_path: Path) -> None:
    with page(tmp_path, Limits(200, SHORT)) as shown:
        for _ in range(10):
            with closing(connected(shown)) as connection:
                if kept(connection):
                    return
    raise AssertionError("it is always closed")


def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    with page(tmp_path, Limits(3, 10 * LONG)) as shown, ExitStack() as held:
        for _ in range(3):
            held.enter_context(closing(connected(shown)))
        with closing(connected(shown)) as beyond:
            assert closed(beyond)


@contextmanager
def metrics(limits: Limits) -> Iterator[Served]:
    """The probes' own server of metrics."""
    exposition = Exposition(CollectorRegistry(), limits=limits)
    try:
        yield Served(exposition.url.removesuffix("/metrics"))
    finally:
        exposition.close()


@pytest.mark.parametrize("of_probes", [False, True], ids=["the page", "the probes' metrics"])
def test_a_flood_from_one_address_keeps_nobody_else_out(tmp_path: Path, of_probes: bool) -> None:
    limits = Limits(60, 10 * LONG, of_one=30)
    with metrics(limits) if of_probes else page(tmp_path, limits) as shown, ExitStack() as held:
        where = urlsplit(shown.url)
        assert where.hostname is not None and where.port is not None
        flood = [
            held.enter_context(
                closing(socket.create_connection((where.hostname, where.port), LONG, source_address=("127.0.0.2", 0)))
            )
            for _ in range(100)
        ]
        assert answered(shown), "from another address, while all of them are held"
        for one in flood[30:]:
            assert closed(one)
        for one in flood[:30]:
            one.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(4_096).startswith(b"HTTP/1.1 200 "), "those that were there first are served"


@pytest.mark.parametrize("of_probes", [False, True], ids=["the page", "the probes' metrics"])
def test_connections_that_are_held_without_asking_are_closed(tmp_path: Path, of_probes: bool) -> None:
    limits = Limits(40, SHORT)
    with metrics(limits) if of_probes else page(tmp_path, limits) as shown, ExitStack() as held:
        for _ in range(200):
            one = held.enter_context(closing(connected(shown)))
            with suppress(ConnectionError):  # it may be closed by now
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert comes(lambda: answered(shown))


async def large(scope: Any, receive: Any, send: Any) -> None:
    """An answer that no kernel keeps for its reader."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(32_000_000)})


@pytest.mark.parametrize("reads", [False, True], ids=["nothing", "a trickle"])
def test_who_does_not_read_the_answer_is_closed(reads: bool) -> None:
    server = Server(large, host="127.0.0.1", limits=Limits(10, LONG, answer=SHORT))
    try:
        with closing(connected(Served(server.url))) as slow, pytest.raises(ConnectionError):
            slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            began = time.monotonic()
            while time.monotonic() < began + LONG:
                time.sleep(SHORT / 10)
                if reads:
                    assert slow.recv(1_000)
                slow.sendall(b"x")  # tells whether the other side is there
    finally:
        server.close()


def test_whose_a_connection_is() -> None:
    one, same, other = (
        _origin((address, 1)) for address in ("2001:db8:1:2::3", "2001:db8:1:2:9::4", "2001:db8:1:3::3")
    )
    assert one == same != other
    assert _origin(("fe80::1%eth0", 1)) == _origin(("fe80::2", 1))
    assert _origin(("10.0.0.1", 1)) == "10.0.0.1" and _origin(None) is None


@pytest.mark.parametrize(
    ("files", "connections"), [(1_024, 256), (20_000, 1_000), (2, 1), (resource.RLIM_INFINITY, 1_000)]
)
def test_as_many_connections_as_files_allow(monkeypatch: pytest.MonkeyPatch, files: int, connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert (Limits.of_process().connections, Limits.of_process().of_one) == (connections, max(1, connections // 2))
