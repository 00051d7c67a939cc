"""The catalogue's violations of what brokers agree on among themselves and with groups and transactional producers, as
`rules.vocabulary.violations` has those of the records that are sent and read."""

from __future__ import annotations

from typing import Final

from rules.vocabulary.anomaly import Field, form, violation
from rules.vocabulary.fields import (
    ERROR,
    GROUP,
    NEXT_TRANSACTION,
    OFFSET,
    OP,
    OPERATION,
    PLACED_VALUE,
    PROCESS,
    REGISTER_OPERATION,
    SEQ,
    TRANSACTIONAL_ID,
    TXN,
    VALUE,
    WRITER,
    optional,
)

_REQUEST: Final = Field("request", "str", "", "what was asked, by its name in Kafka's protocol")
_OVER: Final = Field("late_by_s", "float", "s", "from the end of that life to the invocation")
_CYCLE: Final = form(
    Field("length", "int", "operations", "how many operations the cycle has"),
    Field("left_out", "int", "operations", "how many of them, between both ends of the list, are not listed"),
    Field(
        "operations",
        "list of object",
        "",
        "the operations of the cycle, in its order",
        fields=(
            PROCESS,
            OP,
            Field("f", "str", "", "send, poll or txn"),
            Field("type", "str", "", "ok, fail or info"),
            Field("invoked", "str", "time", "when it was invoked"),
            Field("completed", "str", "time", "when it completed"),
        ),
    ),
    Field(
        "steps",
        "list of object",
        "",
        "why each comes before the next",
        fields=(
            Field("kind", "str", "", "wr, ww, process or realtime"),
            *optional(
                Field("partition", "int", "partition", "where the value stands"),
                WRITER,
                SEQ,
                Field("topic", "str", "", "where the value stands, if the cycle spans topics"),
                OFFSET,
                Field("next", "object", "", "of ww, the value written over it", fields=(WRITER, SEQ, OFFSET)),
            ),
        ),
    ),
    Field("why", "list of str", "", "the same in sentences"),
    Field("picture", "str", "", "the file that shows the cycle", optional=True),
    subject=("process", "op", "..."),
)

PROTOCOL_VIOLATIONS: Final = (
    violation(
        "torn-transaction",
        "on resolution",
        "Of one transaction, a read_committed reader polled a value, and another is absent where a reader passed it.",
        "the transaction and its outcome, the value seen, the value absent, with their partitions and offsets",
        form(
            TXN,
            Field("outcome", "str", "", "ok, fail or info"),
            Field("seen", "object", "", "a value of it that was polled", fields=PLACED_VALUE),
            Field("absent", "object", "", "a value of it that is not there", fields=PLACED_VALUE),
            *NEXT_TRANSACTION,
            subject=("txn",),
        ),
    ),
    violation(
        "zombie-write",
        "on settlement",
        "A value is visible whose transaction was committed after a later life of its id had begun, or never.",
        "the transaction, the transactional id, the value; of a later life, which and how long before",
        form(
            PROCESS, OP, TXN, TRANSACTIONAL_ID, *VALUE, subject=("process", "op"), when="its commit was never invoked"
        ),
        form(
            PROCESS,
            OP,
            TXN,
            TRANSACTIONAL_ID,
            *VALUE,
            Field("later_process", "int", "process", "the later life of the transactional id"),
            Field("late_by_s", "float", "s", "from that one's begin to the invocation of the commit"),
            subject=("process", "op"),
            when="its commit was invoked after a later life had begun",
        ),
    ),
    violation(
        "dirty-read",
        "at once",
        "An ok poll at read_committed returned a value of a transaction whose commit was invoked later.",
        "the transaction, the reader and its operation, the value, how much too early it was",
        form(
            TXN,
            PROCESS,
            OP,
            *VALUE,
            *optional(OFFSET),
            Field("early_by_s", "float", "s", "from the end of the poll to the invocation of the commit"),
            Field("txn_process", "int", "process", "whose transaction it is"),
            Field("txn_op", "int", "operation", "its operation"),
            subject=("txn", "process", "op"),
        ),
    ),
    violation(
        "replaced-cluster",
        "at once",
        "Another cluster answers at the probes' addresses: what was acknowledged in the one before is not there.",
        "both ids",
        form(
            Field("before", "str", "", "the id it had"),
            Field("now", "str", "", "the id it has now"),
            subject=("before",),
        ),
    ),
    violation(
        "unfenced-zombie",
        "at once",
        "A broker granted a request of a producer's life, a group member's, or a member's generation, that was over.",
        "the request, for whom, and how long it had been over",
        form(
            PROCESS,
            OP,
            _REQUEST,
            TRANSACTIONAL_ID,
            Field("producer_id", "int", "producer", "the producer that asked"),
            Field("epoch", "int", "producer epoch", "its epoch"),
            Field("latest_producer_id", "int", "producer", "the producer that the broker had named since"),
            Field("latest_epoch", "int", "producer epoch", "that one's epoch"),
            _OVER,
            subject=("process", "op"),
            when="of an earlier life of a transactional id",
        ),
        form(
            PROCESS,
            OP,
            _REQUEST,
            GROUP,
            Field("member", "str", "", "the member that asked"),
            Field("generation", "int", "generation", "the generation that it had been a member of"),
            _OVER,
            subject=("process", "op"),
            when="of a member that had left its group",
        ),
        form(
            PROCESS,
            OP,
            _REQUEST,
            GROUP,
            Field("member", "str", "", "the member that asked, and lived"),
            Field("generation", "int", "generation", "the generation of its group as of which it asked"),
            Field("latest_generation", "int", "generation", "the one that it had been given since"),
            _OVER,
            subject=("process", "op"),
            when="of a member that lived, as of an earlier generation of its group",
        ),
    ),
    violation(
        "offset-regression",
        "on settlement",
        "A group's committed offset went down, and no commit of the lower offset was ever invoked.",
        "the group, both offsets, and who was told the lower one",
        form(
            GROUP,
            Field("before", "int", "offset", "what was told before"),
            Field("after", "int", "offset", "what was told then"),
            Field("read_by", "int", "process", "to whom"),
            subject=("group", "before", "after"),
        ),
    ),
    violation(
        "lost-commit",
        "on settlement",
        "A group's committed offset is told lower than one that was acknowledged before, or as none, and no commit "
        "explains it. All that had been acknowledged when the group was asked for that offset is one loss.",
        "the group, the offset acknowledged and to whom, the offset told and to whom, how long after",
        form(
            GROUP,
            Field("committed", "int", "offset", "what was acknowledged"),
            Field("committed_by", "int", "process", "to whom"),
            Field("told", "int", "offset", "what was told then, null for none", nullable=True, none=True),
            Field("told_to", "int", "process", "to whom"),
            Field("after_s", "float", "s", "how long after the acknowledgement it was asked for"),
            Field("retention_minutes", "int", "min", "offsets' retention, where none was told", optional=True),
            subject=("group", "committed", "the offset told, -1 for none"),
        ),
    ),
    violation(
        "foreign-commit",
        "on settlement",
        "A group's committed offset is told as one that no commit and no transaction of the group ever asked for.",
        "the group, the offset told and to whom, what had been told or committed before",
        form(
            GROUP,
            Field("told", "int", "offset", "what was told"),
            Field("told_to", "int", "process", "to whom"),
            Field(
                "before", "int", "offset", "what was told or committed last, null for none", nullable=True, none=True
            ),
            subject=("group", "told"),
        ),
    ),
    violation(
        "log-truncation",
        "on settlement",
        "The log's end was listed at or below an offset that had been acknowledged or polled before, and a later write "
        "was given an offset between the two.",
        "the end listed, the offset known before, the offset given again",
        form(
            Field("log_end", "int", "offset", "the end that was listed"),
            Field("known", "int", "offset", "the highest acknowledged or polled before"),
            Field("written_again", "int", "offset", "the lowest given to a later write"),
            Field("known_since", "int", "micros", "when that was known first; cut after that", optional=True),
            subject=("known",),
        ),
    ),
    violation(
        "sequence-loss",
        "on settlement",
        "The client reports a broken sequence, and the log still reaches back to its last acknowledged offset.",
        "the error, the log start, the last acknowledged offset",
        form(
            *OPERATION,
            ERROR,
            Field("log_start", "int", "offset", "the log start, as listed next"),
            Field("acknowledged", "int", "offset", "the last that the process had acknowledged"),
            subject=("process", "op"),
        ),
    ),
    violation(
        "eos-violation",
        "on resolution",
        "An input is reflected twice in a transform's committed output, or not at all while a later one is.",
        "the input's value and offset, the group, the operation that repeats it or the later input",
        form(
            *VALUE,
            Field("input_offset", "int", "offset", "where the input stands"),
            GROUP,
            Field("process", "int", "process", "who reflected it again"),
            Field("op", "int", "operation", "by which operation"),
            subject=('"twice"', "group", "writer", "seq"),
            when="reflected twice",
        ),
        form(
            *VALUE,
            Field("offset", "int", "offset", "where the input stands"),
            GROUP,
            Field("reflected", "int", "offset", "the later input that is reflected"),
            subject=('"missing"', "group", "writer", "seq"),
            when="not reflected",
        ),
    ),
    violation(
        "nonlinearizable-register",
        "on settlement",
        "The reads and conditional writes of a register have no single order that fits their times and write ids.",
        "the register, the operations that contradict each other",
        form(
            Field("register", "int", "", "the register's number"),
            Field("reason", "str", "", "what they contradict"),
            Field(
                "operations",
                "list of object",
                "",
                "the one that showed it, and those it contradicts",
                fields=REGISTER_OPERATION,
            ),
            subject=("register", "process", "op", "..."),
        ),
    ),
    *(
        violation(
            name,
            "on resolution",
            meaning,
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
)
