"""A producer that is wedged while its cluster takes what others send is given up; one whose cluster is away is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
from confluent_kafka.admin import AdminClient

from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import ClientError
from probes.workloads.end_to_end import EndToEnd
from probes.workloads.writer import Writer
from tests.probes.conftest import MakeStage, witness


@pytest.fixture
def silent() -> Iterator[str]:
    """Where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


class Wedged(Writer):
    """A writer whose producer reaches nobody, whoever answers its other clients."""

    nobody: ClassVar[str]

    def settings(self) -> Mapping[str, str]:
        return {**super().settings(), "bootstrap.servers": self.nobody}

    def once(self) -> None:
        self.pause(0.05)
        self.turn()


class WedgedEndToEnd(EndToEnd):
    nobody: ClassVar[str]

    def settings(self) -> Mapping[str, str]:
        return {**super().settings(), "bootstrap.servers": self.nobody}

    def once(self) -> None:
        self.send([next(iter(self.layout.partitions(self.world.config.topics.records)))])


class Away(Wedged):
    """Nobody answers its other clients either."""

    def open_admin(self) -> AdminClient:
        return open_admin(admin_settings(Connection(self.nobody), client="nobody"))


def in_vain(stage: MakeStage, make: type[Wedged] | type[WedgedEndToEnd], nobody: str) -> list[str]:
    """What became of each of five sends, at most: nothing, or why the client was given up."""
    make.nobody = nobody
    writer = {"delivery_timeout": 1.0, "batch_interval": 0.01}
    one = stage(writer=writer, supervision={"stuck_after": 2.5})
    probe = one.put(make, "writer")
    assert isinstance(probe, Wedged | WedgedEndToEnd)
    said: list[str] = []
    while len(said) < 5 and not any(said):
        try:
            probe.once()
            said.append("")
        except ClientError as error:
            said.append(str(error))
    assert {(row.type, row.error) for row in witness(probe).of("send")} == {("info", "_MSG_TIMED_OUT")}
    return said


KINDS = pytest.mark.parametrize("make", [Wedged, WedgedEndToEnd])


@KINDS
def test_a_client_that_is_wedged_is_given_up(
    stage: MakeStage, silent: str, make: type[Wedged] | type[WedgedEndToEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.workloads.in_vain.require_brokers", lambda *_: None)  # it has found some
    *before, last = in_vain(stage, make, silent)
    assert last == "nothing that it sends is acknowledged, though the partitions' leaders answer (_MSG_TIMED_OUT)"
    assert len(before) >= 2, "one may time out in an outage that is over by then"


@KINDS
def test_one_that_finds_no_broker_is_given_up_with_the_first(
    stage: MakeStage, silent: str, make: type[Wedged] | type[WedgedEndToEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.workloads.lost_client.ASK_WITHIN", 1.0)
    told = "its client finds no broker, though the partitions' leaders answer (_TRANSPORT)"
    assert in_vain(stage, make, silent) == [told]


def test_where_nobody_is_answered_another_client_would_not_be(
    stage: MakeStage, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.kafka.starting_positions.ASK_WITHIN", 0.5)
    assert in_vain(stage, Away, silent) == [""] * 5
