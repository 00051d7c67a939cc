"""A transform: reads one input partition as a group's only member, and writes one output for each input.

Outputs and the group's offset are one transaction. After an abort it goes back to the committed offset; after a commit
of unknown outcome its life is over. The output partition has the input's number.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from rules.vocabulary.slices import Run
from tests.rules.model.cluster import Transaction
from tests.rules.model.journal import Where
from tests.rules.model.writers import Transactor

if TYPE_CHECKING:
    from tests.rules.model.world import World


class Transform(Transactor):
    kind = "transform"
    mode = "subscribe"
    group = "transforms"

    def __init__(self, world: World, name: str, host: str, source: Where, target: Where) -> None:
        self.source, self.target = source, target
        self.committed = 0
        self.sources: list[Run] = []
        super().__init__(world, name, host, reads=(source,))

    def settings(self) -> dict[str, str]:
        return super().settings() | {"group.id": self.group}

    def hold(self) -> None:
        self.write(
            "assign", {self.source: {"assigned": True}}, mode=self.mode, group=self.group, isolation="read_committed"
        )
        self.position = {self.source: self.committed}

    def begin(self) -> Transaction:
        self.sources = []
        return super().begin()

    def reflect(self, limit: int) -> None:
        """Poll some inputs and write an output for each."""
        before = len(self.seen.get(self.source, []))
        self.poll(limit)
        new = [s for s in self.seen.get(self.source, [])[before:] if s.record.home == self.source]
        if new:
            self.add(self.target, len(new))
        for offset, record in new:
            last = self.sources[-1] if self.sources else Run(0, 0, 0, 0)
            assert last.offset is not None
            goes_on = (last.writer, last.seq + last.length, last.offset + last.length)
            if goes_on == (record.writer, record.seq, offset):
                self.sources[-1] = last._replace(length=last.length + 1)
            else:
                self.sources.append(Run(record.writer, record.seq, offset, 1))

    def also(self, where: Where) -> dict[str, Any]:
        if where == self.target:
            return {"sources": self.sources, "group": self.group}
        return {"committed": self.reached.get(where), "group": self.group}

    def finish(self, *, intent: str = "commit", takes_effect: bool = True, type: str = "ok", **more: Any) -> None:
        if intent == "commit" and takes_effect:
            self.committed = self.reached.get(self.source, self.committed)
        super().finish(intent=intent, takes_effect=takes_effect, type=type, **more)
        if type == "info":
            self.world.journal.time = max(self.world.journal.time, self.process.free)
            self.restart()

    def killed(self, *, committing: bool = False, takes_effect: bool = False) -> None:
        if committing and takes_effect:
            self.committed = self.reached.get(self.source, self.committed)
        super().killed(committing=committing, takes_effect=takes_effect)

    def turn(self, dice: Random) -> None:
        if self.busy:
            return
        if self.transaction is None:
            self.begin()
            self.reflect(dice.choice((1, 4, 20)))
            if not self.seen:
                self.world.cluster.end(self.transaction, commit=False)  # type: ignore[arg-type]
                self.transaction = self.process.pending = None
        elif dice.random() < 0.3:
            self.reflect(dice.choice((1, 4)))
        else:
            self.end(dice)

    def rest(self, dice: Random) -> None:
        if self.busy:
            return
        if self.transaction is None:
            self.begin()
            self.reflect(1_000_000)
        if self.seen:
            self.finish()
        else:
            self.world.cluster.end(self.transaction, commit=False)  # type: ignore[arg-type]
            self.transaction = self.process.pending = None
