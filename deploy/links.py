"""The links between the brokers of a local cluster, as TCP connections that pass through this process and can be cut.

A node that is *cut* is one whose network to its peers drops every packet, both ways, while its clients still reach it:
connections stay open, nobody is told anything, and what was sent goes through when the link is mended, as TCP's own
retransmissions would bring it. So nothing is closed here: bytes, new connections and ends of connections are held.

Brokers advertise a forwarder of ours to their peers instead of their own port. Whom a connection leads to is known by
the forwarder that was asked; whom it comes from by asking the kernel which broker's process holds its other end. Both
are needed, because a broker that is cut neither answers its peers nor asks them. This needs no privilege, and changes
nothing on the machine outside this process: network namespaces would need both.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.errors import AddressInUse, KafkaFailed
from deploy.ports import HOST

_CHUNK: Final = 1 << 18
_BACKLOG: Final = 128
_PATIENCE_S: Final = 10.0
_TABLES: Final = (Path("/proc/net/tcp6"), Path("/proc/net/tcp"))


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Connections to `listen` lead to the port `target` of node `node`."""

    node: int
    listen: int
    target: int


def owner_of(port: int, to: int, processes: Mapping[int, int]) -> int | None:
    """Which node's process holds the TCP connection from the local port `port` to the local port `to`.

    `processes`: node id to process number. None where it is none of them, or the connection is gone."""
    inode = _inode(port, to)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for node, pid in processes.items():
        with suppress(OSError):
            # The newest descriptors last: a connection that was just made is most often among them.
            for held in sorted(os.listdir(f"/proc/{pid}/fd"), key=int, reverse=True):  # noqa: PTH208 (many, and hot)
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{held}") == wanted:  # noqa: PTH115
                        return node
    return None


def _inode(port: int, to: int) -> str | None:
    """The kernel's number of the socket that is connected from one local port to another."""
    # Java's sockets are of IPv6 also where both ends are of IPv4.
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, _, _, _, _, _, _, inode, *_ = line.split()
                if int(local[-4:], 16) == port and int(remote[-4:], 16) == to:
                    return inode
    return None


class Links:
    """Forwards until `close`. `processes` tells the process numbers of the nodes that run, by node id.

    Thread-safe. State: one task pair for each open connection."""

    def __init__(self, processes: Callable[[], dict[int, int]]) -> None:
        if not _TABLES[1].is_file():
            raise KafkaFailed("brokers can be cut off from each other on Linux only: /proc/net/tcp is not there")
        self._processes = processes
        self._cut: set[int] = set()
        self._mended = asyncio.Event()
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker-links", daemon=True)
        self._thread.start()

    @property
    def cut(self) -> frozenset[int]:
        """The nodes that are cut off from all others."""
        return frozenset(self._cut)

    def forward(self, forwarding: Forwarding) -> None:
        """Begin to listen. Raises `AddressInUse` where the port is taken."""
        try:
            self._call(self._listen(forwarding))
        except OSError as error:
            where = f"port {forwarding.listen}: {error.strerror or error}"
            raise AddressInUse(f"the link to broker {forwarding.node} cannot listen on {where}") from error

    def forget(self, node: int) -> None:
        """Listen no more for this node."""
        self._call(self._stop_listening(node))

    def isolate(self, node: int) -> None:
        """Cut a node off from all others; nothing where it is."""
        self._call(self._change(self._cut | {node}))

    def mend(self, node: int) -> None:
        """Undo `isolate`; nothing where the node is not cut."""
        self._call(self._change(self._cut - {node}))

    def close(self) -> None:
        """End all connections and the thread; nothing, a second time."""
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def _call(self, work: Any) -> None:
        if self._loop.is_closed():
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _listen(self, forwarding: Forwarding) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connection(forwarding, reader, writer)

        server = await asyncio.start_server(
            accepted, HOST, forwarding.listen, backlog=_BACKLOG, limit=_CHUNK, reuse_address=True
        )
        self._servers.setdefault(forwarding.node, []).append(server)

    async def _stop_listening(self, node: int) -> None:
        for server in self._servers.pop(node, []):
            server.close()

    async def _change(self, cut: set[int]) -> None:
        self._cut = cut
        # Whoever waits looks again whether it is its link that was mended.
        self._mended.set()
        self._mended = asyncio.Event()

    async def _end(self) -> None:
        for node in list(self._servers):
            await self._stop_listening(node)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _connection(
        self, forwarding: Forwarding, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        target: asyncio.StreamWriter | None = None
        try:
            port = writer.get_extra_info("peername")[1]
            source = await asyncio.to_thread(owner_of, port, forwarding.listen, self._processes())
            ends = (source, forwarding.node)
            await self._open(ends)
            answers, target = await asyncio.open_connection(HOST, forwarding.target, limit=_CHUNK)
            await asyncio.gather(self._pump(ends, reader, target), self._pump(ends, answers, writer))
        except (OSError, asyncio.CancelledError):
            pass  # an end is gone, or we are: the other learns it by the close
        finally:
            for end in (writer, target):
                if end is not None:
                    end.close()  # what was written before is still sent
            self._connections.discard(task)

    async def _pump(self, ends: tuple[int | None, int], source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        """One direction, until its source ends: then both are ended, as Kafka never half-closes."""
        while True:
            try:
                chunk = await source.read(_CHUNK)
            except OSError:
                chunk = b""
            await self._open(ends)
            if not chunk:
                raise ConnectionResetError
            to.write(chunk)
            await to.drain()

    async def _open(self, ends: tuple[int | None, int]) -> None:
        """Wait until nothing is cut between these. A node always reaches itself, and a stranger everybody."""
        source, node = ends
        while source is not None and source != node and not self._cut.isdisjoint(ends):
            await self._mended.wait()
