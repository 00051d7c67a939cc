"""The table of error codes: complete for the installed library, and never more certain than it may be."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from probes.kafka.errors import (
    CERTAIN_FAILURES,
    CODES,
    CONTEXTS,
    HARMLESS,
    Context,
    classify,
    name_of,
    transaction_outcome,
    translate,
)

LIBRARY = {name: value for name in dir(KafkaError) if isinstance(value := getattr(KafkaError, name), int)}
IN_DOUBT = (
    "_MSG_TIMED_OUT _TIMED_OUT _TIMED_OUT_QUEUE _PURGE_QUEUE _PURGE_INFLIGHT _TRANSPORT _FATAL _GAPLESS_GUARANTEE "
    "REQUEST_TIMED_OUT NOT_LEADER_FOR_PARTITION NOT_ENOUGH_REPLICAS_AFTER_APPEND NETWORK_EXCEPTION INVALID_TXN_STATE "
    "PRODUCER_FENCED INVALID_PRODUCER_EPOCH OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID KAFKA_STORAGE_ERROR "
    "TOPIC_AUTHORIZATION_FAILED MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE UNSUPPORTED_FOR_MESSAGE_FORMAT "
    "UNSUPPORTED_COMPRESSION_TYPE OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE INVALID_TRANSACTION_TIMEOUT "
    "UNKNOWN"
)


def test_every_code_of_the_library_stands_in_the_table_and_no_other() -> None:
    assert set(LIBRARY) == CODES


def test_every_code_has_the_name_that_the_library_prints() -> None:
    for name, code in LIBRARY.items():
        assert name_of(code) == name
        assert KafkaError(code).name() == name


def test_exceptions_to_info_are_codes_of_the_table() -> None:
    for table in (CERTAIN_FAILURES, HARMLESS):
        for context, names in table.items():
            assert context in CONTEXTS
            assert names <= CODES


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_has_a_class_and_no_error_is_ok(context: Context) -> None:
    assert classify(KafkaError.NO_ERROR, context) == "ok"
    fail_or_info = {classify(code, context) for name, code in LIBRARY.items() if name != "NO_ERROR"}
    assert fail_or_info <= ({"ok", "info"} if context == "poll" else {"fail", "info"})


@pytest.mark.parametrize("context", ["send", "poll", "commit", "init", "other"])
@pytest.mark.parametrize("name", IN_DOUBT.split())
def test_what_may_have_happened_is_never_a_failure(context: Context, name: str) -> None:
    assert classify(LIBRARY[name], context) == "info"


@pytest.mark.parametrize("context", CONTEXTS)
def test_codes_that_nobody_knows_are_info(context: Context) -> None:
    assert classify(9999, context) == "info"
    assert name_of(9999) == "CODE_9999"


def test_what_the_client_refused_and_what_is_malformed_failed() -> None:
    assert classify(KafkaError._QUEUE_FULL, "enqueue") == "fail"
    assert classify(KafkaError.MSG_SIZE_TOO_LARGE, "enqueue") == "fail"
    assert classify(KafkaError.INVALID_REQUIRED_ACKS, "send") == "fail"
    assert classify(KafkaError._PARTITION_EOF, "poll") == "ok"


@pytest.mark.parametrize(
    ("commit_invoked", "committed", "aborted", "outcome"),
    [
        (True, True, False, "ok"),
        (True, False, True, "info"),
        (True, False, False, "info"),
        (False, False, True, "fail"),
        (False, False, False, "info"),
    ],
)
def test_a_transaction_whose_commit_was_invoked_never_failed(
    commit_invoked: bool, committed: bool, aborted: bool, outcome: str
) -> None:
    assert transaction_outcome(commit_invoked=commit_invoked, committed=committed, aborted=aborted) == outcome


def test_translation_keeps_code_and_nature() -> None:
    told = translate(KafkaException(KafkaError(KafkaError._FENCED, "gone", fatal=True, txn_requires_abort=True)))
    assert (told.code, told.fatal, told.abortable, str(told)) == ("_FENCED", True, True, "gone (_FENCED)")
    assert translate(BufferError("full")).code == "_QUEUE_FULL"
    assert translate(RuntimeError("odd")).code == "_APPLICATION"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "Fatal error: Broker: The group id does not exist: ConsumerGroupHeartbeat fatal error: Broker: The group id"
            " does not exist",
            "GROUP_ID_NOT_FOUND",
        ),
        (
            "Fatal error: Broker: Group authorization failed: ConsumerGroupHeartbeat fatal error: Broker: Group"
            " authorization failed",
            "GROUP_AUTHORIZATION_FAILED",
        ),
        ("Fatal error: something that has no name: it is over", "_FATAL"),
        ("Commit failed: Local: Fatal error", "_FATAL"),
        ("Broker: Group authorization failed: of another time", "_FATAL"),
    ],
)
def test_a_client_that_has_ended_says_by_which_error_in_words_alone(text: str, code: str) -> None:
    """As a consumer returns it in place of a record: by one code for all, without the mark of a fatal error."""
    told = translate(KafkaError(KafkaError._FATAL, text))
    assert (told.code, told.fatal, told.abortable) == (code, True, False)


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (
            "_AUTHENTICATION",
            "sasl_ssl://h:9093/1: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Timed out: broker's supported"
            " mechanisms: (n/a) (after 1000ms in state AUTH_HANDSHAKE)",
            "_TRANSPORT",
        ),
        (
            "_AUTHENTICATION",
            "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure",
            "_TRANSPORT",
        ),
        ("_SSL", "SSL handshake failed: SSL transport error: Connection reset by peer", "_TRANSPORT"),
        (
            "_AUTHENTICATION",
            "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms:"
            " OAUTHBEARER",
            "_AUTHENTICATION",
        ),
        (
            "_AUTHENTICATION",
            "SASL authentication error: Authentication failed during authentication due to invalid credentials",
            "_AUTHENTICATION",
        ),
        ("_SSL", "SSL handshake failed: error:0A000086: certificate verify failed", "_SSL"),
        ("_MSG_TIMED_OUT", "SaslAuthenticateRequest failed: Local: Timed out", "_MSG_TIMED_OUT"),
    ],
)
def test_a_login_that_nobody_answered_was_not_refused(code: str, text: str, told: str) -> None:
    assert translate(KafkaError(LIBRARY[code], text)).code == told
