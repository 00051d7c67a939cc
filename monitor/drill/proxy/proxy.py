"""The proxy: a listener on loopback for every broker, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TypeVar

from monitor.drill.proxy.addresses import AddressBook
from monitor.drill.proxy.connection import Connection
from monitor.drill.proxy.errors import ProxyFailed
from monitor.drill.proxy.lie import Lie
from monitor.drill.proxy.side import Side
from probes.kafka.wire.frames import BUFFER
from probes.kafka.wire.upstream import PLAIN, Address, Stream, Upstream

HOST: Final = "127.0.0.1"
_OPEN_LIMIT_S: Final = 10.0

Result = TypeVar("Result")


class Proxy:
    """Stands between clients and the cluster at `bootstrap`; without lies it alters nothing but addresses and versions.

        with Proxy(kafka.bootstrap, [lie]) as proxy:
            producer = Producer({"bootstrap.servers": proxy.bootstrap})

    `seed` fixes what the lies leave to chance. `upstream` is how brokers are reached that want TLS or a login; clients
    speak to the proxy in the clear. Where it has no login, a client's own SASL passes through.

    Raises `ProxyFailed` where `bootstrap` is no list of host:port; on leaving, if a lie raised an error."""

    def __init__(
        self,
        bootstrap: str,
        lies: Iterable[Lie] = (),
        *,
        seed: int = 0,
        upstream: Upstream = PLAIN,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.book = AddressBook(tuple(map(_address, bootstrap.split(","))))
        self.lies: list[Lie] = []
        self.clock = clock
        self.side = Side(self.book, self.connect)
        self._seed = seed
        self._upstream = upstream
        self._errors: list[Exception] = []
        self._listeners: dict[Address, tuple[asyncio.Server, Address]] = {}
        self._opening = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lying-proxy", daemon=True)
        for lie in lies:
            self.tell(lie)

    # For the thread that runs the drill

    @property
    def bootstrap(self) -> str:
        """What clients are to call bootstrap.servers."""
        return ",".join(str(self._listeners[address][1]) for address in self.book.bootstrap)

    def tell(self, lie: Lie) -> Lie:
        """Take a lie, from the next request on."""
        lie.bind(self, self._seed + len(self.lies))
        # A new list: the event loop may be going through the old one.
        self.lies = [*self.lies, lie]
        return lie

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout: float = 30.0) -> Result:
        """Run something on the proxy's event loop, `proxy.run(proxy.side.delete_records(...))`, and return its result.

        Raises what it raises, and `TimeoutError` after `timeout` seconds."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def disconnect(self) -> None:
        """Close all clients' connections; they may connect again."""
        self.run(self._disconnect())

    @property
    def errors(self) -> list[Exception]:
        """What lies raised, or frames that could not be read. Empty in a drill that has shown anything."""
        return list(self._errors)

    def __enter__(self) -> Proxy:
        self._thread.start()
        try:
            self.run(self._open(), _OPEN_LIMIT_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        if not self._errors:
            return
        first = self._errors[0]
        failed = f"the lying proxy failed: {type(first).__name__}: {first}"
        if error is None:
            raise ProxyFailed(failed) from first
        # What was raised within may be what this led to.
        error.add_note(failed)

    # For the event loop

    async def listen(self, broker: Address) -> Address:
        """The address of the listener for a broker, which is opened if it is new."""
        async with self._opening:
            if broker not in self._listeners:
                server = await asyncio.start_server(self._accepting(broker), HOST, 0, limit=BUFFER, backlog=512)
                self._listeners[broker] = server, Address(*server.sockets[0].getsockname()[:2])
            return self._listeners[broker][1]

    async def connect(self, broker: Address) -> Stream:
        """A new connection to a broker. Raises `OSError`, and `Refused` where the login is not accepted."""
        return await self._upstream.connect(broker)

    def failed(self, error: Exception) -> None:
        """A connection has met an error that is not the network's."""
        self._errors.append(error)

    def _accepting(
        self, broker: Address
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._count += 1
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await Connection(self, self._count, broker, (reader, writer)).run()
            except asyncio.CancelledError:
                writer.transport.abort()
            finally:
                self._connections.discard(task)

        return accept

    async def _open(self) -> None:
        for address in self.book.bootstrap:
            await self.listen(address)

    async def _disconnect(self) -> None:
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _close(self) -> None:
        # What has been accepted becomes a connection in the loop's next turns; ended before, it would leave its socket.
        for server, _ in self._listeners.values():
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        for server, _ in self._listeners.values():
            server.close()
        await self._disconnect()
        await self.side.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.2)  # aborted transports close their sockets some turns of the loop later

    def _end(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ProxyFailed(f'"{text.strip()}" is not a broker\'s address: write host:port')
    return Address(host.strip("[]"), int(port))
