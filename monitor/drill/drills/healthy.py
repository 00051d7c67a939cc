"""Drills in which nothing is wrong, or only what the cluster says of itself."""

from __future__ import annotations

from typing import ClassVar

from monitor.drill.definition.drill import THREE, Drill
from monitor.drill.definition.stage import Stage

EVERYTHING = {
    "writer": {"with_five_in_flight": 1},
    "reader": {"group": 2, "restless": 1},
    "transaction": {"count": 2, "timeouts": [10.0, 5.0]},
    "transform": {"count": 2, "timeouts": [10.0]},
    "aborts": {"count": 1, "rate": 1.0},
    "registers": {"count": 2},
    "audit": {"enabled": True, "period": 8.0},
    "unrest": {"enabled": True, "mean_interval": 20.0},
}


class Baseline(Drill):
    """Nothing is done: every workload on three healthy brokers, with restless readers and clients that crash.

    The nearest innocent twin of every other drill."""

    name = "baseline"
    seen_in = "every healthy cluster"
    cluster = THREE
    closes = False
    probes: ClassVar = EVERYTHING

    def act(self, stage: Stage) -> None:
        stage.act("the probes are watched at work")
        stage.pause(15.0)
