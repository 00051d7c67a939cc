"""What the plan says for each state of the cluster, and what acting on it does to a real one."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from deploy.local_kafka import LocalKafka
from probes.config import TopicsConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import ProbeError
from probes.topics.probe_topics import Alter, ClusterView, Create, Grow, ProbeTopics, TopicPlan, TopicView, plan
from probes.topology import Broker

CONFIG = TopicsConfig(prefix="p", partitions=4)
SAFE = {"cleanup.policy": "delete", "min.insync.replicas": "2", "retention.ms": "86400000", "retention.bytes": "-1"}


def view(brokers: int, *replicas: tuple[int, ...], config: dict[str, str] | None = None) -> ClusterView:
    topic = TopicView("id", replicas, tuple(r[0] for r in replicas), config if config is not None else SAFE)
    found = {"t": topic} if replicas else {}
    return ClusterView("c", tuple(Broker(i, f"h{i}:1") for i in range(1, brokers + 1)), found)


def planned(of: ClusterView, config: TopicsConfig = CONFIG) -> TopicPlan:
    return plan(of, ["t"], config)


def test_a_topic_that_is_missing_is_spread_over_all_brokers() -> None:
    assert planned(view(3)) == TopicPlan(
        (Create("t", ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3)), SAFE),),
        (),
    )


def test_there_are_never_fewer_partitions_than_brokers_and_each_leads_one() -> None:
    (create,) = planned(view(6)).changes
    assert isinstance(create, Create)
    assert {replicas[0] for replicas in create.assignment} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")])
def test_fewer_brokers_mean_fewer_replicas_and_that_is_said(brokers: int, replicas: int, in_sync: str) -> None:
    made = planned(view(brokers))
    (create,) = made.changes
    assert isinstance(create, Create)
    assert {len(r) for r in create.assignment} == {replicas}
    assert create.config["min.insync.replicas"] == in_sync
    assert len(made.remarks) == (brokers < 3)


WHOLE = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3))


def test_what_is_as_it_should_be_is_left_alone() -> None:
    assert planned(view(3, *WHOLE)) == TopicPlan((), ())


def test_other_leaders_than_the_preferred_ones_are_no_reason_to_change_anything() -> None:
    away = TopicView("id", WHOLE, (2, 2, 2, 2), SAFE)
    assert planned(ClusterView("c", view(3).brokers, {"t": away})) == TopicPlan((), ())
    dead = TopicView("id", WHOLE, (2, 2, None, 2), SAFE)
    assert planned(ClusterView("c", view(3).brokers, {"t": dead})) == TopicPlan((), ())


def test_a_broker_that_is_down_is_no_reason_either() -> None:
    two = ClusterView("c", view(3).brokers[:2], view(3, *WHOLE).topics)
    assert planned(two) == TopicPlan((), ())


def test_an_added_broker_gets_a_partition_of_its_own_and_nothing_moves() -> None:
    assert planned(view(4, *WHOLE)).changes == (Grow("t", 5, ((4, 1, 2),)),)


def test_a_cluster_that_moves_its_leaders_about_is_not_given_partitions_again_and_again() -> None:
    """As franz-go's kfake does, which lists the present leader as the first replica."""
    for remembers, most in ((True, 6), (False, 7)):
        replicas, led = list[tuple[int, ...]](WHOLE), {"t": set[int]()}
        for turn in range(40):
            leader = turn // 4 % 3 + 1
            turned = tuple((leader, *(b for b in (1, 2, 3) if b != leader)) for _ in replicas)
            for change in plan(view(3, *turned), ["t"], CONFIG, led if remembers else None).changes:
                assert isinstance(change, Grow)
                replicas += change.assignment
                led["t"] |= {given[0] for given in change.assignment}
            led["t"].add(leader)
        assert len(replicas) <= most


def test_missing_partitions_are_added_without_leaving_a_broker_out() -> None:
    assert planned(view(3, (1, 2, 3))).changes == (Grow("t", 4, ((2, 3, 1), (3, 1, 2), (1, 2, 3))),)


def test_only_what_differs_is_altered_and_not_where_it_cannot_be_read() -> None:
    differing = SAFE | {"cleanup.policy": "compact", "other": "x"}
    assert planned(view(3, *WHOLE, config=differing)).changes == (
        Alter("t", {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}),
    )
    unread = TopicView("id", WHOLE, (1, 2, 3, 1), None)
    assert planned(ClusterView("c", view(3).brokers, {"t": unread})) == TopicPlan((), ())


def test_too_few_replicas_are_said_and_not_changed() -> None:
    made = planned(view(3, (1,), (2,), (3,), (1,), config=SAFE | {"min.insync.replicas": "1"}))
    assert made == TopicPlan((), ("topic t has 1 replica(s), 3 were asked for",))


def probe_topics(kafka: LocalKafka, said: list[str], **config: object) -> ProbeTopics:
    admin = open_admin(admin_settings(Connection(kafka.bootstrap), client="t"))
    return ProbeTopics(
        admin, TopicsConfig.model_validate({"prefix": f"t-{uuid.uuid4().hex[:8]}", **config}), said.append
    )


def created(admin: AdminClient, topic: NewTopic) -> str:
    """The new topic's id, once the cluster tells it."""
    admin.create_topics([topic])[topic.topic].result()
    for _ in range(600):
        try:
            return str(admin.describe_topics(TopicCollection([topic.topic]))[topic.topic].result().topic_id)
        except KafkaException:
            time.sleep(0.1)
    raise AssertionError(f"{topic.topic} does not appear")


@pytest.mark.kafka
def test_three_brokers_get_topics_with_three_replicas_and_a_leader_each(kafka3: LocalKafka) -> None:
    said: list[str] = []
    topics = probe_topics(kafka3, said, partitions=3)
    layout = topics.ensure()
    for _ in range(300):  # a busy broker has not heard of a topic yet that another one has made
        found = topics.view(with_config=True)
        if all(topic.config is not None for topic in found.topics.values()):
            break
        time.sleep(0.1)
    for topic in found.topics.values():
        assert set(topic.leaders) == {1, 2, 3}
        assert {len(r) for r in topic.replicas} == {3}
        assert topic.config is not None
        assert topic.config["min.insync.replicas"] == "2"
    assert [topic.partitions for topic in layout.topics] == [3, 3]
    assert topics.ensure() == layout
    assert said == []


class DeletedInBetween(AdminClient):  # type: ignore[misc]  # its library tells no types
    """Between what is asked of a topic and of its settings, the topic is deleted."""

    def describe_configs(self, resources: list[ConfigResource], **settings: Any) -> dict[ConfigResource, Any]:
        for future in self.delete_topics([resource.name for resource in resources]).values():
            future.result()
        while True:
            told: dict[ConfigResource, Any] = super().describe_configs(resources, **settings)
            if all(future.exception() is not None for future in told.values()):
                return told
            time.sleep(0.1)


@pytest.mark.kafka
def test_a_topic_that_a_broker_has_not_heard_of_is_no_setting_that_cannot_be_read(kafka: LocalKafka) -> None:
    """Another broker has just made it, or somebody has just deleted it."""
    said: list[str] = []
    topics = probe_topics(kafka, said)
    topics.ensure()
    config = TopicsConfig(prefix=topics.names[0].removesuffix("-records"))
    admin = DeletedInBetween(admin_settings(Connection(kafka.bootstrap), client="t"))
    found = ProbeTopics(admin, config, said.append, topics.names).view(with_config=True)
    assert [topic.config for topic in found.topics.values()] == [None, None]
    assert [one for one in said if "settings" in one] == []


@pytest.mark.kafka
def test_a_real_topic_is_grown_and_altered_and_keeps_its_id(kafka: LocalKafka) -> None:
    said: list[str] = []
    topics = probe_topics(kafka, said, partitions=3)
    name = topics.names[0]
    admin = open_admin(admin_settings(Connection(kafka.bootstrap), client="t"))
    before = created(admin, NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}))
    layout = topics.ensure()
    assert (layout.topics[0].id, layout.topics[0].partitions) == (before, 3)
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "delete"
    topics.ensure()
    short = [f"topic {one} has 1 replica(s), 3 were asked for" for one in topics.names]
    assert [line for line in said if line in short] == short, "and it was said once"
    altered = [line for line in said if line not in short]
    assert altered[0] == f"topic {name}: cleanup.policy was compact, and is set to delete"
    assert len(altered) == len(set(altered)) and all(line.startswith(f"topic {name}: ") for line in altered)


@pytest.mark.kafka
def test_where_nothing_may_be_made_the_probes_go_on_with_what_is_there(kafka: LocalKafka) -> None:
    prefix = f"t-{uuid.uuid4().hex[:8]}"
    topics = probe_topics(kafka, [], manage=False, ready_within=0.5, prefix=prefix)
    with pytest.raises(ProbeError, match="there is no probe topic"):
        topics.ensure()
    admin = open_admin(admin_settings(Connection(kafka.bootstrap), client="t"))
    created(admin, NewTopic(topics.names[0], 1, 1))
    topics = probe_topics(kafka, [], manage=False, prefix=prefix)
    assert [topic.partitions for topic in topics.ensure().topics] == [1]


def test_a_partition_that_has_lost_its_leader_is_not_waited_for() -> None:
    """Probes that begin anew in an outage are to see it."""

    class InAnOutage(ProbeTopics):
        def view(self, *, with_config: bool = False) -> ClusterView:
            topics = {name: TopicView(f"{name}-id", ((1,), (2,)), (1, None), {}) for name in self.names}
            return ClusterView("c", (Broker(1, "one:1"),), topics)

    said: list[str] = []
    topics = InAnOutage(AdminClient({}), TopicsConfig(manage=False, ready_within=600.0), said.append)
    assert [topic.partitions for topic in topics.ensure().topics] == [2, 2]
    assert said == ["some partitions of the probe topics have no leader"]


@pytest.mark.kafka
def test_the_ids_that_topics_have_now(kafka: LocalKafka) -> None:
    topics = probe_topics(kafka, [], partitions=1)
    layout = topics.ensure()
    name, other = topics.names[0], "nobody-made-it"
    assert topics.ids([name, other], within=60) == {name: layout.topic_id(name), other: None}
    admin = open_admin(admin_settings(Connection(kafka.bootstrap), client="t"))
    admin.delete_topics([name])[name].result(60)
    for _ in range(600):
        if topics.ids([name], within=60) == {name: None}:
            break
        time.sleep(0.1)
    assert created(admin, NewTopic(name, 1, 1)) == topics.ids([name], within=60)[name] != layout.topic_id(name)  # type: ignore[index]
    anew = topics.ensure()
    assert (layout.former_id(name), anew.former_id(name)) == ("", layout.topic_id(name))
    assert topics.ensure().former_id(name) == layout.topic_id(name), "it is remembered"
    assert anew.former_id(topics.names[1]) == ""
    silent = ProbeTopics(open_admin(admin_settings(Connection("127.0.0.1:1"), client="t")), TopicsConfig(prefix="t"))
    assert silent.ids([name], within=0.5) is None
