"""A client that waits in vain for a group's coordinator is given up; one whose coordinator is away is waited for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.local_kafka import LocalKafka
from probes.kafka.client import Connection
from probes.kafka.coordinator_watch import CoordinatorWatch
from probes.kafka.errors import ClientError, ClientStuck
from probes.kafka.wire.offset_fetch import WireOffsets
from probes.workloads.transactional.transaction_course import Outline
from probes.workloads.transactional.transactions import Transactions
from probes.workloads.transactional.transactor import CALL_WITHIN
from tests.probes.conftest import MakeStage, Stage, witness


class Hanging:
    """A producer that does not return from sending offsets until it is let go."""

    def __init__(self, producer: Any) -> None:
        self._producer, self.let_go = producer, threading.Event()

    def send_offsets_to_transaction(self, *args: Any) -> None:
        self.let_go.wait(60)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


@contextmanager
def hanging(one: Stage) -> Iterator[tuple[Transactions, Hanging]]:
    """A transactional probe that has polled, whose client hangs from now on."""
    probe = one.put(Transactions, "t", timeout=60.0, stable=True, group=f"{one.prefix}-t")
    producer = Hanging(probe.transactor.producer)
    probe.transactor.producer = producer
    try:
        yield probe, producer
    finally:
        producer.let_go.set()


def send_offsets(probe: Transactions) -> None:
    offsets = dict.fromkeys(probe.targets, 0)
    probe.transactor.send_offsets(offsets, probe.consumer.consumer_group_metadata())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.kafka.coordinator_watch.PATIENCE", 0.5)


@pytest.mark.kafka
def test_a_client_that_waits_while_the_coordinator_answers_is_given_up(stage: MakeStage, impatient: None) -> None:
    said = r"has not returned for \d+ s, and the group's coordinator answers"
    with hanging(stage()) as (probe, _), pytest.raises(ClientStuck, match=said):
        send_offsets(probe)


@pytest.mark.kafka
def test_one_that_returns_in_time_is_not(stage: MakeStage, impatient: None) -> None:
    with hanging(stage()) as (probe, producer):
        threading.Timer(0.3, producer.let_go.set).start()
        send_offsets(probe)


@pytest.mark.kafka
def test_one_whose_coordinator_does_not_answer_is_waited_for(
    stage: MakeStage, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.kafka.coordinator_watch.WITHIN", 0.3)
    asked: list[float] = []
    whole = CoordinatorWatch.answers

    def answers(self: CoordinatorWatch, waited: float) -> bool:
        asked.append(waited)
        return whole(self, waited)

    monkeypatch.setattr(CoordinatorWatch, "answers", answers)
    with socket.create_server(("127.0.0.1", 0)) as silent, hanging(stage()) as (probe, producer):
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        probe.transactor._watch = partial(CoordinatorWatch, Connection(address), "t", probe.group)
        threading.Timer(3.0, producer.let_go.set).start()
        send_offsets(probe)
    assert max(asked) > 2.0


def test_where_nobody_can_be_asked_it_never_says_yes() -> None:
    never = Connection("127.0.0.1:1", {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"})
    with CoordinatorWatch(never, "t", "g", [("t", 0)]) as watch:
        assert [watch.answers(waited) for waited in (1.0, 20.0, 21.0)] == [False, False, False]


@pytest.mark.evening
@pytest.mark.kafka
def test_after_an_orderly_restart_of_the_coordinator_the_next_life_goes_on(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=3) as cluster:
        one = Stage(cluster.bootstrap, tmp_path / "journal")
        try:
            group = f"{one.prefix}-t"
            lives = [one.put(Transactions, "t", timeout=60.0, stable=True, group=group)]
            plan = Outline((dict.fromkeys(lives[0].targets, 1),), "commit")
            while not any(row.polled for row in witness(lives[0]).of("txn")):
                lives[0].transact(plan, crash_at=None)
            asked = WireOffsets(one.connection, "t", lives[0].targets, lambda error: None)
            asked.ask(group, 60).result()
            coordinator = cluster.broker(int(asked.coordinator(group)["group_coordinator"]))
            asked.close()
            coordinator.terminate()
            end, done = time.monotonic() + 60, False
            while not done:
                assert time.monotonic() < end
                try:
                    lives[-1].transact(plan, crash_at=None)
                    done = bool(witness(lives[-1]).of("txn")[-1].type == "ok" and len(lives) > 1)
                except (ClientError, ClientStuck):
                    lives.append(one.put(Transactions, "t", timeout=60.0, stable=True, group=group))
            assert not coordinator.running
            stuck = [row for life in lives for row in witness(life).of("txn") if row.error == ClientStuck.code]
            assert all((row.completed - row.invoked).total_seconds() < CALL_WITHIN for row in stuck)
        finally:
            one.end()
