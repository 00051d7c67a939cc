"""A client that sends in vain where the cluster takes what others send.

librdkafka's producer may be wedged by an outage: every message times out, minutes after the leaders have come back, and
nothing but a new client helps. So a life whose sends have all timed out for `supervision.stuck_after` ends where a
client made for the question is told by every leader where its log ends. Where it is not, the cluster is away, and a new
producer would not be answered either. One that finds no broker at all (`lost_client`) is known to be wedged with the
first that timed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Producer

from probes.kafka.errors import ClientError
from probes.records.delivery import Fate
from probes.topology import Partition
from probes.workloads.lost_client import leaders_answer, require_brokers
from probes.workloads.probe import Probe

TIMED_OUT: Final = "_MSG_TIMED_OUT"


class InVain:
    """Of one life of a probe that sends."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._patience = int(probe.world.config.supervision.stuck_after * 1e9)
        self._since: int | None = None

    def judge(self, producer: Producer, result: Mapping[Partition, Sequence[Fate]]) -> None:
        """Take in what became of a batch of the producer's. Raises ClientError where this client is to be given up."""
        now = self._probe.world.clock.monotonic_ns()
        if any(fate.error != TIMED_OUT for fates in result.values() for fate in fates):
            self._since = None
        elif self._since is None:
            self._since = now
            require_brokers(self._probe, producer, result)
        elif now - self._since >= self._patience:
            self._since = now  # asked again after as long
            if leaders_answer(self._probe, result):
                told = "nothing that it sends is acknowledged, though the partitions' leaders answer"
                raise ClientError(TIMED_OUT, told)
