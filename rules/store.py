"""States in memory: what a job keeps in its state store, for replays, drills, tests and benchmarks.

Every step goes through the state's bytes, as it does where Spark keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.across.resolution import Resolved, expired, resolve
from rules.arrays.columns import by_place
from rules.step import Prepared, Stepped, Stored, prepare, settle
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place

FORGET_EVERY: Final = 64
"""So many times facts are joined before what has expired is looked for."""


@dataclass(slots=True)
class MemoryStore:
    """The states of any number of partitions, and what they know together."""

    objectives: Objectives = field(default_factory=Objectives)
    stored: dict[Place, Stored] = field(default_factory=dict)
    across: dict[str, bytes] = field(default_factory=dict)
    joined: int = 0
    held: int = 0
    """By how much log time is held back (`rules.step.prepare`), until `settle`."""

    def step(self, slices: pa.Table) -> dict[Place, Stepped]:
        """Check slices of any partitions, in any order, and keep the states."""
        return {place: self.step_one(place, rows) for place, rows in by_place(slices).items()}

    def step_one(self, place: Place, slices: pa.Table) -> Stepped:
        """The same for the slices of one partition."""
        kept = self.stored.setdefault(place, Stored())
        return self._take(kept, prepare(kept.hot, slices, held=self.held))

    def settle(self) -> dict[Place, Stepped]:
        """Log time is not held back any longer."""
        self.held = 0
        return {place: self.settle_one(place) for place in self.stored}

    def settle_one(self, place: Place) -> Stepped:
        """The same for one partition."""
        kept = self.stored[place]
        assert kept.hot is not None
        return self._take(kept, settle(place, kept.hot))

    def _take(self, kept: Stored, prepared: Prepared) -> Stepped:
        stepped = prepared.step({n: kept.chunks[n] for n in prepared.chunks if n in kept.chunks}, self.objectives)
        kept.take(stepped)
        return stepped

    def resolve(self, facts: pa.Table, *, finished: bool = False) -> Resolved:
        """Join the facts of some steps (`rules.across.resolution`), and keep the state."""
        resolved = resolve(self.across, facts, self.objectives, finished=finished)
        self._change(resolved.changes)
        self.joined += 1
        if self.joined % FORGET_EVERY == 0 and facts.num_rows:
            self._change(dict.fromkeys(expired(self.across, int(pc.max(facts["at"]).as_py()))))
        return resolved

    def _change(self, changes: Mapping[str, bytes | None]) -> None:
        for name, value in changes.items():
            if value is None:
                self.across.pop(name, None)
            else:
                self.across[name] = value
