"""Which requests of Kafka's protocol the configured probes cannot do without.

Not every cluster that speaks the protocol has all of it. A client of librdkafka that asks for what its brokers do not
take waits for ever, or says so of each operation: so they are asked what they take before the probes begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from probes.config import ProbesConfig
from probes.kafka.wire.messages import Api

_OF_TRANSACTIONS: Final = (
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
)
_STABLE_OFFSETS: Final = 7
"""The first version of OffsetFetch that asks for offsets which no transaction still holds. Members of a group that are
told others begin where a transaction under way goes on: a transform may reflect an input twice, and nobody is to blame
(seen with Kafka 2.4.1)."""
_TRANSACTIONAL: Final = ("transaction", "transform", "aborts", "zombies")


def is_transactional(config: ProbesConfig) -> bool:
    """Does any of these probes use transactions?"""
    return any(getattr(config, section).count for section in _TRANSACTIONAL)


def lacking(config: ProbesConfig, taken: Mapping[int, int]) -> list[str]:
    """What these probes need and brokers do not have that take these requests, by number, up to these versions; a
    sentence each, without its stop."""
    found = []
    if config.group_protocol == "consumer" and Api.CONSUMER_GROUP_HEARTBEAT not in taken:
        found.append(
            'probes.group_protocol is "consumer", which the brokers do not know (KIP-848; Apache Kafka has it from 4.0'
            " on)"
        )
    if Api.INIT_PRODUCER_ID not in taken:
        found.append(
            "the brokers do not take InitProducerId: without idempotent producers (KIP-98; Apache Kafka has them from"
            " 0.11 on) nothing can be told of what probes send"
        )
    missing = [api for api in _OF_TRANSACTIONS if api not in taken]
    if missing and is_transactional(config):
        lacks = ", ".join("".join(word.capitalize() for word in api.name.split("_")) for api in missing)
        off = ", ".join(f"probes.{one}.count" for one in _TRANSACTIONAL if getattr(config, one).count)
        found.append(f"the brokers do not take {lacks}: they have no transactions. Set {off} to 0 to probe the rest")
    elif config.transform.count and taken.get(Api.OFFSET_FETCH, 0) < _STABLE_OFFSETS:
        found.append(
            "the brokers are older than Apache Kafka 2.5, and do not promise transforms exactly-once (KIP-447). Set"
            " probes.transform.count to 0 to probe the rest"
        )
    return found
