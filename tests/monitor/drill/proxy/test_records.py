"""Batches: every codec, every field, what is truncated and what is broken."""

from __future__ import annotations

import struct
from dataclasses import replace

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.drill.proxy.compression import Codec, compress, decompress
from monitor.drill.proxy.records import Batch, Record, batch_of, encode, parse
from probes.kafka.wire.errors import Undecodable

BATCH = replace(
    batch_of([(b"k", b"v0"), (None, None), (b"", b"v2" * 1000)], timestamp=1_700_000_000_000),
    base_offset=40,
    leader_epoch=3,
    producer_id=1 << 40,
    producer_epoch=7,
    base_sequence=12,
)
payloads = st.one_of(st.none(), st.binary(max_size=40))
drawn = st.builds(
    Record,
    offset_delta=st.integers(0, 2**31 - 1),
    timestamp_delta=st.integers(-(2**62), 2**62),
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(st.binary(max_size=5), payloads), max_size=3).map(tuple),
    attributes=st.integers(0, 255),
)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 100, 64 * 1024, 200_001])
def test_every_codec_gives_back_what_it_was_given(codec: Codec, size: int) -> None:
    plain = bytes(i * i % 251 for i in range(size))
    assert decompress(codec, compress(codec, plain)) == plain


def test_snappy_in_the_java_clients_frame_is_understood() -> None:
    blocks = [b"a" * 40_000, b"b" * 10]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        framed += struct.pack(">i", len(packed)) + packed
    assert decompress(Codec.SNAPPY, framed) == b"".join(blocks)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_broken_payload_is_named(codec: Codec) -> None:
    with pytest.raises(Undecodable, match=rf"a batch's {codec.name.lower()} payload of 9 bytes is broken"):
        decompress(codec, b"\x00\x01nothing")


@given(st.lists(drawn, max_size=5), st.sampled_from(Codec))
def test_records_are_what_they_were(records: list[Record], codec: Codec) -> None:
    batch = replace(BATCH, attributes=codec).with_records(records)
    (parsed,), rest = parse(batch.encode())
    assert parsed == batch
    assert parsed.records() == tuple(records)
    assert rest == b""


def test_several_batches_and_a_truncated_last_one() -> None:
    second = replace(BATCH, base_offset=50, attributes=0x30)
    data = encode([BATCH, second, BATCH])
    for cut in (1, 11, 12, 60, len(BATCH.encode()) - 1):
        short = data[: len(data) - cut]
        batches, rest = parse(short)
        assert batches == [BATCH, second]
        assert encode(batches, rest) == short
    assert second.is_control and second.is_transactional and not BATCH.is_control


def test_a_wrong_checksum_and_an_old_format_are_named() -> None:
    data = bytearray(BATCH.encode())
    data[-1] ^= 1
    with pytest.raises(Undecodable, match="batch at 40 does not have the checksum"):
        parse(bytes(data))
    data[16] = 1
    with pytest.raises(Undecodable, match="message format 1, not 2"):
        parse(bytes(data))


def test_a_batch_left_with_no_record_keeps_its_offsets_and_producer() -> None:
    empty = replace(BATCH, attributes=Codec.ZSTD).with_records([])
    assert (empty.base_offset, empty.last_offset, empty.count, empty.producer_id) == (40, 42, 0, 1 << 40)
    assert parse(empty.encode()) == ([empty], b"")
    assert empty.records() == ()


def test_without_a_producer_only_the_producer_is_gone() -> None:
    sent = replace(BATCH, attributes=Codec.LZ4 | 0x10)
    bare = sent.without_producer()
    assert (bare.producer_id, bare.producer_epoch, bare.base_sequence, bare.is_transactional) == (-1, -1, -1, False)
    assert (bare.codec, bare.payload, bare.count) == (Codec.LZ4, sent.payload, 3)
    assert bare.of_producer(1 << 40, 7, 12, transactional=True) == sent


def test_a_count_that_does_not_fit_is_named() -> None:
    with pytest.raises(Undecodable, match="batch at 40 ends within its 4 records"):
        replace(BATCH, count=4).records()
    with pytest.raises(Undecodable, match="batch at 40 goes on behind its 2 records"):
        replace(BATCH, count=2).records()


def test_timestamps_stay_true() -> None:
    later = [Record(0, 5, None, b"a"), Record(1, 900, None, b"b")]
    assert BATCH.with_records(later).max_timestamp == BATCH.base_timestamp + 900
    by_broker: Batch = replace(BATCH, attributes=0x08)
    assert by_broker.with_records(later).max_timestamp == by_broker.max_timestamp
