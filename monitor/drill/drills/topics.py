"""Drills in which somebody deletes and makes probe topics while probes are at work. The log is another one, and no
promise was broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.drills.healthy import EVERYTHING
from monitor.drill.errors import DrillFailed
from probes.config import TopicsConfig

TIMES: Final = 2
BETWEEN: Final = 9.0
"""Seconds from one time to the next: the probes have noticed, and are at work again."""


class RecreatedTopic(Play):
    """Clients go on in the new topic by its name, until somebody tells them that its id is another.

    `which`: the topic that it happens to."""

    def __init__(self, which: Callable[[TopicsConfig], str]) -> None:
        self._which = which

    def act(self, stage: Stage) -> None:
        topic = self._which(stage.config.topics)
        for _ in range(TIMES):
            known = stage.layout.topic_id(topic)
            partitions = sum(1 for _ in stage.layout.partitions(topic))
            stage.admin.delete_topics([topic])[topic].result(30)
            stage.act(f"deleted {topic}")
            stage.wait(lambda p=partitions: self._made(stage, p), 20, "that the topic was made again")  # type: ignore[misc]
            stage.wait(lambda k=known: self._noticed(stage, k), 30, "that the probes noticed")  # type: ignore[misc]
            stage.pause(BETWEEN)

    def _made(self, stage: Stage, partitions: int) -> bool:
        """Whether it is there again, made here or by the probes, who are looking after their topics."""
        topic = self._which(stage.config.topics)
        try:
            stage.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                # Deleted a moment ago, or made by the probes a moment ago: who has leaders is there.
                listed = stage.admin.list_topics(topic, timeout=10).topics[topic]
                return len(listed.partitions) == partitions
            raise DrillFailed(f"the topic could not be made: {error}") from error
        return True

    def _noticed(self, stage: Stage, before: str) -> bool:
        try:
            return stage.layout.topic_id(self._which(stage.config.topics)) != before
        except KeyError:
            return False

    def undo(self, stage: Stage) -> None:
        stage.work_goes_on()


recreated = partial(
    Drill,
    name="recreated-topic",
    seen_in="every cluster with an operator",
    changes_cluster=True,
    probes={**EVERYTHING, "audit": {"enabled": False}, "unrest": {"enabled": False}},
)

DRILLS: Final = (
    recreated(
        case="records",
        what="A probe topic is deleted and made again under clients at work, which go on in the new one by its name,"
        " until somebody tells them that its id is another.",
        play=lambda: RecreatedTopic(lambda topics: topics.records),
    ),
    recreated(
        case="transform-in",
        what="The same of the topic that transforms read.",
        play=lambda: RecreatedTopic(lambda topics: topics.transform_in),
    ),
    recreated(
        case="transform-out",
        what="The same of the topic that transforms write.",
        play=lambda: RecreatedTopic(lambda topics: topics.transform_out),
    ),
    recreated(
        case="transactions",
        what="The same of the topic that transactions write to and read.",
        play=lambda: RecreatedTopic(lambda topics: topics.transactions),
    ),
    recreated(
        case="registers",
        what="The same of the topic that holds the registers.",
        play=lambda: RecreatedTopic(lambda topics: topics.registers),
    ),
)
