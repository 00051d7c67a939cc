"""A journal's messages come back as they were written, however they follow from each other, and take little."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.log.journals.differences import MOST, MessagePacker, MessageUnpacker, Told, messages_of
from probes.log.journals.frames import LARGEST_PAYLOAD, Packer, frames
from probes.log.journals.progress import Inconsistent, encode
from probes.log.rows import AT, pack
from rules.vocabulary.slices import Run, Slice
from tests.probes.log.lives import BEGIN
from tests.probes.log.test_rows import SHARED, slices

numbers = st.integers(0, 10**6)
rows = st.lists(st.builds(lambda row, number: pack(row, SHARED, number), slices, numbers), max_size=4)
messages = st.one_of(
    rows.map(lambda some: ["rows", some]),
    st.builds(lambda op, some: ["opened", op, some], numbers, rows),
    st.integers(0, 2**62).map(lambda at: ["alive", at]),
    st.builds(lambda some, at: ["lost", some, at], rows, numbers),
    st.just(["reserve", "topic-id", "probe", 1, 4096]),
)


def written(told: list[list[Any]]) -> bytes:
    packer = MessagePacker()
    return b"".join(packer.frame(one) for one in told)


def read(data: bytes) -> list[list[Any]]:
    found, ending = frames(data)
    assert ending == "clean"
    return list(messages_of(found))


def plain(told: list[list[Any]]) -> list[list[Any]]:
    """As JSON has them."""
    read_back: list[list[Any]] = orjson.loads(orjson.dumps(told))
    return read_back


@settings(max_examples=50)  # other ones each time
@given(st.lists(messages, min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_what_was_written_is_read(told: list[list[Any]], anew: set[int]) -> None:
    packer = MessagePacker()
    data = b""
    for number, one in enumerate(told):
        if number in anew:
            packer.restart()
        data += packer.frame(one)
    assert read(data) == plain(told)


def polls(count: int, *, writers: int = 2) -> list[list[Any]]:
    """What a reader of three partitions says, a tenth of a second after the other."""
    told = []
    for op in range(count):
        some = []
        for partition in range(3):
            first, seq = 10 * op + partition, 5 * (op // writers)
            at = BEGIN.replace(microsecond=op * 7 % 1000)
            row = Slice(
                cluster="c",
                run="run",
                process=42,
                topic_id="x" * 22,
                topic="offsetwatch-records",
                partition=partition,
                op=op,
                slice=-1,
                f="poll",
                type="ok",
                invoked=at,
                completed=at,
                boot="boot-1",
                mono_invoked=op * 10**8,
                mono_completed=op * 10**8 + 83,
                position_before=first,
                position_after=first + 10,
                mode="assign",
                isolation="read_committed",
                polled=(Run(8 * 10**18 + op % writers, seq, first, 5), Run(9 * 10**18, 5 * op, first + 5, 5)),
            )
            some.append(pack(row, SHARED, op))
        told.append(["rows", some])
    return told


def test_rows_that_follow_from_each_other_take_half() -> None:
    told = polls(100)
    packer = Packer()
    assert len(written(told)) < len(b"".join(packer.frame(encode(one)) for one in told)) / 2
    assert read(written(told)) == plain(told)


def test_what_is_remembered_is_bounded_on_both_sides() -> None:
    told = polls(400, writers=400)
    writer, reader = Told(), Told()
    for one in told:
        assert reader.whole(plain([writer.differences(one)])[0]) == plain([one])[0]
        assert len(writer._at) == len(reader._at) <= MOST + 30
        assert len(writer._writers) <= MOST + 30


def test_what_earlier_versions_wrote_is_read_and_what_is_written_after_it() -> None:
    told = polls(4)
    packer = Packer()
    old = b"".join(packer.frame(encode(one)) for one in told)
    assert read(old + written(told)) == plain(told + told)


def test_a_clock_of_another_age_is_told_as_it_is() -> None:
    told = polls(3)
    told[1][1][0][AT["invoked"]] = told[1][1][0][AT["completed"]] = 9 * 10**17
    assert read(written(told)) == plain(told)


def test_what_could_not_be_written_is_nothing_to_follow_from() -> None:
    first, second = polls(2)
    packer = MessagePacker()
    data = packer.frame(first)
    with pytest.raises(ValueError, match="a frame holds"):
        packer.frame(["closed", "x" * LARGEST_PAYLOAD])
    assert read(data + packer.frame(second)) == plain([first, second])


@pytest.mark.parametrize("said", [b"[0,[[1]]]", b"[0,1]", b'[0,[[{"a":1}]]]', b'[1,"x",[]]', b"[2,null]", b"[2]"])
def test_what_follows_from_nothing_is_no_message(said: bytes) -> None:
    held = frames(Packer().frame(said))[0][0].held
    with pytest.raises(Inconsistent, match="it differs from what was not told"):
        MessageUnpacker().message(held)


def test_a_run_by_a_writer_that_was_not_told_is_no_message() -> None:
    told = polls(2)
    packer = MessagePacker()
    packer.frame(told[0])
    later = orjson.loads(orjson.dumps(Told().differences(told[0])))
    later[1][0][AT["polled"]] = [7, 0, 0, 5]
    held = frames(Packer().frame(orjson.dumps(later)))[0][0].held
    with pytest.raises(Inconsistent, match="it differs from what was not told"):
        MessageUnpacker().message(held)
