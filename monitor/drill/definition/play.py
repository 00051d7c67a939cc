"""What happens in a drill: the lies of its proxy, probes that only it has, what is done, and how it is undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor.drill.definition.stage import Stage
from probes.running.supervisor import Spec


class Play:
    """What happens in one run; made anew for each, so that it may keep what it did. This one does nothing."""

    def lies(self) -> Sequence[Any]:
        """The lies of the proxy; without any the clients talk to the brokers themselves."""
        return ()

    def may_be_idle(self, lie: Any) -> bool:
        """Is anything proven although nothing called for this lie?"""
        return False

    def prepare(self, stage: Stage) -> None:
        """What has to be there before the probes begin."""

    def actors(self, stage: Stage) -> Sequence[Spec]:
        """Probes beside those of the configuration; see `monitor.drill.actors.actors`."""
        return ()

    def act(self, stage: Stage) -> None:
        """Make it happen; the probes are at work. Returns when there is nothing more to do.

        Raises DrillFailed where it does not happen: then nothing is proven."""

    def undo(self, stage: Stage) -> None:
        """End what `act` began, so that conditions can close. Called whenever `act` was, however that ended."""

    def end(self) -> None:
        """End what `prepare` began. Called when the probes have ended, whatever happened."""


class Watched(Play):
    """Nothing is done but to watch for some seconds what probes do, and `actors` among them."""

    def __init__(self, says: str, seconds: float = 0.0, actors: Sequence[Spec] = ()) -> None:
        self._says, self._seconds, self._actors = says, seconds, actors

    def actors(self, stage: Stage) -> Sequence[Spec]:
        return self._actors

    def act(self, stage: Stage) -> None:
        stage.act(self._says)
        stage.pause(self._seconds)
