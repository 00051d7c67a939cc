"""The catalogue's violations: what the probe log proves that the cluster must never do."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rules.vocabulary.anomaly import Anomaly, Field, Form
from rules.vocabulary.fields import (
    ERROR,
    GROUP,
    NEXT_TRANSACTION,
    OF_TRANSACTION,
    OFFSET,
    OP,
    OPERATION,
    PLACED_VALUE,
    PROCESS,
    READINGS,
    REGISTER_OPERATION,
    SEQ,
    STANDING_VALUE,
    TRANSACTIONAL_ID,
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
    "skipped", "list of object", "", "the first of the values between",
    fields=(OFFSET, WRITER, SEQ),
)  # fmt: skip
_BETWEEN: Final = (Form(("process", "op"), _STEP),)
_INSIDE: Final = (Form(("process", "op", "offset"), _STEP),)
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
_REQUEST: Final = Field("request", "str", "", "what was asked, by its name in Kafka's protocol")
_OVER: Final = Field("late_by_s", "float", "s", "from the end of that life to the invocation")
_CYCLE: Final = (
    Form(
        ("process", "op", "..."),
        (
            Field("length", "int", "operations", "how many operations the cycle has"),
            Field("left_out", "int", "operations", "how many of them, between both ends of the list, are not listed"),
            Field(
                "operations", "list of object", "", "the operations of the cycle, in its order",
                fields=(
                    PROCESS, OP,
                    Field("f", "str", "", "send, poll or txn"),
                    Field("type", "str", "", "ok, fail or info"),
                    Field("invoked", "str", "time", "when it was invoked"),
                    Field("completed", "str", "time", "when it completed"),
                ),
            ),
            Field(
                "steps", "list of object", "", "why each comes before the next",
                fields=(
                    Field("kind", "str", "", "wr, ww, process or realtime"),
                    *optional(
                        Field("partition", "int", "partition", "where the value stands"),
                        WRITER, SEQ,
                        Field("topic", "str", "", "where the value stands, if the cycle spans topics"),
                        OFFSET,
                        Field("next", "object", "", "of ww, the value written over it", fields=(WRITER, SEQ, OFFSET)),
                    ),
                ),
            ),
            Field("why", "list of str", "", "the same in sentences"),
            Field("picture", "str", "", "the file that shows the cycle", optional=True),
        ),
    ),
)  # fmt: skip

VIOLATIONS: Final = (
    Anomaly(
        "duplicate", "violation", "at once",
        "One value stands at two or more offsets of a partition.",
        "the value, and its offsets; one alone where the others are below the settled frontier",
        (Form(("writer", "seq"), (*VALUE, Field("offsets", "list of int", "offset", "where it stands"))),),
    ),
    Anomaly(
        "inconsistent-offsets", "violation", "at once",
        "One offset has two or more values, in any polls or acknowledgements, at any time.",
        "the offset and the values",
        (
            Form(
                ("offset",),
                (OFFSET, Field("values", "list of object", "", "the values that stand there", fields=STANDING_VALUE)),
            ),
        ),
    ),
    Anomaly(
        "G1a", "violation", "at once",
        "An ok poll at read_committed returned a value whose write certainly failed or whose transaction aborted.",
        "the value, its offset, the reader, the failed operation, what is known of its transaction",
        (
            Form(
                ("writer", "seq"),
                (
                    *VALUE,
                    *optional(
                        Field("offset", "int", "offset", "where it was polled"),
                        Field("process", "int", "process", "who polled it"),
                        Field("op", "int", "operation", "by which operation"),
                        Field("failed_process", "int", "process", "whose write failed"),
                        Field("failed_op", "int", "operation", "the operation that failed"),
                    ),
                    *OF_TRANSACTION,
                ),
            ),
        ),
    ),
    Anomaly(
        "precommitted-read", "violation", "at once",
        "An operation polled a value that it sends itself.",
        "the value, its offset, the operation",
        (Form(("writer", "seq", "process", "op"), (*VALUE, OFFSET, *OPERATION)),),
    ),
    Anomaly(
        "lost-write", "violation", "on settlement",
        "A visible write lies below what readers have polled, and no ok operation polled it.",
        "the value, its acknowledged offset, how far the readers had read, what is known of its transaction",
        (
            Form(
                ("writer", "seq"),
                (
                    *VALUE,
                    Field("offset", "int", "offset", "where it was acknowledged"),
                    Field("read_to", "int", "offset", "how far readers had read: the offset behind the last"),
                    *OF_TRANSACTION,
                ),
                "readers went over it",
            ),
            Form(
                ("writer", "seq"),
                (
                    *VALUE,
                    Field("offset", "int", "offset", "where it was acknowledged"),
                    TXN,
                    Field("seen", "object", "", "a value of the transaction that was polled", fields=PLACED_VALUE),
                    *NEXT_TRANSACTION,
                ),
                "its transaction turned out to be visible in another partition",
            ),
        ),
    ),
    Anomaly(
        "poll-skip", "violation", "on settlement",
        "A process's next poll of a partition begins more than one index after where its last one ended.",
        "the process, both offsets, the values between",
        (Form(("process", "op"), (*_STEP, _SKIPPED)),),
    ),
    Anomaly(
        "nonmonotonic-poll", "violation", "on settlement",
        "A process's next poll of a partition begins at the same or a lower index than its last one ended.",
        "the process, both offsets",
        _BETWEEN,
    ),
    Anomaly(
        "int-poll-skip", "violation", "on settlement",
        "Inside one operation, two consecutive polled values of a partition are more than one index apart.",
        "the process, the operation, both offsets, the values between",
        (Form(("process", "op", "offset"), (*_STEP, _SKIPPED)),),
    ),
    Anomaly(
        "int-nonmonotonic-poll", "violation", "on settlement",
        "Inside one operation, the index of the next polled value is the same or lower.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    Anomaly(
        "int-send-skip", "violation", "on settlement",
        "Inside one operation, two consecutive sends to a partition are more than one index apart.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    Anomaly(
        "int-nonmonotonic-send", "violation", "on settlement",
        "Inside one operation, the next send's index is the same or lower.",
        "the process, the operation, both offsets",
        _INSIDE,
    ),
    Anomaly(
        "nonmonotonic-send", "violation", "on settlement",
        "A process's next operation that sends to a partition has an index at or before its last.",
        "the process, both operations and offsets",
        _BETWEEN,
    ),
    Anomaly(
        "relocated-write", "violation", "at once",
        "A value was polled in a topic or partition other than the one it was sent to.",
        "the value, where it was meant to be, where it was; of a flood, how many, from where to where, some examples",
        (
            Form(
                ("writer", "topic", "partition", "seq", "offset"),
                (
                    Field("offset", "int", "offset", "where it was polled here"),
                    _HASH, PROCESS, OP, WRITER, SEQ,
                    Field("topic", "str", "", "the topic that it was meant for"),
                    Field("partition", "int", "partition", "the partition that it was meant for"),
                ),
                "a record",
            ),
            Form(('"many"', "first offset of the stretch", "records"), _MANY, "more of a stretch than are told singly"),
        ),
    ),
    Anomaly(
        "corrupted-record", "violation", "at once",
        "The checksum or the form of a record's tag is broken.",
        "the offset and the hash of the bytes; of a flood, how many, from where to where, some examples",
        (
            Form(("offset", "hash"), (OFFSET, _HASH, PROCESS, OP), "a record"),
            Form(('"many"', "first offset of the stretch", "records"), _MANY, "more of a stretch than are told singly"),
        ),
    ),
    Anomaly(
        "altered-record", "violation", "at once",
        "A polled record's key, headers, timestamp or type of timestamp are not those that were sent, and its topic is"
        " not set to put the broker's time there (LogAppendTime).",
        "the value, its offset, how many records alike follow it, what differs, what was sent and what was told, the"
        " reader, the leader's epoch where the client knows it",
        (
            Form(
                ("writer", "seq", "what"),
                (
                    WRITER, SEQ, OFFSET,
                    Field("what", "str", "", "what differs: key, headers, timestamp, timestamp-type, with commas"),
                    Field("sent", "str", "", "what was sent"),
                    Field("told", "str", "", "what was told instead"),
                    PROCESS, OP,
                    Field("leader_epoch", "int", "epoch", "of the leader that gave it", optional=True),
                    Field("records", "int", "records", "how many in a row differ like it"),
                ),
            ),
        ),
    ),
    Anomaly(
        "spurious-zero-offset", "violation", "at once",
        "An acknowledgement, position, committed offset, listed end or poll is 0 while a higher offset was known"
        " before.",
        "the operation and the offset known before it",
        (
            Form(('"acknowledgement"', "writer", "seq"), (*VALUE, _KNOWN, *OPERATION), "an acknowledgement"),
            Form(
                ('"committed"', "group"),
                (GROUP, _KNOWN, Field("process", "int", "process", "to whom it was told")),
                "a committed offset",
            ),
            Form(('"listed"', "when"), (_KNOWN,), "the end of the log, as its leader lists it"),
            Form(("process", "op"), _STEP, "a poll"),
        ),
    ),
    Anomaly(
        "vanished-record", "violation", "on resolution",
        "A value that was polled at an offset is missing from a later read that passed that offset.",
        "the offset, the value, who polled it, who passed it, how long after",
        (Form(("offset", "writer", "seq"), READINGS),),
    ),
    Anomaly(
        "late-record", "violation", "on resolution",
        "A value appears at an offset that an earlier read had passed as a hole.",
        "the offset, the value, who passed it, who polled it, how long after",
        (Form(("offset", "writer", "seq"), READINGS),),
    ),
    Anomaly(
        "phantom-read", "violation", "on settlement",
        "A polled value was never sent, and the log of whoever could have sent it is there.",
        "the value, its offset, who polled it, the highest sequence number that its writer sent",
        (
            Form(
                ("writer", "seq"),
                (
                    *VALUE,
                    replace(OFFSET, nullable=True),
                    Field("highest_sent", "int", "seq", "the highest that its writer sent", nullable=True),
                    *OPERATION,
                ),
                "beyond what its writer sent",
            ),
            Form(
                ("writer", "seq"),
                (*VALUE, replace(OFFSET, nullable=True), *OPERATION),
                "of a finished history, which holds all that was sent",
            ),
        ),
    ),
    Anomaly(
        "torn-transaction", "violation", "on resolution",
        "Of one transaction, a read_committed reader polled a value, and another is absent where a reader passed it.",
        "the transaction and its outcome, the value seen, the value absent, with their partitions and offsets",
        (
            Form(
                ("txn",),
                (
                    TXN,
                    Field("outcome", "str", "", "ok, fail or info"),
                    Field("seen", "object", "", "a value of it that was polled", fields=PLACED_VALUE),
                    Field("absent", "object", "", "a value of it that is not there", fields=PLACED_VALUE),
                    *NEXT_TRANSACTION,
                ),
            ),
        ),
    ),
    Anomaly(
        "zombie-write", "violation", "on settlement",
        "A value is visible whose transaction was committed after a later life of its id had begun, or never.",
        "the transaction, the transactional id, the value; of a later life, which and how long before",
        (
            Form(("process", "op"), (PROCESS, OP, TXN, TRANSACTIONAL_ID, *VALUE), "its commit was never invoked"),
            Form(
                ("process", "op"),
                (
                    PROCESS, OP, TXN, TRANSACTIONAL_ID, *VALUE,
                    Field("later_process", "int", "process", "the later life of the transactional id"),
                    Field("late_by_s", "float", "s", "from that one's begin to the invocation of the commit"),
                ),
                "its commit was invoked after a later life had begun",
            ),
        ),
    ),
    Anomaly(
        "replaced-cluster", "violation", "at once",
        "Another cluster answers at the probes' addresses: what was acknowledged in the one before is not there.",
        "both ids",
        (
            Form(
                ("before",),
                (Field("before", "str", "", "the id it had"), Field("now", "str", "", "the id it has now")),
            ),
        ),
    ),
    Anomaly(
        "unfenced-zombie", "violation", "at once",
        "A broker granted a request of a producer's life, a group member's, or a member's generation, that was over.",
        "the request, for whom, and how long it had been over",
        (
            Form(
                ("process", "op"),
                (
                    PROCESS, OP, _REQUEST, TRANSACTIONAL_ID,
                    Field("producer_id", "int", "producer", "the producer that asked"),
                    Field("epoch", "int", "producer epoch", "its epoch"),
                    Field("latest_producer_id", "int", "producer", "the producer that the broker had named since"),
                    Field("latest_epoch", "int", "producer epoch", "that one's epoch"),
                    _OVER,
                ),
                "of an earlier life of a transactional id",
            ),
            Form(
                ("process", "op"),
                (
                    PROCESS, OP, _REQUEST, GROUP,
                    Field("member", "str", "", "the member that asked"),
                    Field("generation", "int", "generation", "the generation that it had been a member of"),
                    _OVER,
                ),
                "of a member that had left its group",
            ),
            Form(
                ("process", "op"),
                (
                    PROCESS, OP, _REQUEST, GROUP,
                    Field("member", "str", "", "the member that asked, and lived"),
                    Field("generation", "int", "generation", "the generation of its group as of which it asked"),
                    Field("latest_generation", "int", "generation", "the one that it had been given since"),
                    _OVER,
                ),
                "of a member that lived, as of an earlier generation of its group",
            ),
        ),
    ),
    Anomaly(
        "offset-regression", "violation", "on settlement",
        "A group's committed offset went down, and no commit of the lower offset was ever invoked.",
        "the group, both offsets, and who was told the lower one",
        (
            Form(
                ("group", "before", "after"),
                (
                    GROUP,
                    Field("before", "int", "offset", "what was told before"),
                    Field("after", "int", "offset", "what was told then"),
                    Field("read_by", "int", "process", "to whom"),
                ),
            ),
        ),
    ),
    Anomaly(
        "lost-commit", "violation", "on settlement",
        "A group's committed offset is told lower than one that was acknowledged before, or as none, and no commit "
        "explains it.",
        "the group, the offset acknowledged and to whom, the offset told and to whom, how long after",
        (
            Form(
                ("group", "committed", "the offset told, -1 for none"),
                (
                    GROUP,
                    Field("committed", "int", "offset", "what was acknowledged"),
                    Field("committed_by", "int", "process", "to whom"),
                    Field("told", "int", "offset", "what was told then, null for none", nullable=True),
                    Field("told_to", "int", "process", "to whom"),
                    Field("after_s", "float", "s", "how long after the acknowledgement it was asked for"),
                    Field("retention_minutes", "int", "min", "offsets' retention, where none was told", optional=True),
                ),
            ),
        ),
    ),
    Anomaly(
        "foreign-commit", "violation", "on settlement",
        "A group's committed offset is told as one that no commit and no transaction of the group ever asked for.",
        "the group, the offset told and to whom, what had been told or committed before",
        (
            Form(
                ("group", "told"),
                (
                    GROUP,
                    Field("told", "int", "offset", "what was told"),
                    Field("told_to", "int", "process", "to whom"),
                    Field("before", "int", "offset", "what was told or committed last, null for none", nullable=True),
                ),
            ),
        ),
    ),
    Anomaly(
        "log-truncation", "violation", "on settlement",
        "The log's end was listed at or below an offset that had been acknowledged or polled before, and a later write "
        "was given an offset between the two.",
        "the end listed, the offset known before, the offset given again",
        (
            Form(
                ("known",),
                (
                    Field("log_end", "int", "offset", "the end that was listed"),
                    Field("known", "int", "offset", "the highest acknowledged or polled before"),
                    Field("written_again", "int", "offset", "the lowest given to a later write"),
                    Field("known_since", "int", "micros", "when that was known first; cut after that", optional=True),
                ),
            ),
        ),
    ),
    Anomaly(
        "sequence-loss", "violation", "on settlement",
        "The client reports a broken sequence, and the log still reaches back to its last acknowledged offset.",
        "the error, the log start, the last acknowledged offset",
        (
            Form(
                ("process", "op"),
                (
                    *OPERATION, ERROR,
                    Field("log_start", "int", "offset", "the log start, as listed next"),
                    Field("acknowledged", "int", "offset", "the last that the process had acknowledged"),
                ),
            ),
        ),
    ),
    Anomaly(
        "eos-violation", "violation", "on resolution",
        "An input is reflected twice in a transform's committed output, or not at all while a later one is.",
        "the input's value and offset, the group, the operation that repeats it or the later input",
        (
            Form(
                ('"twice"', "group", "writer", "seq"),
                (
                    *VALUE,
                    Field("input_offset", "int", "offset", "where the input stands"),
                    GROUP,
                    Field("process", "int", "process", "who reflected it again"),
                    Field("op", "int", "operation", "by which operation"),
                ),
                "reflected twice",
            ),
            Form(
                ('"missing"', "group", "writer", "seq"),
                (
                    *VALUE,
                    Field("offset", "int", "offset", "where the input stands"),
                    GROUP,
                    Field("reflected", "int", "offset", "the later input that is reflected"),
                ),
                "not reflected",
            ),
        ),
    ),
    Anomaly(
        "nonlinearizable-register", "violation", "on settlement",
        "The reads and conditional writes of a register have no single order that fits their times and write ids.",
        "the register, the operations that contradict each other",
        (
            Form(
                ("register", "process", "op", "..."),
                (
                    Field("register", "int", "", "the register's number"),
                    Field("reason", "str", "", "what they contradict"),
                    Field(
                        "operations", "list of object", "", "the one that showed it, and those it contradicts",
                        fields=REGISTER_OPERATION,
                    ),
                ),
            ),
        ),
    ),
    *(
        Anomaly(
            name, "violation", "on resolution", meaning,
            "the shortest cycle: who wrote what, who read it, why this order is forced",
            _CYCLE,
        )
        for name, meaning in (
            (
                "G0",
                "Operations overwrote each other in a cycle: write-write edges alone lead back to where they began.",
            ),
            ("G0-process", "A cycle of write-write edges and the order of one process's operations."),
            ("G0-realtime", "A cycle of write-write edges and the order of operations in real time."),
            ("G1c", "Operations depend on each other in a cycle: by write-read (and write-write) edges alone."),
            ("G1c-process", "A cycle of write-read (and write-write) edges and the order of one process's operations."),
            ("G1c-realtime", "A cycle of write-read (and write-write) edges and the order of operations in real time."),
        )
    ),
)  # fmt: skip
