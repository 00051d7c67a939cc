"""Drills about what groups have committed: commits that are dropped, and offsets that nobody committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.stage import Stage
from monitor.drill.lies.drill import Lying
from monitor.drill.lies.groups import CommittedOffset, ForcedRebalance, SwallowCommits
from monitor.drill.proxy import Lie, When, Where

GROUP = Where(group="*-group")
MEMBER = Where(client_id="offsetwatch-reader-group-1")
ONE_MEMBER = {"reader": {"assign": 1, "group": 1}}
AHEAD = 15
NONE = -1
COMMITTED_FIRST_S = 3.0
"""What the group commits before the lie begins is kept."""


class DroppedCommit(Lying):
    """OffsetCommit is answered and not forwarded: the group is where it was, and nobody joins anew."""

    name = "dropped-commit"
    case = "without-rejoin"
    seen_in = "the field's checkers"
    must = (found("lost-commit"),)
    may = ORDER
    probes: ClassVar = ONE_MEMBER

    def make(self) -> Lie:
        return SwallowCommits(GROUP, armed=False)

    def act(self, stage: Stage) -> None:
        stage.pause(COMMITTED_FIRST_S)
        super().act(stage)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class DroppedCommitRejoin(Drill):
    """OffsetCommit is answered and not forwarded, then the member joins anew, and begins where it had begun before."""

    name = "dropped-commit"
    case = "with-rejoin"
    seen_in = "the field's checkers"
    must = (found("lost-commit"),)
    may = ORDER
    probes: ClassVar = ONE_MEMBER

    def __init__(self) -> None:
        self._dropped = SwallowCommits(GROUP, armed=False)
        self._again = ForcedRebalance(MEMBER, When(times=1), armed=False)

    def lies(self) -> Sequence[Lie]:
        return [self._dropped, self._again]

    def act(self, stage: Stage) -> None:
        stage.pause(COMMITTED_FIRST_S)
        self._dropped.arm()
        stage.wait(lambda: len(self._dropped.acts) >= 3, 30, "that the member committed")
        self._again.arm()
        stage.wait(lambda: self._again.acts, 30, "that the member joined anew")
        stage.pause(2.0)
        self._dropped.disarm()

    def undo(self, stage: Stage) -> None:
        self._dropped.disarm()
        self._again.disarm()


class ForeignCommit(Lying):
    """Committed offsets are told as 15 more than was ever committed, to the observer and to the member that joins."""

    name = "foreign-commit"
    seen_in = "the field's checkers"
    must = (found("foreign-commit"),)
    may = ORDER | {"lost-write"}
    probes: ClassVar = ONE_MEMBER

    def make(self) -> Lie:
        return CommittedOffset(lambda group, real: real + AHEAD, GROUP, armed=False)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()


class VanishedCommit(Lying):
    """Committed offsets are told as none, seconds after they were committed."""

    name = "vanished-commit"
    seen_in = "the field's checkers"
    must = (found("lost-commit"),)
    may = ORDER
    probes: ClassVar = ONE_MEMBER

    def make(self) -> Lie:
        return CommittedOffset(lambda group, real: NONE, GROUP, armed=False)

    def act(self, stage: Stage) -> None:
        stage.pause(COMMITTED_FIRST_S)
        super().act(stage)

    def undo(self, stage: Stage) -> None:
        self.lie.disarm()
