"""When a cluster is whole again: every broker runs and tells of all others, and every replica is in sync.

Only then may the next fault come: before, it could take a second replica, and with it more than the cluster promised to
survive.
"""

from __future__ import annotations

import time
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.replicas import not_whole, view

_LOOK_S: Final = 0.25
_TWICE: Final = 2
"""What was told right after a fault may still be of before it: it has to be told twice."""


def await_recovered(cluster: LocalKafka, timeout: float = 60) -> float:
    """Wait until the cluster is whole; the seconds it took. Raises DrillFailed, saying what is not, after `timeout`."""
    began = time.monotonic()
    seen = 0
    while True:
        lacking = lacks(cluster)
        seen = 0 if lacking else seen + 1
        if seen == _TWICE:
            return time.monotonic() - began
        if time.monotonic() - began > timeout:
            raise DrillFailed(f"the cluster was not whole again within {timeout:.0f} s: {'; '.join(lacking)}")
        time.sleep(_LOOK_S)


def lacks(cluster: LocalKafka) -> list[str]:
    """Why it is not whole, one phrase each; none if it is. Every broker is asked itself."""
    nodes = {broker.id for broker in cluster.brokers}
    lacking: list[str] = []
    for broker in cluster.brokers:
        if not broker.running:
            lacking.append(f"broker {broker.id} does not run")
            continue
        try:
            told = view(broker.bootstrap)
        except OSError:
            lacking.append(f"broker {broker.id} does not answer")
            continue
        if missing := nodes - told.nodes:
            lacking.append(f"broker {broker.id} misses {sorted(missing)}")
        if behind := not_whole(told.placements):
            lacking.append(f"not in sync: {', '.join(behind[:5])}{' and more' if len(behind) > 5 else ''}")
    return lacking
