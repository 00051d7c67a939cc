"""A world's verdict: what the checker said of it in several deliveries, held against the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.rules.world import delivery
from tests.rules.world.delivery import Step
from tests.rules.world.engine import Checker, Key
from tests.rules.world.explains import ORDER
from tests.rules.world.kernel import SECOND
from tests.rules.world.lasting import is_lasting
from tests.rules.world.oracle import Oracle
from tests.rules.world.stuck import invented
from tests.rules.world.world import World

DELIVERIES = ("shuffled", "disordered", "rebuilt", "handed over")
"""Beside `live`: a step per few seconds, in the order of arrival."""


@dataclass(slots=True)
class Verdict:
    """The differences between what had to be said and what was; none is a pass."""

    world: World
    oracle: Oracle
    differences: list[str] = field(default_factory=list)
    heard: dict[str, Checker] = field(default_factory=dict)
    given: dict[str, list[int]] = field(default_factory=dict)
    """Delivery -> the true time by which what each step gave had arrived."""

    @property
    def required(self) -> int:
        """How many violations had to be found."""
        return sum(not must.optional for must in self.oracle.musts)


def judge(
    world: World, *, every: int = 2 * SECOND, deliveries: Sequence[str] = DELIVERIES, patience: int = 0
) -> Verdict:
    """Delivers a world that was run, live and in the other ways asked for, and compares. What comes more than
    `patience` later than the definitions ask is late."""
    oracle = Oracle(world, patience)
    verdict = Verdict(world, oracle)
    live = _hear(verdict, "live", delivery.by_time(world.appends, every), every)
    rng = random.Random(world.seed)
    ways = {
        "shuffled": delivery.by_time(world.appends, rng.choice([5, 17, 60]) * SECOND, rng),
        "disordered": delivery.disordered(world.appends, world.seed),
        "rebuilt": delivery.rebuilt(world.appends),
        "handed over": delivery.handed_over(world.appends, rng.randrange(world.plan.length), 4 * every),
    }
    for name in deliveries:
        _compare(verdict, name, live, _hear(verdict, name, ways[name], None))
    return verdict


@dataclass(slots=True)
class Heard:
    """What was said, and what of it must be said in every delivery. It may be told by another row in each, so that it
    must be in one of them alone: said in both it is the same."""

    said: set[Key]
    lasting: set[Key]


def _hear(verdict: Verdict, name: str, steps: Iterable[Step], every: int | None) -> Heard:
    checker = Checker()
    verdict.heard[name] = checker
    when: list[int] = []
    for step in steps:
        checker.feed(step.rows, held=step.held)
        when.append(step.until)
    verdict.given[name] = when
    said = checker.violations
    for s in said:
        if not verdict.oracle.explained(s.finding):
            verdict.differences.append(f"{name}: invented {s}")
    for s in checker.conditions:
        if invented(verdict.world, s.finding, 2 * verdict.oracle.spread):
            verdict.differences.append(f"{name}: invented {s}")
    for must in verdict.oracle.musts:
        if must.optional or (must.prompt and name == "disordered"):
            continue
        met = [s.step for s in said if must.met_by(s.finding)] + must.rechecked(checker)
        if not met:
            verdict.differences.append(f"{name}: missed {must}")
        elif every is not None and must.by is not None:
            told = min(when[step] for step in met)
            if told > must.by + every:
                verdict.differences.append(f"{name}: late {must}, told at {told // SECOND}s")
    return Heard({s.key for s in said}, {s.key for s in said if is_lasting(verdict.oracle, s.finding)})


def _compare(verdict: Verdict, name: str, live: Heard, other: Heard) -> None:
    missed, more = live.lasting - other.said, other.lasting - live.said
    if not missed and not more:
        return
    order = all(key[0] in ORDER for key in missed | more)
    only_live, only_other = sorted(map(str, missed)), sorted(map(str, more))
    verdict.differences.append(
        f"{name}: other {'order ' if order else ''}findings than live: only live {only_live[:3]}, "
        f"only {name} {only_other[:3]}"
    )
