"""Readers: by assignment, at either isolation level; members of a group; audits that read everything again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.rules.model.clients import Client, assigned_to
from tests.rules.model.cluster import Seen, told
from tests.rules.model.journal import Where

if TYPE_CHECKING:
    from tests.rules.model.world import World

ALL = 1_000_000
LIMITS = (2, 10, 500, ALL)


class Reader(Client):
    """Polls partitions that it took by assign, goes on where it was, and now and then gives one up."""

    kind = "reader"
    mode = "assign"
    group: str | None = None

    def __init__(self, world: World, name: str, host: str, *, isolation: str = "read_committed") -> None:
        self.isolation = isolation
        self.position: dict[Where, int] = {}
        self.polled_at = 0.0
        super().__init__(world, name, host)

    def settings(self) -> dict[str, str]:
        return {"isolation.level": self.isolation, "mode": self.mode}

    def open(self) -> None:
        super().open()
        self.hold({where: self.position.get(where, 0) for where in self.world.places})

    def hold(self, position: dict[Where, int]) -> None:
        """Take these partitions, and begin there."""
        parts = assigned_to(set(position), self.world.places)
        self.write("assign", parts, mode=self.mode, isolation=self.isolation)
        self.position = dict(position)

    def poll(self, limit: int = ALL, *, type: str = "ok", places: list[Where] | None = None, **more: Any) -> int | None:
        """One poll; returns the operation's number, None where nothing was there."""
        seen: dict[Where, tuple[list[Seen], int]] = {}
        for where in places or sorted(self.position):
            found = self.world.fetch(
                self.process.name, where, self.position[where], limit, committed=self.isolation == "read_committed"
            )
            if found[0]:
                seen[where] = found
        self.polled_at = self.world.journal.time
        return self.tell(seen, type=type, **more) if seen else None

    def tell(self, seen: dict[Where, tuple[list[Seen], int]], *, type: str = "ok", **more: Any) -> int:
        """Write a poll's rows, and stand where it ended if it is ok."""
        parts: dict[Where, dict[str, Any]] = {}
        for where, (records, after) in seen.items():
            polled, odd = told(records, where)
            parts[where] = {
                "polled": polled,
                "irregular": odd,
                "position_before": self.position[where],
                "position_after": after,
            }
            if type == "ok":
                self.position[where] = after
        return self.write("poll", parts, type=type, mode=self.mode, isolation=self.isolation, **more)

    def stand(self) -> None:
        """Say where it stands."""
        parts = {where: {"position_before": at, "position_after": at} for where, at in self.position.items() if at}
        if parts:
            self.write("position", parts, mode=self.mode, isolation=self.isolation, assigned=True)

    def turn(self, dice: Random) -> None:
        if self.busy:
            return
        roll = dice.random()
        if roll < 0.03:
            keep = self.position if dice.random() < 0.5 else {}
            self.position = dict(keep)
            self.restart(killed=dice.random() < 0.5)
        elif roll < 0.06:
            self._let_go(dice)
        elif roll < 0.12:
            self.stand()
        elif roll < 0.18:
            self.poll(dice.choice(LIMITS), type="info", error="_TRANSPORT", **self.span(dice))
        else:
            self.poll(dice.choice(LIMITS), **self.span(dice))

    def _let_go(self, dice: Random) -> None:
        """Give one partition up, and take it again from somewhere below."""
        where = dice.choice(sorted(self.position))
        rest = {w: at for w, at in self.position.items() if w != where}
        back = dice.randint(0, self.position[where])
        self.hold(rest)
        self.hold(rest | {where: back})

    def rest(self, dice: Random) -> None:
        if not self.busy:
            self.poll()


class Audit(Reader):
    """Each turn is a life: reads everything from the log's start, and closes."""

    kind = "audit"

    def open(self) -> None:
        """Nothing is open between two audits."""

    def turn(self, dice: Random) -> None:
        self.position = {}
        Client.open(self)
        self.hold({where: self.world.cluster.partitions[where].start for where in self.world.places})
        size = dice.choice((100, 700, ALL))
        while self.poll(size, **self.span(dice)) is not None:
            self.world.journal.time = max(self.world.journal.time, self.process.free) + 0.001
        self.close()
        self.process = self._born()

    def rest(self, dice: Random) -> None:
        """Its work is done by turns."""


class Member(Reader):
    """One member of the group: reads what the group gives it, and commits."""

    kind = "group-reader"
    mode = "subscribe"

    def __init__(self, world: World, name: str, host: str, group: Group) -> None:
        self.group_of = group
        super().__init__(world, name, host)

    def settings(self) -> dict[str, str]:
        return super().settings() | {"group.id": self.group_of.name}

    def open(self) -> None:
        self.position = {}
        Client.open(self)
        self.write("subscribe", {}, mode=self.mode)

    def gain(self, where: Where) -> None:
        parts = {where: {"assigned": True}}
        self.write("assign", parts, mode=self.mode, isolation=self.isolation, group=self.group_of.name)
        self.position[where] = self.group_of.committed.get(where, 0)

    def lose(self, where: Where) -> None:
        parts = {where: {"assigned": False}}
        self.write("revoke", parts, mode=self.mode, isolation=self.isolation, group=self.group_of.name)
        del self.position[where]

    def turn(self, dice: Random) -> None:
        if self.busy or not self.position:
            return
        roll = dice.random()
        if roll < 0.03:
            self.group_of.leave(self)
            self.restart(killed=dice.random() < 0.5)
        elif roll < 0.3:
            self._commit(dice)
        elif roll < 0.36:
            self._poll_through_a_rebalance(dice)
        else:
            self.poll(dice.choice(LIMITS), **self.span(dice))

    def _commit(self, dice: Random) -> None:
        parts = {where: {"committed": at} for where, at in self.position.items() if at}
        unsure = dice.random() < 0.15
        if not unsure or dice.random() < 0.5:
            self.group_of.committed |= {where: part["committed"] for where, part in parts.items()}
        if parts:
            how = {"type": "info", "error": "_TIMED_OUT"} if unsure else {}
            self.write("commit", parts, group=self.group_of.name, **how)

    def _poll_through_a_rebalance(self, dice: Random) -> None:
        """A rebalance falls into the poll: it goes on from the committed offset, in the same operation."""
        where = dice.choice(sorted(self.position))
        name = self.process.name
        first, _ = self.world.fetch(name, where, self.position[where], 3)
        self.lose(where)
        self.gain(where)
        again, after = self.world.fetch(name, where, self.position[where], 5)
        if again:
            self.tell({where: (first + again, after)}, rebalanced=True, **self.span(dice))


class Group:
    """Gives each of its partitions to one member, and keeps the committed offsets."""

    def __init__(self, name: str, places: tuple[Where, ...]) -> None:
        self.name, self.places = name, places
        self.members: list[Member] = []
        self.owner: dict[Where, Member] = {}
        self.committed: dict[Where, int] = {}

    def rebalance(self, dice: Random) -> None:
        """Every partition may change hands."""
        for where in self.places:
            old, new = self.owner.get(where), dice.choice(self.members)
            if old is new or new.busy or (old is not None and old.busy):
                continue
            if old is not None:
                old.lose(where)
            new.gain(where)
            self.owner[where] = new

    def leave(self, member: Member) -> None:
        """A member goes; the others take over what it had."""
        others = [m for m in self.members if m is not member]
        for where in [w for w, m in self.owner.items() if m is member]:
            del self.owner[where]
            member.position.pop(where, None)
            others[0].gain(where)
            self.owner[where] = others[0]
