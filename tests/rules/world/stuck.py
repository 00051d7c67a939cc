"""`stuck-consumer` and `stuck-producer`, held against what truly ran: time in which a host stood still does not count.

Only that nobody is told stuck who was not: that such are found is what `tests/rules/test_liveness.py` is about.
"""

from __future__ import annotations

from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from tests.rules.world.clocks import true_time
from tests.rules.world.kernel import SECOND
from tests.rules.world.world import World

SLACK = 3 * SECOND
"""Ticks are seconds, and what is told of one is told by its end."""


def invented(world: World, f: Finding, spread: int) -> bool:
    """Did the process that this opens for stand for less than the objective, by the time in which its host ran?
    `spread`: by how much clocks may mislead."""
    if not f.anomaly.startswith("stuck-") or f.event != "opened" or "moved" not in f.evidence:
        return False
    life = next(life for life in world.lives if life.process == f.evidence["process"])
    begun, opened = true_time(int(f.evidence["moved"])), true_time(f.at)
    frozen = sum(max(0, min(end, opened) - max(start, begun)) for start, end in life.host.frozen)
    return opened - begun - frozen < Objectives().liveness - SLACK - spread
