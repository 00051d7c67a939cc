"""A register's histories, and a checker for them that tries every order: slow, and plain enough to be believed.

An operation takes effect at one point between its invocation and its end. Those of unknown outcome have no end, and may
be left out. `linearizable` searches for an order as Wing and Gong did: repeatedly pick an operation that no other one
must precede, and whose effect fits the register's present id.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rules.registers.linearizability import NEVER, Op


def linearizable(ops: Sequence[Op], initial: int = 0) -> bool:
    """Is there an order? Exponential, with what was tried before remembered."""
    certain = [op for op in ops if counts(op)]
    wanted = frozenset(i for i, op in enumerate(certain) if op.type != "info")
    dead: set[tuple[frozenset[int], int]] = set()

    def search(left: frozenset[int], value: int) -> bool:
        if not left & wanted:
            return True
        if (left, value) in dead:
            return False
        soonest = min(certain[i].end for i in left)
        for i in left:
            if certain[i].start <= soonest:
                after = effect(certain[i], value)
                if after is not None and search(left - {i}, after):
                    return True
        dead.add((left, value))
        return False

    return search(frozenset(range(len(certain))), initial)


def counts(op: Op) -> bool:
    """Does it say anything about the order?"""
    if op.action == "read":
        return op.type == "ok" and op.observed is not None
    return op.type != "fail" or (op.action == "cas" and op.observed is not None)


def effect(op: Op, value: int) -> int | None:
    """The register's id after the operation, None where it cannot have happened now."""
    if op.action == "write":
        return op.id
    if op.action == "cas" and op.type != "fail":
        return op.id if value == op.expected else None
    fits = value == op.observed and (op.action == "read" or value != op.expected)
    return value if fits else None


def history(seed: int, *, clients: int, length: int, writes: float, wild: float) -> list[Op]:
    """Some clients work on one register that keeps its promise, each operation taking effect somewhere inside its
    interval, `writes` of those that write being unconditional; then each operation is changed with probability `wild`:
    an id it read, its outcome, its times."""
    rng = random.Random(seed)
    spans = []
    for client in range(clients):
        time = rng.randint(0, 4)
        for number in range(length):
            start = time + rng.randint(1, 4)
            end = start + rng.randint(1, 9)
            spans.append((rng.uniform(start, end), start, end, client, number))
            time = end
            if rng.random() < 0.2:  # its outcome will be unknown, and the effect may come late
                spans[-1] = (rng.uniform(start, end + 30), start, NEVER, client, number)
    value, ids, made = 0, [0], []
    for fresh, (_, start, end, client, number) in enumerate(sorted(spans), start=1):
        unknown = end == NEVER
        kind = "read" if rng.random() < 0.4 else "write" if rng.random() < writes else "cas"
        expected = observed = None
        type = "info" if unknown else "ok"
        happens = not unknown or rng.random() < 0.6
        if kind == "cas":
            expected = value if rng.random() < 0.7 else rng.choice(ids)
            if expected != value:
                happens = False
                if not unknown:
                    type, observed = "fail", value
        elif kind == "read":
            observed = None if unknown else value
            happens = False
        elif not unknown and rng.random() < 0.1:
            type, happens = "fail", False
        made.append(op(client, number, start, end, kind, type, None if kind == "read" else fresh, expected, observed))
        if kind != "read":
            ids.append(fresh)
        if happens:
            value = fresh
    return sorted(_spoil(one, ids, rng) if rng.random() < wild else one for one in made)


def _spoil(one: Op, ids: Sequence[int], rng: random.Random) -> Op:
    what = rng.randrange(4)
    if what == 0 and one.observed is not None:
        return one._replace(observed=rng.choice([*ids, 999]))
    if what == 1 and one.action == "cas" and one.type != "fail":
        return one._replace(expected=rng.choice(ids))
    if what == 2 and one.type == "ok" and one.action != "read":
        return one._replace(type="fail")
    if one.end < NEVER:
        length = one.end - one.start
        start = max(0, one.start + rng.randint(-6, 6))
        return one._replace(at=start, start=start, done=start + length, end=start + length)
    return one


class Steady:
    """Clients that work on one register as they can: operations overlap, one in a hundred is of unknown outcome."""

    def __init__(self, clients: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.free, self.numbers = [0] * clients, [0] * clients
        self.point = self.value = self.fresh = 0

    def more(self, count: int) -> list[Op]:
        return sorted((self.one() for _ in range(count)), key=lambda one: one[:4])

    def one(self) -> Op:
        rng = self.rng
        client = rng.randrange(len(self.free))
        start = self.free[client] + rng.randint(1, 3)
        self.point = max(start, self.point)
        end = self.free[client] = self.point + rng.randint(1, 3)
        number = self.numbers[client] = self.numbers[client] + 1
        self.fresh += 1
        roll = rng.random()
        if roll < 0.5:
            return op(client, number, start, end, "read", observed=self.value)
        if roll < 0.6:
            return op(client, number, start, end, "cas", "fail", self.fresh, self.fresh - 50, self.value)
        before, self.value = self.value, self.fresh if roll > 0.61 else self.value
        if roll < 0.62:  # unknown; every other one happened
            return op(client, number, start, NEVER, "cas", "info", self.fresh, before)
        if roll < 0.65:
            return op(client, number, start, end, "write", id=self.fresh)
        return op(client, number, start, end, "cas", id=self.fresh, expected=before)


def op(
    process: int,
    number: int,
    start: int,
    end: int,
    action: str,
    type: str = "ok",
    id: int | None = None,
    expected: int | None = None,
    observed: int | None = None,
    boot: str = "b",
) -> Op:
    """An operation whose log time is that of its clock."""
    done = start + 1 if end == NEVER else end
    return Op(start, done, process, number, boot, start, end, action, type, id, expected, observed)
