"""Frames come back as they were written; what is cut off is torn, what is damaged before a good frame is broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.log.journals.frames import HEADER_BYTES, MARKER, frame, frames

payloads = st.lists(st.text(min_size=1, max_size=40).map(str.encode), min_size=1, max_size=6)


def joined(parts: list[bytes]) -> bytes:
    return b"".join(frame(part) for part in parts)


@given(payloads)
def test_what_was_framed_is_found(parts):
    data = joined(parts)
    found, ending = frames(data)
    assert [one.payload for one in found] == parts
    assert ending == "clean" and found[-1].end == len(data)


@given(payloads, st.data())
def test_cut_anywhere_it_is_torn_after_the_last_whole_frame(parts, data):
    whole = joined(parts)
    cut = data.draw(st.integers(0, len(whole)))
    found, ending = frames(whole[:cut])
    ends = [len(joined(parts[: n + 1])) for n in range(len(parts))]
    assert [one.end for one in found] == [end for end in ends if end <= cut]
    assert ending == ("clean" if cut in (0, *ends) else "torn")


@given(payloads, st.data())
def test_any_damaged_byte_is_noticed_and_broken_unless_it_is_in_the_last_frame(parts, data):
    whole = bytearray(joined(parts))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found, ending = frames(bytes(whole))
    hit = next(n for n in range(len(parts)) if at < len(joined(parts[: n + 1])))
    assert [one.payload for one in found] == parts[:hit]
    assert ending == ("torn" if hit == len(parts) - 1 else "broken")


@given(payloads, st.integers(1, 200))
def test_zeros_that_a_lost_host_leaves_are_no_frames(parts, zeros):
    found, ending = frames(joined(parts) + bytes(zeros))
    assert len(found) == len(parts) and ending == "torn"


def test_reading_begins_where_it_is_told_to():
    data = joined([b"one", b"two"])
    found, ending = frames(data, HEADER_BYTES + 3)
    assert [one.payload for one in found] == [b"two"] and ending == "clean"


@pytest.mark.parametrize("payload", [b"", b"x" * ((64 << 20) + 1)], ids=["empty", "too large"])
def test_impossible_payloads_are_refused(payload):
    with pytest.raises(ValueError, match="a frame holds"):
        frame(payload)


def test_a_payload_that_holds_the_marker_does_not_make_a_torn_end_look_broken():
    data = frame(b"good") + frame(b"x" + MARKER + b"y" * 30)[:-1]
    found, ending = frames(data)
    assert len(found) == 1 and ending == "torn"
