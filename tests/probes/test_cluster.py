"""What a cluster lacks to be worked with, and what is not begun while it does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from probes.kafka.client import Connection
from probes.kafka.cluster import Cluster, controlled
from probes.kafka.errors import ClientError
from probes.log.evidence.topic import TopicOf


class Admin:
    """Answers in turn: what brokers and controller a broker tells, or an error. The last answer stays."""

    def __init__(self, *told: tuple[list[int], int] | KafkaError) -> None:
        self.told = list(told)

    def list_topics(self, *, timeout: float) -> Any:
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(told, KafkaError):
            raise KafkaException(told)
        brokers = {id: SimpleNamespace(host="b", port=id) for id in told[0]}
        return SimpleNamespace(cluster_id="c", brokers=brokers, controller_id=told[1])

    def describe_topics(self, names: Any, *, request_timeout: float) -> Mapping[str, Future[Any]]:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"e": future}

    def create_topics(self, topics: Any, **_: Any) -> Any:
        pytest.fail(f"it makes {topics}")


SILENT = KafkaError(KafkaError._TRANSPORT)


@pytest.mark.parametrize(
    ("told", "lack"),
    [
        (Cluster("c", {1: "b:1"}, 1), None),
        (
            Cluster("c", {1: "b:1", 2: "b:2"}, None),
            "2 broker(s) answer here, and none of them tells who the controller is",
        ),
        (Cluster("c", {}, None), "a broker answers here, and knows of no broker that is alive, itself included"),
        (Cluster("c", {}, 1), "a broker answers here, and knows of no broker that is alive, itself included"),
    ],
)
def test_what_is_lacking(told: Cluster, lack: str | None) -> None:
    assert told.lack("here") == lack


def test_who_begins_is_waited_for() -> None:
    looks: list[None] = []
    found = controlled(Admin(SILENT, ([], -1), ([2, 1], -1), ([2, 1], 2)), 60.0, lambda: looks.append(None))
    assert found == Cluster("c", {1: "b:1", 2: "b:2"}, 2)
    assert len(looks) == 4


def test_once_the_time_is_over_it_is_said_what_was_told() -> None:
    assert controlled(Admin(([1], -1)), 0.2, lambda: None) == Cluster("c", {1: "b:1"}, None)
    assert controlled(Admin(([1], -1), SILENT), 0.2, lambda: None) == Cluster("c", {1: "b:1"}, None)
    with pytest.raises(KafkaException):
        controlled(Admin(SILENT), 0.2, lambda: None)


class SlowAdmin(Admin):
    """Answers after so many seconds, to whoever waits for that."""

    def __init__(self, takes: float) -> None:
        super().__init__(([1], 1))
        self.takes = takes

    def list_topics(self, *, timeout: float) -> Any:
        time.sleep(min(timeout, self.takes))
        if timeout < self.takes:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return super().list_topics(timeout=timeout)


def test_a_broker_that_needs_most_of_the_time_is_given_it() -> None:
    assert controlled(SlowAdmin(1.2), 2.5, lambda: None).controller == 1
    with pytest.raises(KafkaException):
        controlled(SlowAdmin(2.4), 2.5, lambda: None)


def test_whoever_looks_may_end_it() -> None:
    def look() -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        controlled(Admin(SILENT), 60.0, look)


def test_no_topic_of_evidence_is_made_with_too_few_replicas_while_no_broker_is_told() -> None:
    topic = TopicOf(Connection("127.0.0.1:1"), "e")
    with pytest.raises(
        ClientError, match=r"knows of no broker that is alive, itself included \(BROKER_NOT_AVAILABLE\)"
    ):
        topic.id(Admin(([], -1)))
