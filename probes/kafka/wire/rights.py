"""May we use groups and transactional ids of these names? Asked of a broker on a connection of our own: a client of
librdkafka that may not waits in vain, and so do the readers whose group it is. So does one that asks what brokers do
not know.

A broker looks at rights before anything else. So it is asked for what it can only refuse: the heartbeat of a member
that is none, the end of a transaction of no producer. Nothing is made by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeVar

from probes.kafka.client import Connection
from probes.kafka.errors import ClientError, name_of
from probes.kafka.wire.errors import CannotConnect, Refused, Undecodable
from probes.kafka.wire.line import Line
from probes.kafka.wire.messages import Api, build, decode_response, new_request, request_class
from probes.kafka.wire.upstream import addresses, upstream

T = TypeVar("T")
Resource = Literal["group", "transactional id"]
_VERSIONS: Final = {Api.HEARTBEAT: 3, Api.END_TXN: 3}
_WITHIN: Final = 5.0
_DENIED: Final = "_AUTHORIZATION_FAILED"


def refused(connection: Connection, client: str, names: Sequence[tuple[Resource, str]]) -> list[str | None]:
    """For each name the error that says that it may not be used, None where it may.

    Raises ClientError where no broker of the bootstrap list answers, and CannotConnect where the connection's settings
    cannot be followed."""

    async def ask(line: Line) -> list[str | None]:
        return [await _asked(line, client, kind, name) for kind, name in names]

    return asyncio.run(_of_any_broker(connection, client, ask))


def taken(connection: Connection, client: str) -> Mapping[int, int]:
    """The requests that a broker of the bootstrap list takes, by their numbers, and the newest version of each. Raises
    as `refused` does."""

    async def ask(line: Line) -> Mapping[int, int]:
        return line.taken

    return asyncio.run(_of_any_broker(connection, client, ask))


async def _of_any_broker(connection: Connection, client: str, ask: Callable[[Line], Awaitable[T]]) -> T:
    means = upstream(connection.security, connection.token)
    failed: Exception = CannotConnect("no broker is named")
    for address in addresses(connection.bootstrap):
        try:
            async with asyncio.timeout(_WITHIN):
                line = await Line.open(means, address, client, _WITHIN)
                try:
                    return await ask(line)
                finally:
                    line.close()
        except (OSError, Refused, Undecodable) as error:
            failed = error
    raise ClientError("_TRANSPORT", str(failed) or type(failed).__name__) from failed


async def _asked(line: Line, client: str, kind: Resource, name: str) -> str | None:
    api = Api.HEARTBEAT if kind == "group" else Api.END_TXN
    version = line.version(api, _VERSIONS[api])
    request = request_class(api, version)
    assert request is not None
    if kind == "group":
        payload = build(request, group_id=name, generation_id=0, member_id=client)
    else:
        payload = build(request, transactional_id=name, producer_id=0, producer_epoch=0, committed=False)
    frame = await line.answer(new_request(api, version, 0, client, payload))
    error = name_of(decode_response(api, version, frame).error_code.value)
    return error if error.endswith(_DENIED) else None
