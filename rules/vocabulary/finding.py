"""What a rule says: a finding, with its place, its evidence and an identity that replays and restarts keep.

Violations are *raised* once and stand for ever. Conditions *open* and *close*. Classified observations are raised like
violations but judge nothing. A finding's `id` is a hash of anomaly, place and subject, so that the same history gives
the same ids however it was cut into batches; an event's identity is (id, event, at).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import pyarrow as pa

from rules.vocabulary.policy import Severity
from rules.vocabulary.row_columns import Int32, columns
from rules.vocabulary.times import from_micros

Event = Literal["raised", "opened", "closed"]
JsonObject = Annotated[Mapping[str, Any], pa.string()]
"""An object, which a table keeps as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One event in the life of a finding.

    One that is about no partition has none, and the topic's id is "" then. `subject` names what was hit, so that it is
    unique within anomaly and place (for a duplicate: writer and seq).
    `evidence` is what a person needs to believe it, JSON values only. `context` is what the policy may need to
    judge it. `at` and `decidable` are log time in microseconds since the epoch: when the rule spoke, and when the
    evidence was first enough to (the grace of rules from absence has passed by then)."""

    anomaly: str
    cluster: str
    topic_id: str = ""
    topic: str = ""
    partition: int = -1
    subject: tuple[int | str, ...] = ()
    event: Event = "raised"
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)
    at: int
    decidable: int
    implied_by: str | None = None

    @property
    def id(self) -> str:
        """16 hex digits. The same for every event of one finding."""
        return identity(self.anomaly, self.cluster, self.topic_id, self.partition, self.subject)


def identity(anomaly: str, cluster: str, topic_id: str, partition: int, subject: Sequence[int | str]) -> str:
    """The id of the finding of this anomaly, at this place, about this subject."""
    named = [anomaly, cluster, topic_id, partition, *subject]
    return hashlib.blake2b(json.dumps(named).encode(), digest_size=8).hexdigest()


FactKind = Literal[
    "visible",
    "absent",
    "guarded",
    "awaited",
    "input",
    "reflected",
    "doubtful",
    "dropped",
    "begun",
    "gone",
    "hole",
    "horizon",
    "holds",
    "ended",
]
"""Of a transaction: `visible`, a value was polled here; `absent`, one is not although a reader passed it; `guarded`, a
finding that holds if the transaction is visible; `awaited`, what was absent elsewhere before it was shown here has had
long enough to be shown as well. Of a transform: `input`, settled records of its input; `reflected`,
those that its committed output reflects; `doubtful`, those that an indefinite transaction may have reflected;
`dropped`, those of which it turned out that it has not; `begun`, it reads here for the first time; `gone`, the input's
log start; `hole`, a part of its log will never be here; `horizon`, how far the log of the output, or (`about` says
"input") of the input is complete.
`holds`, `ended`: a condition that other partitions see as well (`rules.across.shared_conditions`)."""

FACT_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("txn", pa.int64()),
        pa.field("group", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("writer", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("about", pa.string()),
    ]
)
"""Facts: what one partition knows that another may need. Stage 2 (`rules.across.resolution`) joins them by transaction,
or by transform group and partition number. `at` is log time in microseconds; writer .. length name a run of values,
`outcome` what became of the operation; `about` is JSON."""


class Recheck(NamedTuple):
    """Offsets [start, end) whose records two readers saw differently: `rules.audit.explain` tells how, from the
    rows."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One event of a finding as it is kept and told: judged, with its id. `FINDING_SCHEMA` is made of these fields.

    Times are log time. What each field holds is told where the table is declared, `streaming_jobs.tables.schemas`."""

    id: str
    event: Event
    anomaly: str
    severity: Severity
    cluster: str
    topic_id: str
    topic: str
    partition: Int32
    message: str
    evidence: JsonObject
    context: JsonObject
    at: datetime
    decidable: datetime
    implied_by: str | None = None


FINDING_SCHEMA: Final = pa.schema(columns(FindingRow))
"""The Delta table `findings` before the job adds its own columns."""


def to_table(judged: Iterable[tuple[Finding, str]]) -> pa.Table:
    """(finding, severity) pairs as an Arrow table of `FINDING_SCHEMA`."""
    rows = [
        {name: getattr(f, name) for name in FINDING_SCHEMA.names if name != "severity"}
        | {
            "severity": severity,
            "evidence": json.dumps(f.evidence),
            "context": json.dumps(dict(f.context)),
            "at": from_micros(f.at),
            "decidable": from_micros(f.decidable),
        }
        for f, severity in judged
    ]
    return pa.Table.from_pylist(rows, schema=FINDING_SCHEMA)
