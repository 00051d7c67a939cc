"""Every anomaly once: its name, what kind of statement it is, when it is decided, and what it means in one sentence.

The names are those of Jepsen's Kafka workload where it has one, and the field's usual terms elsewhere. Documentation,
metrics and dashboards are generated from this table; a rule may only report what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["violation", "condition", "classified"]
Decided = Literal["at once", "on settlement", "on resolution", "while it lasts"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`decided`: `at once` (seen, hence proven), `on settlement` (absence, or an index that a later row could change),
    `on resolution` (another partition decides), `while it lasts` (conditions)."""

    name: str
    kind: Kind
    decided: Decided
    meaning: str
    evidence: str


_ENTRIES: Final = (
    Anomaly(
        "duplicate", "violation", "at once",
        "One value stands at two or more offsets of a partition.",
        "the value, both offsets, who saw or acknowledged it there",
    ),
    Anomaly(
        "inconsistent-offsets", "violation", "at once",
        "One offset has two or more values, in any polls or acknowledgements, at any time.",
        "the offset and the values",
    ),
    Anomaly(
        "G1a", "violation", "at once",
        "An ok poll at read_committed returned a value whose write certainly failed or whose transaction aborted.",
        "the value, its offset, the reader, the failed operation",
    ),
    Anomaly(
        "precommitted-read", "violation", "at once",
        "An operation polled a value that it sends itself.",
        "the value, its offset, the operation",
    ),
    Anomaly(
        "lost-write", "violation", "on settlement",
        "A visible write lies below what readers have polled, and no ok operation polled it.",
        "the value, its acknowledged offset, how far the readers had read",
    ),
    Anomaly(
        "poll-skip", "violation", "on settlement",
        "A process's next poll of a partition begins more than one index after where its last one ended.",
        "the process, both offsets, the values between",
    ),
    Anomaly(
        "nonmonotonic-poll", "violation", "on settlement",
        "A process's next poll of a partition begins at the same or a lower index than its last one ended.",
        "the process, both offsets",
    ),
    Anomaly(
        "int-poll-skip", "violation", "on settlement",
        "Inside one operation, two consecutive polled values of a partition are more than one index apart.",
        "the process, the operation, both offsets, the values between",
    ),
    Anomaly(
        "int-nonmonotonic-poll", "violation", "on settlement",
        "Inside one operation, the index of the next polled value is the same or lower.",
        "the process, the operation, both offsets",
    ),
    Anomaly(
        "int-send-skip", "violation", "on settlement",
        "Inside one operation, two consecutive sends to a partition are more than one index apart.",
        "the process, the operation, both offsets",
    ),
    Anomaly(
        "int-nonmonotonic-send", "violation", "on settlement",
        "Inside one operation, the next send's index is the same or lower.",
        "the process, the operation, both offsets",
    ),
    Anomaly(
        "nonmonotonic-send", "violation", "on settlement",
        "A process's next operation that sends to a partition has an index at or before its last.",
        "the process, both operations and offsets",
    ),
    Anomaly(
        "relocated-write", "violation", "at once",
        "A value was polled in a topic or partition other than the one it was sent to.",
        "the value, where it was meant to be, where it was",
    ),
    Anomaly(
        "corrupted-record", "violation", "at once",
        "The checksum or the form of a record's tag is broken.",
        "the offset and the hash of the bytes",
    ),
    Anomaly(
        "spurious-zero-offset", "violation", "at once",
        "An acknowledgement, position, committed offset or poll is 0 while a higher offset was known before.",
        "the operation and the offset known before it",
    ),
    Anomaly(
        "unseen", "condition", "while it lasts",
        "Acknowledged values have not been polled within the delivery objective, although readers are assigned.",
        "how many, the oldest, its age",
    ),
    Anomaly(
        "suspected", "condition", "while it lasts",
        "Something is missing, and the evidence is not complete yet.",
        "what is missing and whose log is awaited",
    ),
    Anomaly(
        "unverifiable", "condition", "while it lasts",
        "A process's log never completed: what depends on it stays open, and no violation follows.",
        "the process and the last slice known",
    ),
    Anomaly(
        "window-overflow", "condition", "while it lasts",
        "The open window of a partition reached its cap, and its oldest part was settled before its time.",
        "the window's extent",
    ),
    Anomaly(
        "evidence-stalled", "condition", "while it lasts",
        "The probe log has had no row for the liveness objective.",
        "the time of the last row",
    ),
    Anomaly(
        "check-failed", "condition", "while it lasts",
        "A rule raised an error: the partition's verdict is unknown.",
        "the error",
    ),
    Anomaly(
        "foreign-record", "classified", "at once",
        "A well-formed record of a run that this log does not know: two canaries may share a topic.",
        "the offset and the run",
    ),
)  # fmt: skip

CATALOGUE: Final[dict[str, Anomaly]] = {a.name: a for a in _ENTRIES}
