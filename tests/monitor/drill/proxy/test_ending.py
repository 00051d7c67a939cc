"""A proxy ends while clients connect: no socket of theirs is left open."""

from __future__ import annotations

import gc
import socket
import sys
import threading
import time

import pytest

from monitor.drill.proxy import Proxy


@pytest.mark.slow
def test_whoever_connects_as_the_proxy_ends_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: left.append(about.exc_value))
    ended = threading.Event()

    def knock(address: tuple[str, int]) -> None:
        while not ended.is_set():
            try:
                socket.create_connection(address, timeout=1).close()
            except OSError:
                time.sleep(0.001)

    with socket.create_server(("127.0.0.1", 0)) as broker:
        for _ in range(10):
            with Proxy(f"127.0.0.1:{broker.getsockname()[1]}") as proxy:
                host, _, port = proxy.bootstrap.rpartition(":")
                clients = [threading.Thread(target=knock, args=[(host, int(port))]) for _ in range(2)]
                ended.clear()
                for client in clients:
                    client.start()
                time.sleep(0.05)
            ended.set()
            for client in clients:
                client.join()
            gc.collect()
    assert left == []
