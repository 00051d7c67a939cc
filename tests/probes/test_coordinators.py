"""Who coordinates groups and transactional ids: from the clients' statistics into the rows of the probe log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from deploy.local_kafka import LocalKafka
from probes.kafka.coordinators import Coordinator
from probes.kafka.errors import ClientError, ClientStuck
from probes.workloads.observer import Observer
from probes.workloads.telling import AGAIN, Telling
from probes.workloads.transactional.transaction_course import Outline
from probes.workloads.transactional.transactions import Transactions
from rules.vocabulary.slices import Slice
from tests.probes.conftest import MakeStage, Stage, witness

ROLES = ("group_coordinator", "transaction_coordinator")


def statistics(coordinator: str, *brokers: tuple[int, str]) -> str:
    """What a client of a group tells: a broker is its id and its address."""
    known = [{"name": f"{address}/{node}", "nodeid": node, "nodename": address} for node, address in brokers]
    own = {"name": "GroupCoordinator", "nodeid": -1, "nodename": coordinator}
    return orjson.dumps({"brokers": {one["name"]: one for one in [own, *known]}}).decode()


def test_the_coordinator_is_the_broker_that_the_clients_own_connection_leads_to() -> None:
    one = Coordinator("group_coordinator")
    both = (1, "a:9092"), (2, "b:9092")
    said = []
    for told in (
        statistics("", *both),
        statistics("b:9092", *both),
        statistics("c:9092", *both),
        statistics("a:9092", *both),
        statistics("", *both),
    ):
        one.hear(told)
        said.append(one.told.get("group_coordinator"))
    assert said == [None, "2", "2", "1", "nobody"], "not yet known; known; metadata lags behind; moved; lost"


def test_it_is_told_of_each_partition_at_first_when_it_changes_and_once_a_minute() -> None:
    telling = Telling()
    one, other = ("t", 0), ("t", 1)
    told = [
        (one, {}, 0),
        (one, {"x": "1"}, 1),
        (one, {"x": "1"}, 2),
        (other, {"x": "1"}, 2),
        (one, {"x": "2"}, 3),
        (one, {"x": "2"}, AGAIN),
        (one, {"x": "2"}, AGAIN + 3),
        (one, {"x": "2"}, AGAIN + 4),
    ]
    said = [bool(telling.due(*each)) for each in told]
    assert said == [False, True, False, True, True, False, True, False]


def of(rows: list[Slice], name: str) -> list[tuple[int, str]]:
    """What rows told of it: partition and broker."""
    return [(row.partition, row.settings[name]) for row in rows if row.settings and name in row.settings]


def until(done: Callable[[], Any], act: Callable[[], Any], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        act()


def put(one: Stage) -> tuple[Observer, Transactions]:
    group = f"{one.prefix}-t"
    probe = one.put(Transactions, "t", timeout=60.0, stable=True, group=group)
    return one.put(Observer, "observer", groups=[group]), probe


def transact(probe: Transactions) -> None:
    probe.transact(Outline((dict.fromkeys(probe.targets, 1),), "commit"), crash_at=None)


def test_rows_tell_it_once(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.workloads.telling.AGAIN", 3_600_000_000_000)
    one = stage()
    observer, probe = put(one)
    until(lambda: of(witness(probe).of("txn"), ROLES[1]), lambda: transact(probe))
    for _ in range(3):
        transact(probe)
    assert sorted(of(witness(probe).of("txn"), ROLES[1])) == [(0, "1"), (1, "1"), (2, "1")]
    asked = [row for row in witness(observer).rows if row.group and row.topic == one.config.topics.transactions]
    assert not of(asked, ROLES[1])

    def told() -> list[tuple[int, str]]:
        rows = [row for row in witness(observer).of("offsets") if row.topic == one.config.topics.transactions]
        assert not of([row for row in rows if row.group is None], ROLES[0])
        return sorted(of(rows, ROLES[0]))

    until(told, observer.observe)
    for _ in range(3):
        observer.observe()
    assert told() == [(0, "1"), (1, "1"), (2, "1")]
    assert [of([row], ROLES[1]) for row in one.read_journal(probe) if row.settings and row.f == "txn"]


@pytest.mark.evening
@pytest.mark.kafka
def test_a_coordinator_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", brokers=3) as cluster:
        one = Stage(cluster.bootstrap, tmp_path / "journal", observer={"request_timeout": 2.0})
        try:
            observer, probe = put(one)
            lives = [probe]

            def last() -> tuple[str | None, str | None]:
                group = [broker for _, broker in of(witness(observer).of("offsets"), ROLES[0])]
                txn = [broker for life in lives for _, broker in of(witness(life).of("txn"), ROLES[1])]
                return group[-1] if group else None, txn[-1] if txn else None

            def go_on() -> None:
                try:
                    transact(lives[-1])
                except (ClientError, ClientStuck):  # librdkafka 5456, say: its supervisor begins a new life
                    lives.append(put(one)[1])

            def act() -> None:
                observer.observe()
                go_on()

            until(lambda: None not in last() and "nobody" not in last(), act)
            group, txn = last()
            cluster.broker(int(group or 0)).kill()
            until(lambda: last()[0] not in (group, "nobody"), observer.observe)
            if txn == group:
                until(lambda: last()[1] not in (txn, "nobody"), go_on)
            assert {*last()} <= {"1", "2", "3"} - {group}
        finally:
            one.end()
