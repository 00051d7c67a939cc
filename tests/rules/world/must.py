"""What must be found in a world: one violation, and by when."""

from __future__ import annotations

from dataclasses import dataclass

from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives
from tests.rules.world.cluster import Value
from tests.rules.world.engine import Checker, values_of
from tests.rules.world.kernel import SECOND

GRACE = Objectives().grace
MEASURED = SECOND // 2
"""By the clock of another host nobody can tell what was so shortly before something else."""
GIVEN_UP = 600 * SECOND
"""So long a row is waited for that others of its process came after."""


@dataclass(slots=True)
class Must:
    """A violation (or one of several, `a|b`) that has to be raised by the true time `by`.

    An `optional` one may be raised: whether it is may depend on what evidence was lost."""

    anomaly: str
    partition: int
    value: Value | None
    by: int | None
    optional: bool
    why: str
    txn: int | None = None
    reader: int | None = None
    offset: int | None = None
    any_of: frozenset[Value] = frozenset()
    topic_id: str = "t1"
    over: int | None = None
    """The offset that a reader skipped: a late one's skip is named by its offsets, where its values are not kept."""
    prompt: bool = False
    """Needs what is forgotten below the settled frontier: not asked for where rows come minutes late."""

    def __str__(self) -> str:
        what = self.value if self.value is not None else self.txn if self.txn is not None else self.offset
        return f"{self.anomaly} p{self.partition} {what} by {(self.by or 0) // SECOND}s ({self.why})"

    def rechecked(self, checker: Checker) -> list[int]:
        """The steps that asked for a comparison of what readers saw there: what it then says is not the engine's."""
        if self.offset is None:
            return []
        return [
            step
            for step, topic_id, p, start, end in checker.rechecks
            if (topic_id, p) == (self.topic_id, self.partition) and start <= self.offset < end
        ]

    def met_by(self, f: Finding) -> bool:
        if f.topic_id not in (self.topic_id, "") or f.anomaly not in self.anomaly.split("|"):
            return False
        if f.partition != self.partition and self.txn is None:
            return False
        if self.reader is not None and self.reader not in f.subject:
            return False
        if f.anomaly == "inconsistent-offsets":
            return self.offset in f.subject
        if self.any_of:
            return bool(self.any_of & values_of(f))
        if self.txn is not None:
            return self.txn in f.subject or self.txn in f.evidence.values()
        if self.over is not None and f.evidence["previous_offset"] < self.over < f.evidence["offset"]:
            return True
        return self.value is None or self.value in values_of(f)
