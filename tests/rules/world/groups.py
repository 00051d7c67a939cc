"""Group readers (subscribe): a coordinator hands out partitions, members poll and commit what they polled."""

from __future__ import annotations

from typing import Any

from tests.rules.world.cluster import Group
from tests.rules.world.kernel import SECOND, Sleep
from tests.rules.world.life import Life
from tests.rules.world.probes import Probe, poll

SESSION = 10 * SECOND
"""How long a member that was killed keeps its partitions."""


class GroupReader(Probe):
    """A member of the group `habits.group`."""

    mode = "subscribe"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.expelled: set[int] = set()

    def freeze(self, end: int) -> None:
        """A member that is not heard of for its session loses its partitions, and learns of it when it goes on."""
        if self.life is not None and end - self.now > SESSION:
            process, group = self.life.process, self.group
            self.world.kernel.at(self.now + SESSION, lambda: self._expel(process, group))

    def _expel(self, process: int, group: Group) -> None:
        self.expelled.add(process)
        group.leave(process)

    @property
    def group(self) -> Group:
        assert self.habits.group is not None
        return self.cluster.groups.setdefault(self.habits.group, Group(len(self.cluster.partitions)))

    def leave(self) -> None:
        if self.life is not None:
            process, group = self.life.process, self.group
            self.world.kernel.at(self.now + SESSION, lambda: group.leave(process))
        super().leave()

    def close(self, life: Life) -> Sleep:
        yield from super().close(life)
        self.group.leave(life.process)

    def do(self, life: Life) -> Sleep:
        cluster, group, name = self.cluster, self.group, self.habits.group
        assert name is not None
        group.members[life.process] = set()
        held = group.members[life.process]
        positions: dict[int, int] = {}
        known, turn = False, 0
        while True:
            if life.process in self.expelled:
                yield from self._thrown_out(life, held)
                return
            given = group.given(life.process)
            changed = given != held or not known
            if changed:
                gone = held - given
                if gone:
                    op = life.invoke("revoke", sorted(gone), mode="subscribe", group=name)
                    yield self.latency()
                    held -= gone
                    life.complete(op, assigned=False)
                op = life.invoke("subscribe", range(life.partitions), mode="subscribe", group=name)
                held |= given
                yield self.latency()
                life.complete(op, "ok", {p: {"assigned": p in held} for p in range(life.partitions)})
                positions = {p: positions.get(p, cluster.committed.get((name, p), 0)) for p in sorted(held)}
                known = True
            if positions:
                flag: dict[str, Any] = {"rebalanced": True} if changed else {}
                before = dict(positions)
                yield from poll(self, life, positions, mode="subscribe", group=name, **flag)
                moved = [p for p in positions if positions[p] != before[p]]
                if moved:
                    op = life.invoke("commit", moved, group=name)
                    op.results = {p: {"committed": positions[p]} for p in moved}
                    there, back = self.request()
                    yield there
                    if life.process in self.expelled:
                        life.complete(op, "fail", op.results, error="UNKNOWN_MEMBER_ID")
                        continue
                    for p in moved:
                        cluster.commit(name, p, positions[p])
                    yield back
                    life.complete(op, "ok", op.results)
                    turn += 1
                    if turn % 4 == 0:
                        yield from self._ask(life, moved)
            yield self.rest()

    def _thrown_out(self, life: Life, held: set[int]) -> Sleep:
        """It gives back what it holds no longer, and another life begins."""
        if held:
            op = life.invoke("revoke", sorted(held), mode="subscribe", group=self.habits.group)
            yield self.latency()
            life.complete(op, assigned=False)
        self.restarting = True

    def _ask(self, life: Life, partitions: list[int]) -> Sleep:
        """What the group has committed, as its member is told."""
        name = self.habits.group
        assert name is not None
        op = life.invoke("offsets", partitions, group=name)
        there, back = self.request()
        yield there
        told = {p: {"committed": self.cluster.read_committed_offset(name, p)} for p in partitions}
        yield back
        life.complete(op, "ok", told)
