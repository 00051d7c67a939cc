"""What the faults have in common: what each must lead to, what it may, and how the world comes to rest before it.

A fault happens at once, between two turns, in the middle of whatever went before and comes after. It tells exactly what
must be found; `may` names what is also true where it is found: a record that nobody is shown is a step over an index
for every reader that goes past it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from rules.vocabulary.slices import Run
from tests.rules.model.cluster import Lie, Record
from tests.rules.model.journal import Where
from tests.rules.model.transform import Transform
from tests.rules.model.world import PLACES, World
from tests.rules.model.writers import Transactor, Writer

Found = tuple[str, str, int, tuple[int | str, ...]]
"""(anomaly, topic, partition, subject)."""

POLL_ORDER = frozenset({"poll-skip", "int-poll-skip", "nonmonotonic-poll", "int-nonmonotonic-poll"})
ORDER = POLL_ORDER | {"nonmonotonic-send", "int-nonmonotonic-send"}
EXPLAINED = frozenset({"vanished-record", "late-record"})
"""What one reader saw and another did not, looked up in the rows."""
WAITING = frozenset({"unseen", "suspected"})


@dataclass
class Expected:
    """`must`: every finding of these names, with its place and subject, save those that are `perhaps` there, too.
    `may`: other violations by name. `conditions`: names of conditions and classified findings that may come with it."""

    must: set[Found] = field(default_factory=set)
    perhaps: set[Found] = field(default_factory=set)
    may: frozenset[str] = frozenset()
    conditions: frozenset[str] = WAITING

    def add(self, anomaly: str, where: Where, *subject: int | str) -> None:
        self.must.add((anomaly, where.topic, where.partition, subject))


Fault = Callable[[World, Random], Expected]
FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Enter a fault under this name."""

    def enter(made: Fault) -> Fault:
        FAULTS[name] = made
        return made

    return enter


def calm(world: World) -> None:
    """Everybody's call has returned, no transaction is open, and all has been read."""
    world.journal.time += 1.0
    for transactor in (*world.transactors, world.transform):
        if transactor.transaction is not None:
            transactor.rest(Random(0))
    for writer in (*world.writers, *world.transactors):
        writer.rest(Random(0))
    for reader in (*world.readers, *world.group.members):
        reader.rest(Random(0))
    world.journal.time += 0.1


def pause(world: World, seconds: float = 0.2) -> None:
    """Time passes between two steps of a fault."""
    world.journal.time += seconds


def reflected(world: World) -> Transform:
    """The transform, when it has reflected all there is."""
    calm(world)
    for _ in range(2):
        world.transform.rest(Random(0))
        pause(world)
    return world.transform


def topic_place(dice: Random) -> Where:
    return dice.choice(PLACES[:2])


def a_writer(world: World, dice: Random) -> Writer:
    return dice.choice([w for w in world.writers if w.idempotent])


def t2(world: World) -> Transactor:
    """The transactional writer that reads nothing."""
    return world.transactors[1]


def hide(world: World, where: Where, offset: int, to: Callable[[str], bool] = lambda _: True) -> None:
    """These readers are not shown what stands there any more."""
    world.cluster.partitions[where].lies[offset] = Lie(None, to)


def show(world: World, where: Where, offset: int, to: Callable[[str], bool] = lambda _: True) -> None:
    """These readers are shown what stands there, whatever became of it."""
    partition = world.cluster.partitions[where]
    partition.lies[offset] = Lie(partition.log[offset], to)


def only(*names: str) -> Callable[[str], bool]:
    """The lives of these clients."""
    return lambda process: process.partition(".")[0] in names


def ends_with(world: World, where: Where, dice: Random) -> Run:
    """Something more is written there, so that readers go past what lies before it."""
    pause(world)
    return a_writer(world, dice).send(where, 1)


def some_record(world: World, where: Where, dice: Random) -> tuple[int, Record] | None:
    """A record of `topic` that readers are shown, and its offset."""
    partition = world.cluster.partitions[where]
    found = [
        (offset, record)
        for offset, record in enumerate(partition.log)
        if offset >= partition.start and not record.marker and record.state == "committed" and record.home == where
    ]
    return dice.choice(found) if found else None
