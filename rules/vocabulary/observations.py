"""The catalogue's classified observations: recorded and counted, they judge nothing."""

from __future__ import annotations

from typing import Final

from rules.vocabulary.anomaly import Field, form, observation
from rules.vocabulary.fields import ERROR, OFFSET, OP, OPERATION, PROCESS, TRANSACTIONAL_ID, TXN, VALUE

_FOREIGN: Final = (
    OFFSET,
    Field("hash", "int", "hash", "of the record's bytes; of an intact tag without its checksum"),
    Field("process", "int", "process", "who polled it"),
    Field("op", "int", "operation", "by which operation"),
    Field("run", "str", "", "the run that it belongs to, null or empty for another version of the tag", nullable=True),
)

OBSERVATIONS: Final = (
    observation(
        "foreign-record",
        "at once",
        "Well-formed records of a run that this log does not know: two canaries may share a topic. Told once a run.",
        "the run, and the first of its records: offset, hash, who polled it",
        form(*_FOREIGN, subject=("run",), when="a run"),
        form(
            *_FOREIGN, subject=('"others"', "first offset of the stretch"), when="all runs beyond those told one by one"
        ),
    ),
    observation(
        "abort-position",
        "at once",
        "Where a consumer stands after its transaction was aborted: advance, rewind, rewind-further or other.",
        "the class, the positions before, reached and after",
        form(
            PROCESS,
            TXN,
            Field("class", "str", "", "advance, rewind, rewind-further or other"),
            Field("before", "int", "offset", "where the transaction began to poll"),
            Field("reached", "int", "offset", "where its polls had ended"),
            Field("after", "int", "offset", "where the consumer stands then"),
            subject=("process", "txn"),
        ),
    ),
    observation(
        "misleading-fence",
        "on settlement",
        "A client heard that it was fenced, and there is no other producer of its transactional id.",
        "the transactional id, the operation, the error",
        form(TRANSACTIONAL_ID, *OPERATION, ERROR, subject=("process", "op")),
    ),
    observation(
        "misleading-error",
        "on settlement",
        "An error said that a write had failed, and the write is visible.",
        "the operation, and the value that was polled",
        form(*OPERATION, *VALUE, subject=("process", "op")),
    ),
    observation(
        "benign-retention",
        "on settlement",
        "What was acknowledged fell below the log start before it was needed: retention, and no loss.",
        "the log start, the last acknowledged offset or how many values nobody polled",
        form(
            *VALUE,
            Field("values", "int", "values", "how many from that on"),
            Field("offset", "int", "offset", "where the first was acknowledged"),
            Field("log_start", "int", "offset", "the log start"),
            subject=("writer", "seq"),
            when="values that nobody polled",
        ),
        form(
            *OPERATION,
            ERROR,
            Field("log_start", "int", "offset", "the log start, as listed next"),
            Field("acknowledged", "int", "offset", "the last that the process had acknowledged"),
            subject=("process", "op"),
            when="a broken sequence",
        ),
    ),
    observation(
        "rebalance",
        "on settlement",
        "A group reader was given this partition, or it was taken away.",
        "the process, the operation",
        form(*OPERATION, subject=("process", "op")),
    ),
    observation(
        "topic-recreated",
        "at once",
        "The topic has a new id: it was deleted and created again, and is a new log.",
        "both topic ids",
        form(
            Field("before", "str", "", "the id it had"),
            Field("now", "str", "", "the id it has now"),
            subject=("before",),
        ),
    ),
    observation(
        "G1b",
        "on settlement",
        "An operation polled some of a transaction's values in a partition: legal where its poll ended in between.",
        "the transaction, the operation, the value that divides what was seen from what was not",
        form(TXN, Field("process", "int", "process", "who polled"), OP, *VALUE, subject=("txn", "process", "op")),
    ),
)
