"""Worlds from a seed: hosts, what befalls them, and the faults that are planted, if any."""

from __future__ import annotations

import random

from tests.rules.world import faults
from tests.rules.world.clocks import Jump
from tests.rules.world.faults import Event
from tests.rules.world.host import Away, Reboot
from tests.rules.world.kernel import SECOND
from tests.rules.world.probes import Habits, Hang, Silence
from tests.rules.world.rejects import reject_row, reject_some
from tests.rules.world.world import HostPlan, Plan

FROZEN_FROM = 61_000
"""Hosts stand still in worlds from this seed on: the others stay what they were."""
UPSET_FROM = 63_000
"""From this seed on worlds are upset as those are that people attack: logs are cut to their beginnings and disks put
back, clocks are minutes apart, and boots come back late with another time."""
READ_AGAIN = 60 * SECOND
"""How long after the last trouble a world goes on."""


class Dice(random.Random):
    def one_in(self, n: float) -> bool:
        return self.random() < 1 / n

    def time(self, start: int, end: int) -> int:
        return self.randrange(start * SECOND, end)


def random_plan(seed: int) -> Plan:
    dice = Dice(f"plan/{seed}")
    length = dice.choice([150, 200, 300]) * SECOND
    partitions = dice.choice([1, 1, 2, 3])
    hosts = [_host(dice, i, length) for i in range(dice.choice([1, 2, 2, 3]))]
    full = dice.one_in(2)
    for name, habits in _probes(dice) + (_each(hosts[1:]) if full else []):
        homes = {"w1": hosts[0], "r1": hosts[0], **{f"{x}{i}": h for i, h in enumerate(hosts) for x in "mn"}}
        host = dice.choice(hosts)
        (homes.get(name, host) if full else host).probes[name] = habits
        if name != "observer":
            _trouble(dice, habits, length)
        elif dice.one_in(6):
            start = dice.time(30, length - READ_AGAIN)
            habits.silences.append(Silence(start, start + dice.choice([5, 15, 40]) * SECOND))
    names = {name for h in hosts for name in h.probes}
    plan = Plan(seed, length, hosts, partitions, events=_events(dice, length, partitions, names))
    plan.patience = 2 * max((abs(j.by) for h in hosts for j in h.jumps), default=0)
    if dice.one_in(8):
        plan.rejects = reject_some(dice.choice([0.0005, 0.002]))
    _witness(dice, plan)
    if seed >= FROZEN_FROM:
        _freeze(Dice(f"freeze/{seed}"), plan)
    if seed >= UPSET_FROM:
        _upset(Dice(f"upset/{seed}"), plan)
    return plan


def _upset(dice: Dice, plan: Plan) -> None:
    if dice.one_in(3):
        plan.length = max(plan.length, dice.choice([400, 600]) * SECOND)
    latest = plan.length - READ_AGAIN
    for host in plan.hosts[1:]:
        if dice.one_in(3):
            host.skew = dice.choice([-1, 1]) * dice.choice([40, 90, 600]) * SECOND
    for host in plan.hosts:
        if dice.one_in(3):
            down, by = (
                dice.choice([3, 75, 75, 200]) * SECOND,
                dice.choice([0, 0, 2, -2, 20, -20, 90, -90, -600]) * SECOND,
            )
            host.reboots = [Reboot(dice.time(20, latest), down, disk_lost=dice.one_in(3), by=by)]
    for _ in range(dice.choice([0, 1, 1, 2])):
        at, count, p = dice.time(15, latest), dice.choice([2, 20, 150, 1 << 30]), dice.randrange(plan.partitions)
        if dice.one_in(3):
            after = dice.choice([2, 15, 60, 150]) * SECOND
            plan.events.append(faults.cut_and_put_back(at, count, after, p))
        else:
            plan.events.append(faults.cut(at, count, p))


def _freeze(dice: Dice, plan: Plan) -> None:
    """Hosts that stand still, alone or together."""
    together = dice.time(20, plan.length - READ_AGAIN)
    for host in plan.hosts:
        if dice.one_in(3):
            start = together if dice.one_in(2) else dice.time(20, plan.length - READ_AGAIN)
            host.frozen.append((start, start + dice.choice([5, 15, 28, 40, 70]) * SECOND))


def _witness(dice: Dice, plan: Plan) -> None:
    """A record that one reader alone sees, shortly before that reader's log is lost with its host, or the row is."""
    for host in plan.hosts:
        readers = [n for n, h in host.probes.items() if h.kind == "reader" and h.isolation == "read_committed"]
        if readers and host.reboots and dice.one_in(2):
            at = host.reboots[0].at
            host.away.append(Away(at - 8 * SECOND, at + 2 * SECOND, killed=True))
            plan.events.append(faults.only_for(at - 5 * SECOND, readers[0]))
        elif readers and dice.one_in(10):
            plan.events.append(faults.only_for(dice.time(20, plan.length - READ_AGAIN), readers[0]))
            if plan.rejects is None:
                plan.rejects = reject_row(readers[0], 0)


def _each(hosts: list[HostPlan]) -> list[tuple[str, Habits]]:
    """A writer and a reader for each further host, so that all clocks can be compared."""
    numbers = range(1, len(hosts) + 1)
    return [(f"m{i}", Habits("writer")) for i in numbers] + [(f"n{i}", Habits("reader")) for i in numbers]


def _probes(dice: Dice) -> list[tuple[str, Habits]]:
    probes = [
        ("w1", Habits("writer", batch=dice.choice([1, 3, 8]), timeouts=dice.choice([0, 0, 0.01]))),
        ("r1", Habits("reader")),
        ("observer", Habits("observer")),
    ]
    if dice.one_in(2):
        period, refused = dice.choice([SECOND, 5 * SECOND, 40 * SECOND]), dice.choice([0, 0.1])
        probes.append(("w2", Habits("writer", period=period, refused=refused)))
    if dice.one_in(2):
        probes.append(("t1", Habits("transactions", indefinite=dice.choice([0.0, 0.0, 0.05]))))
    if dice.one_in(2):
        probes.append(("r2", Habits("reader", period=dice.choice([SECOND // 2, 2 * SECOND, 7 * SECOND]))))
    if dice.one_in(4):
        probes.append(("u1", Habits("reader", isolation="read_uncommitted")))
    if dice.one_in(2):
        probes.extend((f"g{i}", Habits("group", group="g", start=i * 5 * SECOND)) for i in range(dice.choice([1, 2])))
    if dice.one_in(3):
        probes.append(("audit", Habits("audit", period=30 * SECOND, start=20 * SECOND)))
    return probes


def _trouble(dice: Dice, habits: Habits, length: int) -> None:
    if dice.one_in(5):
        habits.kills = (dice.time(10, length - READ_AGAIN),)
    if dice.one_in(12):
        habits.stop = dice.time(30, length - READ_AGAIN)
    if dice.one_in(8):
        habits.restarts = (dice.time(10, length - READ_AGAIN),)
    if dice.one_in(8) and habits.kind != "group":
        habits.hangs.append(Hang(dice.time(10, length - READ_AGAIN), dice.choice([3, 20, 45]) * SECOND, dice.one_in(2)))
    if dice.one_in(10):
        start = dice.time(10, length - READ_AGAIN)
        habits.silences.append(Silence(start, start + dice.choice([4, 20]) * SECOND))


def _host(dice: Dice, number: int, length: int) -> HostPlan:
    host = HostPlan(f"h{number}", {})
    if number and dice.one_in(2):
        host.skew = dice.choice([-1, 1]) * dice.choice([SECOND // 10, SECOND, 5 * SECOND, 15 * SECOND])
        host.drift = dice.choice([0, 20, -100])
    if dice.one_in(10):
        start = dice.time(20, length - READ_AGAIN)
        by = dice.choice([-3, 3, 25]) * SECOND
        host.jumps = (Jump(start, start + dice.choice([2, 10]) * SECOND, by),)
    if dice.one_in(3):
        start = dice.time(20, length - READ_AGAIN)
        lasts = dice.choice([3, 13, 40]) * SECOND
        host.away.append(Away(start, start + lasts, dice.choice([1, 2, 4]), killed=dice.one_in(3)))
    if dice.one_in(6):
        host.reboots.append(Reboot(dice.time(20, length - READ_AGAIN), 10 * SECOND, disk_lost=dice.one_in(3)))
    return host


def _events(dice: Dice, length: int, partitions: int, names: set[str]) -> list[Event]:
    events = []
    for _ in range(dice.choice([0, 1, 1, 2])):
        at, p = dice.time(15, length - 45 * SECOND), dice.randrange(partitions)
        kinds = ["lose", "lose", "lose", "duplicate", "phantom", "cut", "appear", "stale"]
        if "w2" in names:
            kinds += ["refused"]
        if "t1" in names:
            kinds += ["expose", "tear", "zombie"]
        if "g0" in names:
            kinds += ["drop", "low", "high"]
        events.append(_fault(dice, dice.choice(kinds), at, p))
    if dice.one_in(10):
        events.append(faults.recreate(dice.time(20, length - READ_AGAIN)))
    if dice.one_in(4):
        events.append(faults.delete_records(dice.time(20, length), dice.randrange(partitions), dice.choice([0, 2, 30])))
    return events


def _fault(dice: Dice, kind: str, at: int, p: int) -> Event:
    if kind == "lose":
        return faults.lose(at, p, dice.choice([1, 1, 4]))
    if kind == "duplicate":
        return faults.duplicate(at, p)
    if kind == "phantom":
        return faults.phantom(at, "w1", p)
    if kind == "cut":
        return faults.cut(at, dice.choice([1, 3, 20]), p)
    if kind == "appear":
        return faults.appear(at, dice.choice([2, 8, 25]) * SECOND, p)
    if kind == "stale":
        return faults.stale_listing(at, dice.choice([5, 20]) * SECOND, p)
    if kind == "refused":
        return faults.store_refused(at)
    if kind == "expose":
        return faults.expose(at)
    if kind == "tear":
        return faults.tear(at, p)
    if kind == "zombie":
        return faults.zombie(at, dice.choice([4, 20]) * SECOND)
    if kind == "drop":
        return faults.drop_commits(at, "g", 20 * SECOND, p)
    return faults.tell_commits(at, "g", 20 * SECOND, -3 if kind == "low" else 15, p)
