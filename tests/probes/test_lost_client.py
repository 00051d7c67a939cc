"""A reader whose client finds no broker any more, while its cluster answers others, is given up; one that has nothing
to read is not, nor one whose cluster is away."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from probes.kafka.client import Connection, admin_settings, consumer_settings, open_admin, open_consumer
from probes.kafka.errors import ClientError
from probes.workloads.probe import Probe
from probes.workloads.reader import Reader
from probes.workloads.registers import Registers
from probes.workloads.transactional.aborts import Aborts
from probes.workloads.transactional.transactional_probe import TransactionalProbe
from probes.workloads.transactional.transactions import Transactions
from probes.workloads.transactional.transform import Transform
from tests.probes.conftest import MakeStage, witness
from tests.probes.test_in_vain import silent as silent
from tests.probes.test_registers import BUSY

Reading = Reader | Registers | TransactionalProbe


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.workloads.lost_client.QUIET", 0.5)


def for_seconds(probe: Reading, seconds: float) -> str:
    """Why its client was given up, if it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if isinstance(probe, Registers):
                probe.poll(0.2)
            elif isinstance(probe, Reader):
                probe.poll()
            else:
                probe.turn()
        except ClientError as error:
            return str(error)
    return ""


def put(stage: MakeStage, make: type[Probe]) -> Reading:
    one = stage(**BUSY, transform={"count": 2})
    options: dict[str, Any] = {} if make is Registers else {"group": f"{one.prefix}-g"}
    if make in (Transform, Transactions):
        options["timeout"] = 60.0
    if make is Transactions:
        options["stable"] = True
    probe = one.put(make, "one", **options)
    assert isinstance(probe, Reader | Registers | TransactionalProbe)
    return probe


def lose(probe: Reading, nobody: str) -> None:
    """Its client goes on, and finds nobody."""
    assert probe._consumer is not None
    probe._consumer.close()
    settings = consumer_settings(Connection(nobody), client="lost", group="g")
    probe._consumer = open_consumer(settings, lambda error: None)
    probe._consumer.assign([])
    if isinstance(probe, TransactionalProbe) and probe._membership is not None:
        probe._membership._consumer = probe._consumer


KINDS = pytest.mark.parametrize("make", [Reader, Registers, Transactions, Transform, Aborts])


@pytest.mark.kafka
@KINDS
def test_a_client_that_is_lost_is_given_up(stage: MakeStage, silent: str, make: type[Probe]) -> None:
    probe = put(stage, make)
    lose(probe, silent)
    told = "its client finds no broker, though the partitions' leaders answer (_TRANSPORT)"
    assert for_seconds(probe, 60) == told


@pytest.mark.kafka
@KINDS
def test_one_that_has_nothing_to_read_is_not(stage: MakeStage, make: type[Probe]) -> None:
    probe = put(stage, make)
    assert for_seconds(probe, 3) == ""
    assert not witness(probe).of("close")


@pytest.mark.kafka
def test_nor_is_one_whose_cluster_is_away(stage: MakeStage, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(probe: Probe) -> AdminClient:
        return open_admin(admin_settings(Connection(silent), client="nobody"))

    probe = put(stage, Reader)
    lose(probe, silent)
    monkeypatch.setattr(Probe, "open_admin", away)
    monkeypatch.setattr("probes.kafka.starting_positions.ASK_WITHIN", 1.0)
    assert for_seconds(probe, 12) == ""
