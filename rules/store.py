"""States in memory: what a job keeps in its state store, for replays, drills, tests and benchmarks.

Every step goes through the state's bytes, as it does where Spark keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from rules.arrays.columns import by_place
from rules.step import Stepped, Stored, prepare
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place


@dataclass(slots=True)
class MemoryStore:
    """The states of any number of partitions."""

    objectives: Objectives = field(default_factory=Objectives)
    stored: dict[Place, Stored] = field(default_factory=dict)

    def step(self, slices: pa.Table) -> dict[Place, Stepped]:
        """Check slices of any partitions, in any order, and keep the states."""
        return {place: self.step_one(place, rows) for place, rows in by_place(slices).items()}

    def step_one(self, place: Place, slices: pa.Table) -> Stepped:
        """The same for the slices of one partition."""
        kept = self.stored.setdefault(place, Stored())
        prepared = prepare(kept.hot, slices)
        stepped = prepared.step({n: kept.chunks[n] for n in prepared.chunks if n in kept.chunks}, self.objectives)
        kept.take(stepped)
        return stepped
