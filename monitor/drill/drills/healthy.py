"""Drills in which nothing is wrong, or only what the cluster says of itself."""

from __future__ import annotations

from typing import Final

from monitor.drill.definition.drill import THREE, Drill
from monitor.drill.definition.play import Watched

EVERYTHING: Final = {
    "writer": {"with_five_in_flight": 1},
    "reader": {"group": 2, "restless": 1},
    "transaction": {"count": 2, "timeouts": [10.0, 5.0]},
    "transform": {"count": 2, "timeouts": [10.0]},
    "aborts": {"count": 1, "rate": 1.0},
    "registers": {"count": 2},
    "zombies": {"count": 1, "interval": 2.0},
    "audit": {"enabled": True, "period": 8.0},
    "unrest": {"enabled": True, "mean_interval": 20.0},
}

DRILLS: Final = (
    # The nearest innocent twin of every other drill.
    Drill(
        name="baseline",
        what="Nothing is done: every workload on three healthy brokers, with restless readers and clients that crash.",
        seen_in="every healthy cluster",
        cluster=THREE,
        probes=EVERYTHING,
        play=lambda: Watched("the probes are watched at work", seconds=15.0),
    ),
)
