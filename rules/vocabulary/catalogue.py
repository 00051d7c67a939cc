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
        "the value, where it was meant to be, where it was; of a flood, how many, from where to where, some examples",
    ),
    Anomaly(
        "corrupted-record", "violation", "at once",
        "The checksum or the form of a record's tag is broken.",
        "the offset and the hash of the bytes; of a flood, how many, from where to where, some examples",
    ),
    Anomaly(
        "altered-record", "violation", "at once",
        "A polled record's key, headers, timestamp or type of timestamp are not those that were sent.",
        "the value, its offset, how many records alike follow it, what differs, what was sent and what was told, the"
        " reader, the leader's epoch where the client knows it",
    ),
    Anomaly(
        "spurious-zero-offset", "violation", "at once",
        "An acknowledgement, position, committed offset or poll is 0 while a higher offset was known before.",
        "the operation and the offset known before it",
    ),
    Anomaly(
        "vanished-record", "violation", "on resolution",
        "A value that was polled at an offset is missing from a later read that passed that offset.",
        "the offset, the value, who polled it and when, who passed it and when",
    ),
    Anomaly(
        "late-record", "violation", "on resolution",
        "A value appears at an offset that an earlier read had passed as a hole.",
        "the offset, the value, who passed it and when, who polled it and when",
    ),
    Anomaly(
        "phantom-read", "violation", "on settlement",
        "A polled value was never sent, and the log of whoever could have sent it is there.",
        "the value, its offset, who polled it, the highest sequence number that its writer sent",
    ),
    Anomaly(
        "torn-transaction", "violation", "on resolution",
        "Of one transaction, a read_committed reader polled a value, and another is absent where a reader passed it.",
        "the transaction and its outcome, the value seen, the value absent, with their partitions and offsets",
    ),
    Anomaly(
        "zombie-write", "violation", "on settlement",
        "A value is visible whose transaction was committed after a later life of its id had begun, or never.",
        "the transaction, the transactional id, the value, both lives and times",
    ),
    Anomaly(
        "offset-regression", "violation", "on settlement",
        "A group's committed offset went down, and no commit of the lower offset was ever invoked.",
        "the group, both offsets and when they were read",
    ),
    Anomaly(
        "lost-commit", "violation", "on settlement",
        "A group's committed offset is told lower than one that was acknowledged before, or as none, and no commit "
        "explains it.",
        "the group, the offset acknowledged and to whom, the offset told and to whom, how long after",
    ),
    Anomaly(
        "foreign-commit", "violation", "on settlement",
        "A group's committed offset is told as one that no commit and no transaction of the group ever asked for.",
        "the group, the offset told and to whom, what had been told or committed before",
    ),
    Anomaly(
        "log-truncation", "violation", "on settlement",
        "The log's end was listed at or below an offset that had been acknowledged or polled before, and a later write "
        "was given an offset between the two.",
        "the end listed, the offset known before, the offset given again",
    ),
    Anomaly(
        "sequence-loss", "violation", "on settlement",
        "The client reports a broken sequence, and the log still reaches back to its last acknowledged offset.",
        "the error, the log start, the last acknowledged offset",
    ),
    Anomaly(
        "eos-violation", "violation", "on resolution",
        "An input is reflected twice in a transform's committed output, or not at all while a later one is.",
        "the input's value and offset, the outputs and their transactions",
    ),
    Anomaly(
        "nonlinearizable-register", "violation", "on settlement",
        "The reads and conditional writes of a register have no single order that fits their times and write ids.",
        "the register, the operations that contradict each other",
    ),
    Anomaly(
        "G0", "violation", "on resolution",
        "Operations overwrote each other in a cycle: write-write edges alone lead back to where they began.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
    ),
    Anomaly(
        "G0-process", "violation", "on resolution",
        "A cycle of write-write edges and the order of one process's operations.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
    ),
    Anomaly(
        "G0-realtime", "violation", "on resolution",
        "A cycle of write-write edges and the order of operations in real time.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
    ),
    Anomaly(
        "G1c", "violation", "on resolution",
        "Operations depend on each other in a cycle: by write-read (and write-write) edges alone.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
    ),
    Anomaly(
        "G1c-process", "violation", "on resolution",
        "A cycle of write-read (and write-write) edges and the order of one process's operations.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
    ),
    Anomaly(
        "G1c-realtime", "violation", "on resolution",
        "A cycle of write-read (and write-write) edges and the order of operations in real time.",
        "the shortest cycle: who wrote what, who read it, why this order is forced",
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
        "evidence-late", "condition", "while it lasts",
        "What one process did, or all on one host, is not known as far as the rest: what needs it waits.",
        "the process or the host, what holds it (operation, rows, journals, host, clock), since when, how far behind",
    ),
    Anomaly(
        "check-failed", "condition", "while it lasts",
        "A rule raised an error: the partition's verdict is unknown.",
        "the error",
    ),
    Anomaly(
        "cluster-unreachable", "condition", "while it lasts",
        "No request of any probe to a broker, or to any, has been answered for the liveness objective.",
        "the brokers, whether they are all of the cluster, when the last answer came, the error",
    ),
    Anomaly(
        "stuck-consumer", "condition", "while it lasts",
        "A reader's position has not moved for the liveness objective while there is more to read, or nobody can tell.",
        "the process, its position, how far it could read, since when",
    ),
    Anomaly(
        "stuck-producer", "condition", "while it lasts",
        "No send, or no transaction, of a writer has completed for the liveness objective.",
        "the process, since when",
    ),
    Anomaly(
        "hanging-transaction", "condition", "while it lasts",
        "The last stable offset has not moved for longer than the probes' longest transaction timeout and 15 s.",
        "the last stable offset, the log end, since when",
    ),
    Anomaly(
        "stale-log-end", "condition", "while it lasts",
        "The end that a partition's leader lists has stayed below what was known to be there for the liveness "
        "objective.",
        "the end listed, the highest offset known before, for how long",
    ),
    Anomaly(
        "unrecovered-transaction", "condition", "while it lasts",
        "init_transactions has returned, and a transaction of an earlier life still holds the last stable offset.",
        "the transactional id, both lives, the offset held",
    ),
    Anomaly(
        "stuck-close", "condition", "while it lasts",
        "Closing a client has not returned for the liveness objective.",
        "the process, since when",
    ),
    Anomaly(
        "evidence-gap", "condition", "while it lasts",
        "The stream fell behind the probe log's retention: state is being rebuilt from what is there.",
        "the version that is missing",
    ),
    Anomaly(
        "under-replicated-probe-topic", "condition", "while it lasts",
        "The probe topic has fewer replicas or in-sync replicas than asked, or was created automatically.",
        "what was asked, what is there",
    ),
    Anomaly(
        "unsafe-config", "condition", "while it lasts",
        "The cluster's or a client's settings do not give the promised safety.",
        "the settings and their values",
    ),
    Anomaly(
        "foreign-record", "classified", "at once",
        "Well-formed records of a run that this log does not know: two canaries may share a topic. Told once a run.",
        "the run, and the first of its records: offset, hash, who polled it",
    ),
    Anomaly(
        "abort-position", "classified", "at once",
        "Where a consumer stands after its transaction was aborted: advance, rewind, rewind-further or other.",
        "the class, the positions before, reached and after, whether a rebalance fell into it",
    ),
    Anomaly(
        "misleading-fence", "classified", "on settlement",
        "A client heard that it was fenced, and there is no other producer of its transactional id.",
        "the transactional id, the operation, the error",
    ),
    Anomaly(
        "misleading-error", "classified", "on settlement",
        "An error said that a write had failed, and the write is visible.",
        "the operation, the error, the value seen",
    ),
    Anomaly(
        "benign-retention", "classified", "on settlement",
        "What was acknowledged fell below the log start before it was needed: retention, and no loss.",
        "the log start, the last acknowledged offset or how many values nobody polled",
    ),
    Anomaly(
        "rebalance", "classified", "on settlement",
        "A group reader was given this partition, or it was taken away.",
        "the process, the operation",
    ),
    Anomaly(
        "topic-recreated", "classified", "at once",
        "The topic has a new id: it was deleted and created again, and is a new log.",
        "both topic ids",
    ),
    Anomaly(
        "G1b", "classified", "on settlement",
        "An operation polled some of a transaction's values in a partition: legal where its poll ended in between.",
        "the transaction, the operation, a value seen, a value not seen",
    ),
)  # fmt: skip

CATALOGUE: Final[dict[str, Anomaly]] = {a.name: a for a in _ENTRIES}
