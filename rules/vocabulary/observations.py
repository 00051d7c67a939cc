"""The catalogue's classified observations: recorded and counted, they judge nothing."""

from __future__ import annotations

from typing import Final

from rules.vocabulary.anomaly import Anomaly, Field, Form
from rules.vocabulary.fields import ERROR, OFFSET, OP, OPERATION, PROCESS, TRANSACTIONAL_ID, TXN, VALUE

_FOREIGN: Final = (
    OFFSET,
    Field("hash", "int", "hash", "of the record's bytes; of an intact tag without its checksum"),
    Field("process", "int", "process", "who polled it"),
    Field("op", "int", "operation", "by which operation"),
    Field("run", "str", "", "the run that it belongs to, null or empty for another version of the tag", nullable=True),
)

OBSERVATIONS: Final = (
    Anomaly(
        "foreign-record",
        "classified",
        "at once",
        "Well-formed records of a run that this log does not know: two canaries may share a topic. Told once a run.",
        "the run, and the first of its records: offset, hash, who polled it",
        (
            Form(("run",), _FOREIGN, "a run"),
            Form(('"others"', "first offset of the stretch"), _FOREIGN, "all runs beyond those told one by one"),
        ),
    ),
    Anomaly(
        "abort-position",
        "classified",
        "at once",
        "Where a consumer stands after its transaction was aborted: advance, rewind, rewind-further or other.",
        "the class, the positions before, reached and after",
        (
            Form(
                ("process", "txn"),
                (
                    PROCESS,
                    TXN,
                    Field("class", "str", "", "advance, rewind, rewind-further or other"),
                    Field("before", "int", "offset", "where the transaction began to poll"),
                    Field("reached", "int", "offset", "where its polls had ended"),
                    Field("after", "int", "offset", "where the consumer stands then"),
                ),
            ),
        ),
    ),
    Anomaly(
        "misleading-fence",
        "classified",
        "on settlement",
        "A client heard that it was fenced, and there is no other producer of its transactional id.",
        "the transactional id, the operation, the error",
        (Form(("process", "op"), (TRANSACTIONAL_ID, *OPERATION, ERROR)),),
    ),
    Anomaly(
        "misleading-error",
        "classified",
        "on settlement",
        "An error said that a write had failed, and the write is visible.",
        "the operation, and the value that was polled",
        (Form(("process", "op"), (*OPERATION, *VALUE)),),
    ),
    Anomaly(
        "benign-retention",
        "classified",
        "on settlement",
        "What was acknowledged fell below the log start before it was needed: retention, and no loss.",
        "the log start, the last acknowledged offset or how many values nobody polled",
        (
            Form(
                ("writer", "seq"),
                (
                    *VALUE,
                    Field("values", "int", "values", "how many from that on"),
                    Field("offset", "int", "offset", "where the first was acknowledged"),
                    Field("log_start", "int", "offset", "the log start"),
                ),
                "values that nobody polled",
            ),
            Form(
                ("process", "op"),
                (
                    *OPERATION,
                    ERROR,
                    Field("log_start", "int", "offset", "the log start, as listed next"),
                    Field("acknowledged", "int", "offset", "the last that the process had acknowledged"),
                ),
                "a broken sequence",
            ),
        ),
    ),
    Anomaly(
        "rebalance",
        "classified",
        "on settlement",
        "A group reader was given this partition, or it was taken away.",
        "the process, the operation",
        (Form(("process", "op"), OPERATION),),
    ),
    Anomaly(
        "topic-recreated",
        "classified",
        "at once",
        "The topic has a new id: it was deleted and created again, and is a new log.",
        "both topic ids",
        (
            Form(
                ("before",),
                (Field("before", "str", "", "the id it had"), Field("now", "str", "", "the id it has now")),
            ),
        ),
    ),
    Anomaly(
        "G1b",
        "classified",
        "on settlement",
        "An operation polled some of a transaction's values in a partition: legal where its poll ended in between.",
        "the transaction, the operation, the value that divides what was seen from what was not",
        (
            Form(
                ("txn", "process", "op"),
                (TXN, Field("process", "int", "process", "who polled"), OP, *VALUE),
            ),
        ),
    ),
)
