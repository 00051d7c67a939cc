"""Links between processes, cut and mended, over real sockets. Real brokers are cut in tests/monitor/drill/faults."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from deploy.errors import AddressInUse
from deploy.links import Forwarding, Links, owner_of
from deploy.ports import HOST, free_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")

SOON = 60.0
NEVER = 0.4


class Echo:
    """Node 2: answers what it is sent, and counts its connections."""

    def __init__(self) -> None:
        self.accepted = 0
        self._server = socket.create_server((HOST, 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        with connection:
            while read := connection.recv(1 << 16):
                connection.sendall(read)


@pytest.fixture
def echo() -> Iterator[Echo]:
    served = Echo()
    yield served
    served.close()


@pytest.fixture
def processes() -> dict[int, int]:
    """This process plays node 1."""
    return {1: os.getpid()}


@pytest.fixture
def links(processes: dict[int, int]) -> Iterator[Links]:
    made = Links(lambda: processes)
    yield made
    made.close()


@pytest.fixture
def to_echo(links: Links, echo: Echo) -> int:
    port = free_ports(1)[0]
    links.forward(Forwarding(2, port, echo.port))
    return port


def connected(port: int) -> socket.socket:
    made = socket.create_connection((HOST, port), SOON)
    made.settimeout(SOON)
    return made


def answered(connection: socket.socket, said: bytes, within: float) -> bool:
    connection.settimeout(within)
    try:
        connection.sendall(said)
        heard = b""
        while len(heard) < len(said):
            heard += connection.recv(1 << 16)
    except TimeoutError:
        return False
    return heard == said


def test_what_passes_is_what_was_sent(to_echo: int) -> None:
    with connected(to_echo) as connection:
        said = os.urandom(3_000_000)
        sender = threading.Thread(target=connection.sendall, args=(said,))
        sender.start()
        heard = b""
        while len(heard) < len(said):
            heard += connection.recv(1 << 20)
        sender.join()
        assert heard == said


@pytest.mark.parametrize("cut", [1, 2])
def test_a_cut_holds_everything_and_loses_nothing(links: Links, to_echo: int, cut: int) -> None:
    with connected(to_echo) as connection:
        assert answered(connection, b"before", SOON)
        links.isolate(cut)
        links.isolate(cut)
        assert links.cut == {cut}
        assert not answered(connection, b"during", NEVER)
        links.mend(3)
        links.mend(cut)
        connection.settimeout(SOON)
        assert connection.recv(6) == b"during"


def test_a_connection_made_while_cut_arrives_when_it_is_mended(links: Links, echo: Echo, to_echo: int) -> None:
    links.isolate(2)
    with connected(to_echo) as connection:
        assert not answered(connection, b"hello", NEVER)
        assert echo.accepted == 0
        links.mend(2)
        connection.settimeout(SOON)
        assert connection.recv(5) == b"hello"


def test_nobody_learns_of_an_end_behind_a_cut(links: Links, to_echo: int) -> None:
    with connected(to_echo) as connection:
        assert answered(connection, b"before", SOON)
        links.isolate(2)
        links.forget(2)
        connection.settimeout(NEVER)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_strangers_and_a_node_itself_are_never_cut_off(links: Links, to_echo: int, processes: dict[int, int]) -> None:
    links.isolate(2)
    processes.clear()
    processes[2] = os.getpid()
    with connected(to_echo) as itself:
        assert answered(itself, b"to myself", SOON)
    processes.clear()
    with connected(to_echo) as stranger:
        assert answered(stranger, b"who are you", SOON)


def test_a_connection_belongs_to_the_process_that_holds_this_end_of_it(echo: Echo) -> None:
    with connected(echo.port) as connection:
        port = connection.getsockname()[1]
        assert owner_of(port, echo.port, {7: 1, 8: os.getpid()}) == 8
        assert owner_of(port, echo.port, {7: os.getppid()}) is None
        assert owner_of(port, port, {8: os.getpid()}) is None


def test_a_taken_port_is_named_and_a_second_close_is_nothing(links: Links, echo: Echo) -> None:
    with pytest.raises(AddressInUse, match=f"^the link to broker 2 cannot listen on port {echo.port}: "):
        links.forward(Forwarding(2, echo.port, 1))
    links.close()
    links.close()
    links.mend(2)
