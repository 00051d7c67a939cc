"""Fields of evidence that several anomalies share: one word, one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.vocabulary.anomaly import Field

WRITER: Final = Field("writer", "int", "writer", "whose value it is")
SEQ: Final = Field("seq", "int", "seq", "which of its values")
OFFSET: Final = Field("offset", "int", "offset", "where it stands")
PROCESS: Final = Field("process", "int", "process", "the process")
OP: Final = Field("op", "int", "operation", "the operation")
VALUE: Final = (WRITER, SEQ)
OPERATION: Final = (PROCESS, OP)
GROUP: Final = Field("group", "str", "", "the consumer group")
TRANSACTIONAL_ID: Final = Field("transactional_id", "str", "", "the transactional id")
TXN: Final = Field("txn", "int", "transaction", "the transaction")
ERROR: Final = Field("error", "str", "", "the error, as the client named it")
PLACED_VALUE: Final = (
    Field("topic", "str", "", "its topic"),
    Field("partition", "int", "partition", "its partition"),
    WRITER,
    SEQ,
    OFFSET,
)
LASTED: Final = Field("lasted_s", "float", "s", "how long it was open")
SINCE: Final = Field("since", "int", "micros", "since when")


def optional(*fields: Field) -> tuple[Field, ...]:
    """The same fields, there only where they are known."""
    return tuple(replace(one, optional=True) for one in fields)


NEXT_TRANSACTION: Final = optional(
    TRANSACTIONAL_ID,
    Field("next_txn", "int", "transaction", "the next transaction of the same id here"),
    Field("next_process", "int", "process", "whose that is"),
    Field("next_op", "int", "operation", "its operation"),
    Field("next_told", "str", "", "what its client was told: committed, aborted or unknown"),
    Field("next_offset", "int", "offset", "its first record"),
    Field(
        "offsets_between",
        "int",
        "offsets",
        "between the records of the two, where no value is known to stand: 0 where no marker stands there",
    ),
)
"""What is known of the transaction that follows (`rules.checks.transactions.transaction_evidence`)."""

OF_TRANSACTION: Final = (
    *optional(TXN, Field("told", "str", "", "what its client was told: committed, aborted or unknown")),
    *NEXT_TRANSACTION,
)
"""What is known of the transaction that wrote the value."""

STANDING_VALUE: Final = optional(
    *VALUE,
    Field("topic", "str", "", "its topic, if it was sent elsewhere"),
    Field("partition", "int", "partition", "its partition, if it was sent elsewhere"),
    Field("run", "str", "", "its run, if it was sent elsewhere"),
    Field("hash", "int", "hash", "of its bytes, if it has another version of the tag, which names no value"),
    Field("leader_epoch", "int", "epoch", "of the leader that had appended it, if a reader's rows tell"),
)
"""One of several values at one offset."""

READINGS: Final = (
    WRITER,
    SEQ,
    OFFSET,
    Field("process", "int", "process", "who polled it"),
    Field("op", "int", "operation", "by which operation"),
    Field("passed_process", "int", "process", "who passed the offset without it"),
    Field("passed_op", "int", "operation", "by which operation"),
    Field("apart_s", "float", "s", "between the completions of both"),
    Field("leader_epoch", "int", "epoch", "of the leader that had appended the value", optional=True),
    Field(
        "passed_leader_epochs",
        "list of int",
        "epoch",
        "of what the other one was given next below and next above",
        optional=True,
    ),
)
"""Two operations that read one offset differently."""

REGISTER_OPERATION: Final = (
    PROCESS,
    OP,
    Field("action", "str", "", "read, write or cas"),
    Field("type", "str", "", "ok, fail or info"),
    Field("id", "int", "id", "the id that it writes", nullable=True),
    Field("expected", "int", "id", "the id that a cas replaces", nullable=True),
    Field("observed", "int", "id", "the id that it was shown", nullable=True),
    Field("invoked", "str", "time", "when it was invoked"),
    Field("completed", "str", "time", "when it completed"),
    Field("boot", "str", "", "the boot whose clock times it"),
    Field("mono_invoked", "int", "ns", "the same by the boot's clock"),
    Field("mono_completed", "int", "ns", "the same by the boot's clock, null while unknown", nullable=True),
)
