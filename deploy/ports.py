"""Free loopback ports for servers that must be able to come back on them.

They are taken from below the range that the kernel gives to outgoing connections. A port from within that range can be
lost while its broker is down: to any client's outgoing connection, or to a client that keeps connecting to the dead
broker, is given that very port as its own, and so connects to itself.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from deploy.errors import KafkaFailed

HOST = "127.0.0.1"
_LOWEST = 15_000
_HIGHEST = 32_000
"""Below where Linux (32768) and other systems (49152) let outgoing connections begin."""
_TRIES = 1_000


def free_ports(count: int, but: Collection[int] = ()) -> list[int]:
    """`count` different ports, none of `but`, that nobody was bound to a moment ago.

    Raises `KafkaFailed` where there are none."""
    chosen: list[int] = []
    outgoing = _outgoing()
    with ExitStack() as held:
        for _ in range(_TRIES):
            if len(chosen) == count:
                break
            port = random.randrange(_LOWEST, _HIGHEST)
            if port in outgoing or port in but:
                continue
            with suppress(OSError):
                bound = held.enter_context(socket.socket())
                bound.bind((HOST, port))
                chosen.append(port)
    if len(chosen) < count:
        raise KafkaFailed(f"found no {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}")
    return chosen


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now. Connections that are only lingering do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _outgoing() -> range:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return range(0)
    # Where the kernel was told to use all of it, there is no safe place left, and any will do.
    return range(int(low), int(high) + 1) if int(low) > _LOWEST + _TRIES else range(0)
