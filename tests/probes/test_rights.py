"""Rights that a cluster does not give: told by their names, where librdkafka only waits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kio.schema.errors import ErrorCode

from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from probes.clock import SystemClock
from probes.kafka.client import Connection, consumer_settings
from probes.kafka.errors import ClientError, ProbeError
from probes.kafka.starting_positions import committed_at_last
from probes.kafka.wire.rights import Resource, refused, takes
from probes.running.fleet import Fleet
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


class Older(Lie):
    """A broker that does not know the consumer protocol of groups."""

    apis = frozenset({Api.API_VERSIONS})

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.turn():
            known = tuple(one for one in exchange.response.api_keys if one.api_key != Api.CONSUMER_GROUP_HEARTBEAT)
            exchange.response = replace(exchange.response, api_keys=known)
            self.did("hidden", exchange)
        return PASS


def test_brokers_that_do_not_know_the_consumer_protocol_are_named_before_its_clients_wait(
    stage: MakeStage, tmp_path: Path
) -> None:
    one = stage(group_protocol="consumer")
    assert takes(one.connection, "t", Api.CONSUMER_GROUP_HEARTBEAT)
    with Proxy(one.connection.bootstrap, [Older()]) as proxy:
        assert not takes(Connection(proxy.bootstrap), "t", Api.CONSUMER_GROUP_HEARTBEAT)
        fleet = Fleet(one.config, Connection(proxy.bootstrap), tmp_path / "fleet", SystemClock())
        with pytest.raises(ProbeError, match="KIP-848") as told:
            fleet.start()
        fleet.stop()
    assert "\n" not in str(told.value)


def test_that_nobody_answers_is_no_right_that_lacks() -> None:
    with silent_address() as nowhere, pytest.raises(ClientError, match="_TRANSPORT"):
        refused(Connection(nowhere), "t", [("group", "g")])
