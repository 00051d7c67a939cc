"""What is said of a cluster that does not do what it is asked: the truth about who answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.kafka_settings import Setting
from deploy.local_kafka import LocalKafka
from deploy.ports import free_ports
from monitor.config.config import Config
from monitor.drill.proxy import PASS, Api, Decision, Exchange, Lie, Proxy
from monitor.errors import ConfigError
from monitor.process.reach import reach
from probes.config import TopicsConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import Unreachable
from probes.topics.probe_topics import ProbeTopics


class NoController(Lie):
    """Brokers answer, and tell of no controller: as in a cluster whose quorum is lost."""

    apis: ClassVar = frozenset({Api.METADATA, Api.DESCRIBE_CLUSTER})

    async def on_response(self, exchange: Exchange) -> Decision:
        self.did("took the controller out", exchange)
        exchange.response = replace(exchange.response, controller_id=-1)
        return PASS


class NoBrokers(Lie):
    """A broker answers, and names none, itself neither: as one does that the controller takes for dead, having been
    starved for nine seconds, or that has not been let in again after a start."""

    apis: ClassVar = frozenset({Api.METADATA, Api.DESCRIBE_CLUSTER})
    on = True

    async def on_response(self, exchange: Exchange) -> Decision:
        if self.on:
            self.did("took the brokers out", exchange)
            exchange.response = replace(exchange.response, brokers=(), controller_id=-1)
        return PASS


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_a="a";'


@contextmanager
def asking_for_a_login(folder: Path) -> Iterator[str]:
    """A real broker with a listener that asks for one; its address."""
    with LocalKafka(folder, brokers=1):
        pass
    ports = json.loads((folder / "cluster.json").read_text())["ports"]["1"]
    (port,) = free_ports(1)
    listeners = {"PLAINTEXT": ports[0], "LOGIN": port, "CONTROLLER": ports[1]}
    told = ",".join(f"{name}://127.0.0.1:{at}" for name, at in listeners.items())
    overrides: dict[str, Setting] = {
        "listeners": told,
        "advertised.listeners": told.rpartition(",")[0],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": JAAS,
    }
    with LocalKafka(folder, brokers=1, overrides=overrides):
        yield f"127.0.0.1:{port}"


def login(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": password,
    }


@pytest.mark.kafka
def test_a_refused_login_is_told_at_once(tmp_path: Path) -> None:
    """And not once the time for silent brokers is over, which is ten minutes here."""
    with asking_for_a_login(tmp_path / "kafka") as bootstrap:
        for password in ("a", "wrong"):
            told = {"bootstrap": bootstrap, "reachable_within": 600.0, "security": login(password)}
            config = Config.model_validate({"data": str(tmp_path), "cluster": told})
            if password == "a":
                assert reach(config).brokers
                continue
            with pytest.raises(
                ConfigError, match=r"cluster\.security: .* refuses the login: .*[Aa]uthentication failed"
            ):
                reach(config)


@pytest.mark.kafka
def test_brokers_that_answer_and_tell_of_no_controller_are_not_called_silent(kafka: LocalKafka, tmp_path: Path) -> None:
    with Proxy(kafka.bootstrap, lies=[NoController()]) as proxy:
        told = {"bootstrap": proxy.bootstrap, "reachable_within": 2.0}
        config = Config.model_validate({"data": str(tmp_path), "cluster": told})
        with pytest.raises(ConfigError, match=r"1 broker.s. answer at .*, and none of them tells who"):
            reach(config)
        admin = open_admin(admin_settings(Connection(proxy.bootstrap), client="t"))
        topics = ProbeTopics(admin, TopicsConfig(prefix="reach"))
        with pytest.raises(Unreachable, match=r"1 broker.s. answer in the cluster, and none of them tells"):
            topics.view()


@pytest.mark.kafka
def test_a_broker_that_names_no_broker_ends_no_process(kafka: LocalKafka, tmp_path: Path) -> None:
    """librdkafka's DescribeCluster does (2.16.1): `Assertion rko_result failed`."""
    lie = NoBrokers()
    with Proxy(kafka.bootstrap, lies=[lie]) as proxy:
        told = {"bootstrap": proxy.bootstrap, "reachable_within": 10.0}
        config = Config.model_validate({"data": str(tmp_path), "cluster": told})
        with pytest.raises(ConfigError, match=r"(a|no) broker answers at"):  # which of them: `test_cluster.py`
            reach(config)
        lie.on = False
        reached = reach(config)
        topics = ProbeTopics(reached.admin, TopicsConfig(prefix="reach"))
        assert [broker.id for broker in topics.view().brokers] == list(reached.brokers) == [1]
        lie.on = True
        # The client forgets the brokers that it knew, and may take its time to ask the first ones again.
        with pytest.raises(Unreachable, match=r"^(a|no) broker "):
            topics.view()
