"""What a client's error says about the operation: it happened (`ok`), it certainly did not (`fail`), unknown (`info`).

Every error code of librdkafka stands here once, by name, and a test holds this table against the installed library. A
code is `info` unless something speaks against it, because only a certain failure supports an aborted read. `fail` in a
context is claimed for two kinds of codes only:

- the client refused before anything left it (`enqueue`: what `produce` itself raises; invalid arguments and states);
- the broker refuses the request for a property of the request alone, which an earlier attempt of the same request had
  too, whichever broker took it and whatever was configured then. librdkafka retries by itself, and the first attempt
  may have been accepted before a right was withdrawn, the producer fenced, or a setting of the topic or the broker
  changed: its largest message (`MSG_SIZE_TOO_LARGE`, `RECORD_LIST_TOO_LARGE`), its message format and what of
  compression and transactions it takes (`UNSUPPORTED_FOR_MESSAGE_FORMAT`, `UNSUPPORTED_COMPRESSION_TYPE`), the largest
  metadata and record of a commit, the longest timeout of a transaction.

So a record that timed out or was purged, in flight or queued, is `info`: it may have been sent before it was queued
again. A transaction whose commit was invoked is never `fail`, whatever it returned and even if a later abort succeeds;
one that was aborted is `fail` only if the abort returned without an error (`transaction_outcome`).

Some codes are our own: `_STUCK` (a call into the client, or the probe itself, does not return), `_CLOSE_STUCK` (closing
the client does not return), `_CRASHED` (the client was abandoned on purpose).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Final, Literal

from confluent_kafka import KafkaError, KafkaException

from rules.vocabulary.slices import LOGIN_REFUSED, Outcome

Context = Literal["enqueue", "send", "poll", "commit", "init", "other"]
CONTEXTS: Final[tuple[Context, ...]] = ("enqueue", "send", "poll", "commit", "init", "other")
"""`enqueue`: raised by produce itself. `send`: a record's delivery report. `poll`: returned by poll or consume.
`commit`: of offsets, or of a transaction. `init`: init_transactions. `other`: everything else."""

CODES: Final[frozenset[str]] = frozenset(
    [
        "_BAD_MSG",
        "_BAD_COMPRESSION",
        "_DESTROY",
        "_FAIL",
        "_TRANSPORT",
        "_CRIT_SYS_RESOURCE",
        "_RESOLVE",
        "_MSG_TIMED_OUT",
        "_PARTITION_EOF",
        "_UNKNOWN_PARTITION",
        "_FS",
        "_UNKNOWN_TOPIC",
        "_ALL_BROKERS_DOWN",
        "_INVALID_ARG",
        "_TIMED_OUT",
        "_QUEUE_FULL",
        "_ISR_INSUFF",
        "_NODE_UPDATE",
        "_SSL",
        "_WAIT_COORD",
        "_UNKNOWN_GROUP",
        "_IN_PROGRESS",
        "_PREV_IN_PROGRESS",
        "_EXISTING_SUBSCRIPTION",
        "_ASSIGN_PARTITIONS",
        "_REVOKE_PARTITIONS",
        "_CONFLICT",
        "_STATE",
        "_UNKNOWN_PROTOCOL",
        "_NOT_IMPLEMENTED",
        "_AUTHENTICATION",
        "_NO_OFFSET",
        "_OUTDATED",
        "_TIMED_OUT_QUEUE",
        "_UNSUPPORTED_FEATURE",
        "_WAIT_CACHE",
        "_INTR",
        "_KEY_SERIALIZATION",
        "_VALUE_SERIALIZATION",
        "_KEY_DESERIALIZATION",
        "_VALUE_DESERIALIZATION",
        "_PARTIAL",
        "_READ_ONLY",
        "_NOENT",
        "_UNDERFLOW",
        "_INVALID_TYPE",
        "_RETRY",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "_FATAL",
        "_INCONSISTENT",
        "_GAPLESS_GUARANTEE",
        "_MAX_POLL_EXCEEDED",
        "_UNKNOWN_BROKER",
        "_NOT_CONFIGURED",
        "_FENCED",
        "_APPLICATION",
        "_ASSIGNMENT_LOST",
        "_NOOP",
        "_AUTO_OFFSET_RESET",
        "_LOG_TRUNCATION",
        "_INVALID_DIFFERENT_RECORD",
        "_DESTROY_BROKER",
        "UNKNOWN",
        "NO_ERROR",
        "OFFSET_OUT_OF_RANGE",
        "INVALID_MSG",
        "UNKNOWN_TOPIC_OR_PART",
        "INVALID_MSG_SIZE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "MSG_SIZE_TOO_LARGE",
        "STALE_CTRL_EPOCH",
        "OFFSET_METADATA_TOO_LARGE",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "TOPIC_EXCEPTION",
        "RECORD_LIST_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "INVALID_REQUIRED_ACKS",
        "ILLEGAL_GENERATION",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "UNKNOWN_MEMBER_ID",
        "INVALID_SESSION_TIMEOUT",
        "REBALANCE_IN_PROGRESS",
        "INVALID_COMMIT_OFFSET_SIZE",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_TIMESTAMP",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "UNSUPPORTED_VERSION",
        "TOPIC_ALREADY_EXISTS",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_CONFIG",
        "NOT_CONTROLLER",
        "INVALID_REQUEST",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "POLICY_VIOLATION",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "DUPLICATE_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TRANSACTION_TIMEOUT",
        "CONCURRENT_TRANSACTIONS",
        "TRANSACTION_COORDINATOR_FENCED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SECURITY_DISABLED",
        "OPERATION_NOT_ATTEMPTED",
        "KAFKA_STORAGE_ERROR",
        "LOG_DIR_NOT_FOUND",
        "SASL_AUTHENTICATION_FAILED",
        "UNKNOWN_PRODUCER_ID",
        "REASSIGNMENT_IN_PROGRESS",
        "DELEGATION_TOKEN_AUTH_DISABLED",
        "DELEGATION_TOKEN_NOT_FOUND",
        "DELEGATION_TOKEN_OWNER_MISMATCH",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        "DELEGATION_TOKEN_EXPIRED",
        "INVALID_PRINCIPAL_TYPE",
        "NON_EMPTY_GROUP",
        "GROUP_ID_NOT_FOUND",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "LISTENER_NOT_FOUND",
        "TOPIC_DELETION_DISABLED",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "STALE_BROKER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "MEMBER_ID_REQUIRED",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "GROUP_MAX_SIZE_REACHED",
        "FENCED_INSTANCE_ID",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "ELECTION_NOT_NEEDED",
        "NO_REASSIGNMENT_IN_PROGRESS",
        "GROUP_SUBSCRIBED_TO_TOPIC",
        "INVALID_RECORD",
        "UNSTABLE_OFFSET_COMMIT",
        "THROTTLING_QUOTA_EXCEEDED",
        "PRODUCER_FENCED",
        "RESOURCE_NOT_FOUND",
        "DUPLICATE_RESOURCE",
        "UNACCEPTABLE_CREDENTIAL",
        "INCONSISTENT_VOTER_SET",
        "INVALID_UPDATE_VERSION",
        "FEATURE_UPDATE_FAILED",
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "FENCED_MEMBER_EPOCH",
        "UNRELEASED_INSTANCE_ID",
        "UNSUPPORTED_ASSIGNOR",
        "STALE_MEMBER_EPOCH",
        "MISMATCHED_ENDPOINT_TYPE",
        "UNSUPPORTED_ENDPOINT_TYPE",
        "UNKNOWN_CONTROLLER_ID",
        "UNKNOWN_SUBSCRIPTION_ID",
        "TELEMETRY_TOO_LARGE",
        "INVALID_REGISTRATION",
        "TRANSACTION_ABORTABLE",
        "INVALID_RECORD_STATE",
        "SHARE_SESSION_NOT_FOUND",
        "INVALID_SHARE_SESSION_EPOCH",
        "FENCED_STATE_EPOCH",
        "INVALID_VOTER_KEY",
        "DUPLICATE_VOTER",
        "VOTER_NOT_FOUND",
        "INVALID_REGULAR_EXPRESSION",
        "REBOOTSTRAP_REQUIRED",
        "STREAMS_INVALID_TOPOLOGY",
        "STREAMS_INVALID_TOPOLOGY_EPOCH",
        "STREAMS_TOPOLOGY_FENCED",
        "SHARE_SESSION_LIMIT_REACHED",
    ]
)

CERTAIN_FAILURES: Final[Mapping[Context, frozenset[str]]] = {
    "enqueue": CODES - {"NO_ERROR", "UNKNOWN"},
    "send": frozenset(["INVALID_REQUIRED_ACKS"]),
    "poll": frozenset(),
    "commit": frozenset(["_INVALID_ARG", "_NO_OFFSET", "_NOT_CONFIGURED", "_UNKNOWN_GROUP", "INVALID_GROUP_ID"]),
    "init": frozenset(["_INVALID_ARG", "_NOT_CONFIGURED"]),
    "other": frozenset(["_INVALID_ARG", "_NOT_CONFIGURED"]),
}
HARMLESS: Final[Mapping[Context, frozenset[str]]] = {"poll": frozenset({"_PARTITION_EOF"})}
"""Codes that report no failure at all, besides NO_ERROR."""

NOT_THERE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
"""Codes of what was asked of a topic that is not there."""

NOT_ALLOWED: Final = frozenset({"GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})
"""Codes by which a broker says that a client may not know of a topic, or read by a group. A client tells it once, and
goes on in vain."""

_NAMES: Final[dict[int, str]] = {
    value: name for name in dir(KafkaError) if isinstance(value := getattr(KafkaError, name), int) and name in CODES
}


def name_of(code: int) -> str:
    """The error code's name in librdkafka, as it is written to the log; `CODE_<n>` where it is not known."""
    return _NAMES.get(code, f"CODE_{code}")


def classify(code: int | str, context: Context) -> Outcome:
    """What an error code (number or name) says about an operation in this context. Unknown codes are `info`."""
    name = code if isinstance(code, str) else name_of(code)
    if name == "NO_ERROR" or name in HARMLESS.get(context, ()):
        return "ok"
    return "fail" if name in CERTAIN_FAILURES[context] else "info"


def transaction_outcome(*, commit_invoked: bool, committed: bool, aborted: bool) -> Outcome:
    """The class of a transaction. `committed` and `aborted`: that call returned without an error."""
    if committed:
        return "ok"
    return "fail" if aborted and not commit_invoked else "info"


class ProbeError(Exception):
    """Something a probe cannot go on with. The message is a sentence for the user."""


class ClientError(ProbeError):
    """An error of the Kafka client. `code` is its name; `fatal`: this client is unusable from now on; `abortable`: the
    transaction must be aborted; `retriable`: the same call may be made again."""

    def __init__(self, code: str, text: str, *, fatal: bool = False, abortable: bool = False, retriable: bool = False):
        super().__init__(f"{text} ({code})")
        self.code, self.fatal, self.abortable, self.retriable = code, fatal, abortable, retriable


class Throttled(ClientError):
    """A broker holds back what it answers this client, `seconds` this time: a quota was exceeded. No operation has
    failed by it."""

    def __init__(self, broker: int, seconds: float) -> None:
        super().__init__("THROTTLED", f"broker {broker} holds an answer back for {seconds:.1f} s, by a quota")
        self.broker, self.seconds = broker, seconds


class ClientStuck(ProbeError):
    """A call into the client did not return within its limit. `returned` is set if it ever does."""

    code: Final = "_STUCK"

    def __init__(self, sentence: str, returned: threading.Event | None = None) -> None:
        super().__init__(sentence)
        self.returned = returned or threading.Event()


CLOSE_STUCK: Final = "_CLOSE_STUCK"
"""The error of a close row whose client did not return from closing; `invoked` is when closing began. If it returns
later, a close row of type `ok` follows."""


class Unreachable(ProbeError):
    """No broker of the cluster answers."""


class Crash(ProbeError):
    """The probe abandons its client on purpose."""

    code: Final = "_CRASHED"


_TRANSPORT: Final = "_TRANSPORT"
_UNANSWERED: Final = re.compile(
    r"SASL \S+ mechanism handshake failed: Local: |SaslAuthenticateRequest failed: Local: |SSL transport error"
)
"""What librdkafka says of a login that was not answered, by the codes of one that is refused (rdkafka_broker.c,
rdkafka_request.c, rdkafka_ssl.c): `Local` are its own errors, a time-out or a connection that was lost."""


def _is_unanswered(error: KafkaError) -> bool:
    return name_of(error.code()) in LOGIN_REFUSED and _UNANSWERED.search(error.str()) is not None


_DESCRIBED: Final[dict[str, str]] = {KafkaError(code).str(): name for code, name in _NAMES.items()}
_FATAL_AS_SAID: Final = re.compile("Fatal error: (.+)")


def _behind_fatal(error: KafkaError) -> str:
    """Which error has ended the client. What a consumer returns in place of a record has no mark of being fatal, and
    says in words alone which it was (rd_kafka_set_fatal_error0 in rdkafka.c: "Fatal error: <the code's>: <more>")."""
    told = _FATAL_AS_SAID.match(error.str())
    said = told[1] if told else ""
    return next((name for words, name in _DESCRIBED.items() if said.startswith(f"{words}: ")), name_of(error.code()))


def translate(error: KafkaError | KafkaException | Exception) -> ClientError:
    """Any exception or error value of the client library as one of ours; one of ours as it is. A login that nobody
    answered is `_TRANSPORT`, whatever the library calls it: it was not refused."""
    if isinstance(error, ClientError):
        return error
    held = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(held, KafkaError):
        over = held.code() == KafkaError._FATAL
        return ClientError(
            _TRANSPORT if _is_unanswered(held) else _behind_fatal(held) if over else name_of(held.code()),
            held.str(),
            fatal=over or bool(held.fatal()),
            abortable=bool(held.txn_requires_abort()),
            retriable=bool(held.retriable()),
        )
    if isinstance(held, BufferError):
        return ClientError("_QUEUE_FULL", "the client's queue is full", retriable=True)
    return ClientError("_APPLICATION", str(held) or type(held).__name__)
