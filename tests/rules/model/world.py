"""The whole model: a cluster of three logs, its clients on two hosts, and time.

Topic `topic` has two partitions, which two plain writers (one without idempotence) and two transactional ones write to,
and which are read by two assigned readers, one at read_uncommitted, a group of two and audits. A transform reads its
first partition and writes topic `out`. What happens is a list of turns, each of one client and a number that decides
what it does: plain data that can be drawn, shrunk and written down. Log time passes in ticks; at each of them the
observer looks, every client that has been idle for long does what a real one would have done by itself, and the
committers vouch.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.rules.model.clients import Client
from tests.rules.model.cluster import Cluster, Seen
from tests.rules.model.journal import Host, Journal, Where
from tests.rules.model.readers import Audit, Group, Member, Reader
from tests.rules.model.transform import Transform
from tests.rules.model.writers import Transactor, Writer

PLACES = (Where("topic", 0), Where("topic", 1), Where("out", 0))
IDLE = 3.0
"""Seconds after which a reader polls, and a transaction is ended, whatever the turns say."""


class Turn(NamedTuple):
    """`who` is a client's name, or one of `tick`, `rebalance`, `retention`."""

    who: str
    dice: int


WHO = (
    "w1",
    "w1",
    "w2",
    "n1",
    "t1",
    "t1",
    "t1",
    "t2",
    "t2",
    "x1",
    "x1",
    "r1",
    "r1",
    "r2",
    "u1",
    "g1",
    "g2",
    "audit",
    "rebalance",
    "retention",
    "tick",
    "tick",
    "tick",
)


def turns(seed: int, count: int) -> list[Turn]:
    """A history of any length."""
    random = Random(seed)
    return [Turn(random.choice(WHO), random.randrange(1 << 16)) for _ in range(count)]


class World:
    """`overtakes`: retention may go past what readers have not read yet."""

    def __init__(self, *, skew: float = 0.4, overtakes: bool = False) -> None:
        self.places = PLACES
        self.overtakes = overtakes
        self.journal = Journal(PLACES, (Host("boot-a", 0.0, -5000.0), Host("boot-b", skew, -70.0)))
        self.cluster = Cluster(PLACES)
        self.observer = self.journal.born("observer", "boot-a")
        topic = PLACES[:2]
        self.group = Group("readers", topic)
        a, b = "boot-a", "boot-b"
        self.group.members = [Member(self, "g1", a, self.group), Member(self, "g2", b, self.group)]
        self.writers = [Writer(self, "w1", a), Writer(self, "w2", b), Writer(self, "n1", b, idempotent=False)]
        self.transactors = [Transactor(self, "t1", a, reads=topic), Transactor(self, "t2", b)]
        self.transform = Transform(self, "x1", b, PLACES[0], PLACES[2])
        self.readers = [
            Reader(self, "r1", a),
            Reader(self, "r2", b),
            Reader(self, "u1", a, isolation="read_uncommitted"),
        ]
        self.audit = Audit(self, "audit", a)
        self.clients: dict[str, Client] = {
            c.name: c
            for c in (*self.writers, *self.transactors, self.transform, *self.readers, *self.group.members, self.audit)
        }
        for client in self.clients.values():
            client.open()
        self.group.rebalance(Random(0))

    def fetch(
        self, reader: str, where: Where, position: int, limit: int, *, committed: bool = True
    ) -> tuple[list[Seen], int]:
        """A fetch, as `Partition.fetch`."""
        return self.cluster.partitions[where].fetch(reader, position, limit, committed=committed)

    def take(self, turn: Turn) -> None:
        """One turn."""
        dice = Random(f"{turn.who} {turn.dice}")
        self.journal.time += dice.choice((0.005, 0.02, 0.1))
        if turn.who == "tick":
            self.tick(dice.choice((0.3, 1.0, 1.7)))
        elif turn.who == "rebalance":
            self.group.rebalance(dice)
        elif turn.who == "retention":
            self._retain(dice)
        else:
            self.clients[turn.who].turn(dice)

    def tick(self, seconds: float) -> None:
        """Time passes; the observer and the committers write."""
        self.journal.time += seconds
        now = self.journal.time
        for reader in (*self.readers, *self.group.members):
            if now - reader.polled_at > IDLE and not reader.busy:
                reader.rest(Random(0))
        for transactor in (*self.transactors, self.transform):
            if transactor.transaction is not None and now - transactor.began > IDLE:
                transactor.rest(Random(0))
        for writer in (*self.writers, *self.transactors):
            if now - writer.process.free > IDLE:
                writer.rest(Random(0))
        if now - self.transform.process.free > IDLE:
            self.transform.rest(Random(0))
        self.observe()
        self.journal.mark()

    def observe(self) -> None:
        """What the observer sees of each partition, and of the group."""
        self.journal.write(
            self.observer,
            "offsets",
            {
                where: {"log_start": p.start, "log_end": p.end, "last_stable": p.stable}
                for where, p in self.cluster.partitions.items()
            },
        )
        if self.group.committed:
            parts = {where: {"committed": at} for where, at in self.group.committed.items()}
            self.journal.write(self.observer, "offsets", parts, group=self.group.name)

    def _retain(self, dice: Random) -> None:
        """Retention moves a log start: below what every reader has read, unless it overtakes them."""
        where = dice.choice(self.places)
        self.cluster.partitions[where].keep_from(dice.choice((0, 0, 1, 7)) * self.deletable(where) // 8)

    def deletable(self, where: Where) -> int:
        """The offset below which retention may delete."""
        partition = self.cluster.partitions[where]
        limits = [partition.stable]
        if where == self.transform.source:
            limits.append(self.transform.committed)
        if not self.overtakes:
            positions = [one.position for one in (*self.readers, *self.group.members)]
            positions += [one.position for one in self.transactors]
            limits += [position[where] for position in positions if where in position]
            limits.append(self.group.committed.get(where, 0) if where in self.group.places else partition.stable)
        return min(limits)

    def trim(self) -> None:
        """Retention deletes all that it may."""
        for where, partition in self.cluster.partitions.items():
            partition.keep_from(self.deletable(where))

    def settle(self, seconds: int) -> None:
        """Nothing more is written; everybody reads to the end, until all that can be decided is."""
        for _ in range(seconds):
            for client in self.clients.values():
                client.rest(Random(0))
            self.tick(1.0)

    def run(self, history: Sequence[Turn]) -> World:
        for turn in history:
            self.take(turn)
        return self
