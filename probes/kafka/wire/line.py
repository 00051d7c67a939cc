"""A connection to a broker on which several requests may be under way at once.

Answers are told apart by their correlation ids, so one that nobody waits for any more does no harm when it comes.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from probes.kafka.wire.errors import Refused, Undecodable
from probes.kafka.wire.frames import read_frame, write_frame
from probes.kafka.wire.messages import Api, Payload, build, correlation_of, decode_response, new_request, request_class
from probes.kafka.wire.upstream import Address, Stream, Upstream

_API_VERSIONS: Final = 3
_NAMED: Final = 3
"""From this version on the client says what it is."""
_HEAD: Final = struct.Struct(">hhi")


class Line:
    """An open connection; `open` makes one."""

    def __init__(self, stream: Stream) -> None:
        self._reader, self._writer = stream
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlations = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}
        self._heard_at = asyncio.get_running_loop().time()
        self._hearing = asyncio.ensure_future(self._hear())

    @classmethod
    async def open(cls, means: Upstream, address: Address, client: str, within: float) -> Line:
        """A connection that is ready for requests, and knows which versions of them the broker takes.

        Raises OSError, Refused where the login or the first question is, and Undecodable."""
        async with asyncio.timeout(within):
            line = cls(await means.connect(address))
            try:
                await line._ask_versions(client)
            except BaseException:
                line.close()
                raise
            return line

    @property
    def closed(self) -> bool:
        return self._hearing.done()

    @property
    def silent_for(self) -> float:
        """Seconds for which nothing has come, while something was waited for."""
        return asyncio.get_running_loop().time() - self._heard_at if self._waiting else 0.0

    def close(self) -> None:
        self._hearing.cancel()
        self._writer.transport.abort()

    @property
    def taken(self) -> Mapping[int, int]:
        """The requests that the broker takes, by their numbers, and the newest version of each."""
        return {api: newest for api, (_, newest) in self._versions.items()}

    def version(self, api: Api, newest: int) -> int:
        """The newest version of this request, up to `newest`, that the broker takes. Raises Refused."""
        first, last = self._versions.get(api, (0, -1))
        found = min(last, newest)
        if found < first or request_class(api, found) is None:
            raise Refused(f"every version of {api.name} that is known here", ErrorCode.unsupported_version.name)
        return found

    async def answer(self, frame: bytes) -> bytes:
        """The answer to a request, which is given a correlation id here. Raises OSError."""
        if self.closed:
            raise ConnectionResetError("the connection is closed")
        correlation = next(self._correlations)
        if not self._waiting:
            self._heard_at = asyncio.get_running_loop().time()
        coming = self._waiting[correlation] = asyncio.get_running_loop().create_future()
        try:
            api, version, _ = _HEAD.unpack_from(frame)
            await write_frame(self._writer, _HEAD.pack(api, version, correlation) + frame[_HEAD.size :])
            found: bytes = await coming
            return found
        finally:
            # Whoever gave up does not make a connection that is silent look as if nothing were waited for.
            if coming.done() and not coming.cancelled():
                self._waiting.pop(correlation, None)

    async def _ask_versions(self, client: str) -> None:
        told = await self._told_versions(_API_VERSIONS, client)
        if told.error_code is ErrorCode.unsupported_version:  # before 2.4: it says nothing of what it takes
            told = await self._told_versions(0, client)
        if told.error_code is not ErrorCode.none:
            raise Refused("ApiVersions", told.error_code.name)
        self._versions = {int(one.api_key): (one.min_version, one.max_version) for one in told.api_keys}

    async def _told_versions(self, version: int, client: str) -> Payload:
        kind = request_class(Api.API_VERSIONS, version)
        assert kind is not None
        says = {"client_software_name": "offsetwatch", "client_software_version": "1"} if version >= _NAMED else {}
        frame = await self.answer(new_request(Api.API_VERSIONS, version, 0, client, build(kind, **says)))
        return decode_response(Api.API_VERSIONS, version, frame)

    async def _hear(self) -> None:
        ended: Exception = ConnectionResetError("the connection was closed")
        try:
            while (frame := await read_frame(self._reader)) is not None:
                self._heard_at = asyncio.get_running_loop().time()
                coming = self._waiting.pop(correlation_of(frame), None)
                if coming is not None and not coming.done():
                    coming.set_result(frame)
        except (OSError, Undecodable) as error:
            ended = error if isinstance(error, OSError) else ConnectionResetError(str(error))
        finally:
            self._writer.transport.abort()
            for coming in self._waiting.values():
                if not coming.done():
                    coming.set_exception(ended)
            self._waiting.clear()
