"""`stuck-consumer` and `stuck-producer`, held against what truly ran: time in which a host stood still does not count,
where it was long enough to be told from a committer that is slow.

Only that nobody is told stuck who was not: that such are found is what
`tests/rules/conditions/test_liveness.py` is about.
"""

from __future__ import annotations

from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from tests.rules.world.clocks import true_time
from tests.rules.world.kernel import SECOND
from tests.rules.world.life import Life
from tests.rules.world.world import World

FAR = 1 << 60
LONG = 25 * SECOND
"""A committer that is silent for less may be one that has much to do."""
SLACK = 3 * SECOND
"""Ticks are seconds, and what is told of one is told by its end."""


def invented(world: World, f: Finding, spread: int) -> bool:
    """Did the process that this opens for stand, or wait for an answer, for less than the objective, of the time in
    which it and its host ran? `spread`: by how much clocks may mislead."""
    begun = f.evidence.get("moved", f.evidence.get("began"))
    if not f.anomaly.startswith("stuck-") or f.event != "opened" or begun is None:
        return False
    life = next(life for life in world.lives if life.process == f.evidence["process"])
    begun, ended = true_time(int(begun)), min(true_time(f.at), *_ends(life))
    long = [(start, end) for start, end in life.host.frozen if end - start >= LONG]
    frozen = sum(max(0, min(end, ended) - max(start, begun)) for start, end in long)
    return ended - begun - frozen < Objectives().liveness - SLACK - spread


def _ends(life: Life) -> list[int]:
    """When it was over, however it ended; far away where it was not."""
    return [end for end in (life.died, life.crashed, life.closed) if end is not None] + [FAR]
