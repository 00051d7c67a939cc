"""Rights that a cluster does not give: told by their names, where librdkafka only waits."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kio.schema.errors import ErrorCode

from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from monitor.drill.proxy.versions import unsupported
from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection, consumer_settings
from probes.kafka.errors import ClientError, ProbeError
from probes.kafka.starting_positions import committed_at_last
from probes.kafka.wire.frames import read_frame, write_frame
from probes.kafka.wire.line import Line
from probes.kafka.wire.messages import build, element, encode_response, response_class
from probes.kafka.wire.rights import Resource, refused, taken
from probes.kafka.wire.upstream import Address, upstream
from probes.running.fleet import Fleet
from probes.running.needed import lacking
from tests.monitor.commands import silent_address
from tests.probes.conftest import MakeStage

pytestmark = pytest.mark.kafka
DENIED = {
    Api.FIND_COORDINATOR: ErrorCode.group_authorization_failed,
    Api.HEARTBEAT: ErrorCode.group_authorization_failed,
    Api.END_TXN: ErrorCode.transactional_id_authorization_failed,
}


class Deny(Lie):
    """The login may do none of these."""

    apis = frozenset(DENIED)

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            code = DENIED[Api(exchange.api)]
            more = (
                {"coordinators": tuple(replace(one, error_code=code) for one in exchange.response.coordinators)}
                if (hasattr(exchange.response, "coordinators"))
                else {"error_code": code}
            )
            exchange.response = replace(exchange.response, **more)
            self.did("denied", exchange)
        return PASS


def test_a_reader_whose_group_may_not_be_used_ends_by_that(stage: MakeStage) -> None:
    one = stage()
    with Proxy(one.connection.bootstrap, [Deny()]) as proxy:
        consumer = Consumer(consumer_settings(Connection(proxy.bootstrap), client="t", group=f"{one.prefix}-g"))
        with pytest.raises(ClientError) as told:
            committed_at_last(consumer, [(one.config.topics.records, 0)], lambda: None)
        consumer.close()
    assert told.value.code == "GROUP_AUTHORIZATION_FAILED"


def test_rights_are_asked_for_and_nothing_is_made(stage: MakeStage) -> None:
    one = stage()
    asked: list[tuple[Resource, str]] = [("group", f"{one.prefix}-g"), ("transactional id", f"{one.prefix}-t")]
    assert refused(one.connection, "t", asked) == [None, None]
    assert f"{one.prefix}-g" not in {group.group_id for group in one.admin.list_consumer_groups().result(30).valid}
    with Proxy(one.connection.bootstrap, [Deny()]) as proxy:
        found = refused(Connection(proxy.bootstrap), "t", asked)
    assert found == ["GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]


@dataclass
class Without(Lie):
    """A broker that does not know a request."""

    apis = frozenset({Api.API_VERSIONS})

    unknown: Api = field(kw_only=True)

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            known = tuple(one for one in exchange.response.api_keys if one.api_key != self.unknown)
            exchange.response = replace(exchange.response, api_keys=known)
            self.did("hidden", exchange)
        return PASS


@pytest.mark.parametrize(
    ("unknown", "told"),
    [
        (Api.CONSUMER_GROUP_HEARTBEAT, "KIP-848"),
        (Api.END_TXN, "the brokers do not take EndTxn: they have no transactions. Set probes.transaction.count"),
        (Api.INIT_PRODUCER_ID, "InitProducerId"),
    ],
)
def test_what_brokers_do_not_take_is_named_before_clients_wait_for_it(
    stage: MakeStage, tmp_path: Path, unknown: Api, told: str
) -> None:
    one = stage(group_protocol="consumer", transaction={"count": 1})
    assert not lacking(one.config, taken(one.connection, "t"))
    with Proxy(one.connection.bootstrap, [Without(unknown=unknown)]) as proxy:
        assert unknown not in taken(Connection(proxy.bootstrap), "t")
        fleet = Fleet(one.config, Connection(proxy.bootstrap), tmp_path / "fleet", SystemClock())
        with pytest.raises(ProbeError, match=told) as raised:
            fleet.start()
        fleet.stop()
    assert "\n" not in str(raised.value)


def test_transactions_are_missed_by_those_alone_that_use_them() -> None:
    every = {int(api): 7 for api in Api}
    some_lack = {api: newest for api, newest in every.items() if api not in (Api.END_TXN, Api.ADD_OFFSETS_TO_TXN)}
    none = ProbesConfig.model_validate(
        {section: {"count": 0} for section in ("transaction", "transform", "aborts", "zombies")}
    )
    assert lacking(none, some_lack) == []
    some = none.model_copy(update={"transform": ProbesConfig().transform, "aborts": ProbesConfig().aborts})
    assert lacking(some, some_lack) == [
        "the brokers do not take AddOffsetsToTxn, EndTxn: they have no transactions. Set probes.transform.count,"
        " probes.aborts.count to 0 to probe the rest"
    ]
    assert not lacking(some, every)
    (told,) = lacking(some, every | {int(Api.OFFSET_FETCH): 6})
    assert told.startswith("the brokers are older than Apache Kafka 2.5") and "probes.transform.count" in told
    assert not lacking(none, every | {int(Api.OFFSET_FETCH): 6})


def test_a_broker_from_before_2_4_tells_what_it_takes_when_it_is_asked_as_in_its_time() -> None:
    async def asked() -> Mapping[int, int]:
        async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):  # it does not end in order
                while (frame := await read_frame(reader)) is not None:
                    _, version, correlation = struct.unpack_from(">hhi", frame)
                    await write_frame(writer, unsupported(correlation) if version else offered(correlation))
            writer.close()
            ended.set()

        ended = asyncio.Event()
        async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            line = await Line.open(upstream({}), Address(host, port), "t", 10)
            line.close()
            await ended.wait()
            return line.taken

    def offered(correlation: int) -> bytes:
        kind = response_class(Api.API_VERSIONS, 0)
        assert kind is not None
        some = (build(element(kind, "api_keys"), api_key=one, min_version=0, max_version=1) for one in (18, 26))
        return encode_response(correlation, build(kind, error_code=ErrorCode.none, api_keys=tuple(some)))

    assert asyncio.run(asked()) == {Api.API_VERSIONS: 1, Api.END_TXN: 1}


def test_that_nobody_answers_is_no_right_that_lacks() -> None:
    with silent_address() as nowhere, pytest.raises(ClientError, match="_TRANSPORT"):
        refused(Connection(nowhere), "t", [("group", "g")])
