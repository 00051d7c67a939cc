"""What groups have committed, asked of their coordinators on connections of our own, by one thread.

Each question is an OffsetFetch for one group that asks for stable offsets (version 7, or the newest before it that the
broker takes: those know no stable offsets). Each group has a connection of its own: a broker answers the requests of
one connection one after the other, and on a busy machine ten in a row took a second (measured), during which what is
told may have changed.

Errors mean what they do to a consumer of librdkafka that is asked. What is not answered is asked again until its time
is over (`_TIMED_OUT`): where no broker can be reached, where nobody coordinates the group yet or its coordinator is
loading, where the connection breaks. So are offsets of a transaction that has not ended, which are
`UNSTABLE_OFFSET_COMMIT` then. Whatever else a broker says is the answer. After NOT_COORDINATOR, and after ten minutes,
it is asked anew who coordinates the group.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from probes.kafka.client import Connection
from probes.kafka.coordinators import NOBODY
from probes.kafka.errors import ClientError, name_of
from probes.kafka.wire.errors import CannotConnect, Refused, Undecodable
from probes.kafka.wire.line import Line
from probes.kafka.wire.messages import Api, Payload, build, decode_response, element, new_request, request_class
from probes.kafka.wire.upstream import Address, addresses, upstream
from probes.topology import Partition

Committed = tuple[Partition, int | None, str | None]
"""What a group has committed in a partition (None: nothing), and the error's name where asking failed."""

OFFSET_FETCH: Final = 7
"""Later ones can ask for several groups at once: one that is slow would hold up the others."""
FIND_COORDINATOR: Final = 3
CONNECTED_WITHIN: Final = 2.0
"""Seconds for a connection, with its login."""
FOUND_WITHIN: Final = 1.0
"""Seconds that each broker but the last is given to say who coordinates a group, before the next is asked."""
SILENT_FOR: Final = 10.0
"""Seconds without any answer after which a connection is given up."""
FIND_AGAIN: Final = 600.0
"""Seconds after which it is asked anew who coordinates a group: one that was deposed may not know it."""
PAUSE: Final = 0.1
"""Seconds before it is asked again, doubled from time to time up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 0.8
_GROUP: Final = 0
"""The key type of FindCoordinator."""
_UNSTABLE: Final = "UNSTABLE_OFFSET_COMMIT"
_BROKEN: Final = (OSError, CannotConnect, Refused)


class _Loading(Exception):
    """The coordinator does not know yet."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Who coordinates a group, since when it is known (the loop's time)."""

    address: Address
    since: float


class WireOffsets:
    """Asks for what groups have committed in `places`. Its methods may be called from any thread.

    Raises CannotConnect where the connection's settings cannot be followed."""

    def __init__(
        self,
        connection: Connection,
        client: str,
        places: Iterable[Partition],
        on_error: Callable[[ClientError], None],
    ) -> None:
        upstream(connection.security, connection.token)
        self._connection, self._client, self._on_error = connection, client, on_error
        self._places = list(places)
        self._brokers: frozenset[Address] = frozenset()
        self._lines: dict[tuple[str, Address], asyncio.Task[Line]] = {}
        self._failed: dict[Address, tuple[float, str]] = {}
        self._coordinators: dict[str, Coordinator] = {}
        self._told: dict[str, str] = {}
        self._frames: dict[tuple[str, int], bytes] = {}
        self._answers: dict[str, tuple[bytes, list[Committed]]] = {}
        self._errors: deque[ClientError] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{client}-groups", daemon=True)
        self._thread.start()

    def ask(self, group: str, within: float) -> Future[list[Committed]]:
        """What the group has committed in each place; the future's exception is a ClientError."""
        future: Future[list[Committed]] = Future()
        self._loop.call_soon_threadsafe(self._begin, group, future, within)
        return future

    def coordinator(self, group: str) -> Mapping[str, str]:
        """As `probes.kafka.coordinators.Coordinator.told`."""
        broker = self._told.get(group)
        return {} if broker is None else {"group_coordinator": broker}

    def hear(self, brokers: Iterable[Address]) -> None:
        """Tell the caller's `on_error` what has gone wrong since, and learn where brokers listen."""
        self._brokers = frozenset(brokers) or self._brokers
        while self._errors:
            self._on_error(self._errors.popleft())

    def close(self) -> None:
        """End all that is under way, and the thread."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECTED_WITHIN)

    # All below is the loop's.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            ending = asyncio.all_tasks(self._loop)
            for task in ending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*ending, return_exceptions=True))
            self._loop.run_until_complete(asyncio.sleep(0))  # connections are closed by then
        finally:
            self._loop.close()

    def _begin(self, group: str, future: Future[list[Committed]], within: float) -> None:
        task = self._loop.create_task(self._answer(group, future, within))
        self._asking.add(task)  # a loop holds its tasks weakly
        task.add_done_callback(self._asking.discard)

    async def _answer(self, group: str, future: Future[list[Committed]], within: float) -> None:
        try:
            async with asyncio.timeout(within):
                found = await self._asked(group, self._loop.time() + within)
        except TimeoutError:
            self._late(group)
            future.set_exception(ClientError("_TIMED_OUT", f"no answer about group {group} within {within:g} s"))
        except ClientError as error:
            future.set_exception(error)
        except Undecodable as error:
            future.set_exception(ClientError("_BAD_MSG", str(error)))
        except Exception as error:
            future.set_exception(ClientError("_FAIL", str(error) or type(error).__name__))
        else:
            future.set_result(found)

    async def _asked(self, group: str, limit: float) -> list[Committed]:
        pause = PAUSE
        while True:
            try:
                found = await self._fetched(await self._line_to_coordinator(group), group)
            except _Loading:
                pass
            except _BROKEN:
                self._coordinators.pop(group, None)
            else:
                stable = all(problem != _UNSTABLE for _, _, problem in found)
                if stable or self._loop.time() + 2 * pause > limit:
                    return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _fetched(self, line: Line, group: str) -> list[Committed]:
        version = line.version(Api.OFFSET_FETCH, OFFSET_FETCH)
        frame = await line.answer(self._request(group, version))
        body = frame[4:]  # behind the correlation id
        before, found = self._answers.get(group, (b"", []))
        if body == before:  # most groups commit seldom
            return found
        told = decode_response(Api.OFFSET_FETCH, version, frame)
        problem = getattr(told, "error_code", ErrorCode.none)
        if problem is not ErrorCode.none:
            if problem is ErrorCode.coordinator_load_in_progress:
                raise _Loading
            if problem in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
                self._told[group] = NOBODY
                self._coordinators.pop(group, None)
            raise ClientError(name_of(problem.value), f"what group {group} has committed is not told")
        found = _committed(told, self._places)
        self._answers[group] = (body, found)
        return found

    def _request(self, group: str, version: int) -> bytes:
        frame = self._frames.get((group, version))
        if frame is None:
            kind = request_class(Api.OFFSET_FETCH, version)
            assert kind is not None
            topics = tuple(
                build(element(kind, "topics"), name=name, partition_indexes=tuple(p for _, p in of_topic))
                for name, of_topic in groupby(sorted(self._places), key=lambda place: place[0])
            )
            payload = build(kind, group_id=group, topics=topics, require_stable=True)
            frame = self._frames[group, version] = new_request(Api.OFFSET_FETCH, version, 0, self._client, payload)
        return frame

    async def _line_to_coordinator(self, group: str) -> Line:
        known = self._coordinators.get(group)
        if known is None or self._loop.time() - known.since > FIND_AGAIN:
            known = self._coordinators[group] = Coordinator(await self._found(group), self._loop.time())
        return await self._line(group, known.address)

    async def _found(self, group: str) -> Address:
        """Where the group's coordinator listens, as the first broker that answers knows it. Raises OSError, Refused
        where none tells, and ClientError for what is no better a moment later."""
        failed: Exception = OSError("no broker is known")
        asked = self._to_ask(group)
        for address in asked:
            try:
                async with asyncio.timeout(None if address == asked[-1] else FOUND_WITHIN):
                    code, node, found = await self._coordinator_told(await self._line(group, address), group)
            except _BROKEN as error:
                if isinstance(error, TimeoutError):
                    self._fails(address, error)
                failed = error
                continue
            if code is ErrorCode.none:
                self._told[group] = str(node)
                if found != address:
                    self._hang_up(group, address)
                return found
            if code not in (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress):
                raise ClientError(name_of(code.value), f"who coordinates group {group} is not told")
            if group in self._told:
                self._told[group] = NOBODY
            raise Refused("FindCoordinator", code.name)
        raise failed

    async def _coordinator_told(self, line: Line, group: str) -> tuple[ErrorCode, int, Address]:
        version = line.version(Api.FIND_COORDINATOR, FIND_COORDINATOR)
        kind = request_class(Api.FIND_COORDINATOR, version)
        assert kind is not None
        payload = build(kind, key=group, key_type=_GROUP)
        frame = await line.answer(new_request(Api.FIND_COORDINATOR, version, 0, self._client, payload))
        told = decode_response(Api.FIND_COORDINATOR, version, frame)
        return told.error_code, int(told.node_id), Address(told.host, told.port)

    def _to_ask(self, group: str) -> Sequence[Address]:
        """All brokers: those first that failed longest ago, if ever, and of them where the group has a connection."""
        connected = (address for owner, address in self._lines if owner == group)
        every = dict.fromkeys((*connected, *addresses(self._connection.bootstrap), *sorted(self._brokers)))
        return sorted(every, key=lambda one: self._failed.get(one, (0.0, ""))[0])

    async def _line(self, group: str, address: Address) -> Line:
        """The group's connection to a broker. Raises OSError, Refused."""
        key = group, address
        opening = self._lines.get(key)
        if opening is not None and opening.done() and opening.result().silent_for > SILENT_FOR:
            self._hang_up(group, address)
            opening = None
        if opening is None or (opening.done() and opening.result().closed):
            opening = self._lines[key] = self._loop.create_task(self._opened(address))
            opening.add_done_callback(lambda done: self._note(key, done))
        return await asyncio.shield(opening)

    def _hang_up(self, group: str, address: Address) -> None:
        opening = self._lines.pop((group, address), None)
        if opening is not None and opening.done():
            opening.result().close()

    async def _opened(self, address: Address) -> Line:
        try:
            means = upstream(self._connection.security, self._connection.token)  # with the secrets as they are now
            return await Line.open(means, address, self._client, CONNECTED_WITHIN)
        except Undecodable as error:
            raise ConnectionResetError(str(error)) from error

    def _note(self, key: tuple[str, Address], opened: asyncio.Task[Line]) -> None:
        error = None if opened.cancelled() else opened.exception()
        if opened.cancelled() or error is not None:
            self._lines.pop(key, None)
        else:
            self._failed.pop(key[1], None)
        if isinstance(error, Exception):
            self._fails(key[1], error)

    def _fails(self, address: Address, error: Exception) -> None:
        """Ask this broker last, and tell of it; the same trouble is told once."""
        said = f"{address}: {error or 'no answer in time'}"
        code = "_AUTHENTICATION" if isinstance(error, Refused) else "_TRANSPORT"
        if self._failed.get(address, (0.0, ""))[1] != said:
            self._errors.append(ClientError(code, said))
        self._failed[address] = (self._loop.time(), said)

    def _late(self, group: str) -> None:
        """No answer in time: somebody else is asked who coordinates the group."""
        known = self._coordinators.pop(group, None)
        opening = self._lines.get((group, known.address)) if known is not None else None
        if known is None or opening is None or not opening.done() or opening.exception() is not None:
            return
        if opening.result().silent_for > 0:  # it may have said that it is loading
            self._fails(known.address, TimeoutError())


def _committed(told: Payload, places: Iterable[Partition]) -> list[Committed]:
    """What an answer says of each place; `_NO_OFFSET` where it says nothing."""
    found: dict[Partition, Any] = {
        (topic.name, part.partition_index): part for topic in told.topics for part in topic.partitions
    }
    rows: list[Committed] = []
    for where in places:
        part = found.get(where)
        if part is None:
            rows.append((where, None, "_NO_OFFSET"))
        elif part.error_code is not ErrorCode.none:
            rows.append((where, None, name_of(part.error_code.value)))
        else:
            rows.append((where, part.committed_offset if part.committed_offset >= 0 else None, None))
    return rows
