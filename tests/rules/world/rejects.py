"""Rows that are lost on the way to the table, or refused there, for good."""

from __future__ import annotations

import random
from collections.abc import Callable

from rules.vocabulary.slices import Slice
from tests.rules.world.host import Append
from tests.rules.world.world import World


def reject_row(probe: str, at: int) -> Callable[[World, random.Random, Append], None]:
    """The row in which `probe` polled a record that only it saw; without such a record, its first one from `at` on
    that holds records."""
    done = False

    def strike(world: World, rng: random.Random, append: Append) -> None:
        nonlocal done
        mine = {life.process for life in world.probes[probe].lives}
        only = {v for planted in world.planted if planted.kind == "only" for v in planted.values}
        for e in append.entries:
            if not done and e.row.process in mine and (e.row.polled or e.row.sent or e.row.log_end is not None):
                done = bool(_polled(e.row) & only) if only else e.completed >= at
                e.rejected = done

    return strike


def reject_some(share: float) -> Callable[[World, random.Random, Append], None]:
    """Each row of a probe is lost with this probability."""

    def strike(world: World, rng: random.Random, append: Append) -> None:
        for e in append.entries:
            e.rejected = rng.random() < share

    return strike


def _polled(row: Slice) -> set[tuple[int, int, int]]:
    return {(row.partition, run.writer, run.seq + i) for run in row.polled for i in range(run.length)}
