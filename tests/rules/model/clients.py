"""What every client of the model has: lives, each a process with a start row and, unless it is killed, a close row."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.rules.model.journal import Process, Where

if TYPE_CHECKING:
    from tests.rules.model.world import World

LAGS = (0.001, 0.001, 0.02, 0.4)
"""Seconds that a request or an answer may be under way."""


class Client:
    """One client that is opened again whenever it ends. A `turn` is one step of what it does all day."""

    kind = "client"

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world, self.name, self.host = world, name, host
        self.lives = 0
        self.down = False
        self.process: Process = self._born()

    def _born(self) -> Process:
        process = self.world.journal.born(f"{self.name}.{self.lives}", self.host)
        self.lives += 1
        return process

    def settings(self) -> dict[str, str]:
        return {}

    def open(self) -> None:
        """Write the start row, and whatever else a life begins with."""
        self.world.journal.write(self.process, "start", kind=self.kind, settings={"name": self.name} | self.settings())

    def close(self, *, killed: bool = False) -> None:
        error: dict[str, Any] = {"type": "info", "error": "process-died"} if killed else {}
        self.world.journal.write(self.process, "close", **error)
        self.process.pending = None
        self.process.closed = self.world.journal.time

    def restart(self, *, killed: bool = False) -> None:
        """The life ends, and the next one begins."""
        self.close(killed=killed)
        self.process = self._born()
        self.open()

    @property
    def busy(self) -> bool:
        """Is an answer to its last call still under way, or the process down?"""
        return self.down or self.process.free > self.world.journal.time

    def span(self, dice: Random) -> dict[str, Any]:
        """When a call that takes effect now was invoked, and when it returns."""
        now = self.world.journal.time
        return {"invoked": max(self.process.free, now - dice.choice(LAGS)), "completed": now + dice.choice(LAGS)}

    def turn(self, dice: Random) -> None:
        raise NotImplementedError

    def rest(self, dice: Random) -> None:
        """A turn without trouble: finish what is under way, read what is there."""
        self.turn(dice)

    def write(self, f: Any, parts: Any = None, **more: Any) -> int:
        return self.world.journal.write(self.process, f, parts, **more)


def assigned_to(places: set[Where], all_places: tuple[Where, ...], **more: Any) -> dict[Where, dict[str, Any]]:
    """The parts of an assign row: every partition is told whether it is in the assignment."""
    return {where: {"assigned": where in places, **more} for where in all_places}
