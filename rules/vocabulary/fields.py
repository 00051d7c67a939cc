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
    Field("offsets_between", "int", "offsets", "between the records of the two: 0 where no marker stands there"),
)
"""What is known of the transaction that follows (`rules.checks.transaction_evidence`)."""

OF_TRANSACTION: Final = (
    *optional(TXN, Field("told", "str", "", "what its client was told: committed, aborted or unknown")),
    *NEXT_TRANSACTION,
)
"""What is known of the transaction that wrote the value."""
