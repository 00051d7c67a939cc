"""A client that finds no broker while its cluster answers others.

Where all brokers that librdkafka's client knows go down in order, it may find none of them when they are back, for as
long as it lives (its issue 5301). To a reader of such a client there is merely nothing to read, and what a producer is
given times out. So a reader that has been given nothing for `QUIET` asks its own client what it knows of the cluster,
and so does a writer all of whose sends have timed out (`in_vain`). Where that is told nothing, and every leader tells a
client made for the question where its log ends, and its own is still told nothing, the life ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from probes.kafka.errors import ClientError, ClientStuck
from probes.kafka.starting_positions import log_ends_when_led
from probes.topology import Partition
from probes.workloads.probe import Probe

QUIET: Final = 10.0
"""Seconds, from which on it is asked, and then as often."""
ASK_WITHIN: Final = 5.0
"""Seconds for an answer of the client's own, which is there at once where it has a connection."""


class LostClient:
    """Of one life of a probe that reads."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._due: int | None = None

    def judge(self, consumer: Consumer, reads: Collection[Partition], *, heard: bool) -> None:
        """Take in whether a poll has returned anything. Raises ClientError where this client is to be given up."""
        now = self._probe.world.clock.monotonic_ns()
        if heard or self._due is None:
            self._due = now + int(QUIET * 1e9)
        elif now >= self._due and reads:
            require_brokers(self._probe, consumer, reads)
            self._due = self._probe.world.clock.monotonic_ns() + int(QUIET * 1e9)


def require_brokers(probe: Probe, client: Consumer | Producer, partitions: Collection[Partition]) -> None:
    """Raises ClientError where the client finds no broker, and all leaders of these partitions answer another."""
    lost = _finds_none(probe, client, partitions) and leaders_answer(probe, partitions)
    if lost and _finds_none(probe, client, partitions):  # it may have been on its way back
        raise ClientError("_TRANSPORT", "its client finds no broker, though the partitions' leaders answer")


def leaders_answer(probe: Probe, partitions: Iterable[Partition]) -> bool:
    """Does every leader tell a client made for the question where its log ends?"""
    try:
        log_ends_when_led(probe.open_admin, partitions, probe.log.alive, probe.pause)
    except (ClientError, ClientStuck):
        return False
    return True


def _finds_none(probe: Probe, client: Consumer | Producer, partitions: Collection[Partition]) -> bool:
    probe.log.alive()
    try:
        client.list_topics(next(iter(partitions))[0], timeout=ASK_WITHIN)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError._TRANSPORT)  # else it found one that is slow
    return False
