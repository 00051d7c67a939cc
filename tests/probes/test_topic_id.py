"""What topics are known by where brokers are older than topic ids: by their names, not all by the same zeros."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Uuid

from probes.config import TopicsConfig
from probes.kafka.client import Connection
from probes.log.evidence.topic import TopicOf
from probes.topics.probe_topics import ProbeTopics


class Admin:
    """A cluster where each topic that is asked for is there. `ids`: by name, as two halves."""

    def __init__(self, ids: Mapping[str, tuple[int, int]]) -> None:
        self.ids = ids

    def list_topics(self, topic: str, *, timeout: float) -> Any:
        brokers = {1: SimpleNamespace(host="b", port=1)}
        return SimpleNamespace(cluster_id="c", brokers=brokers, controller_id=1)

    def describe_topics(self, names: Any, *, request_timeout: float) -> Mapping[str, Future[Any]]:
        told: dict[str, Future[Any]] = {name: Future() for name in self.ids}
        for name, future in told.items():
            future.set_result(SimpleNamespace(topic_id=Uuid(*self.ids[name]), partitions=[]))
        return told


def topics(ids: Mapping[str, tuple[int, int]]) -> ProbeTopics:
    return ProbeTopics(Admin(ids), TopicsConfig(manage=False), names=tuple(ids))


def test_topics_of_brokers_that_tell_no_ids_are_told_apart() -> None:
    found = topics({"one": (0, 0), "two": (0, 0)}).ensure()
    assert [topic.id for topic in found.topics] == ["one", "two"]
    assert topics({"one": (0, 0)}).ids(["one"]) == {"one": "one"}


def test_an_id_that_is_told_is_what_a_topic_is_known_by() -> None:
    told = str(Uuid(12, 34))
    assert [topic.id for topic in topics({"one": (12, 34)}).ensure().topics] == [told]
    assert topics({"one": (12, 34)}).ids(["one"]) == {"one": told}


def test_so_it_is_with_the_topic_of_evidence() -> None:
    topic = TopicOf(Connection("127.0.0.1:1"), "e")
    assert topic.id(Admin({"e": (0, 0)})) == "e"
    assert topic.id(Admin({"e": (12, 34)})) == str(Uuid(12, 34))
