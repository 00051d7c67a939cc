"""Checks that do not do as the real ones: each puts another `step` behind the operator's front door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rules.step import Prepared, Stepped, Stored, prepare
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from streaming_jobs.verdicts.checks import Check

Step = Callable[[Mapping[Place, Stored], pa.Table, Objectives], dict[Place, Stepped]]


@dataclass
class _Prepared:
    hot: bytes | None
    slices: pa.Table
    instead: Step
    place: Place
    chunks: list[str]

    def step(self, chunks: Mapping[str, bytes], objectives: Objectives) -> Stepped:
        return self.instead({self.place: Stored(self.hot, dict(chunks))}, self.slices, objectives)[self.place]


def instead(step: Step, chunks: list[str] | None = None) -> Check:
    """Checks that ask for the real ones' chunks (or for `chunks`), and then make this step."""

    def prepared(hot: bytes | None, slices: pa.Table, *, held: int = 0) -> Any:
        place = Place(*(slices[name][0].as_py() for name in ("cluster", "topic_id", "partition")))
        if chunks is not None:
            return _Prepared(hot, slices, step, place, chunks)
        try:
            asked: Prepared = prepare(hot, slices, held=held)
        except ValueError:  # a state that is no real one
            return _Prepared(hot, slices, step, place, [])
        return _Prepared(hot, slices, step, place, asked.chunks)

    return Check(prepared, settle=None)
