"""The probe topics: what is there, what should change (a pure plan), and the requests that change it.

A probe topic has at least one partition per broker and one whose preferred leader each broker is, replication 3 and
min.insync.replicas 2 where there are three brokers (less where there are fewer, and that is said), and deletes by
time. Brokers that are added get a new partition of their own. Nothing is ever reassigned: a monitor that moves
partitions about disturbs the cluster it watches. Leadership is judged by the *preferred* leader, the first replica, and
what a topic can promise by its own replicas: while a broker restarts, others lead its partitions and the cluster names
fewer brokers, and that is no reason to change anything.

Where a cluster moves its leaders about by itself, a broker that led a partition once is not given another, and no topic
gets more partitions than it was asked to have and one for each broker.

Where the cluster does not allow creating or altering, that is said once, and the probes go on with what is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from probes.config import TopicsConfig
from probes.kafka.cluster import cluster
from probes.kafka.errors import ClientError, ProbeError, Unreachable, translate
from probes.kafka.topic_id import topic_id
from probes.topology import Broker, Layout, Topic

log = logging.getLogger("offsetwatch.topics")

REQUEST_TIMEOUT: Final = 10.0
ANSWERED_WITHIN: Final = 2.0
"""Seconds for the question whether anybody answers at all."""
_HERE: Final = "in the cluster"
UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
"""The codes that say of a topic that it is not there."""
MARKING: Final = frozenset({"cleanup.policy", "min.insync.replicas", "retention.ms", "retention.bytes"})
"""The settings that every topic made here has as its own, so that it can be told from one that somebody else made."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as it is: `replicas` of each partition in order (the first is the preferred leader), `leaders` (None
    where there is none), `config` None where it may not be read."""

    id: str
    replicas: tuple[tuple[int, ...], ...]
    leaders: tuple[int | None, ...]
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster: str
    brokers: tuple[Broker, ...]
    topics: Mapping[str, TopicView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Create:
    topic: str
    assignment: tuple[tuple[int, ...], ...]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Grow:
    """Add partitions: `assignment` holds the new ones' replicas, `total` is the count afterwards."""

    topic: str
    total: int
    assignment: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Alter:
    """`was`: what these settings are before, by their names."""

    topic: str
    config: Mapping[str, str]
    was: Mapping[str, str]


Change = Create | Grow | Alter


@dataclass(frozen=True, slots=True)
class TopicPlan:
    changes: tuple[Change, ...]
    remarks: tuple[str, ...]
    """What falls short of what was asked and cannot be changed, one sentence each."""


def plan(
    view: ClusterView, names: Sequence[str], config: TopicsConfig, led: Mapping[str, Collection[int]] | None = None
) -> TopicPlan:
    """What to change so that the topics `names` are as `config` asks; pure. `led`: the brokers that have been a
    partition's preferred leader before, by topic."""
    brokers = sorted(broker.id for broker in view.brokers)
    if not brokers:
        return TopicPlan((), ("the cluster names no broker",))
    changes: list[Change] = []
    remarks: list[str] = []
    for name in names:
        topic = view.topics.get(name)
        if topic is None:
            replication = min(config.replication, len(brokers))
            count = max(config.partitions, len(brokers))
            changes.append(Create(name, _spread(brokers, range(count), replication), _settings(config, replication)))
        else:
            replication = min(config.replication, *(len(replicas) for replicas in topic.replicas))
            before = (led or {}).get(name, ())
            changes.extend(_grow(name, topic, brokers, min(replication, len(brokers)), config.partitions, before))
            settings = _settings(config, replication)
            known = topic.config or settings
            differing = {key: to for key, to in settings.items() if known.get(key) != to}
            if differing:
                changes.append(Alter(name, differing, {key: known.get(key, "not told") for key in differing}))
        if replication < config.replication:
            remarks.append(f"topic {name} has {replication} replica(s), {config.replication} were asked for")
    return TopicPlan(tuple(changes), tuple(remarks))


def _grow(
    name: str, topic: TopicView, brokers: list[int], replication: int, wanted: int, led: Collection[int]
) -> list[Change]:
    """New partitions, first for the brokers that are no partition's preferred leader, and have not been."""
    leading = {replicas[0] for replicas in topic.replicas if replicas} | set(led)
    have = len(topic.replicas)
    room = max(0, max(wanted, len(brokers)) + len(brokers) - have)
    leaders = [broker for broker in brokers if broker not in leading][:room]
    while have + len(leaders) < max(wanted, len(brokers)):
        leaders.append(brokers[(have + len(leaders)) % len(brokers)])
    if not leaders:
        return []
    assignment = _spread(brokers, [brokers.index(leader) for leader in leaders], replication)
    return [Grow(name, have + len(leaders), assignment)]


def _spread(brokers: list[int], first: Sequence[int], replication: int) -> tuple[tuple[int, ...], ...]:
    """For each index in `first`, replicas that begin with that broker (modulo their number)."""
    return tuple(tuple(brokers[(i + k) % len(brokers)] for k in range(replication)) for i in first)


def _settings(config: TopicsConfig, replication: int) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "min.insync.replicas": str(config.in_sync_of(replication)),
        "retention.ms": str(int(config.retention_hours * 3_600_000)),
        "retention.bytes": str(config.retention_bytes),
    }


class ProbeTopics:
    """Keeps the probe topics as they should be, and tells what is there. Say-once is per object."""

    def __init__(
        self,
        admin: AdminClient,
        config: TopicsConfig,
        say: Callable[[str], None] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """`names`: the topics to keep, `ProbesConfig.topic_names`; without, those that every fleet has."""
        self._admin, self._config = admin, config
        self.names = tuple(names) or (config.records, config.transactions)
        self._say = say or log.warning
        self._said: set[str] = set()
        self._led: dict[str, set[int]] = {}
        self._ids: dict[str, str] = {}
        self._former_ids: dict[str, str] = {}

    def ensure(self) -> Layout:
        """Plan, act, wait until every partition that was made has a leader, and return what is there.

        A partition that has lost its leader is not waited for: probes that begin in an outage are to see it.
        Raises Unreachable where no broker answers, ProbeError where no probe topic is there and none may be made."""
        view = self.view(with_config=self._config.manage)
        wait, new = not view.topics, set[str]()
        if self._config.manage:
            made = plan(view, self.names, self._config, self._led)
            for name, topic in view.topics.items():
                self._led.setdefault(name, set()).update(replicas[0] for replicas in topic.replicas if replicas)
            for remark in made.remarks:
                self._say_once(remark)
            for change in made.changes:
                if not isinstance(change, Alter):
                    new.add(change.topic)  # whoever makes it: it may be another host at this moment
                if self._act(change) and isinstance(change, Grow):
                    self._led[change.topic].update(replicas[0] for replicas in change.assignment)
            wait = wait or bool(made.changes)
        if wait:
            view = self._ready(new)
        if any(leader is None for topic in view.topics.values() for leader in topic.leaders):
            self._say_once("some partitions of the probe topics have no leader")
        return self._with_former_ids(self._paired(layout_of(view, self.names)))

    def _paired(self, layout: Layout) -> Layout:
        """Without the partitions of the transforms' input that have none of their number in the output: whoever added
        them did not add them there."""
        count = {topic.name: topic.partitions for topic in layout.topics}
        source, target = self._config.transform_in, self._config.transform_out
        fewer = count.get(target, 0)
        if not fewer or count.get(source, 0) <= fewer:
            return layout
        self._say_once(
            f"topic {source} has {count[source]} partitions, and {target} {fewer}: those from {fewer} on are left alone"
        )
        return replace(
            layout,
            topics=tuple(
                replace(topic, partitions=fewer, left_alone=topic.partitions - fewer) if topic.name == source else topic
                for topic in layout.topics
            ),
        )

    def ask_by(self, admin: AdminClient) -> None:
        """Ask by this client from now on."""
        self._admin = admin

    def _with_former_ids(self, layout: Layout) -> Layout:
        for topic in layout.topics:
            known = self._ids.setdefault(topic.name, topic.id)
            if known != topic.id:
                self._former_ids[topic.name], self._ids[topic.name] = known, topic.id
        topics = (replace(topic, former_id=self._former_ids.get(topic.name, "")) for topic in layout.topics)
        return replace(layout, topics=tuple(topics))

    def view(self, *, with_config: bool = False) -> ClusterView:
        """What is there now. Raises Unreachable where no broker answers."""
        topics: dict[str, TopicView] = {}
        try:
            found = self._admin.describe_topics(TopicCollection(list(self.names)), request_timeout=REQUEST_TIMEOUT)
        except Exception as error:
            raise self._unreachable(translate(error)) from error
        for name, future in found.items():
            try:
                topics[name] = _topic_view(name, future.result())
            except Exception as error:
                problem = translate(error)
                if problem.code == "_TIMED_OUT":
                    raise self._unreachable(problem) from error
                if problem.code not in UNKNOWN:
                    raise Unreachable(f"topic {name} cannot be described: {problem}") from error
        try:
            told = cluster(self._admin, REQUEST_TIMEOUT, next(iter(topics), None))
        except Exception as error:
            raise self._unreachable(translate(error)) from error
        if lack := told.lack(_HERE):
            raise Unreachable(lack)
        if with_config and topics:
            topics = self._with_config(topics)
        return ClusterView(told.id, tuple(Broker(*broker) for broker in told.brokers.items()), topics)

    def _unreachable(self, problem: ClientError) -> Unreachable:
        try:
            told = cluster(self._admin, ANSWERED_WITHIN)
        except Exception as error:
            log.debug("%s", translate(error))
            return Unreachable(f"no broker tells what there is of the probe topics: {problem}")
        # Without a controller the library asks nothing else, and calls it a time-out.
        return Unreachable(
            told.lack(_HERE) or f"brokers of the cluster answer, and none describes the probe topics: {problem}"
        )

    def ids(self, names: Collection[str], within: float = 2.0) -> dict[str, str | None] | None:
        """The ids that topics of these names have now, None for one that is not there. None where nobody answers
        `within` so many seconds, or not this."""
        told: dict[str, str | None] = {}
        try:
            found = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=within)
        except Exception as error:
            log.debug("%s", translate(error))
            return None
        for name, future in found.items():
            try:
                told[name] = topic_id(name, future.result(within + 1.0))
            except TimeoutError:
                return None
            except Exception as error:
                if translate(error).code not in UNKNOWN:
                    return None
                told[name] = None
        return told

    def _with_config(self, topics: dict[str, TopicView]) -> dict[str, TopicView]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        read: dict[str, TopicView] = {}
        for resource, future in self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT).items():
            topic = topics[resource.name]
            try:
                entries = {key: entry.value for key, entry in future.result().items() if entry.value is not None}
                read[resource.name] = TopicView(topic.id, topic.replicas, topic.leaders, entries)
            except Exception as error:
                problem = translate(error)
                if problem.code not in UNKNOWN:  # one broker made it, another has not heard of it yet: no refusal
                    self._say_once(f"the settings of topic {resource.name} cannot be read: {problem}")
                read[resource.name] = topic
        return read

    def _ready(self, new: Collection[str]) -> ClusterView:
        """Waits until all topics are known and every partition of the new ones has a leader, or the limit; then what is
        there. Raises ProbeError where that is nothing."""
        limit = time.monotonic() + self._config.ready_within
        while True:
            view = self.view()
            whole = set(view.topics) == set(self.names)
            if whole and all(leader is not None for name in new for leader in view.topics[name].leaders):
                return view
            if time.monotonic() >= limit:
                break
            time.sleep(0.2)
        if not view.topics:
            raise ProbeError(f"there is no probe topic ({', '.join(self.names)}), and none could be created")
        return view

    def _act(self, change: Change) -> bool:
        """Whether the cluster did it."""
        try:
            for future in _request(self._admin, change).values():
                future.result()
        except Exception as error:
            problem = translate(error)
            if problem.code != "TOPIC_ALREADY_EXISTS":
                self._say_once(_refusal(change, problem))
            return False
        log.info("%s", change)
        if isinstance(change, Alter):  # somebody has set it otherwise, perhaps by mistake
            for key, value in change.config.items():
                self._say(f"topic {change.topic}: {key} was {change.was[key]}, and is set to {value}")
        return True

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)


def layout_of(view: ClusterView, names: Sequence[str]) -> Layout:
    """The places among the topics `names` that are there."""
    topics = tuple(
        Topic(name, view.topics[name].id, len(view.topics[name].replicas)) for name in names if name in view.topics
    )
    leaders = {
        (name, partition): leader
        for name in names
        if name in view.topics
        for partition, leader in enumerate(view.topics[name].leaders)
        if leader is not None
    }
    return Layout(view.cluster, topics, view.brokers, leaders)


def _topic_view(name: str, description: Any) -> TopicView:
    partitions = sorted(description.partitions, key=lambda p: p.id)
    return TopicView(
        topic_id(name, description),
        tuple(tuple(node.id for node in p.replicas) for p in partitions),
        tuple(p.leader.id if p.leader is not None and p.leader.id >= 0 else None for p in partitions),
    )


def _request(admin: AdminClient, change: Change) -> Any:
    if isinstance(change, Create):
        new = NewTopic(
            change.topic,
            num_partitions=len(change.assignment),
            replica_assignment=[list(replicas) for replicas in change.assignment],
            config=dict(change.config),
        )
        return admin.create_topics([new], request_timeout=REQUEST_TIMEOUT)
    if isinstance(change, Grow):
        more = NewPartitions(change.topic, change.total, replica_assignment=[list(r) for r in change.assignment])
        return admin.create_partitions([more], request_timeout=REQUEST_TIMEOUT)
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in change.config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, change.topic, incremental_configs=entries)
    return admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT)


def _refusal(change: Change, problem: ClientError) -> str:
    what = {Create: "created", Grow: "given more partitions", Alter: "altered"}[type(change)]
    return f"topic {change.topic} could not be {what}, going on with what is there: {problem}"
