"""Worlds from a seed: hosts, what befalls them, and the fault that is planted, if any."""

from __future__ import annotations

import random

from tests.rules.world import faults
from tests.rules.world.faults import Event
from tests.rules.world.host import Away, Reboot
from tests.rules.world.kernel import SECOND
from tests.rules.world.probes import Habits
from tests.rules.world.world import HostPlan, Plan


def random_plan(seed: int) -> Plan:
    rng = random.Random(f"plan/{seed}")
    length = rng.choice([120, 180, 240]) * SECOND
    partitions = rng.choice([1, 2, 3])
    hosts = [_host(rng, i, length) for i in range(rng.choice([1, 2]))]
    probes = [
        ("w1", Habits("writer", batch=rng.choice([1, 3, 8]))),
        ("r1", Habits("reader")),
        ("observer", Habits("observer")),
    ]
    if rng.random() < 0.5:
        probes.append(("w2", Habits("writer", period=rng.choice([SECOND, 5 * SECOND]))))
    if rng.random() < 0.5:
        probes.append(("t1", Habits("transactions", indefinite=rng.choice([0.0, 0.0, 0.05]))))
    if rng.random() < 0.5:
        probes.append(("r2", Habits("reader", period=rng.choice([SECOND // 2, 2 * SECOND]))))
    if rng.random() < 0.5:
        probes.extend((f"g{i}", Habits("group", group="g", start=i * 5 * SECOND)) for i in range(rng.choice([1, 2])))
    if rng.random() < 0.3:
        probes.append(("audit", Habits("audit", period=30 * SECOND, start=20 * SECOND)))
    for name, habits in probes:
        rng.choice(hosts).probes[name] = habits
        if name != "observer" and rng.random() < 0.25:
            habits.kills = (rng.randrange(10 * SECOND, length - 60 * SECOND),)
    return Plan(seed, length, hosts, partitions, events=_events(rng, length, partitions))


def _host(rng: random.Random, number: int, length: int) -> HostPlan:
    host = HostPlan(f"h{number}", {})
    if number and rng.random() < 0.5:
        host.skew = rng.choice([-1, 1]) * rng.choice([SECOND // 10, SECOND, 5 * SECOND])
        host.drift = rng.choice([0, 20, -100])
    if rng.random() < 0.3:
        start = rng.randrange(20 * SECOND, length - 60 * SECOND)
        host.away.append(
            Away(start, start + rng.choice([3, 13, 40]) * SECOND, rng.choice([1, 2, 4]), killed=rng.random() < 0.3)
        )
    if rng.random() < 0.15:
        host.reboots.append(Reboot(rng.randrange(20 * SECOND, length - 60 * SECOND), 10 * SECOND))
    return host


def _events(rng: random.Random, length: int, partitions: int) -> list[Event]:
    at, p = rng.randrange(10 * SECOND, length - 45 * SECOND), rng.randrange(partitions)
    kind = rng.choice(["", "", "lose", "lose", "duplicate", "expose", "tear"])
    if kind == "lose":
        return [faults.lose(at, p, rng.choice([1, 1, 4]))]
    if kind == "duplicate":
        return [faults.duplicate(at, p)]
    if kind == "expose":
        return [faults.expose(at)]
    if kind == "tear":
        return [faults.tear(at, p)]
    return []
