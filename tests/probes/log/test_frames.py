"""Frames come back as they were written; what is cut off is torn, what is damaged before a good frame is broken."""

import struct

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from probes.log.journals.frames import MARKER, PACKED, Packer, frames, payloads

texts = st.text(min_size=1, max_size=40).map(lambda text: f"[{text}".encode())
long = st.builds(lambda text, times: text * times, texts, st.integers(1, 60))
several = st.lists(texts | long, min_size=1, max_size=6)


def joined(parts: list[bytes]) -> bytes:
    packer = Packer()
    return b"".join(packer.frame(part) for part in parts)


def framed(held: bytes) -> bytes:
    """A frame as any version wrote it."""
    return MARKER + struct.pack("<II", len(held), crc32c(held, crc32c(struct.pack("<I", len(held))))) + held


@given(several)
def test_what_was_framed_is_found(parts: list[bytes]) -> None:
    data = joined(parts)
    found, ending = frames(data)
    assert list(payloads(found)) == parts
    assert ending == "clean" and found[-1].end == len(data)


@given(several, st.data())
def test_cut_anywhere_it_is_torn_after_the_last_whole_frame(parts: list[bytes], data: st.DataObject) -> None:
    whole = joined(parts)
    cut = data.draw(st.integers(0, len(whole)))
    found, ending = frames(whole[:cut])
    ends = [len(joined(parts[: n + 1])) for n in range(len(parts))]
    assert [one.end for one in found] == [end for end in ends if end <= cut]
    assert ending == ("clean" if cut in (0, *ends) else "torn")


@given(several, st.data())
def test_any_damaged_byte_is_noticed_and_broken_unless_it_is_in_the_last_frame(
    parts: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(joined(parts))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found, ending = frames(bytes(whole))
    hit = next(n for n in range(len(parts)) if at < len(joined(parts[: n + 1])))
    assert list(payloads(found)) == parts[:hit]
    assert ending == ("torn" if hit == len(parts) - 1 else "broken")


@given(several, st.integers(1, 200))
def test_zeros_that_a_lost_host_leaves_are_no_frames(parts: list[bytes], zeros: int) -> None:
    found, ending = frames(joined(parts) + bytes(zeros))
    assert len(found) == len(parts) and ending == "torn"


def test_reading_begins_where_it_is_told_to() -> None:
    packer = Packer()
    first, second = packer.frame(b"one"), packer.frame(b"two")
    found, ending = frames(first + second, len(first))
    assert [one.end for one in found] == [len(first + second)] and ending == "clean"


def row(n: int) -> bytes:
    told = b'["JD0vi5kMQnmrzteEgjeINQ","offsetwatch-records",%d,0,0,"poll","ok",179532924088%d,null,null,null,null]'
    return b"[" + told % (n, n) + b"]"


def test_what_repeats_what_was_written_before_takes_a_quarter() -> None:
    rows = [row(n) for n in range(30)]
    assert len(joined(rows)) < len(b"".join(rows)) / 4
    assert list(payloads(frames(joined(rows))[0])) == rows


def test_a_new_stream_may_begin_with_any_frame() -> None:
    """Where a write was refused, its frame is not there for those after it to build on."""
    packer = Packer()
    kept = packer.frame(row(1))
    packer.frame(row(2))
    packer.restart()
    found, ending = frames(kept + packer.frame(row(3)) + packer.frame(row(4)))
    assert list(payloads(found)) == [row(1), row(3), row(4)] and ending == "clean"


def test_what_earlier_versions_wrote_is_still_read() -> None:
    payload = b"[" + b",".join(row(n) for n in range(30)) + b"]"
    packed = PACKED + bytes(cramjam.lz4.compress_block(payload))
    found, _ = frames(framed(payload) + framed(packed) + Packer().frame(payload))
    assert list(payloads(found)) == [payload] * 3


def test_a_frame_whose_stream_is_missing_is_no_payload() -> None:
    packer = Packer()
    packer.frame(row(1))
    with pytest.raises(ValueError, match="cannot be decompressed"):
        list(payloads(frames(packer.frame(row(1)))[0]))


@pytest.mark.parametrize("payload", [b"", b"x" * ((64 << 20) + 1)], ids=["empty", "too large"])
def test_impossible_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="a frame holds"):
        Packer().frame(payload)


def test_a_payload_that_holds_the_marker_does_not_make_a_torn_end_look_broken() -> None:
    data = framed(b"good") + framed(b"x" + MARKER + b"y" * 30)[:-1]
    found, ending = frames(data)
    assert len(found) == 1 and ending == "torn"
