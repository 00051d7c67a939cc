"""What runs on a host: probes, their supervisor, and the calls that they share."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rules.vocabulary.slices import Run
from tests.rules.world.cluster import Cluster, Fetched, runs_of
from tests.rules.world.kernel import SECOND, Sleep, Task
from tests.rules.world.life import Life, Op

if TYPE_CHECKING:
    from tests.rules.world.host import Host
    from tests.rules.world.world import World

MILLISECOND = 1_000

Call = Generator[int, None, None]


@dataclass(slots=True)
class Hang:
    """The next call invoked at or after `at` takes this much longer to return."""

    at: int
    lasts: int
    before: bool = False
    """The cluster acts only at the end of the wait, not at its beginning."""


@dataclass(slots=True)
class Silence:
    """From `start` to `end` the process does nothing."""

    start: int
    end: int


@dataclass(slots=True)
class Habits:
    """What a probe is told to do, in microseconds of true time."""

    kind: str
    period: int = SECOND
    partitions: tuple[int, ...] | None = None
    batch: int = 3
    """Writers: the most records of one operation."""
    most: int = 500
    """Readers: the most records of one poll and partition."""
    group: str | None = None
    isolation: str = "read_committed"
    start: int = 0
    stop: int | None = None
    kills: tuple[int, ...] = ()
    restarts: tuple[int, ...] = ()
    """Clean ends, with a new life after each."""
    back_after: int = 3 * SECOND
    hangs: list[Hang] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    stuck: list[Silence] = field(default_factory=list)
    """Readers: while this lasts the cluster gives them nothing."""
    timeouts: float = 0.0
    """Writers: the share of sends whose outcome stays unknown. The record may be stored, at once or later."""
    refused: float = 0.0
    """Writers: the share of sends that certainly fail."""
    aborts: float = 0.2
    indefinite: float = 0.0


class Probe:
    """One probe of a host, over all its lives. Subclasses are generators of a life's doings."""

    def __init__(self, world: World, host: Host, name: str, habits: Habits) -> None:
        self.world, self.host, self.name, self.habits = world, host, name, habits
        self.random = random.Random(f"{world.seed}/{name}")
        self.cluster = world.cluster
        self.life: Life | None = None
        self.lives: list[Life] = []
        self.task: Task | None = None
        self.stopped = False

    @property
    def now(self) -> int:
        return self.world.kernel.now

    @property
    def partitions(self) -> tuple[int, ...]:
        return self.habits.partitions or tuple(range(len(self.cluster.partitions)))

    # The supervisor.

    def launch(self) -> None:
        if self.stopped or not self.host.up or (self.life is not None):
            return
        self.cluster = self.world.cluster
        self.life = Life(
            self.host,
            self.world.new_process(),
            self.name,
            self.habits.kind,
            len(self.cluster.partitions),
            self.cluster.topic_id,
        )
        self.lives.append(self.life)
        self.host.lives.append(self.life)
        after = self.random.randrange(500 * MILLISECOND)
        self.task = self.world.kernel.spawn(self._live(self.life), after, self.host.frozen)

    def kill(self) -> None:
        """kill -9; the supervisor starts the next life a little later."""
        if self.life is not None:
            self.life.died = self.now
            self.leave()
            self.world.kernel.at(self.now + self.habits.back_after, self.launch)

    def leave(self) -> None:
        """The process is gone, however it ended."""
        if self.task is not None:
            self.task.kill()
        self.life, self.task = None, None

    def restart(self) -> None:
        """A clean end at the next opportunity, and a new life."""
        self.restarting = self.life is not None

    def stop(self) -> None:
        self.stopped = True

    def freeze(self, end: int) -> None:
        """The host stands still until `end`; whatever others make of that."""

    restarting = False
    writes = False
    """Does it tell at its start which writer it is?"""
    mode: ClassVar[str | None] = None
    """How it will read, as it tells at its start."""

    def _live(self, life: Life) -> Sleep:
        told = {"writer": str(life.process)} if self.writes else {}
        if self.habits.group is not None:
            told["group.id"] = self.habits.group
        life.everywhere("start", kind=self.habits.kind, settings=told, mode=self.mode)
        doing = self.do(life)
        for slept in doing:
            yield slept
            if (self.stopped or self.restarting) and not life.in_flight:
                break
        yield from self.close(life)
        self.life, self.task = None, None
        if self.restarting:
            self.restarting = False
            self.world.kernel.at(self.now + self.habits.back_after, self.launch)

    def close(self, life: Life) -> Sleep:
        op = life.invoke("close", range(life.partitions))
        yield self.latency()
        life.complete(op)
        life.closed = life.ended_at = self.now

    def do(self, life: Life) -> Sleep:
        raise NotImplementedError

    # Calls.

    def latency(self) -> int:
        return self.random.randrange(1 * MILLISECOND, 15 * MILLISECOND)

    def request(self) -> tuple[int, int]:
        """How long until the cluster acts, and from then until the call returns."""
        there, back = self.latency(), self.latency()
        for hang in list(self.habits.hangs):
            if self.now >= hang.at:
                self.habits.hangs.remove(hang)
                return (there + hang.lasts, back) if hang.before else (there, back + hang.lasts)
        return there, back

    def rest(self) -> int:
        """Until the next operation."""
        for s in self.habits.silences:
            if s.start <= self.now < s.end:
                return s.end - self.now
        return self.random.randrange(self.habits.period * 8 // 10, self.habits.period * 12 // 10 + 1)


class Writer(Probe):
    """Plain idempotent sends: one operation per partition and period, one after the other. After a send whose outcome
    is unknown the process ends and a new life begins, so that a record stored late breaks no order."""

    writes = True

    def do(self, life: Life) -> Sleep:
        while True:
            for p in self.partitions:
                run = life.take(p, self.random.randrange(1, self.habits.batch + 1))
                op = life.invoke("send", [p])
                op.sent[p] = [run]
                there, back = self.request()
                yield there
                luck = self.random.random()
                if luck < self.habits.timeouts:
                    yield from self._unknown(life, op, p, run)
                elif luck < self.habits.timeouts + self.habits.refused:
                    self.cluster.refuse(p, run)
                    yield back
                    life.complete(op, "fail", {p: {"sent": [run]}}, error="NOT_ENOUGH_REPLICAS")
                else:
                    offset = self._store(p, run)
                    yield back
                    life.complete(op, "ok", {p: {"sent": [run._replace(offset=offset)]}})
            yield self.rest()

    def _store(self, partition: int, run: Run) -> int:
        """The offset of the first of them."""
        return min(self.cluster.append(partition, run.writer, run.seq + i) for i in range(run.length))

    def _late(self, cluster: Cluster, partition: int, run: Run) -> None:
        for i in range(run.length):
            cluster.append(partition, run.writer, run.seq + i)

    def _unknown(self, life: Life, op: Op, partition: int, run: Run) -> Sleep:
        stored = self.random.choice(["at once", "later", "never"])
        if stored == "at once":
            self._store(partition, run)
        yield 2 * SECOND
        if stored == "later":
            late = partial(self._late, self.cluster, partition, run)
            self.world.kernel.at(self.now + self.random.randrange(20) * SECOND, late)
        life.complete(op, "info", {partition: {"sent": [run]}}, error="_MSG_TIMED_OUT")
        self.restarting = True
        yield MILLISECOND


class Observer(Probe):
    """One listing per partition and period; groups' committed offsets every other time."""

    def do(self, life: Life) -> Sleep:
        turn = 0
        while True:
            for p in self.partitions:
                op = life.invoke("offsets", [p])
                there, back = self.request()
                yield there
                start, end, stable = self.cluster.listing(p)
                yield back
                life.complete(op, "ok", log_start=start, log_end=end, last_stable=stable)
            turn += 1
            if turn % 2 == 0:
                for (group, p), _ in sorted(self.cluster.committed.items()):
                    op = life.invoke("offsets", [p], group=group)
                    there, back = self.request()
                    yield there
                    committed = self.cluster.read_committed_offset(group, p)
                    yield back
                    life.complete(op, "ok", committed=committed)
            yield self.rest()


def poll(probe: Probe, life: Life, positions: dict[int, int], **more: Any) -> Generator[int, None, Op]:
    """One poll of all partitions in `positions`, which it moves when it returns."""
    habits = probe.habits
    op = life.invoke("poll", sorted(positions), isolation=habits.isolation, **more)
    there, back = probe.request()
    yield there
    each: dict[int, dict[str, Any]] = {}
    after = {}
    for p, position in sorted(positions.items()):
        stuck = any(s.start <= probe.now < s.end for s in habits.stuck)
        fetched = (
            Fetched([], position)
            if stuck
            else probe.cluster.fetch(p, position, habits.isolation, habits.most, probe.name)
        )
        each[p] = {
            "polled": runs_of(fetched.records),
            "position_before": position,
            "position_after": fetched.position,
        }
        after[p] = fetched.position
    op.results = each
    yield back
    life.complete(op, "ok", each)
    positions.update(after)
    return op


class Reader(Probe):
    """Assign mode: every partition, from where the probe's last life is known to have been."""

    mode = "assign"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known: dict[str, dict[int, int]] = {}
        """Topic id -> where the last life stood."""

    def do(self, life: Life) -> Sleep:
        positions = self.known.setdefault(self.cluster.topic_id, dict.fromkeys(self.partitions, 0))
        op = life.invoke("assign", range(life.partitions), mode="assign", isolation=self.habits.isolation)
        yield self.latency()
        life.complete(op, "ok", {p: {"assigned": p in positions} for p in range(life.partitions)})
        while True:
            yield from poll(self, life, positions, mode="assign")
            yield self.rest()


class Audit(Reader):
    """Reads the log from its start to where its end was, closes, and after a period does it again."""

    def do(self, life: Life) -> Sleep:
        ends = {p: self.cluster.partitions[p].stable for p in self.partitions}
        positions = {p: self.cluster.partitions[p].start for p in self.partitions}
        op = life.invoke("assign", range(life.partitions), mode="assign", isolation=self.habits.isolation)
        yield self.latency()
        life.complete(op, "ok", {p: {"assigned": p in positions} for p in range(life.partitions)})
        while any(positions[p] < end for p, end in ends.items()):
            yield from poll(self, life, positions, mode="assign")
            yield 100 * MILLISECOND
        self.world.kernel.at(self.now + self.habits.period, self.launch)
