"""Published defects of Kafka and its clients that an endurance run may meet: found, kept, named, and never silenced.

A violation is excused only by naming the defect for it (`--excuse`), once its history has been traced to it by a
person; what an entry can explain at all is narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from monitor.drill.definition.graded import Graded
from monitor.errors import UserError
from monitor.incidents.published import LEADERLESS, without_marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A published defect. `explains`: could it have led to this finding?"""

    name: str
    what: str
    explains: Callable[[Graded], bool]


DEFECTS: Final = (
    Defect(
        name="librdkafka-4953",
        what="an idempotent librdkafka producer with several requests in flight duplicates on a leader change",
        explains=lambda found: (
            found.name.removeprefix("int-") in ("duplicate", "nonmonotonic-send", "nonmonotonic-poll")
            and found.finding.topic.endswith("-records")
        ),
    ),
    Defect(
        name="KAFKA-17754",
        what="with clients of transactions v1, a delayed end of a transaction ends the next one of the same producer",
        explains=lambda found: (
            found.name in ("G1a", "lost-write", "torn-transaction", "poll-skip", "int-poll-skip")
            and found.finding.topic.endswith(("-transactions", "-transform-out"))
        ),
    ),
    Defect(
        name=LEADERLESS,
        what="a transaction that ends while one of its partitions has no leader gets no marker there, and the next"
        " marker of the same producer decides over its records (Kafka 4.3.1)",
        explains=lambda found: (
            found.finding.topic.endswith(("-transactions", "-transform-out"))
            and (without_marker(found.name, found.finding.evidence) or found.name in ("poll-skip", "int-poll-skip"))
        ),
    ),
)


def named(names: list[str]) -> list[Defect]:
    """The defects of these names. Raises UserError for one that is not in the list."""
    known = {defect.name: defect for defect in DEFECTS}
    for name in names:
        if name not in known:
            raise UserError(f"--excuse: there is no published defect {name} in the list; known are {', '.join(known)}")
    return [known[name] for name in names]
