"""What a committer has read of its journals since the last append: of one turn, or of several where it waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.log.commits.append_plan import Part
from probes.log.commits.confirmations import Moment
from probes.log.commits.planning import Group
from probes.log.journals.reader import LifeReader


@dataclass(frozen=True, slots=True)
class Reading:
    """`now`, in microseconds of log time, and `mono`, in monotonic nanoseconds, are when the journals were looked at
    last. `parts` says how far each was read since the last append, `groups` which rows that brought. `readers`: the
    lives of the last turn; `unread`: those that were not read whole."""

    now: int
    mono: int
    parts: dict[str, Part]
    readers: Sequence[LifeReader]
    groups: Sequence[Group]
    unread: Sequence[LifeReader]
    confirmed: Mapping[str, Moment] = field(default_factory=dict)
    """When the cluster told that a topic, by its id, is still there, since the last append."""
    fresh: Sequence[Group] = ()
    """Of `groups`, those of the last turn."""

    @property
    def size(self) -> int:
        """Bytes of journals."""
        return sum(part.end - part.start for part in self.parts.values())

    def before_next(self, appended: Mapping[str, Part]) -> dict[str, Part]:
        """Where the next turn begins to read each life, by the parts of the last append. A life that was over at an
        earlier turn is vouched for until the append: it is over as of the turn that is appended."""
        ends = {name: appended[name].until if name in appended else None for name in self.parts}
        return {name: Part(part.end, part.end, ends[name]) for name, part in self.parts.items()}

    def followed_by(self, later: Reading) -> Reading:
        """Both as one: `later` was read from where this one ends."""
        begun = {name: part.start for name, part in self.parts.items()}
        parts = {name: replace(part, start=begun.get(name, part.start)) for name, part in later.parts.items()}
        return replace(
            later,
            parts=parts,
            groups=[*self.groups, *later.groups],
            confirmed=self.confirmed,
        )
