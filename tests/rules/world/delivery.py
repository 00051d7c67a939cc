"""How a world's appends reach a checker: in steps of any size, hosts in any order, batches in any order inside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from rules.vocabulary.slices import Slice
from tests.rules.world.host import Append
from tests.rules.world.kernel import SECOND

HEARD = 10 * SECOND
"""By when every host has been heard of in a topic that it probes, in every delivery."""
QUIET = 60 * SECOND
"""What arrived in the last of a world comes in its order: what came late before it waits for log time to go on."""


@dataclass(slots=True)
class Step:
    """Rows of one step, and the true time by which all that had arrived before it was given."""

    rows: list[Slice]
    until: int
    held: bool = False
    """Log time is held back: these are read again in the order of their times. No rows: it is no longer."""


def by_time(appends: list[Append], every: int, shuffle: random.Random | None = None) -> Iterator[Step]:
    """A step per `every` microseconds; with `shuffle`, the rows of a step in any order."""
    rows: list[Slice] = []
    due = every
    for a in sorted(appends, key=lambda a: a.arrived):
        while a.arrived >= due:
            if rows:
                if shuffle:
                    shuffle.shuffle(rows)
                yield Step(rows, due)
                rows = []
            due += every
        rows.extend(a.rows)
    if rows:
        if shuffle:
            shuffle.shuffle(rows)
        yield Step(rows, due)


def disordered(appends: list[Append], seed: int) -> Iterator[Step]:
    """Steps of any size; appends change places with others that came up to 20 s apart, whole hosts by minutes, once
    they have been heard of: nobody can wait for a host that the table has never mentioned. A topic that was created
    again is a new log, and what is known of the old one's probes tells nothing of its own. At the end all is well."""
    quiet = max((a.arrived for a in appends), default=0) - QUIET
    yield from _shuffled([a for a in appends if a.arrived < quiet], seed)
    yield from by_time([a for a in appends if a.arrived >= quiet], 5 * SECOND)


def _shuffled(appends: list[Append], seed: int) -> Iterator[Step]:
    rng = random.Random(f"{seed}/disordered")
    lags = {host: rng.choice([0, 0, 60, 300]) for host in sorted({a.host for a in appends})}
    first = _first_heard(appends)
    late = sorted(
        (a.arrived + ((lags[a.host] if _known(a, first) else 0) + rng.choice([0, 0, 0, 2, 20])) * SECOND, i)
        for i, a in enumerate(appends)
    )
    i = 0
    while i < len(late):
        n = rng.choice([1, 2, 5, 20, 60])
        part = late[i : i + n]
        rows = [row for _, j in part for row in appends[j].rows]
        rng.shuffle(rows)
        yield Step(rows, part[-1][0])
        i += n


def _first_heard(appends: list[Append]) -> dict[tuple[str, str], int]:
    """When each host told of each topic id for the first time; of the first one it is heard from the beginning."""
    first: dict[tuple[str, str], int] = {}
    for a in sorted(appends, key=lambda a: a.arrived):
        for topic_id in {row.topic_id for row in a.rows}:
            first.setdefault((a.host, topic_id), 0 if topic_id == "t1" else a.arrived)
    return first


def _known(append: Append, first: dict[tuple[str, str], int]) -> bool:
    """Has its host been heard of in all the topics that it tells of?"""
    topics = {row.topic_id for row in append.rows}
    return append.arrived > HEARD + max((first[append.host, topic_id] for topic_id in topics), default=0)


def handed_over(appends: list[Append], at: int, every: int) -> Iterator[Step]:
    """A rebuild of what had arrived by then, and live steps after it."""
    yield from rebuilt([a for a in appends if a.arrived < at])
    yield from by_time([a for a in appends if a.arrived >= at], every)


def rebuilt(appends: list[Append], size: int = 500) -> Iterator[Step]:
    """Everything again in the order of time, in pieces of so many rows."""
    rows = sorted((row for a in appends for row in a.rows), key=lambda row: (row.completed, row.process, row.slice))
    last = max((a.arrived for a in appends), default=0)
    for i in range(0, len(rows), size):
        yield Step(rows[i : i + size], last, held=True)
    yield Step([], last)
