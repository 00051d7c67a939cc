"""What a poll returned, sorted out: runs and irregular records by partition, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from probes.envelope import alterations
from probes.errors import ClientError, translate
from probes.layout import Partition
from probes.tag import Decoded, decode
from rules.vocabulary.slices import Altered


@dataclass(frozen=True, slots=True)
class Polled:
    """The records of one partition, in the order they came. `next` is the offset after the last; `altered` are those of
    the runs that differ from what was sent beside their values."""

    decoded: Decoded
    count: int
    first: int
    next: int
    altered: Sequence[Altered] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that came in place of a record; `where` is None if it names no partition."""

    where: Partition | None
    error: ClientError


def sort_out(messages: Sequence[Any], runs: Iterable[str]) -> tuple[dict[Partition, Polled], list[Problem]]:
    """The messages of one consume call. `runs` are the probe runs whose records are ours."""
    by_partition: dict[Partition, list[Any]] = {}
    problems: list[Problem] = []
    for message in messages:
        if message.error() is not None:
            topic, partition = message.topic(), message.partition()
            where = (topic, partition) if topic is not None and partition is not None and partition >= 0 else None
            problems.append(Problem(where, translate(message.error())))
            continue
        by_partition.setdefault((message.topic(), message.partition()), []).append(message)
    polled: dict[Partition, Polled] = {}
    for (topic, partition), records in by_partition.items():
        offsets = [record.offset() for record in records]
        values = [record.value() for record in records]
        decoded = decode(values, offsets, topic=topic, partition=partition, runs=runs)
        altered = alterations(records, values, decoded.irregular)
        polled[topic, partition] = Polled(decoded, len(records), offsets[0], offsets[-1] + 1, altered)
    return polled, problems


def positions(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The consumer's own position in each partition, where it has one. Local, asks no broker."""
    asked = [TopicPartition(topic, partition) for topic, partition in partitions]
    if not asked:
        return {}
    return {(tp.topic, tp.partition): tp.offset for tp in consumer.position(asked) if tp.offset >= 0}
