"""A cluster as one of its brokers tells it: its id, its brokers, its controller.

Asked by metadata, never by `describe_cluster`: librdkafka (2.16.1) ends the whole process by an assertion where the
answer to that names no broker. A broker names none while the controller takes it for dead, which it does after nine
seconds without a heartbeat, and after a start until it is let in again: in an outage, when a canary is wanted most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_NO_CONTROLLER: Final = "none of them tells who the controller is"
_NO_BROKER: Final = "knows of no broker that is alive, itself included"


@dataclass(frozen=True, slots=True)
class Cluster:
    """`brokers` from id to host:port as the cluster advertises it; `controller` None where none is told."""

    id: str
    brokers: Mapping[int, str]
    controller: int | None

    def lack(self, at: str) -> str | None:
        """What keeps it from being worked with, though brokers answer `at`; None where nothing does."""
        if not self.brokers:
            return f"a broker answers {at}, and {_NO_BROKER}"
        if self.controller is None:
            return f"{len(self.brokers)} broker(s) answer {at}, and {_NO_CONTROLLER}"
        return None


def cluster(admin: Any, within: float, topic: str | None = None) -> Cluster:
    """What the first broker tells that answers within so many seconds. Raises KafkaException.

    `topic`, one that is there, spares a cluster of many topics from telling of all of them. One that is not might be
    created by the question."""
    told = admin.list_topics(timeout=within) if topic is None else admin.list_topics(topic, timeout=within)
    return Cluster(
        told.cluster_id or "",
        {id: f"{broker.host}:{broker.port}" for id, broker in sorted(told.brokers.items())},
        told.controller_id if told.controller_id >= 0 else None,
    )


def controlled(admin: Any, within: float, look: Callable[[], None]) -> Cluster:
    """As `cluster`, once a controller is told, too; `look` is called again and again meanwhile and may raise.

    Raises KafkaException where nobody has answered in time. Where brokers answer and tell of no controller, the cluster
    is returned without."""
    until, patience, found, problem = time.monotonic() + within, _FIRST_LOOK, None, None
    while True:
        left = until - time.monotonic()
        try:
            # What would be left after this piece is no longer one: a broker that needs most of the time is given it.
            found = cluster(admin, max(left if left < 3 * patience else patience, _LEAST))
        except Exception as error:
            problem = error
        look()
        if found is not None and found.brokers and found.controller is not None:
            return found
        if time.monotonic() + _PAUSE >= until:
            break
        patience *= 2  # a broker that is slow is given longer by and by, one that refuses is noticed soon
        time.sleep(_PAUSE)
    if found is None:
        assert problem is not None
        raise problem
    return found


_FIRST_LOOK: Final = 0.25
_LEAST: Final = 0.05
_PAUSE: Final = 0.05
