"""A random schedule of real faults, and its run: for an endurance run, which promises that none of them is a violation.

The schedule is drawn from a seed: the same seed, length, targets and kinds give the same schedule, whatever happens
when it runs. Its run keeps what the cluster was promised: never more than one broker is out at a time, because a fault
begins only when the one before is undone, every replica is in sync again, and some seconds of quiet are over. So a slow
machine runs fewer faults of the schedule, never two at once. Faults that lose data by design (a cut segment) are none
of an endurance run's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.clocks import ClockJump
from monitor.drill.faults.disks import FailingDisk, SlowDisk
from monitor.drill.faults.fault import Fault, Moment
from monitor.drill.faults.membership import AddAndRemoveBroker
from monitor.drill.faults.network import CutFromPeers
from monitor.drill.faults.processes import KillBroker, PauseBroker, RollingRestart
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.roles import (
    AnyBroker,
    BrokerOf,
    Controller,
    GroupCoordinator,
    LeaderOf,
    Role,
    TransactionCoordinator,
)

_JUMPS: Final = (-120, -30, 30, 120, 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Whom faults may strike: leaders of these partitions, coordinators of these; the controller and any broker always.
    `topics`: whose replicas a broker that joins is given."""

    partitions: Sequence[tuple[str, int]] = ()
    transactional_ids: Sequence[str] = ()
    groups: Sequence[str] = ()
    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: how often it is drawn (relative weight), how long it stays (seconds, from, to), and how long
    its coming and going take on a machine like a laptop (seconds; only for the plan)."""

    make: Callable[[Role, random.Random, Targets], Fault]
    weight: float
    lasts: tuple[float, float]
    takes: float


KINDS: Final[Mapping[str, Kind]] = {
    "kill": Kind(lambda role, draw, targets: KillBroker(role), 3, (1, 20), 10),
    "kill-and-restart": Kind(lambda role, draw, targets: KillBroker(role, restart=True), 3, (0, 0), 12),
    "pause-briefly": Kind(lambda role, draw, targets: PauseBroker(role), 3, (0.5, 5), 2),
    "pause": Kind(lambda role, draw, targets: PauseBroker(role), 2, (7, 25), 5),
    "cut-briefly": Kind(lambda role, draw, targets: CutFromPeers(role), 2, (0.5, 5), 2),
    "cut": Kind(lambda role, draw, targets: CutFromPeers(role), 3, (7, 25), 5),
    "rolling-restart": Kind(lambda role, draw, targets: RollingRestart(), 1, (0, 0), 40),
    "add-and-remove": Kind(lambda role, draw, targets: AddAndRemoveBroker(targets.topics), 1, (5, 20), 20),
    "clock-jump": Kind(lambda role, draw, targets: ClockJump(role, draw.choice(_JUMPS)), 2, (2, 20), 5),
    "failing-disk": Kind(lambda role, draw, targets: FailingDisk(role), 1, (1, 10), 12),
    "slow-disk": Kind(lambda role, draw, targets: SlowDisk(role), 1, (5, 20), 10),
}
"""By name. Short pauses and cuts end before anybody's session is over, long ones after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fault of a schedule: it begins `at` (seconds from the start) or when it may, and stays `lasts` seconds."""

    at: float
    kind: str
    role: Role
    lasts: float
    seed: int
    targets: Targets

    def fault(self) -> Fault:
        """The fault, made anew at each call."""
        return KINDS[self.kind].make(self.role, random.Random(self.seed), self.targets)

    def __str__(self) -> str:
        stays = f", for {self.lasts:.1f} s" if self.lasts else ""
        return f"{self.at:7.1f} s  {self.kind:16}  {self.fault().describe()}{stays}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is to happen in `seconds`; `quiet` seconds lie at least between a recovery and the next fault."""

    seed: int
    seconds: float
    quiet: float
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}, {self.seconds:.0f} s, {len(self.entries)} faults"
        return "\n".join([head, *map(str, self.entries)])


def draw(
    seed: int,
    seconds: float,
    targets: Targets,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    quiet: float = 10.0,
    calm: float = 20.0,
) -> Schedule:
    """Draw the schedule of a seed. The first fault comes after `quiet` seconds, the last is over `calm` before the end.

    Raises ValueError for an unknown kind, or none."""
    unknown = [name for name in kinds if name not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"there is no fault {', '.join(unknown)}" if unknown else "no kind of fault is allowed")
    names = sorted(kinds)
    rng = random.Random(seed)
    entries: list[Entry] = []
    at = quiet
    while True:
        name = rng.choices(names, [KINDS[each].weight for each in names])[0]
        lasts = round(rng.uniform(*KINDS[name].lasts), 1)
        role, of_it = _role(rng, targets), rng.randrange(2**32)
        over = at + KINDS[name].takes + lasts
        if over > seconds - calm:
            return Schedule(seed=seed, seconds=seconds, quiet=quiet, entries=tuple(entries))
        entries.append(Entry(at=round(at, 1), kind=name, role=role, lasts=lasts, seed=of_it, targets=targets))
        at = over + quiet + rng.uniform(0, quiet)


def possible(cluster: LocalKafka, kinds: Sequence[str] = tuple(KINDS)) -> tuple[list[str], dict[str, list[str]]]:
    """Which of these kinds this cluster and this machine allow, and of the others what is missing."""
    lacking = {name: _trial(name).preconditions(cluster) for name in kinds}
    return [name for name in kinds if not lacking[name]], {name: why for name, why in lacking.items() if why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What became of an entry. `told`: the fault in words, with its broker. `recovered_in`: seconds from its end until
    all was in sync, None where it was not. `error`: why it was not made, or not undone; None where all went well."""

    entry: Entry
    told: str
    began: Moment | None
    ended: Moment | None
    recovered_in: float | None
    error: str | None


def run(
    schedule: Schedule,
    cluster: LocalKafka,
    stop: Event,
    say: Callable[[str], None],
    *,
    recover_within: float = 120.0,
) -> list[Happened]:
    """Make the faults of a schedule, one at a time, until its time is over or `stop` is set; every fault is undone.

    A fault that cannot be made is told and passed over. Raises DrillFailed where the cluster does not recover from one:
    the next would take a second broker."""
    start = time.monotonic()
    rest = start
    happened: list[Happened] = []
    for entry in schedule.entries:
        if stop.wait(max(0.0, max(start + entry.at, rest) - time.monotonic())):
            break
        if time.monotonic() + entry.lasts > start + schedule.seconds:
            break
        fault, error, back = entry.fault(), None, None
        missing = fault.preconditions(cluster)
        if missing:
            error = "; ".join(missing)
        else:
            error = _make(fault, entry.lasts, stop, say)
            back = await_recovered(cluster, recover_within)
        rest = time.monotonic() + schedule.quiet
        say(f"{fault.describe()}: {error or f'recovered {back:.1f} s after its end'}")
        happened.append(
            Happened(
                entry=entry, told=fault.describe(), began=fault.began, ended=fault.ended, recovered_in=back, error=error
            )
        )
    return happened


def _make(fault: Fault, lasts: float, stop: Event, say: Callable[[str], None]) -> str | None:
    """Begin and end it; why it failed, if it did. Raises DrillFailed where it cannot be undone."""
    error: str | None = None
    try:
        fault.begin()
        say(fault.describe())
        stop.wait(lasts)
    except DrillFailed as failed:
        error = str(failed)
    finally:
        fault.end()
    return error


def _role(rng: random.Random, targets: Targets) -> Role:
    roles: list[Role] = [Controller(), AnyBroker(rng.randrange(2**32))]
    if targets.partitions:
        roles.append(LeaderOf(*rng.choice(list(targets.partitions))))
    if targets.transactional_ids:
        roles.append(TransactionCoordinator(rng.choice(list(targets.transactional_ids))))
    if targets.groups:
        roles.append(GroupCoordinator(rng.choice(list(targets.groups))))
    return rng.choice(roles)


def _trial(name: str) -> Fault:
    return KINDS[name].make(BrokerOf(1), random.Random(0), Targets())
