"""What a local broker is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.kafka_settings import Link, properties, rendered
from deploy.ports import HOST, free_ports, is_free

PORTS = {1: (20001, 20002), 2: (20003, 20004), 3: (20005, 20006)}


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_replication_follows_the_number_of_brokers(brokers: int, replicas: str, in_sync: str) -> None:
    told = properties(1, {node: PORTS[node] for node in range(1, brokers + 1)}, Path("/data"), {})
    assert told["offsets.topic.replication.factor"] == replicas
    assert told["transaction.state.log.replication.factor"] == replicas
    assert told["transaction.state.log.min.isr"] == in_sync


def test_every_node_knows_its_own_ports_and_all_voters() -> None:
    told = properties(2, PORTS, Path("/data"), {})
    assert told["listeners"] == "PLAINTEXT://127.0.0.1:20003,CONTROLLER://127.0.0.1:20004"
    assert told["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20003"
    assert told["controller.quorum.voters"] == "1@127.0.0.1:20002,2@127.0.0.1:20004,3@127.0.0.1:20006"


LINKS = {1: Link(20011, 20012, 20013), 2: Link(20014, 20015, 20016), 3: Link(20017, 20018, 20019)}


@pytest.mark.parametrize(("version", "to_controller"), [("3.8.1", ""), ("4.3.1", ",CONTROLLER://127.0.0.1:20016")])
def test_linked_nodes_send_their_peers_elsewhere_than_their_clients(version: str, to_controller: str) -> None:
    told = properties(2, PORTS, Path("/data"), {}, links=LINKS, version=version)
    assert told["listeners"] == ("PLAINTEXT://127.0.0.1:20003,CONTROLLER://127.0.0.1:20004,PEERS://127.0.0.1:20014")
    assert told["advertised.listeners"] == (f"PLAINTEXT://127.0.0.1:20003,PEERS://127.0.0.1:20015{to_controller}")
    assert told["controller.quorum.voters"] == "1@127.0.0.1:20013,2@127.0.0.1:20016,3@127.0.0.1:20019"
    assert told["inter.broker.listener.name"] == "PEERS"


def test_a_broker_that_is_no_controller_is_no_voter_and_makes_no_topic_larger() -> None:
    told = properties(4, {**PORTS, 4: (20007, None)}, Path("/data"), {})
    assert told["process.roles"] == "broker"
    assert told["listeners"] == "PLAINTEXT://127.0.0.1:20007"
    assert told["controller.quorum.voters"] == "1@127.0.0.1:20002,2@127.0.0.1:20004,3@127.0.0.1:20006"
    assert told["default.replication.factor"] == "3"


def test_overrides_go_first_and_may_be_plain_values() -> None:
    told = properties(1, PORTS, Path("/data"), {"auto.create.topics.enable": True, "num.partitions": 3})
    assert (told["auto.create.topics.enable"], told["num.partitions"]) == ("true", "3")


def test_a_setting_cannot_smuggle_in_another() -> None:
    assert rendered({"log.dirs": "C:\\data"}) == "log.dirs=C:\\\\data\n"
    assert rendered({"log.dirs": "/ä €/𝄞'"}) == "log.dirs=/\\u00e4 \\u20ac/\\ud834\\udd1e'\n", "Java reads Latin-1"
    with pytest.raises(ValueError, match=r"'log\.dirs' holds a line break"):
        rendered({"log.dirs": "/data\nnode.id=2"})


def test_ports_are_different_free_and_never_given_to_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(15_000 <= port < 32_000 for port in ports)
    with socket.socket() as taken:
        taken.bind((HOST, ports[0]))
        taken.listen()
        assert not is_free(ports[0])
    assert is_free(ports[0])
