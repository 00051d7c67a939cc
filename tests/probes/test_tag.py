"""The tag: what is written is read back, and whatever is not ours or not whole is told apart."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.records.tag import Encoder, Tag, decode, fold, names, read, sequence_numbers, smallest, stamp
from rules.vocabulary.slices import MAX_COUNT, UNTOLD_HASH, Irregular, Run, to_table
from streaming_jobs.history.validation import CHECKED_SCHEMA, reasons_to_reject
from tests.known import known
from tests.rules.histories import History

INT63 = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
TOPIC = "canary-records"


def encoder(run: str = "run-a", writer: int = 7, topic: str = TOPIC, partition: int = 3, size: int = 128) -> Encoder:
    return Encoder(run=run, writer=writer, topic=topic, partition=partition, size=size)


def decoded(values: Sequence[bytes | None], first: int = 0) -> tuple[list[Run], list[Irregular]]:
    offsets = list(range(first, first + len(values)))
    return decode(values, offsets, topic=TOPIC, partition=3, runs={"run-a", "run-b"})


@given(
    run=NAMES,
    topic=NAMES,
    writer=INT63,
    partition=st.integers(0, 2**31 - 1),
    first=st.integers(0, MAX_COUNT - 20),
    count=st.integers(1, 20),
    sent=INT63,
    txn=st.none() | INT63,
    room=st.integers(0, 50),
)
def test_what_is_encoded_is_read_back(
    run: str, topic: str, writer: int, partition: int, first: int, count: int, sent: int, txn: int | None, room: int
) -> None:
    size = smallest(run, topic) + room
    made = Encoder(run=run, writer=writer, topic=topic, partition=partition, size=size)
    values = made.encode(range(first, first + count), sent=sent, txn=txn)
    assert [len(value) for value in values] == [size] * count
    expected = [Tag(run, writer, first + i, topic, partition, sent, txn) for i in range(count)]
    assert [read(value) for value in values] == expected
    assert sequence_numbers(values).tolist() == list(range(first, first + count))
    assert decode(values, range(50, 50 + count), topic=topic, partition=partition, runs=[run]) == (
        [Run(writer, first, 50, count)],
        [],
    )


@given(
    payloads=st.lists(st.binary(max_size=20), min_size=1, max_size=8),
    room=st.integers(0, 5),
    source=st.booleans(),
)
def test_a_payload_is_carried_beside_the_source(payloads: list[bytes], room: int, source: bool) -> None:
    size = smallest("run-a", TOPIC, source=source, payload=max(map(len, payloads))) + room
    sources = [Run(8, 70, 700, len(payloads))] if source else []
    values = encoder(size=size).encode(range(5, 5 + len(payloads)), sent=1, sources=sources, payloads=payloads)
    assert [known(read(value)).payload for value in values] == payloads
    assert [known(read(value)).source is not None for value in values] == [source] * len(payloads)
    assert decoded(values, 50) == ([Run(7, 5, 50, len(payloads))], [])
    with pytest.raises(ValueError, match="no room for a payload"):
        encoder(size=size).encode(range(5, 6), sent=1, sources=sources[:0], payloads=[b"x" * size])


def test_a_payload_that_does_not_fit_its_record_is_a_broken_tag() -> None:
    (value,) = encoder(size=80).encode(range(5, 6), sent=1, payloads=[b"abc"])
    at = value.index(b"\3\0abc")
    for length in (2, 3, 80, 60_000):
        forged = value[:at] + length.to_bytes(2, "little") + value[at + 2 : -4]
        forged += crc32c(forged).to_bytes(4, "little")
        assert (read(forged) is not None) == (length < 80)
        assert [one.status for one in decoded([forged])[1]] == ([] if length < 80 else ["corrupted"])


@pytest.mark.parametrize("sources", [(), (Run(8, 70, 700, 1),)])
def test_a_change_of_any_bit_of_any_byte_is_found(sources: tuple[Run, ...]) -> None:
    (value,) = encoder(size=120).encode(range(5, 6), sent=123456, txn=99, sources=sources)
    for at in range(len(value)):
        for bit in range(8):
            broken = value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]
            assert read(broken) is None, (at, bit)
            assert decoded([broken])[1] == [Irregular(0, 0, "corrupted", crc32c(broken))], (at, bit)


@given(st.data())
def test_what_is_cut_or_made_up_is_corrupted_and_never_raises(data: st.DataObject) -> None:
    (value,) = encoder().encode(range(5, 6), sent=1)
    junk = data.draw(st.binary(max_size=200) | st.integers(0, len(value) - 1).map(lambda n: value[:n]) | st.none())
    assert read(junk) is None
    assert decoded([junk]) == ([], [Irregular(0, 0, "corrupted", crc32c(junk or b""))])


def test_a_whole_form_with_lengths_beyond_its_end_is_corrupted() -> None:
    (value,) = encoder().encode(range(5, 6), sent=1)
    lying = bytearray(value[:-4])
    lying[5] = 255
    lying += crc32c(bytes(lying)).to_bytes(4, "little")
    assert decoded([bytes(lying)])[1][0].status == "corrupted"


def test_outputs_name_the_inputs_that_they_reflect_one_by_one() -> None:
    sources = [Run(8, 70, 700, 2), Run(9, 5, 702, 1), Run(8, 72, 710, 3)]
    values = encoder().encode(range(5, 11), sent=1, txn=3, sources=sources)
    told = [(8, 70, 700), (8, 71, 701), (9, 5, 702), (8, 72, 710), (8, 73, 711), (8, 74, 712)]
    assert [known(read(value)).source for value in values] == told
    assert decoded([*values]) == ([Run(7, 5, 0, 6)], [])
    assert [known(read(value)).source for value in encoder().encode(range(5, 7), sent=1)] == [None, None]


def test_sources_that_do_not_fit_are_refused_and_a_cut_source_is_corrupted() -> None:
    with pytest.raises(ValueError, match="2 records are to reflect 3"):
        encoder().encode(range(5, 7), sent=1, sources=[Run(8, 70, 700, 3)])
    tight = smallest("run-a", TOPIC)
    with pytest.raises(ValueError, match="too small to name their source"):
        encoder(size=tight).encode(range(5, 6), sent=1, sources=[Run(8, 70, 700, 1)])
    (value,) = encoder(size=tight).encode(range(5, 6), sent=1)
    lying = bytearray(value[:-4])
    lying[4] |= 2
    lying += crc32c(bytes(lying)).to_bytes(4, "little")
    assert read(bytes(lying)) is None
    assert decoded([bytes(lying)])[1][0].status == "corrupted"


def test_a_relocated_record_names_its_intended_place() -> None:
    elsewhere = encoder(partition=4).encode(range(10, 11), sent=1)
    elsewhere += encoder(topic="canary-recorda").encode(range(11, 12), sent=1)
    runs, irregular = decoded([*elsewhere], first=40)
    assert runs == []
    assert irregular == [
        Irregular(0, 40, "relocated", crc32c(elsewhere[0][:-4]), 7, 10, TOPIC, 4, "run-a"),
        Irregular(1, 41, "relocated", crc32c(elsewhere[1][:-4]), 7, 11, "canary-recorda", 3, "run-a"),
    ]


def forged(run: str, topic: str = TOPIC, partition: int = 3, writer: int = 7, seq: int = 0) -> bytes:
    """A whole tag with these numbers, whatever they are."""
    value = bytearray(encoder(run=run, topic=topic).encode(range(1), sent=0)[0][:-4])
    value[8:28] = struct.pack("<iqq", partition, writer, seq)
    checksum: bytes = crc32c(bytes(value)).to_bytes(4, "little")
    return bytes(value) + checksum


NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(
    "numbers", [{"writer": -5}, {"seq": -3}, {"seq": MAX_COUNT}, {"writer": -(2**63), "seq": 2**62}]
)
def test_a_whole_tag_of_ours_with_numbers_that_no_probe_gives_is_corrupted(numbers: dict[str, int], few: bool) -> None:
    value = forged("run-a", writer=numbers.get("writer", 7), seq=numbers.get("seq", 0))
    assert stamp(value, 3, len(TOPIC), names(TOPIC, frozenset({"run-a"}))) is None
    runs, odd = decoded([value] * (1 if few else 300))
    assert (runs, {one.status for one in odd}, {one.writer for one in odd}) == ([], {"corrupted"}, {None})
    assert [one.status for one in decoded([forged("run-a", partition=-1)])[1]] == ["corrupted"]
    assert decoded([forged("run-a", seq=MAX_COUNT - 1)])[1] == []


@given(st.sampled_from(["run-a", "x"]), st.sampled_from([TOPIC, "y"]), st.integers(-3, 5), NUMBERS, NUMBERS)
def test_whatever_a_whole_tag_says_the_row_that_tells_of_it_is_understood(
    run: str, topic: str, partition: int, writer: int, seq: int
) -> None:
    runs, odd = decoded([forged(run, topic, partition, writer, seq)])
    h = History()
    row = h.poll("r", [])
    row.polled, row.irregular = runs, odd
    assert reasons_to_reject(to_table(h.rows).select(CHECKED_SCHEMA.names)) == {}


def test_another_run_is_foreign_and_so_is_another_version() -> None:
    (foreign,) = encoder(run="run-c").encode(range(1, 2), sent=1)
    newer = bytearray(foreign[:-4])
    newer[3] = 2
    newer += crc32c(bytes(newer)).to_bytes(4, "little")
    _, irregular = decoded([foreign, bytes(newer)])
    assert irregular == [
        Irregular(0, 0, "foreign", crc32c(foreign[:-4]), 7, 1, TOPIC, 3, "run-c"),
        Irregular(1, 1, "foreign", crc32c(bytes(newer[:-4]))),
    ]


def test_the_hashes_of_two_records_are_two() -> None:
    """Of an intact one without its own checksum, with which it would be one constant; of a broken one all bytes."""
    intact = encoder(run="run-c").encode(range(1, 4), sent=1)
    broken = [value[:-1] + b"!" for value in intact]
    _, irregular = decoded([*intact, *broken, b"", b"?"])
    assert crc32c(intact[0]) == UNTOLD_HASH
    assert len({one.hash for one in irregular} - {UNTOLD_HASH}) == 8
    assert [one.hash for one in irregular[3:]] == [crc32c(value) for value in (*broken, b"", b"?")]


def test_an_irregular_record_cuts_a_run_and_known_runs_do_not() -> None:
    a = encoder().encode(range(0, 4), sent=1)
    b = encoder(run="run-b", writer=8, size=200).encode(range(9, 11), sent=1)
    runs, irregular = decoded([a[0], a[1], b"?", a[2], a[3], *b])
    assert runs == [Run(7, 0, 0, 2), Run(7, 2, 3, 2), Run(8, 9, 5, 2)]
    assert [(one.index, one.offset, one.status) for one in irregular] == [(2, 2, "corrupted")]


RECORD = st.tuples(st.sampled_from([7, 8]), st.integers(0, 6), st.sampled_from([128, 160]), st.integers(1, 2))


@settings(max_examples=300)
@given(st.lists(RECORD, max_size=25))
def test_runs_hold_the_same_records_in_the_same_order_and_are_as_long_as_can_be(
    records: list[tuple[int, int, int, int]],
) -> None:
    values, offsets, at = [], [], 0
    for writer, seq, size, step in records:
        at += step
        offsets.append(at)
        values += encoder(writer=writer, size=size).encode(range(seq, seq + 1), sent=1)
    runs, irregular = decode(values, offsets, topic=TOPIC, partition=3, runs={"run-a"})
    unfolded = [(r.writer, r.seq + i, known(r.offset) + i) for r in runs for i in range(r.length)]
    assert unfolded == [(w, s, o) for (w, s, _, _), o in zip(records, offsets, strict=True)]
    assert irregular == []
    for one, two in pairwise(runs):
        assert (one.writer, one.seq + one.length, known(one.offset) + one.length) != (two.writer, two.seq, two.offset)


def test_folding_what_was_sent() -> None:
    seqs, offsets = np.array([3, 1, 2, 7]), np.array([13, 11, 12, 14])
    assert fold(5, seqs, offsets) == [Run(5, 1, 11, 3), Run(5, 7, 14, 1)]
    assert fold(5, seqs, None) == [Run(5, 1, None, 3), Run(5, 7, None, 1)]
    assert fold(5, seqs[:0], None) == []


@pytest.mark.parametrize(("size", "run", "told"), [(60, "run-a", "too small"), (500, "r" * 65, "1 to 64 bytes")])
def test_what_does_not_fit_is_refused(size: int, run: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        encoder(run=run, size=size)
