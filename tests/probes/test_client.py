"""Client settings: safe, accepted by the library, and never a secret in the log."""

from __future__ import annotations

import resource
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from deploy.local_kafka import LocalKafka
from probes.kafka.calls import listed
from probes.kafka.client import (
    Connection,
    Transactional,
    admin_settings,
    consumer_settings,
    loggable,
    open_admin,
    open_consumer,
    open_producer,
    producer_settings,
)
from probes.kafka.errors import ClientError, ProbeError
from tests.probes.log.lives import wait_for

SECRETS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user-hush",
    "sasl.password": "hush",
    "ssl.key.password": "hush",
    "ssl.key.pem": "hush",
    "sasl.oauthbearer.client.secret": "hush",
}
CONNECTION = Connection("127.0.0.1:1", SECRETS)


def test_the_producer_is_safe() -> None:
    settings = producer_settings(CONNECTION, client="c")
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] == "true"
    assert settings["max.in.flight.requests.per.connection"] == "1"
    assert settings["allow.auto.create.topics"] == "false"
    assert producer_settings(CONNECTION, client="c", in_flight=5)["max.in.flight.requests.per.connection"] == "5"


def test_the_consumer_is_safe() -> None:
    settings = consumer_settings(CONNECTION, client="c", group="g")
    assert settings["enable.auto.commit"] == "false"
    assert settings["isolation.level"] == "read_committed"
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["allow.auto.create.topics"] == "false"


def test_a_message_never_outlives_its_transaction() -> None:
    short = producer_settings(CONNECTION, client="c", transactional=Transactional("t", 1.0))
    assert (short["transaction.timeout.ms"], short["message.timeout.ms"]) == ("1000", "1000")


def test_security_settings_reach_the_client_and_nothing_of_them_the_log() -> None:
    for settings in (
        producer_settings(CONNECTION, client="c", transactional=Transactional("t", 60)),
        consumer_settings(CONNECTION, client="c", group="g"),
        admin_settings(CONNECTION, client="c"),
    ):
        assert settings.items() >= SECRETS.items()
        logged = loggable(settings)
        assert "hush" not in str(logged)
        assert logged["security.protocol"] == "SASL_SSL"
    assert "hush" not in repr(CONNECTION)


def test_what_is_no_security_setting_is_refused_by_name() -> None:
    with pytest.raises(ProbeError, match="acks is not a security"):
        Connection("127.0.0.1:1", {"acks": "0"})


def test_the_library_accepts_the_settings() -> None:
    plain = Connection("127.0.0.1:1")
    ignore = list[object]().append
    open_producer(producer_settings(plain, client="c"), ignore)
    open_producer(producer_settings(plain, client="c", transactional=Transactional("t", 1.0)), ignore)
    open_consumer(consumer_settings(plain, client="c", group="g"), ignore, lambda error, partitions: None).close()
    open_admin(admin_settings(plain, client="c"))


def test_a_refused_setting_is_named() -> None:
    with pytest.raises(ClientError, match=r"sasl\.typo"):
        open_admin(admin_settings(Connection("127.0.0.1:1", {"sasl.typo": "x"}), client="c"))


@pytest.mark.kafka
def test_an_admin_client_that_asks_a_dead_leader_leaves_the_processor_alone(tmp_path: Path) -> None:
    """A cluster without a quorum goes on naming it: two fleets once left nothing of a machine to its brokers."""
    with LocalKafka(tmp_path, brokers=2) as cluster:
        settings = admin_settings(Connection(cluster.bootstrap), client="asks")
        admin = open_admin(settings)
        topic = NewTopic("led", num_partitions=2, replica_assignment=[[1], [2]])
        admin.create_topics([topic])["led"].result(60)
        asked = {TopicPartition("led", partition): OffsetSpec.latest() for partition in (0, 1)}

        def ask() -> list[Future[Any]]:
            return list(admin.list_offsets(asked, request_timeout=4.0).values())

        wait_for(lambda: all(future.exception(60) is None for future in ask()))
        cluster.broker(1).kill()
        switches = switched()
        of_the_dead, of_the_living = ask()
        assert listed(of_the_living) == 0
        with pytest.raises(KafkaException):
            listed(of_the_dead)
        assert switched() - switches < 20_000, "it pauses between two tries; else these are 200,000"


def switched() -> int:
    """How often a thread of this process has waited for something."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
