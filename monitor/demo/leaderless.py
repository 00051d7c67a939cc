"""The story of KAFKA-20734, which Kafka 4.3.1 has: transactions end while a partition that they wrote has no leader.

The transaction coordinator takes such a partition for deleted, writes no marker there, and completes the transaction;
its client is told that all is well. The next marker of the same producer then decides over those records too: aborted
ones are read, committed ones are lost. It takes no more than one broker that dies at the wrong moment, where a
partition has one replica. Nothing here lies: the brokers and clients are real, and that it happened is told by the
coordinator's own log, apart from anything that the checks find.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.config.config import Config
from monitor.demo.story import NotProvoked, Provoked, Row, Scene, Stopped, Story, evidence_of
from monitor.drill.actors.actors import Held
from monitor.drill.drills.leaderless import ABORTED, COMMITTED, Places
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.processes import KillBroker
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.replicas import leaderless, view
from monitor.drill.faults.roles import Controller, LeaderOf, TransactionCoordinator
from monitor.incidents.published import LEADERLESS as ISSUE
from monitor.process.reach import connection
from probes.kafka.client import admin_settings, open_admin
from probes.topics.probe_topics import ProbeTopics

ATTEMPTS: Final = 3
MUST: Final = {"G1a": "aborted", "lost-write": "committed", "torn-transaction": "committed"}
"""What has to be found, and of which of the two transactions."""
_WORDS: Final = {
    "G1a": "readers are shown what A aborted",
    "lost-write": "what B committed is gone",
    "torn-transaction": "of B one partition is there, one not",
}
MAY: Final = frozenset({*MUST, "poll-skip", "int-poll-skip"})
_HELD_WITHIN: Final = 60.0
_LEADERLESS_WITHIN: Final = 60.0
_TOLD_WITHIN: Final = 60.0
_FOLLOWED_WITHIN: Final = 90.0
_SKIPPED_WITHIN: Final = 10.0
_WHOLE_WITHIN: Final = 120.0
_NAMES: Final = 20
_SKIPPED: Final = re.compile(
    r"Couldn't find leader endpoint for partitions Set\((?P<places>[^)]*)\)"
    r" while trying to send transaction markers for (?P<id>\S+),"
)

_FOLLOWING: Final = frozenset(
    {
        "cluster-unreachable",
        "under-replicated-probe-topic",
        "suspected",
        "unseen",
        "stuck-consumer",
        "stuck-producer",
        "hanging-transaction",
        "unrecovered-transaction",
        "stale-log-end",
        "evidence-late",
    }
)
"""Conditions that are true while a broker is away, and what only it had with it; the topic has one replica besides."""

Skipped = Counter[tuple[str, int, str]]
"""How many markers were not written, by topic, partition and transactional id."""


def skipped(kafka: LocalKafka) -> Skipped:
    """The markers that coordinators say they never wrote, because they took the partition for deleted."""
    logs = [broker.server_log for broker in kafka.brokers if broker.server_log.is_file()]
    return sum((skipped_in(log.read_text(errors="replace")) for log in logs), Counter())


def skipped_in(log: str) -> Skipped:
    """As `skipped`, of one broker's log; pure."""
    return Counter(
        (topic, int(partition), line["id"])
        for line in _SKIPPED.finditer(log)
        for topic, _, partition in (place.strip().rpartition("-") for place in line["places"].split(","))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Provoked):
    """Brokers that led partitions of `topic` were killed, and nothing must be found for it. `skipped`: what the
    coordinators say, now."""

    topic: str
    at: datetime
    skipped: Callable[[], Skipped]
    since: str = "the kill"
    conditions: frozenset[str] = _FOLLOWING

    def lines(self) -> Iterator[str]:
        yield f"nothing of {ISSUE}, although brokers were killed, the first at {_clock(self.at)}"

    def is_expected(self, row: Row) -> bool:
        return False

    def missing(self, found: Sequence[Row]) -> list[str]:
        return []

    def is_consequence(self, row: Row) -> bool:
        """The same of any transaction, where the coordinator says that it skipped its marker; and that readers went
        over lost records of such a partition."""
        if row["anomaly"] not in MAY or row["topic"] != self.topic:
            return False
        markers = self.skipped()
        if row["anomaly"] in MUST:
            return any(name == evidence_of(row).get("transactional_id") for _, _, name in markers)
        return any((topic, partition) == (row["topic"], row["partition"]) for topic, partition, _ in markers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderless(Killed):
    """Both transactions ended without a marker in `topic`. `killed`: the broker, at `at`."""

    places: Places
    killed: int
    aborted: Held
    committed: Held
    words: Mapping[str, str] = field(default_factory=lambda: _WORDS)

    def lines(self) -> Iterator[str]:
        places = " and /".join(str(place) for place in dict.fromkeys((self.places.aborted, self.places.committed)))
        yield (
            f"{ISSUE}: broker {self.killed}, the only replica of {self.topic}/{places}, was killed at"
            f" {_clock(self.at)}, and two transactions ended before it was back"
        )
        yield f"A, transaction {self.aborted.txn}: its client was told that it is aborted"
        yield f"B, transaction {self.committed.txn}: its client was told that it is committed"

    def is_expected(self, row: Row) -> bool:
        return row["anomaly"] in MUST and evidence_of(row).get("txn") == self._of(row["anomaly"]).txn

    def missing(self, found: Sequence[Row]) -> list[str]:
        names = {row["anomaly"] for row in found}
        return [f"{name} of transaction {self._of(name).txn}" for name in MUST if name not in names]

    def _of(self, anomaly: str) -> Held:
        return self.aborted if MUST[anomaly] == "aborted" else self.committed


class LeaderlessTransactions(Story):
    """Two producers hold transactions open, the broker that leads a partition of both is killed, they end, and it comes
    back; again, if the coordinator noticed in time."""

    name = "leaderless"
    title = ISSUE
    brokers = 3

    def __init__(self) -> None:
        self._names: tuple[str, str] | None = None
        self._places: Places | None = None

    def prepare(self, kafka: LocalKafka, config: Config) -> None:
        """The topic of the transactions is made with one replica: with three, two brokers would have to die at once."""
        admin = open_admin(admin_settings(connection(config), client="offsetwatch-demo"))
        alone = config.probes.topics.model_copy(update={"replication": 1, "min_in_sync": 1})
        ProbeTopics(admin, alone, lambda line: None, (alone.transactions,)).ensure()

    def act(self, scene: Scene) -> Provoked:
        topic = scene.config.probes.topics.transactions
        scene.tell(f"next: {ISSUE} for real. {topic} has one replica;")
        scene.tell("its broker dies (kill -9) while transactions A and B are about to end")
        tried = Killed(topic=topic, at=datetime.now(UTC), skipped=lambda: skipped(scene.kafka))
        reason = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt(scene, topic)
            except (NotProvoked, DrillFailed) as error:
                reason = str(error)
                scene.tell(f"attempt {attempt} of {ATTEMPTS}: {reason}")
            if scene.stop.is_set():
                raise Stopped
            try:
                await_recovered(scene.kafka, _WHOLE_WITHIN)
            except DrillFailed as error:
                raise NotProvoked(str(error), tried) from error
        raise NotProvoked(f"{ISSUE} did not happen in {ATTEMPTS} attempts: {reason}", tried)

    def _attempt(self, scene: Scene, topic: str) -> Provoked:
        names, places = self._producers(scene, topic)
        before = skipped(scene.kafka)
        scene.probes.hold()
        fault = KillBroker(LeaderOf(topic, places.aborted))
        try:
            scene.wait(lambda: scene.probes.open >= set(names), _HELD_WITHIN, "that two transactions were held open")
            for name, letter in zip(names, "AB", strict=True):
                scene.tell(f"{letter} is open: {_where(scene.probes.held[name])}")
            fault.preconditions(scene.kafka)
            fault.begin()
            assert fault.began is not None and fault.node is not None
            scene.tell(
                f"{fault.began.wall:%H:%M:%S} UTC: broker {fault.node} is killed, the leader of what A and B wrote"
            )
            mine = (places.aborted, places.committed)
            scene.wait(
                lambda: leaderless(scene.kafka, topic, mine),
                _LEADERLESS_WITHIN,
                "that partitions were without a leader",
            )
            scene.tell(f"partitions {mine[0]} and {mine[1]} have no leader; A is aborted, B committed")
            scene.probes.release()
            scene.wait(lambda: _told(scene, names), _TOLD_WITHIN, "that the transactions ended")
            aborted, committed = (scene.probes.held[name] for name in names)
            scene.tell(f"the clients were told: A {aborted.told}, B {committed.told}")
            gone = {
                (topic, places.aborted, aborted.transactional_id),
                (topic, places.committed, committed.transactional_id),
            }
            scene.wait(
                lambda: gone <= set(skipped(scene.kafka) - before),
                _SKIPPED_WITHIN,
                "that the coordinators went over both markers",
            )
        finally:
            scene.probes.release()
            fault.end()
        scene.tell(f"the coordinators wrote no marker there; broker {fault.node} is back")
        self._await_next(scene, names)
        return Leaderless(
            topic=topic,
            places=places,
            killed=fault.node,
            at=fault.began.wall,
            aborted=aborted,
            committed=committed,
            skipped=lambda: skipped(scene.kafka),
        )

    def _await_next(self, scene: Scene, names: Sequence[str]) -> None:
        """Wait until each producer has made another transaction there. Raises NotProvoked where one of them ended in
        another way than it was to, on a machine that is too slow as a rule: then its markers hide what happened."""
        scene.wait(
            lambda: all(scene.probes.held[name].then is not None for name in names),
            _FOLLOWED_WITHIN,
            "that A's and B's producers made another transaction",
        )
        a, b = (scene.probes.held[name] for name in names)
        if hidden := what_hides(a, b):
            raise NotProvoked(hidden)

    def _producers(self, scene: Scene, topic: str) -> tuple[tuple[str, str], Places]:
        """The producers' names, and where they write. A broker is to die that does not coordinate their transactions,
        nor the cluster: it would take longer, and be no other story."""
        if self._names is None or self._places is None:
            leaders: dict[int, list[int]] = {}
            for place in view(scene.kafka.bootstrap, topic).placements:
                if place.leader is not None:
                    leaders.setdefault(place.leader, []).append(place.partition)
            controller = Controller().find(scene.kafka)
            victim = next((broker for broker in sorted(leaders) if broker != controller), controller)
            mine = leaders[victim]
            elsewhere = next(where for broker, where in leaders.items() if broker != victim)
            self._places = Places(aborted=mine[0], committed=mine[-1], elsewhere=elsewhere[0])
            run = f"{scene.config.probes.topics.prefix}-{scene.probes.status().run}"
            self._names = (
                _coordinated_elsewhere(scene.kafka, run, ABORTED, victim),
                _coordinated_elsewhere(scene.kafka, run, COMMITTED, victim),
            )
            scene.probes.add_producers(self._places, self._names)
        return self._names, self._places


def _coordinated_elsewhere(kafka: LocalKafka, run: str, name: str, broker: int) -> str:
    """A name for a producer whose transactional id another broker coordinates."""
    for number in range(1, _NAMES + 1):
        chosen = f"{name}-{number}"
        if TransactionCoordinator(f"{run}-{chosen}").find(kafka) != broker:
            return chosen
    return f"{name}-{_NAMES}"


def what_hides(aborted: Held, committed: Held) -> str | None:
    """Why nobody is shown what became of the two transactions, in words; None where their producers' next ones ended as
    they were to, committed and aborted. Their markers decide over the records that have none of their own."""
    if (aborted.then, committed.then) == ("committed", "aborted"):
        return None
    a, b = ("ended nobody knows how" if one.then == "unknown" else f"was {one.then}" for one in (aborted, committed))
    return f"the next transaction of A's producer {a}, of B's {b}; that hides what became of A and B"


def _told(scene: Scene, names: Sequence[str]) -> bool:
    held = scene.probes.held
    return all(name in held and held[name].told is not None for name in names)


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03} UTC"


def _where(held: Held) -> str:
    """What it wrote: "2 records in /0 at offset 513, 2 in /1 at 498"."""
    first, *others = (
        (sum(run.length for run in runs), partition, runs[0].offset)
        for (_, partition), runs in sorted(held.sent.items())
    )
    told = [f"{first[0]} records in /{first[1]} at offset {first[2]}"]
    return ", ".join([*told, *(f"{count} in /{partition} at {offset}" for count, partition, offset in others)])
