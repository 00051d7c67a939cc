"""The columns of the job's Delta tables, each with its meaning and unit. The comments are stored in the tables.

`findings` is append-only: one row per event in a finding's life. `partition_state` and `readers` hold the current
state, one row per partition and one per reader and partition, replaced as a whole by each batch. `rejected` holds the
rows of the probe log that could not be understood. `transactions` tells what became of indefinite transactions,
`across` holds the state of the checks across partitions, `lookups` what they ask the log's rows, `rechecks` the ranges
of offsets that readers saw differently, asked and answered. All times are UTC, in microseconds; *log time* is the time
in the probe log's rows, *machine time* the clock of the host that runs the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pyarrow as pa

from rules.across.resolution import TRANSACTION_SCHEMA
from rules.step import SUMMARY_SCHEMA
from rules.vocabulary.finding import FINDING_SCHEMA

_TIME: Final = pa.timestamp("us", tz="UTC")

_CHECKPOINT_INTERVAL: Final = 100

STATISTICS: Final = "delta.dataSkippingStatsColumns"
"""Delta's property: of which columns the table's log tells bounds, separated by commas."""

_COMMENTS: Final[Mapping[str, str]] = {
    # findings
    "id": "hash of anomaly, place and subject: the same for every event of one finding, also after a replay",
    "event": "raised (violations, observations), opened or closed (conditions)",
    "anomaly": "the name in the catalogue of anomalies",
    "severity": "critical, warning, info or allowed, by the policy",
    "cluster": "the name of the cluster under test",
    "topic_id": "Kafka's topic id (uuid): a topic that is created again is another log",
    "topic": "topic name",
    "partition": "partition number; -1 where the finding is about no partition",
    "message": "one sentence for a person",
    "evidence": "JSON object: what proves the finding",
    "context": "JSON object: what the policy judged it by",
    "at": "log time at which the rule spoke (evidence-stalled: machine time)",
    "decidable": "log time at which the evidence was first enough",
    "implied_by": "the id of the finding that explains this one, if any",
    "batch": "the job's batch that counted it; null for what no batch found (evidence-stalled)",
    "recorded": "machine time at which the row was written",
    # partition_state
    "now": "log time of the partition",
    "checked_through": "log time through which every verdict is given; behind now by what is awaited",
    "read_through": "log time through which all that readers did is here, but for rows that are missing",
    "log_start": "offset of the first record that the partition still holds",
    "log_end": "offset after the last record (high watermark)",
    "last_stable": "offset below which every transaction is decided",
    "frontier": "offset below which every record is settled",
    "acknowledged": "records acknowledged to their writers since the start",
    "polled": "distinct records polled since the start",
    "failed": "records whose write certainly failed since the start",
    "highest_acknowledged": "highest acknowledged offset",
    "highest_polled": "highest polled offset",
    "unseen": "acknowledged records that have waited longer than the delivery objective",
    "send_skips": "steps over others' records inside one operation's sends (int-send-skip, legal) since the start",
    "partial_reads": "operations that polled a part of a transaction (G1b, legal) since the start",
    "irregular": "corrupted, foreign or relocated records that the probe log lists, since the start",
    "window_runs": "runs of records that are not settled yet",
    "processes": "processes that the partition knows",
    "readers": "the partition's readers: process, position (offset), mode",
    "state_bytes": "size of the hot state, bytes",
    "check_failed": "the error by which a rule failed on this partition, whose verdict is unknown from then on",
    "slices_behind": "rows of the probe log that were left unchecked since a rule failed",
    # readers
    "process": "the reader's process id",
    "position": "the offset that it will read next",
    "mode": "assign or subscribe",
    "lag": "records between its position and the last stable offset (or the log end, where that is unknown)",
    # cycle_search
    "through": "log time up to which dependency cycles have been searched",
    "window_start": "log time at which the last window searched began",
    "operations": "send, poll and txn operations in that window",
    "dependencies": "write-read and, if asked for, write-write edges between them",
    "suspects": "nodes of the graph that could have been in a cycle, before the search proper",
    "cycles": "cycles in that window that had not been reported before",
    "engine": "what divided the graph into strongly connected parts: memory or graphframes",
    "write_write": "whether write-write edges were counted",
    "search_seconds": "how long the search took, seconds of machine time",
    "searched": "machine time of the search",
    # rejected
    "reason": "why the row could not be understood",
    "slice": "its slice number",
    "row": "the row as JSON, cut at 32 KiB",
    # transactions
    "txn": "the transaction, a number of the probe's own",
    "outcome": "visible: a value of it was polled; absent: a reader passed the place of one without seeing it",
    "writer": "the value that proves it: its writer",
    "seq": "its sequence number",
    "offset": "its offset",
    # across
    "app": "the query or the rebuild that wrote it",
    "name": "what of the state it is: of a transaction, of a transform's group, of the conditions that many share",
    "value": "its new value; none where it is dropped",
    # lookups
    "question": "what is absent of the transaction, as JSON: when it ran, and the facts that partitions told",
    # rechecks
    "start": "first offset of the range",
    "end": "offset after the range",
    "answered": "false when it is asked; true once the log's rows have answered",
}


def _documented(*fields: pa.Field) -> pa.Schema:
    return pa.schema([f.with_metadata({"comment": _COMMENTS[f.name]}) for f in fields])


FINDINGS: Final = _documented(
    *FINDING_SCHEMA, pa.field("batch", pa.int64()), pa.field("recorded", _TIME, nullable=False)
)

PARTITION_STATE: Final = _documented(
    *SUMMARY_SCHEMA,
    pa.field("check_failed", pa.string()),
    pa.field("slices_behind", pa.int64(), nullable=False),
    pa.field("batch", pa.int64(), nullable=False),
)

READERS: Final = _documented(
    *(SUMMARY_SCHEMA.field(name) for name in ("cluster", "topic_id", "topic", "partition")),
    pa.field("process", pa.int64(), nullable=False),
    pa.field("position", pa.int64()),
    pa.field("mode", pa.string()),
    pa.field("lag", pa.int64()),
    pa.field("batch", pa.int64(), nullable=False),
)

REJECTED: Final = _documented(
    pa.field("reason", pa.string(), nullable=False),
    pa.field("cluster", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("process", pa.int64()),
    pa.field("slice", pa.int64()),
    pa.field("row", pa.string()),
    pa.field("batch", pa.int64(), nullable=False),
    pa.field("recorded", _TIME, nullable=False),
)


TRANSACTIONS: Final = _documented(
    *TRANSACTION_SCHEMA, pa.field("batch", pa.int64(), nullable=False), pa.field("recorded", _TIME, nullable=False)
)

ACROSS: Final = _documented(
    pa.field("app", pa.string(), nullable=False),
    pa.field("batch", pa.int64(), nullable=False),
    pa.field("name", pa.string(), nullable=False),
    pa.field("value", pa.binary()),
)

LOOKUPS: Final = _documented(
    pa.field("cluster", pa.string(), nullable=False),
    pa.field("txn", pa.int64(), nullable=False),
    pa.field("question", pa.string(), nullable=False),
    pa.field("answered", pa.bool_(), nullable=False),
    pa.field("batch", pa.int64()),
    pa.field("recorded", _TIME, nullable=False),
)

RECHECKS: Final = _documented(
    pa.field("cluster", pa.string(), nullable=False),
    pa.field("topic_id", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("start", pa.int64(), nullable=False),
    pa.field("end", pa.int64(), nullable=False),
    pa.field("answered", pa.bool_(), nullable=False),
    pa.field("batch", pa.int64()),
    pa.field("recorded", _TIME, nullable=False),
)

CYCLE_SEARCH: Final = _documented(
    pa.field("through", _TIME, nullable=False),
    pa.field("window_start", _TIME, nullable=False),
    pa.field("operations", pa.int64(), nullable=False),
    pa.field("dependencies", pa.int64(), nullable=False),
    pa.field("suspects", pa.int64(), nullable=False),
    pa.field("cycles", pa.int64(), nullable=False),
    pa.field("engine", pa.string(), nullable=False),
    pa.field("write_write", pa.bool_(), nullable=False),
    pa.field("search_seconds", pa.float64(), nullable=False),
    pa.field("searched", _TIME, nullable=False),
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: where it lies below the tables' root, its columns, and how long its past is kept.

    `kept` bounds the number of commit files: at one commit a second, two hours are 7,200 of them."""

    name: str
    schema: pa.Schema
    kept: timedelta
    description: str

    @property
    def properties(self) -> dict[str, str]:
        """Delta table properties.

        Of the columns that are not named as having statistics, delta-rs takes every value to be outside of all files
        once the log has a checkpoint, and finds no row by them (its issue 3201)."""
        kept = f"interval {int(self.kept.total_seconds())} seconds"
        times = ",".join(field.name for field in self.schema if pa.types.is_timestamp(field.type))
        return {
            **({STATISTICS: times} if times else {"delta.dataSkippingNumIndexedCols": "0"}),
            "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.enableExpiredLogCleanup": "true",
        }


_HOUR: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)

SPECS: Final[Mapping[str, TableSpec]] = {
    spec.name: spec
    for spec in (
        TableSpec("findings", FINDINGS, _WEEK, "Every event in the life of a finding, append-only."),
        TableSpec("partition_state", PARTITION_STATE, _HOUR, "The current state of every partition, one row each."),
        TableSpec("readers", READERS, _HOUR, "The current position of every reader, one row per reader and partition."),
        TableSpec("rejected", REJECTED, _WEEK, "Rows of the probe log that could not be understood, with the reason."),
        TableSpec("transactions", TRANSACTIONS, _WEEK, "What became of each indefinite transaction."),
        TableSpec("across", ACROSS, _HOUR, "The state of the checks across partitions: what each batch changed of it."),
        TableSpec(
            "lookups",
            LOOKUPS,
            _WEEK,
            "Ok transactions of which a value is absent: a row when others are looked up, one when known.",
        ),
        TableSpec(
            "rechecks",
            RECHECKS,
            _WEEK,
            "Ranges of offsets that two readers saw differently: one row when asked, one when answered.",
        ),
        TableSpec(
            "cycle_search",
            CYCLE_SEARCH,
            _HOUR,
            "How far dependency cycles have been searched, one row, replaced by each search.",
        ),
    )
}
