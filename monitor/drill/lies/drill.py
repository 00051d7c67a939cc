"""The form of most drills with the proxy: one lie, told from the moment when everything works."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.stage import Stage
from monitor.drill.proxy import Lie


class Lying(Drill):
    """A drill that is one lie, told from the moment when everything works."""

    def __init__(self) -> None:
        self.lie = self.make()

    def make(self) -> Lie:
        """The lie, not armed."""
        raise NotImplementedError

    def lies(self) -> Sequence[Lie]:
        return [self.lie]

    def act(self, stage: Stage) -> None:
        self.lie.arm()
        stage.wait(lambda: self.lie.acts, 30, "that something called for the lie")
