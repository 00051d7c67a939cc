"""The catalogue's conditions: what is open while it lasts, and closes when it ends."""

from __future__ import annotations

from typing import Final

from rules.vocabulary.anomaly import Field, Form, condition, form
from rules.vocabulary.fields import ERROR, LASTED, OFFSET, PROCESS, SEQ, SINCE, TRANSACTIONAL_ID, TXN, WRITER, optional

UNREACHABLE: Final = "cluster-unreachable"
EVIDENCE_LATE: Final = "evidence-late"
EVIDENCE_STALLED: Final = "evidence-stalled"
OUT_OF_SYNC: Final = "replicas-out-of-sync"
UNDER_MIN_ISR: Final = "under-min-isr"
THROTTLED: Final = "throttled"
WAIT_ON_THE_CLUSTER: Final = frozenset(
    {"stuck-consumer", "stuck-producer", "stuck-close", "unseen", EVIDENCE_LATE, "refused-reads", "hanging-transaction"}
)
"""Conditions that a cluster which answers nobody explains."""
WAIT_ON_A_QUOTA: Final = frozenset({"stuck-consumer", "stuck-producer", "stuck-close", "unseen", EVIDENCE_LATE})
"""Those of them that answers which are held back explain: what brokers do among themselves no quota delays."""
EXPLAIN_WHAT_WAITS: Final = (UNREACHABLE, UNDER_MIN_ISR, THROTTLED)
"""Conditions that explain those, the earlier in this order where several hold."""


def waits_on(cause: str) -> frozenset[str]:
    """The conditions that one of `EXPLAIN_WHAT_WAITS` explains."""
    return WAIT_ON_A_QUOTA if cause == THROTTLED else WAIT_ON_THE_CLUSTER


_VALUES: Final = Field("values", "int", "values", "how many")
_RUN: Final = (OFFSET, WRITER, SEQ, Field("values", "int", "values", "how many from there on"))
_FIRST: Final = Field("first", "list of object", "", "the first runs of them, ten at most", fields=_RUN)
_AGE: Final = Field("age_s", "float", "s", "for how long the oldest could have been polled")
_SETTINGS: Final = (Field("*", "str", "", "each setting that was told, by its name", optional=True),)
_PARTITIONS: Final = Field("partitions", "int", "partitions", "how many saw it at once, at most")
_HOST: Final = Field("host", "int", "host", "the host")
_LATE: Final = (
    Field("hold", "str", "", "what holds it: operation, rows, journals, host or clock"),
    SINCE,
    Field("behind_s", "float", "s", "how far it is behind the newest"),
)
_OF_HOST: Final = (
    _HOST,
    *optional(Field("hostname", "str", "", "what the host calls itself")),
    Field("processes", "int", "processes", "how many processes there are late"),
    *_LATE,
)
_BEHIND: Final = optional(Field("newest", "int", "host", "of a clock: the host that it is behind"))
_REACH: Final = (
    Field("brokers", "list of int", "broker", "those that do not answer; none where only the leader is known not to"),
    Field("known_brokers", "list of int", "broker", "all that are known"),
    Field("whole_cluster", "bool", "", "are these all?"),
    Field("since", "int", "micros", "when the last answer came, or since when it is asked, where nobody asked before"),
    Field("error", "str", "", "what the client said, null where it said nothing", nullable=True),
    Field("runs", "list of str", "", "the probes that asked: if these are of one host only, it may be its network"),
)
_CUT_OFF: Final = (
    Field("run", "str", "", "the run that is not answered, by its name"),
    Field("answered", "list of str", "", "the runs that are answered meanwhile"),
)
_REPLICAS: Final = (
    Field("broker", "int", "broker", "whose replicas they are"),
    Field("since", "int", "micros", "since when observers have told so of the first of these partitions"),
    Field("replicas", "list of int", "broker", "of that partition, those that have replicas"),
    Field("in_sync", "list of int", "broker", "of these, those that are in sync"),
)
_FEW: Final = (
    Field("replicas", "list of int", "broker", "of the first of these partitions, those that have replicas"),
    Field("in_sync", "list of int", "broker", "of these, those that are in sync"),
    Field("min_insync", "int", "brokers", "how many have to be in sync"),
    Field("since", "int", "micros", "since when observers have told so, or brokers had been silent before"),
)
_HELD_BACK: Final = (
    Field("brokers", "list of int", "broker", "those that hold back what they answer, by a quota"),
    Field("longest_s", "float", "s", "for how long at most they held an answer back, as the client was told"),
    Field("since", "int", "micros", "since when observers have told so"),
)
_STABLE: Final = Field("last_stable", "int", "offset", "the last stable offset")
_WHOSE: Final = optional(
    Field("transactional_ids", "list of str", "", "those of the probes whose transaction it may be, ten at most")
)
_LISTED: Final = (
    Field("log_end", "int", "offset", "the end that was listed"),
    Field("known", "int", "offset", "the highest acknowledged or polled before"),
    Field("short_for_s", "float", "s", "for how long the end has been listed too low"),
)
_OVERFLOW: Final = (
    Field("runs", "int", "runs", "how many runs the window held"),
    Field("settled_below", "int", "offset", "below it everything was settled"),
)
_DROPPED: Final = (
    Field("what", "str", "", "what waited for a verdict"),
    Field("dropped", "int", "entries", "how many of these were dropped; no verdict is given on them"),
    Field("since", "int", "micros", "since when"),
)
_PRODUCER: Final = (
    PROCESS,
    Field("writer", "str", "", "the probe's own name, and its run, where it told one, else its process id"),
    Field("answered", "int", "micros", "when it had its last answer here, -1 for never"),
)
_UNSEEN: Final = (_VALUES, _FIRST, _AGE)
_SILENT: Final = (Field("processes", "list of int", "process", "whose log it is, ten at most"),)


def _closed(*fields: Field, subject: tuple[str, ...] = (), when: str = "") -> Form:
    return form(*fields, LASTED, subject=subject, when=when)


CONDITIONS: Final = (
    condition(
        "unseen",
        "Acknowledged values have not been polled within the delivery objective, although readers are assigned.",
        "how many, the first of them, the age of the oldest",
        form(*_UNSEEN, when="while the log goes on"),
        form(
            _VALUES,
            Field("first", "list of object", "", "the first runs of them, ten at most", fields=_RUN[1:]),
            when="of a finished history",
        ),
        closing=[_closed(*_UNSEEN, when="as judged last"), _closed(_VALUES, when="in between, in a catch-up")],
    ),
    condition(
        "suspected",
        "Something is missing, and the evidence is not complete yet.",
        "how many values are missing, and the first of them",
        form(_VALUES, _FIRST),
        closing=[_closed(_VALUES, _FIRST)],
    ),
    condition(
        "unverifiable",
        "A process's log never completed: what depends on it stays open, and no violation follows.",
        "the processes of whose logs something is missing for good",
        form(*_SILENT),
        closing=[_closed(*_SILENT)],
    ),
    condition(
        "window-overflow",
        "More waits in a partition than is kept: the oldest part of its open window was settled before its time, or"
        " what waited for a verdict was dropped.",
        "the window's extent, or what was dropped, how many, since when",
        form(*_OVERFLOW, when="the open window"),
        form(*_DROPPED, subject=("what",), when="what waited for a verdict, as far as it had been dropped then"),
        closing=[
            _closed(*_OVERFLOW, when="the open window"),
            _closed(*_DROPPED, subject=("what",), when="what waited for a verdict, all of it"),
        ],
    ),
    condition(
        EVIDENCE_STALLED,
        "The probe log has had no row for the liveness objective.",
        "the time of the last row",
        form(
            Field(
                "last_row",
                "str",
                "time",
                "when the last row came, by the job's clock; of an earlier run its log time; else never",
            )
        ),
        closing=[form()],
    ),
    condition(
        "checks-stalled",
        "The checks have failed, or a batch of them does not end: nothing is checked until they go on.",
        "what ended them",
        form(Field("why", "str", "", "what ended them, in one line")),
        closing=[_closed()],
    ),
    condition(
        "checks-behind",
        "Rows of the probe log have waited for the checks longer than `job.behind_limit`: findings come late.",
        "for how long the oldest of them has waited",
        form(Field("behind_s", "float", "s", "for how long the oldest row has waited")),
        closing=[_closed()],
    ),
    condition(
        EVIDENCE_LATE,
        "What one process did, or all on one host, is not known as far as the rest: what needs it waits.",
        "the process or the host, what holds it (operation, rows, journals, host, clock), since when, how far behind",
        form(
            PROCESS,
            _HOST,
            *optional(Field("rows", "int", "rows", "how many of its rows are missing")),
            *_LATE,
            subject=('"process"', "process"),
            when="one process",
        ),
        form(*_OF_HOST, *_BEHIND, subject=('"host"', "host"), when="a host"),
        form(*_OF_HOST, subject=('"journals"', "host"), when="processes of a host that did not close"),
        closing=[
            _closed(PROCESS, SINCE, _LATE[2], _PARTITIONS, subject=('"process"', "process"), when="one process"),
            _closed(_HOST, SINCE, _LATE[2], _PARTITIONS, subject=('"host"', "host"), when="a host"),
            _closed(
                Field("journals", "int", "host", "the host"),
                SINCE,
                _LATE[2],
                _PARTITIONS,
                subject=('"journals"', "journals"),
                when="processes of a host that did not close",
            ),
            _closed(_PARTITIONS, subject=("of whom", "its number"), when="nobody tells of it any more"),
        ],
    ),
    condition(
        "check-failed",
        "A rule raised an error: the partition's verdict is unknown.",
        "the error, and what it was raised over",
        form(ERROR, Field("slices", "int", "rows", "how many rows there were in the step"), when="a partition"),
        form(
            ERROR,
            Field("facts", "int", "facts", "how many facts there were in the batch"),
            subject=('"across partitions"',),
            when="across partitions",
        ),
    ),
    condition(
        "cluster-unreachable",
        "No request to a broker, or to any, has been answered for the liveness objective: of all, or of one run alone.",
        "the brokers, whether they are all of the cluster, when the last answer came, the error; who is answered",
        form(*_REACH, when="nobody is answered"),
        form(*_REACH, *_CUT_OFF, subject=("run",), when="one run is not, and others are"),
        closing=[
            _closed(*_REACH, _PARTITIONS, when="as told last"),
            _closed(*_REACH, *_CUT_OFF, _PARTITIONS, subject=("run",), when="of one run, as told last"),
            _closed(_PARTITIONS, when="nobody tells of it any more"),
            _closed(_PARTITIONS, subject=("run",), when="of one run, nobody tells of it any more"),
        ],
    ),
    condition(
        "stuck-consumer",
        "A reader's position has not moved for the liveness objective while there is more to read, or nobody can tell.",
        "the process, its position, since when, what is known of what it could read",
        form(
            PROCESS,
            Field("position", "int", "offset", "where it stands, -1 where nobody knows"),
            Field("moved", "int", "micros", "when it moved last"),
            Field("why", "str", "", "known (a value is ahead), stands (it says so), blind (no watermark)"),
            Field("readable", "int", "offset", "the value ahead of it", optional=True),
            Field("error", "str", "", "in which its polls ended since, as the client named it", optional=True),
            subject=("process",),
        ),
        closing=[_closed(PROCESS, subject=("process",))],
    ),
    condition(
        "stuck-producer",
        "No send, or no transaction, of a writer has completed for the liveness objective.",
        "the process, its name, when it had its last answer, since when it tries, when a broker was away meanwhile",
        form(
            *_PRODUCER,
            Field("began", "int", "micros", "since when it tries: the operation that has no answer began"),
            Field("error", "str", "", "its login was refused to the client before, with this error", optional=True),
            Field("away_from", "int", "micros", "a broker answered nobody meanwhile: from", optional=True),
            Field("away_until", "int", "micros", "and until: all leaders answer again", optional=True),
            subject=("writer",),
        ),
        closing=[
            _closed(*_PRODUCER, subject=("writer",), when="it was answered, or ended"),
            _closed(_PRODUCER[1], subject=("writer",), when="nobody bears its name any more"),
        ],
    ),
    condition(
        "refused-writes",
        "All that a writer sent has been refused for the liveness objective.",
        "the process, its name, the error, when it had its last acknowledgement, since when it is refused",
        form(
            *_PRODUCER[:2],
            ERROR,
            Field("acknowledged", "int", "micros", "when it had its last acknowledgement here, -1 for never"),
            SINCE,
            subject=("writer",),
        ),
        closing=[
            _closed(_PRODUCER[1], subject=("writer",), when="it was acknowledged, or nobody bears its name any more")
        ],
    ),
    condition(
        "refused-reads",
        "A reader has not come to read for the liveness objective: its lives end with an error, or it is refused.",
        "the process, its name, the error, since when",
        form(
            PROCESS,
            Field("reader", "str", "", "the probe's own name, and its run, where it told one, else its process id"),
            ERROR,
            SINCE,
            subject=("reader",),
        ),
        closing=[
            _closed(
                Field("reader", "str", "", "the probe's own name"),
                subject=("reader",),
                when="it has come to read, or nobody bears its name any more",
            )
        ],
    ),
    condition(
        "hanging-transaction",
        "The last stable offset has not moved for longer than the probes' longest transaction timeout and 30 s.",
        "the last stable offset, the log end, since when, whose transaction it may be",
        form(_STABLE, Field("log_end", "int", "offset", "the end of the log"), SINCE, *_WHOSE),
        closing=[_closed()],
    ),
    condition(
        "stale-log-end",
        "The end that a partition's leader lists has stayed below what was known to be there for the liveness "
        "objective.",
        "the end listed, the highest offset known before, for how long",
        form(*_LISTED),
        closing=[_closed(*_LISTED)],
    ),
    condition(
        "unrecovered-transaction",
        "init_transactions has returned, and a transaction of an earlier life still holds the last stable offset.",
        "the transactional id, both lives, the transaction, the offset held",
        form(
            TRANSACTIONAL_ID,
            Field("earlier", "int", "process", "the earlier life"),
            Field("later", "int", "process", "the life whose init_transactions returned"),
            TXN,
            _STABLE,
            subject=("transactional_id",),
        ),
        closing=[_closed(subject=("transactional_id",))],
    ),
    condition(
        "stuck-close",
        "Closing a client has not returned for the liveness objective.",
        "the process, since when",
        form(PROCESS, SINCE, subject=("process",)),
        closing=[_closed(PROCESS, subject=("process",))],
    ),
    condition(
        "evidence-gap",
        "The stream fell behind the log's retention, or a file of the log is lost: the checks go on with the rest.",
        "what the stream said",
        form(ERROR),
        closing=[form()],
    ),
    condition(
        "under-replicated-probe-topic",
        "The probe topic has fewer replicas or in-sync replicas than asked, or was created automatically.",
        "what was asked, what is there: all settings that the observer was told",
        form(*_SETTINGS),
        closing=[_closed(*_SETTINGS)],
    ),
    condition(
        UNDER_MIN_ISR,
        "Fewer replicas of a probe partition are in sync than min.insync.replicas: no write that waits for them is "
        "acknowledged.",
        "who has replicas, who is in sync, how many have to be, since when",
        form(*_FEW),
        closing=[
            _closed(*_FEW, _PARTITIONS, when="as told last"),
            _closed(_PARTITIONS, when="nobody tells of it any more"),
        ],
    ),
    condition(
        THROTTLED,
        "Brokers hold back what they answer the probes' clients, by a quota, for seconds each time.",
        "the brokers, for how long they held an answer back at most, since when",
        form(*_HELD_BACK),
        closing=[
            _closed(*_HELD_BACK, _PARTITIONS, when="as told last"),
            _closed(_PARTITIONS, when="nobody tells of it any more"),
        ],
    ),
    condition(
        OUT_OF_SYNC,
        "Replicas of probe partitions on a broker have not been in sync for two minutes: it is away, or cannot follow.",
        "the broker, since when, who has replicas and who is in sync",
        form(*_REPLICAS, subject=("broker",)),
        closing=[
            _closed(*_REPLICAS, _PARTITIONS, subject=("broker",), when="as told last"),
            _closed(_PARTITIONS, subject=("broker",), when="nobody tells of it any more"),
        ],
    ),
    condition(
        "unsafe-config",
        "The cluster's or a client's settings do not give the promised safety.",
        "the settings and their values",
        form(*_SETTINGS, when="the probe topic, whose leaders may be elected uncleanly"),
        form(*_SETTINGS, subject=('"cleanup.policy"',), when="the probe topic, which is compacted"),
        form(
            PROCESS,
            Field("enable.idempotence", "str", "", "as the writer was started", optional=True),
            Field("acks", "str", "", "as the writer was started", optional=True),
            subject=("process",),
            when="a writer",
        ),
        closing=[
            _closed(*_SETTINGS, when="the probe topic, whose leaders might be elected uncleanly"),
            _closed(*_SETTINGS, subject=('"cleanup.policy"',), when="the probe topic, which was compacted"),
            _closed(PROCESS, subject=("process",), when="a writer"),
        ],
    ),
)
