"""What the cluster says of a probe topic, and what the configuration asked for: the `settings` of observer rows.

    replicas, replicas_asked           of this partition; what the configuration asks for, also where there are fewer
    min_insync, min_insync_asked       brokers than that, and the probes go on with less
    created_by                         offsetwatch, auto or unknown: see `creator`
    unclean_leader_election            true or false, as it holds for the topic, wherever it is set
    cleanup_policy, retention_ms       the same
    timestamp_type                     the same: CreateTime or LogAppendTime
    transaction_max_timeout_ms         of the broker that was asked
    offsets_retention_minutes          the same: so long a group keeps what it has committed
    settings_asked                     when the topic's were asked for, microseconds by this host's clock

What the cluster does not tell, or not to us, is absent. All values are strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Final

from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from probes.config import TopicsConfig
from probes.kafka.errors import translate
from probes.log.life_log import Instant
from probes.topics.probe_topics import MARKING
from probes.topology import Layout, Partition
from rules.vocabulary.settings import ASKED
from rules.vocabulary.times import EPOCH, micros

ASK_EVERY: Final = 10.0
"""Seconds between two questions: this late a change is noticed."""
TELL_AGAIN: Final = 30.0
"""Seconds after which they are told again although nothing changed."""
SECOND: Final = 1_000_000_000
_TOPIC: Final = {
    "min_insync": "min.insync.replicas",
    "unclean_leader_election": "unclean.leader.election.enable",
    "retention_ms": "retention.ms",
    "cleanup_policy": "cleanup.policy",
    "timestamp_type": "message.timestamp.type",
}
_BROKER: Final = {
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
    "offsets_retention_minutes": "offsets.retention.minutes",
}
Entries = Mapping[str, Any]
"""ConfigEntry by name."""


def creator(topic: Entries, broker: Entries, replicas: int, partitions: int) -> str:
    """Who made the topic, as far as that can be told.

    `offsetwatch` sets all of `MARKING` on a topic that it creates, also where they are the broker's defaults. `auto`:
    the broker makes topics for whoever asks; this one has the number of replicas and partitions that it gives them, and
    no setting of its own but those that we alter where they differ (then partitions may have been added as well)."""
    own = {name for name, entry in topic.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
    if own >= MARKING:
        return "offsetwatch"
    if _value(broker, "auto.create.topics.enable") != "true" or not own <= MARKING:
        return "unknown"
    usual = _value(broker, "default.replication.factor") == str(replicas)
    as_given = _value(broker, "num.partitions") == str(partitions) or bool(own)
    return "auto" if usual and as_given else "unknown"


def told(
    topic: Entries, broker: Entries, replicas: int | None, partitions: int, config: TopicsConfig
) -> dict[str, str]:
    """The settings of one partition with so many `replicas`; pure."""
    asked = config.replication
    found = {"replicas_asked": str(asked), "min_insync_asked": str(config.in_sync_of(asked))}
    if replicas is not None:
        found["replicas"] = str(replicas)
        if topic:
            found["created_by"] = creator(topic, broker, replicas, partitions)
    for names, entries in ((_TOPIC, topic), (_BROKER, broker)):
        for name, key in names.items():
            if (value := _value(entries, key)) is not None:
                found[name] = value
    return found


def _value(entries: Entries, key: str) -> str | None:
    entry = entries.get(key)
    return None if entry is None or entry.value is None else str(entry.value)


class TopicSettings:
    """Asks for them without waiting, and says when they are to be told. Times in ns of one monotonic clock."""

    def __init__(self, layout: Layout, config: TopicsConfig, complain: Callable[[str], None]) -> None:
        self._layout, self._config, self._complain = layout, config, complain
        self._partitions = {topic.name: topic.partitions + topic.left_alone for topic in layout.topics}
        self.replicas: dict[Partition, int] = {}
        """How many each partition has, as the topics' descriptions say."""
        self._topics: dict[str, Entries] = {}
        self._broker: Entries = {}
        self._futures: dict[str | None, Future[Any]] = {}
        self._asked = -(2**62)
        self._asked_at = EPOCH
        self._heard: dict[str, datetime] = {}  # by topic, when what is known was asked for
        self._answered = False
        self._told: dict[Partition, tuple[int, dict[str, str]]] = {}

    def ask(self, admin: AdminClient, broker: int | None, now: Instant, timeout: float) -> None:
        """Ask the cluster, if it is time; `broker` is asked about itself."""
        if self._futures or now.mono - self._asked < ASK_EVERY * SECOND:
            return
        self._asked, self._asked_at = now.mono, now.at
        topics = [ConfigResource(ResourceType.TOPIC, name) for name in self._partitions]
        for resource, future in admin.describe_configs(topics, request_timeout=timeout).items():
            self._futures[resource.name] = future
        if broker is not None:
            one = [ConfigResource(ResourceType.BROKER, str(broker))]
            (self._futures[None],) = admin.describe_configs(one, request_timeout=timeout).values()

    def hear(self) -> None:
        """Take in the answers, once all are there."""
        if not self._futures or not all(future.done() for future in self._futures.values()):
            return
        futures, self._futures = self._futures, {}
        for name, future in futures.items():
            error = future.exception()
            if error is not None:
                self._complain(f"the settings of {name or 'a broker'} cannot be read: {translate(error)}")
            elif name is None:
                self._broker = future.result()
            else:
                self._topics[name] = future.result()
                self._heard[name] = self._asked_at
        self._answered = True

    def to_tell(self, where: Partition, now: int) -> dict[str, str] | None:
        """What the partition's row is to say now; None where it said so before."""
        if not self._answered:
            return None
        partitions = self._partitions[where[0]]
        present = told(self._topics.get(where[0], {}), self._broker, self.replicas.get(where), partitions, self._config)
        at, before = self._told.get(where, (0, {}))
        if present == before and now - at < TELL_AGAIN * SECOND:
            return None
        self._told[where] = (now, present)
        asked = self._heard.get(where[0])
        return present if asked is None else {**present, ASKED: str(micros(asked))}
