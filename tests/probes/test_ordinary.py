"""A small poll is told as a large one is: what is told record by record is what is told of columns."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from probes.records import polls
from probes.records.allowance import Allowance
from probes.records.envelope import headers_of
from probes.records.ordinary import ordinary
from probes.records.polls import Polled, sort_out
from probes.records.tag import CHECKSUM, KEY, Encoder, names, read, stamp
from rules.vocabulary.slices import Run

TOPIC = "canary-records"
SENT = 1_763_741_823_123_456
RUNS = frozenset({"r1", "another-run"})
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "in a transaction": {"txn": 5},
    "with a source": {"sources": [Run(9, 0, 3, 1)]},
    "with a payload": {"payloads": [b"write 7"]},
    "of another run": {"run": "r2"},
    "of a longer run": {"run": "r11"},
    "meant for elsewhere": {"partition": 1},
    "of another topic": {"topic": "canary-recordz"},
    "without promise": {"enveloped": False},
    "of another size": {"size": 150},
}
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the key": {"key": b"k" * 16},
    "no key": {"key": None},
    "the headers": {"headers": [("a", b"b")]},
    "the time": {"timestamp": (TIMESTAMP_CREATE_TIME, 1)},
    "the time's type": {"timestamp": (TIMESTAMP_LOG_APPEND_TIME, SENT // 1000)},
    "the value": {},
    "no value": {},
    "a cut value": {},
}


def value_of(seq: int, kind: str, writer: int = 7) -> bytes:
    told: dict[str, Any] = {"run": "r1", "topic": TOPIC, "partition": 0, "size": 120, "enveloped": True} | KINDS[kind]
    place = {name: told.pop(name) for name in ("run", "topic", "partition", "size")}
    return Encoder(writer=writer, **place).encode(range(seq, seq + 1), sent=SENT, **told)[0]


def record(offset: int, value: bytes | None, change: str) -> Message:
    if value is None or change == "no value":
        return Message(topic=TOPIC, partition=0, offset=offset, value=None)
    made = {
        "key": value[KEY],
        "timestamp": (TIMESTAMP_CREATE_TIME, SENT // 1000),
        "headers": headers_of(value) if value[4] & 16 else None,
    } | CHANGES[change]
    if change == "the value":
        value = value[:60] + bytes([value[60] ^ 1]) + value[61:]
    if change == "a cut value":
        value = value[:-1]
    return Message(topic=TOPIC, partition=0, offset=offset, value=value, **made)


def sorted_out(messages: list[Message], few: int, patch: pytest.MonkeyPatch) -> dict[Any, Polled]:
    patch.setattr(polls, "FEW", few)
    return sort_out(messages, RUNS, Allowance(lambda: 0))[0]


def both_ways(messages: list[Message]) -> dict[Any, Polled]:
    with pytest.MonkeyPatch.context() as patch:
        in_columns = sorted_out(messages, -1, patch)
        one_by_one = sorted_out(messages, 200, patch)
    assert one_by_one == in_columns
    return one_by_one


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_record_is_told_alike(kind: str, change: str) -> None:
    messages = [record(3, value_of(0, "plain"), "nothing"), record(4, value_of(1, kind), change)]
    found = both_ways(messages)[TOPIC, 0]
    unpromised = kind == "without promise" and change not in ("the value", "no value", "a cut value")
    if kind in ("plain", "in a transaction", "with a source", "with a payload", "of another size", "without promise"):
        assert (found.altered == [] and found.irregular == 0) == (change == "nothing" or unpromised)
    else:
        assert found.irregular == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from([7, 8]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.sampled_from(["plain"] * 20 + list(KINDS)),
            st.sampled_from(["nothing"] * 20 + list(CHANGES)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_poll_is_told_alike(steps: list[tuple[int, int, int, str, str]]) -> None:
    seq, offset, messages = 0, 0, []
    for writer, skipped, gap, kind, change in steps:
        seq, offset = seq + skipped, offset + gap
        messages.append(record(offset, value_of(seq, kind, writer), change))
        seq, offset = seq + 1, offset + 1
    both_ways(messages)


def test_runs_are_cut_where_anything_does_not_go_on() -> None:
    made = [(7, 0, 10), (7, 1, 11), (7, 2, 13), (7, 4, 14), (8, 5, 15), (8, 6, 16)]
    messages = [record(offset, value_of(seq, "plain", writer), "nothing") for writer, seq, offset in made]
    expected = [Run(7, 0, 10, 2), Run(7, 2, 13, 1), Run(7, 4, 14, 1), Run(8, 5, 15, 2)]
    assert ordinary(TOPIC, {0: messages}, RUNS) == {0: expected}
    assert both_ways(messages)[TOPIC, 0].decoded.runs == expected


def test_a_tag_that_promises_more_than_the_record_holds_is_no_tag() -> None:
    """The payload's length reaches to the last byte before the checksum, and one byte beyond it."""
    value = value_of(0, "with a payload")
    at = 44 + len("r1") + len(TOPIC)
    for length in range(120 - CHECKSUM - at - 2 - 2, 120 - CHECKSUM - at - 2 + 3):
        changed = value[:at] + length.to_bytes(2, "little") + value[at + 2 : -CHECKSUM]
        changed += crc32c(changed).to_bytes(CHECKSUM, "little")
        assert (stamp(changed, 0, len(TOPIC), names(TOPIC, RUNS)) is None) == (read(changed) is None)
        both_ways([record(0, changed, "nothing")])
