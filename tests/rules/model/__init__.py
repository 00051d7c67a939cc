"""A small executable model of a Kafka cluster and its clients, which keeps every promise unless told to break one.

`World` takes turns; `Model` is a whole history made of a seed. The clients write the rows that real probes would.
"""

from __future__ import annotations

from tests.rules.model import misread, mistold, miswritten
from tests.rules.model.faults import FAULTS
from tests.rules.model.journal import Journal
from tests.rules.model.world import Turn, World, turns

__all__ = ["FAULTS", "Model", "Turn", "World", "misread", "mistold", "miswritten", "turns"]

SETTLE = 30
"""Seconds of log time after which all that was written has been read, and its grace time is over."""


class Model:
    """A healthy history of `rounds` turns, decided by a seed."""

    def __init__(self, seed: int, rounds: int = 60) -> None:
        self.world = World()
        self._turns = turns(seed, rounds)

    def run(self) -> Model:
        self.world.run(self._turns).settle(SETTLE)
        return self

    @property
    def history(self) -> Journal:
        return self.world.journal
