"""Drills in which somebody deletes and makes probe topics while probes are at work. The log is another one, and no
promise was broken."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.stage import Stage
from monitor.drill.drills.healthy import EVERYTHING
from monitor.drill.errors import DrillFailed

TIMES = 2
BETWEEN = 9.0
"""Seconds from one time to the next: the probes have noticed, and are at work again."""


class RecreatedTopic(Drill):
    """A probe topic is deleted and made again under clients at work, which go on in the new one by its name, until
    somebody tells them that its id is another."""

    name = "recreated-topic"
    case = "records"
    seen_in = "every cluster with an operator"
    changes_cluster = True
    probes: ClassVar = {**EVERYTHING, "audit": {"enabled": False}, "unrest": {"enabled": False}}

    def topic(self, stage: Stage) -> str:
        """The one that it happens to."""
        return stage.records

    def act(self, stage: Stage) -> None:
        topic = self.topic(stage)
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
        topic = self.topic(stage)
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
            return stage.layout.topic_id(self.topic(stage)) != before
        except KeyError:
            return False

    def undo(self, stage: Stage) -> None:
        stage.work_goes_on()


class RecreatedInput(RecreatedTopic):
    """The same of the topic that transforms read."""

    case = "transform-in"

    def topic(self, stage: Stage) -> str:
        return stage.config.topics.transform_in


class RecreatedOutput(RecreatedTopic):
    """The same of the topic that transforms write."""

    case = "transform-out"

    def topic(self, stage: Stage) -> str:
        return stage.config.topics.transform_out


class RecreatedTransactions(RecreatedTopic):
    """The same of the topic that transactions write to and read."""

    case = "transactions"

    def topic(self, stage: Stage) -> str:
        return stage.transactions


class RecreatedRegisters(RecreatedTopic):
    """The same of the topic that holds the registers."""

    case = "registers"

    def topic(self, stage: Stage) -> str:
        return stage.config.topics.registers
