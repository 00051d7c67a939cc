"""What a poll returned, sorted out: runs and irregular records by partition, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from probes.kafka.errors import ClientError, translate
from probes.records.allowance import Allowance, chosen
from probes.records.envelope import alterations
from probes.records.ordinary import FEW, ordinary
from probes.records.tag import Decoded, Numbers, fold_partitions, irregular
from probes.topology import Partition
from rules.vocabulary.slices import Altered, Irregular, LeaderEpoch


@dataclass(frozen=True, slots=True)
class Polled:
    """The records of one partition, in the order they came. `next` is the offset after the last; `altered` are those of
    the runs that differ from what was sent beside their values; `irregular` is how many belong to no run, of which
    `decoded` may list some; `epochs` are those of all of them."""

    decoded: Decoded
    count: int
    first: int
    next: int
    altered: Sequence[Altered] = ()
    irregular: int = 0
    epochs: Sequence[LeaderEpoch] = ()

    @property
    def told(self) -> int:
        """How many records are told of, in runs and one by one."""
        return self.count - self.irregular + len(self.decoded.irregular)

    def columns(self, before: int | None, after: int | None) -> dict[str, Any]:
        """What the row of a poll says of them, between these positions of its consumer."""
        return {
            "polled": self.decoded.runs,
            "irregular": self.decoded.irregular,
            "altered": self.altered,
            "epochs": self.epochs,
            "position_before": before,
            "position_after": after,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that came in place of a record; `where` is None if it names no partition, `topic` if it names none."""

    where: Partition | None
    error: ClientError
    topic: str | None = None


def sort_out(
    messages: Sequence[Any], runs: Iterable[str], allowance: Allowance
) -> tuple[dict[Partition, Polled], list[Problem]]:
    """The messages of one consume call. `runs` are the probe runs whose records are ours; `allowance` says how many
    irregular records are listed."""
    places: dict[Partition, list[Any]] = {}
    by_topic: dict[str, dict[int, list[Any]]] = {}
    problems: list[Problem] = []
    for message in messages:
        topic, partition = message.topic(), message.partition()
        if message.error() is not None:
            where = (topic, partition) if topic is not None and partition is not None and partition >= 0 else None
            problems.append(Problem(where, translate(message.error()), topic))
            continue
        records = places.get((topic, partition))
        if records is None:
            records = places[topic, partition] = by_topic.setdefault(topic, {})[partition] = []
        records.append(message)
    polled: dict[Partition, Polled] = {}
    known = frozenset(runs)
    among = sum(map(len, by_topic.values()))
    for topic, partitions in by_topic.items():
        polled |= _of_topic(topic, partitions, known, allowance, among)
    return polled, problems


def _of_topic(
    topic: str, partitions: Mapping[int, list[Any]], known: frozenset[str], allowance: Allowance, among: int
) -> dict[Partition, Polled]:
    """What was polled of one topic's partitions, in a poll of so many. Whole columns of all of them are looked at: a
    poll brings a few records of many partitions. Very few are looked at one by one."""
    if sum(map(len, partitions.values())) <= FEW and (found := ordinary(topic, partitions, known)) is not None:
        return {
            (topic, partition): Polled(
                Decoded(found[partition], []),
                len(records),
                records[0].offset(),
                records[-1].offset() + 1,
                [],
                epochs=leader_epochs(records),
            )
            for partition, records in partitions.items()
        }
    every = [record for records in partitions.values() for record in records]
    offsets = [record.offset() for record in every]
    values = [record.value() for record in every]
    counts = {partition: len(records) for partition, records in partitions.items()}
    parts = fold_partitions(values, offsets, counts, topic=topic, runs=known)
    polled, begin = {}, 0
    odd_places: list[int] = []
    for (partition, records), (folded, odd) in zip(partitions.items(), parts, strict=True):
        end = begin + len(records)
        listed: list[Irregular] = []
        if len(odd):
            listed = _listed(values[begin:end], offsets[begin:end], odd, known, allowance.share(among))
        allowance.spend(len(listed))
        odd_places += (odd + begin).tolist()
        polled[topic, partition] = Polled(
            Decoded(folded, listed),
            len(records),
            offsets[begin],
            offsets[end - 1] + 1,
            [],
            len(odd),
            leader_epochs(records),
        )
        begin = end
    if alterations(every, values, odd_places):
        for (partition, records), (_, odd) in zip(partitions.items(), parts, strict=True):
            altered = alterations(records, [record.value() for record in records], odd.tolist())
            polled[topic, partition] = replace(polled[topic, partition], altered=altered)
    return polled


def leader_epochs(records: Sequence[Any]) -> list[LeaderEpoch]:
    """Those of a partition's records, as they came. An epoch is that of many: all are asked only where the first and
    the last have another, so that one which comes and goes between two of the same is not seen."""
    first, last = records[0].leader_epoch(), records[-1].leader_epoch()
    if first is None or last is None or min(first, last) < 0:
        return []
    found = [LeaderEpoch(first)]
    if first != last:
        for record in records:
            epoch = record.leader_epoch()
            if epoch is not None and epoch != found[-1].epoch:
                found.append(LeaderEpoch(epoch, record.offset()))
    return found


def _listed(
    values: Sequence[bytes | None], offsets: Sequence[int], odd: Numbers, known: frozenset[str], room: int
) -> list[Irregular]:
    """Of the irregular records at the places `odd` those that are listed, counted among what is told of: the records of
    the runs, and themselves."""
    places = chosen(values, odd, known, room)
    left_out = np.searchsorted(np.setdiff1d(odd, places, assume_unique=True), places)
    return [
        irregular(i - left, offsets[i], values[i], known)
        for i, left in zip(places.tolist(), left_out.tolist(), strict=True)
    ]


class Positions:
    """Where one consumer stands after its polls: what it says itself, unless its own polls say otherwise.

    Its own word goes beyond the last record where markers and aborted records follow. But librdkafka's position never
    goes back by itself: after its topic was made anew and it began again at the log's start, `position` stays where it
    was while polls return what comes long before (seen with 2.16). Where a poll went back, the next position is the
    poll's, until the client says something else again. Bounded by the partitions."""

    def __init__(self) -> None:
        self._stale: dict[Partition, int] = {}

    def after(
        self, consumer: Consumer, polled: Mapping[Partition, Polled], before: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """The next position in each partition of a poll. `before`: where it stood, as far as that is known."""
        said = positions(consumer, polled)
        found = {}
        for where, part in polled.items():
            told = said.get(where, part.next)
            went_back = part.first < before.get(where, -1)
            if told > part.next and (went_back or self._stale.get(where) == told):
                self._stale[where], found[where] = told, part.next
            else:
                self._stale.pop(where, None)
                found[where] = told
        return found

    def now(
        self, consumer: Consumer, partitions: Iterable[Partition], known: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Where it stands between two polls, where that is known: `known` is by its last ones."""
        said = positions(consumer, partitions)
        held = {where for where, told in said.items() if self._stale.get(where) == told}
        return {
            where: known[where] if where in held else told
            for where, told in said.items()
            if where not in held or where in known
        }


def positions(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The consumer's own position in each partition, where it has one. Local, asks no broker."""
    asked = [TopicPartition(topic, partition) for topic, partition in partitions]
    if not asked:
        return {}
    return {(tp.topic, tp.partition): tp.offset for tp in consumer.position(asked) if tp.offset >= 0}
