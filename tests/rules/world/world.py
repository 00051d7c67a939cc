"""A world: hosts, their probes, and the cluster that they probe, run once from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.rules.world.clocks import Jump, WallClock
from tests.rules.world.cluster import Cluster
from tests.rules.world.faults import Planted
from tests.rules.world.groups import GroupReader
from tests.rules.world.host import Append, Away, Host, Reboot
from tests.rules.world.kernel import SECOND, Kernel
from tests.rules.world.life import Life
from tests.rules.world.probes import Audit, Habits, Observer, Probe, Reader, Writer
from tests.rules.world.transactions import TransactionalWriter

NEVER = 1 << 60
"""A true time that does not come."""
KINDS: dict[str, type[Probe]] = {
    "writer": Writer,
    "reader": Reader,
    "group": GroupReader,
    "transactions": TransactionalWriter,
    "observer": Observer,
    "audit": Audit,
}


@dataclass(slots=True)
class HostPlan:
    """A host and what befalls it. Probes are by name; the name of a transactional probe is its transactional id."""

    name: str
    probes: dict[str, Habits]
    skew: int = 0
    drift: float = 0.0
    jumps: tuple[Jump, ...] = ()
    away: list[Away] = field(default_factory=list)
    reboots: list[Reboot] = field(default_factory=list)
    frozen: list[tuple[int, int]] = field(default_factory=list)

    def describe(self) -> str:
        what = [
            n + "!" * len(p.kills) + "~" * len(p.restarts) + "?" * len(p.hangs) + "-" * len(p.silences)
            for n, p in self.probes.items()
        ]
        if self.skew or self.drift:
            what.append(f"skew {self.skew / SECOND:g}s")
        what += [f"jump {j.by / SECOND:g}s at {j.start // SECOND}s" for j in self.jumps]
        what += [f"away {a.start // SECOND}-{a.end // SECOND}s/{a.pieces}" for a in self.away]
        what += [f"frozen {start // SECOND}-{end // SECOND}s" for start, end in self.frozen]
        what += [
            f"boot {r.at // SECOND}-{(r.at + r.down) // SECOND}s{' disk' if r.disk_lost else ''}"
            f"{f' {r.by / SECOND:+g}s' if r.by else ''}"
            for r in self.reboots
        ]
        return f"{self.name}({', '.join(what)})"


@dataclass(slots=True)
class Plan:
    """Everything that a world is made of. `events` act on the running world at a true time."""

    seed: int
    length: int
    hosts: list[HostPlan]
    partitions: int = 1
    events: list[tuple[int, str, Callable[[World], None]]] = field(default_factory=list)
    patience: int = 0
    """How much later than the definitions ask a finding may come, for clocks that jump."""
    rejects: Callable[[World, random.Random, Append], None] | None = None
    """Marks entries of an append that never make it into the table."""

    def describe(self) -> str:
        told = [h.describe() for h in self.hosts]
        events = [name for _, name, _ in self.events] + ["rejects"] * (self.rejects is not None)
        return f"{self.length // SECOND}s x{self.partitions} {' '.join(told)} [{', '.join(events)}]"


class World:
    """The world after it was run: appends in the order of arrival, and the truth."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.seed = plan, plan.seed
        self.random = random.Random(f"{plan.seed}/world")
        self.kernel = Kernel()
        self.clusters = [Cluster(plan.partitions, "t1", lambda: self.kernel.now)]
        self.appends: list[Append] = []
        self.planted: list[Planted] = []
        self.hosts: list[Host] = []
        self.probes: dict[str, Probe] = {}
        self._processes = 1000
        self._txns = 0
        for number, h in enumerate(plan.hosts):
            self._host(number, h)
        for at, _, action in plan.events:
            self.kernel.at(at, partial(action, self))

    @property
    def cluster(self) -> Cluster:
        return self.clusters[-1]

    @property
    def lives(self) -> list[Life]:
        return [life for host in self.hosts for life in host.lives]

    def new_process(self) -> int:
        self._processes += 1
        return self._processes

    def new_txn(self) -> int:
        self._txns += 1
        return self._txns

    def plant(self, fault: Planted, cluster: Cluster | None = None) -> Planted:
        """Write a fault down that struck `cluster`, or the newest: a topic's old life goes on for a little while."""
        fault.topic_id = (cluster or self.cluster).topic_id
        self.planted.append(fault)
        return fault

    def recreate(self) -> None:
        """The topic is deleted and created again while every probe ends and starts anew."""
        for probe in self.probes.values():
            probe.restart()
        fresh = f"t{len(self.clusters) + 1}"
        count = len(self.cluster.partitions)
        more = Cluster(count, fresh, lambda: self.kernel.now)
        self.kernel.at(self.kernel.now + 2 * SECOND, lambda: self.clusters.append(more))

    def run(self) -> World:
        self.kernel.run(self.plan.length)
        return self

    def _host(self, number: int, h: HostPlan) -> None:
        clock = WallClock(h.skew, h.drift, h.jumps)
        host = Host(
            self.kernel,
            h.name,
            number,
            clock,
            random.Random(f"{self.seed}/{h.name}"),
            self._deliver,
            h.drift,
            h.away,
            h.frozen,
        )
        self.hosts.append(host)
        for name, habits in h.probes.items():
            probe = self.probes[name] = KINDS[habits.kind](self, host, name, habits)
            self.kernel.at(habits.start, probe.launch)
            for at in habits.kills:
                self.kernel.at(at, probe.kill)
            for at in habits.restarts:
                self.kernel.at(at, probe.restart)
            for start, end in h.frozen:
                self.kernel.at(start, partial(probe.freeze, end))
            if habits.stop is not None:
                self.kernel.at(habits.stop, probe.stop)
        for reboot in h.reboots:
            self.kernel.at(reboot.at, partial(self._reboot, host, reboot))

    def _reboot(self, host: Host, reboot: Reboot) -> None:
        host.crash(disk_lost=reboot.disk_lost)
        mine = [p for p in self.probes.values() if p.host is host]
        for probe in mine:
            probe.leave()

        def boot() -> None:
            if reboot.by:
                host.clock.jumps = (*host.clock.jumps, Jump(self.kernel.now, NEVER, reboot.by))
            host.start()
            for probe in mine:
                self.kernel.at(self.kernel.now + 2 * SECOND, probe.launch)

        self.kernel.at(self.kernel.now + reboot.down, boot)

    def _deliver(self, append: Append) -> None:
        if self.plan.rejects is not None:
            self.plan.rejects(self, self.random, append)
        self.appends.append(append)
