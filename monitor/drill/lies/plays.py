"""What happens in most drills with the proxy: one lie, told from the moment when everything works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.groups import ForcedRebalance
from monitor.drill.proxy import Lie, When, Where
from probes.running.supervisor import Spec

REJOINED_S: Final = 4.0
"""Members that have joined anew go on under the lie for so long."""


class OneLie(Play):
    """One lie, told from the moment when everything works, or before anything does (`at_once`).

    `after`: seconds of ordinary work that come first. `acts`: how often it has to be told before findings are waited
    for. `ends`: it is told until what must be found is found; else to the end, as a bug would be."""

    def __init__(
        self,
        lie: Lie,
        *,
        actors: Sequence[Spec] = (),
        at_once: bool = False,
        after: float = 0.0,
        acts: int = 1,
        ends: bool = False,
    ) -> None:
        self.lie = lie
        self._actors, self._after, self._acts, self._ends = actors, after, acts, ends
        if not at_once:
            lie.disarm()

    def lies(self) -> Sequence[Lie]:
        return [self.lie]

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return self._actors

    def act(self, stage: Stage) -> None:
        stage.pause(self._after)
        self.lie.arm()
        times = "" if self._acts == 1 else f" {self._acts} times"
        stage.wait(lambda: len(self.lie.acts) >= self._acts, 30, f"that something called for the lie{times}")

    def undo(self, stage: Stage) -> None:
        if self._ends:
            self.lie.disarm()


class LieThenRebalance(Play):
    """A lie about a group, and when it has been told `acts` times the group's members are made to join anew.

    `rejoins`: how often they are. `after`: seconds of ordinary work that come first."""

    def __init__(self, lie: Lie, members: Where, *, acts: int, rejoins: int = 1, after: float = 0.0) -> None:
        self._lie, self._acts, self._after = lie, acts, after
        self._rejoin = ForcedRebalance(members, When(times=rejoins), armed=False)
        lie.disarm()

    def lies(self) -> Sequence[Lie]:
        return [self._lie, self._rejoin]

    def act(self, stage: Stage) -> None:
        stage.pause(self._after)
        self._lie.arm()
        stage.wait(lambda: len(self._lie.acts) >= self._acts, 30, f"that the lie was told {self._acts} times")
        self._rejoin.arm()
        stage.wait(lambda: self._rejoin.acts, 30, "that a member joined anew")
        stage.pause(REJOINED_S)

    def undo(self, stage: Stage) -> None:
        self._lie.disarm()
        self._rejoin.disarm()
