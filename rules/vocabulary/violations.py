"""The catalogue's violations: what the probe log proves that the cluster must never do. Those of transactions, groups
and leaders are in `protocol_violations`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.vocabulary.anomaly import Field, form, violation
from rules.vocabulary.fields import (
    GROUP,
    NEXT_TRANSACTION,
    OF_TRANSACTION,
    OFFSET,
    OP,
    OPERATION,
    PLACED_VALUE,
    PROCESS,
    READINGS,
    SEQ,
    STANDING_VALUE,
    TXN,
    VALUE,
    WRITER,
    optional,
)

_STEP: Final = (
    PROCESS,
    OP,
    Field("previous_op", "int", "operation", "its operation before"),
    Field("previous_offset", "int", "offset", "where that one ended"),
    Field("offset", "int", "offset", "where this one goes on"),
)
_SKIPPED: Final = Field(
    "skipped",
    "list of object",
    "",
    "the first of the values between",
    fields=(OFFSET, WRITER, SEQ),
)
_BETWEEN: Final = form(*_STEP, subject=("process", "op"))
_INSIDE: Final = form(*_STEP, subject=("process", "op", "offset"))
_MANY: Final = (
    Field("records", "int", "records", "how many there are so far"),
    Field("first_offset", "int", "offset", "the first of them"),
    Field("last_offset", "int", "offset", "the last of them"),
    Field("examples", "list of int", "offset", "those told one by one, ten at most"),
    PROCESS,
    OP,
)
_HASH: Final = Field("hash", "int", "hash", "of the record's bytes; of an intact tag without its checksum")
_KNOWN: Final = Field("known", "int", "offset", "the highest offset that was known before")
VIOLATIONS: Final = (
    violation(
        "duplicate",
        "at once",
        "One value stands at two or more offsets of a partition.",
        "the value, and its offsets; one alone where the others are below the settled frontier",
        form(*VALUE, Field("offsets", "list of int", "offset", "where it stands"), subject=("writer", "seq")),
    ),
    violation(
        "inconsistent-offsets",
        "at once",
        "One offset has two or more values, in any polls or acknowledgements, at any time.",
        "the offset and the values",
        form(
            OFFSET,
            Field("values", "list of object", "", "the values that stand there", fields=STANDING_VALUE),
            subject=("offset",),
        ),
    ),
    violation(
        "G1a",
        "at once",
        "An ok poll at read_committed returned a value whose write certainly failed or whose transaction aborted.",
        "the value, its offset, the reader, the failed operation, what is known of its transaction",
        form(
            *VALUE,
            *optional(
                Field("offset", "int", "offset", "where it was polled"),
                Field("process", "int", "process", "who polled it"),
                Field("op", "int", "operation", "by which operation"),
                Field("failed_process", "int", "process", "whose write failed"),
                Field("failed_op", "int", "operation", "the operation that failed"),
            ),
            *OF_TRANSACTION,
            subject=("writer", "seq"),
        ),
    ),
    violation(
        "precommitted-read",
        "at once",
        "An operation polled a value that it sends itself.",
        "the value, its offset, the operation",
        form(*VALUE, OFFSET, *OPERATION, subject=("writer", "seq", "process", "op")),
    ),
    violation(
        "lost-write",
        "on settlement",
        "A visible write lies below what readers have polled, and no ok operation polled it.",
        "the value, its acknowledged offset, how far the readers had read, what is known of its transaction",
        form(
            *VALUE,
            Field("offset", "int", "offset", "where it was acknowledged"),
            Field("read_to", "int", "offset", "how far readers had read: the offset behind the last"),
            *OF_TRANSACTION,
            subject=("writer", "seq"),
            when="readers went over it",
        ),
        form(
            *VALUE,
            Field("offset", "int", "offset", "where it was acknowledged"),
            TXN,
            Field("seen", "object", "", "a value of the transaction that was polled", fields=PLACED_VALUE),
            *NEXT_TRANSACTION,
            subject=("writer", "seq"),
            when="its transaction turned out to be visible in another partition",
        ),
    ),
    violation(
        "poll-skip",
        "on settlement",
        "A process's next poll of a partition begins more than one index after where its last one ended.",
        "the process, both offsets, the values between",
        form(*_STEP, _SKIPPED, subject=("process", "op")),
    ),
    violation(
        "nonmonotonic-poll",
        "on settlement",
        "A process's next poll of a partition begins at the same or a lower index than its last one ended.",
        "the process, both offsets",
        _BETWEEN,
    ),
    violation(
        "int-poll-skip",
        "on settlement",
        "Inside one operation, two consecutive polled values of a partition are more than one index apart.",
        "the process, the operation, both offsets, the values between",
        form(*_STEP, _SKIPPED, subject=("process", "op", "offset")),
    ),
    violation(
        "int-nonmonotonic-poll",
        "on settlement",
        "Inside one operation, the index of the next polled value is the same or lower.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    violation(
        "int-send-skip",
        "on settlement",
        "Inside one operation, two consecutive sends to a partition are more than one index apart.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    violation(
        "int-nonmonotonic-send",
        "on settlement",
        "Inside one operation, the next send's index is the same or lower.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    violation(
        "nonmonotonic-send",
        "on settlement",
        "A process's next operation that sends to a partition has an index at or before its last.",
        "the process, both operations and offsets",
        _BETWEEN,
    ),
    violation(
        "relocated-write",
        "at once",
        "A value was polled in a topic or partition other than the one it was sent to.",
        "the value, where it was meant to be, where it was; of a flood, how many, from where to where, some examples",
        form(
            Field("offset", "int", "offset", "where it was polled here"),
            _HASH,
            PROCESS,
            OP,
            WRITER,
            SEQ,
            Field("topic", "str", "", "the topic that it was meant for"),
            Field("partition", "int", "partition", "the partition that it was meant for"),
            subject=("writer", "topic", "partition", "seq", "offset"),
            when="a record",
        ),
        form(
            *_MANY,
            subject=('"many"', "first offset of the stretch", "records"),
            when="more of a stretch than are told singly",
        ),
    ),
    violation(
        "corrupted-record",
        "at once",
        "The checksum or the form of a record's tag is broken.",
        "the offset and the hash of the bytes; of a flood, how many, from where to where, some examples",
        form(OFFSET, _HASH, PROCESS, OP, subject=("offset", "hash"), when="a record"),
        form(
            *_MANY,
            subject=('"many"', "first offset of the stretch", "records"),
            when="more of a stretch than are told singly",
        ),
    ),
    violation(
        "altered-record",
        "at once",
        "A polled record's key, headers, timestamp or type of timestamp are not those that were sent, and its topic is"
        " not set to put the broker's time there (LogAppendTime).",
        "the value, its offset, how many records alike follow it, what differs, what was sent and what was told, the"
        " reader, the leader's epoch where the client knows it",
        form(
            WRITER,
            SEQ,
            OFFSET,
            Field("what", "str", "", "what differs: key, headers, timestamp, timestamp-type, with commas"),
            Field("sent", "str", "", "what was sent"),
            Field("told", "str", "", "what was told instead"),
            PROCESS,
            OP,
            Field("leader_epoch", "int", "epoch", "of the leader that gave it", optional=True),
            Field("records", "int", "records", "how many in a row differ like it"),
            subject=("writer", "seq", "what"),
        ),
    ),
    violation(
        "spurious-zero-offset",
        "at once",
        "An acknowledgement, position, committed offset, listed end or poll is 0 while a higher offset was known"
        " before.",
        "the operation and the offset known before it",
        form(*VALUE, _KNOWN, *OPERATION, subject=('"acknowledgement"', "writer", "seq"), when="an acknowledgement"),
        form(
            GROUP,
            _KNOWN,
            Field("process", "int", "process", "to whom it was told"),
            subject=('"committed"', "group"),
            when="a committed offset",
        ),
        form(_KNOWN, subject=('"listed"', "when"), when="the end of the log, as its leader lists it"),
        form(*_STEP, subject=("process", "op"), when="a poll"),
    ),
    violation(
        "vanished-record",
        "on resolution",
        "A value that was polled at an offset is missing from a later read that passed that offset.",
        "the offset, the value, who polled it, who passed it, how long after",
        form(*READINGS, subject=("offset", "writer", "seq")),
    ),
    violation(
        "late-record",
        "on resolution",
        "A value appears at an offset that an earlier read had passed as a hole.",
        "the offset, the value, who passed it, who polled it, how long after",
        form(*READINGS, subject=("offset", "writer", "seq")),
    ),
    violation(
        "phantom-read",
        "on settlement",
        "A polled value was never sent, and the log of whoever could have sent it is there.",
        "the value, its offset, who polled it, the highest sequence number that its writer sent",
        form(
            *VALUE,
            replace(OFFSET, nullable=True),
            Field("highest_sent", "int", "seq", "the highest that its writer sent", nullable=True),
            *OPERATION,
            subject=("writer", "seq"),
            when="beyond what its writer sent",
        ),
        form(
            *VALUE,
            replace(OFFSET, nullable=True),
            *OPERATION,
            subject=("writer", "seq"),
            when="of a finished history, which holds all that was sent",
        ),
    ),
)
