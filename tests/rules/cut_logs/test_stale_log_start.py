"""Log starts that a broker told which had not caught up: older than what a reader had been given, whenever they were
asked for. DeleteRecords sends the reader forward, and nobody may say that it left anything out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.whole import in_any_way, whole

Fed = Callable[[History], Store]
ABOUT = ["lost-write", "poll-skip", "nonmonotonic-poll"]


def read_to_four(h: History) -> None:
    """Twenty values stand in the log, and the reader has the first four of them."""
    h.assign("r")
    h.send("w", 0, 20, at=0)
    h.observe(end=20)
    h.poll("r", [("w", 0, 4, 0)])
    h.mark(1.0)


def goes_on_at_twelve(h: History, end: int, *, start: int = 0, seconds: int = 40) -> None:
    """It is given what stands from offset 12 on, and from then on listings tell this."""
    h.poll("r", [("w", 12, 8, 12)])
    for i in range(seconds):
        h.observe(start=start, end=end)
        h.send("w", 20 + i, 1, at=20 + i)
        h.poll("r", [("w", 20 + i, 1, 20 + i)])
        h.mark(1.0)


def sent_forward(h: History) -> None:
    """The log starts at 12 by then, and every listing is of before."""
    read_to_four(h)
    goes_on_at_twelve(h, end=8)


def sent_forward_and_told(h: History) -> None:
    read_to_four(h)
    goes_on_at_twelve(h, end=8, seconds=20)
    for i in range(20):
        h.observe(start=12, end=60)
        h.send("w", 40 + i, 1, at=40 + i)
        h.poll("r", [("w", 40 + i, 1, 40 + i)])
        h.mark(1.0)


@pytest.mark.parametrize("build", [sent_forward, sent_forward_and_told])
@in_any_way(file=False)
def test_a_log_start_of_before_accuses_nobody(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), ABOUT) == []


def left_out(h: History) -> None:
    """The log starts at 0 all the time."""
    read_to_four(h)
    goes_on_at_twelve(h, end=70)


def left_out_and_told_late(h: History) -> None:
    read_to_four(h)
    goes_on_at_twelve(h, end=8, seconds=20)
    for i in range(20):
        h.observe(end=70)
        h.send("w", 40 + i, 1, at=40 + i)
        h.poll("r", [("w", 40 + i, 1, 40 + i)])
        h.mark(1.0)


@pytest.mark.parametrize("build", [left_out, left_out_and_told_late])
@in_any_way(file=False)
def test_values_that_a_reader_left_out(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    *lost, skip = whole(fed(h), ABOUT)
    w, r = number("w"), number("r")
    for seq, one in zip(range(4, 12), sorted(lost, key=lambda one: one.subject), strict=True):
        read_to = one.evidence["read_to"]  # as far as the step knew
        assert (one.anomaly, one.subject) == ("lost-write", (w, seq))
        assert dict(one.evidence) == {"writer": w, "seq": seq, "offset": seq, "read_to": read_to}
        assert one.message.endswith(f"acknowledged at offset {seq} and never polled; readers are past {read_to - 1}")
    assert (skip.anomaly, skip.subject) == ("poll-skip", (r, 2))
    assert skip.message == f"process {r} went from offset 3 to 12 over 8 known values"
    assert skip.evidence == {
        "process": r,
        "op": 2,
        "previous_op": 1,
        "previous_offset": 3,
        "offset": 12,
        "skipped": [{"offset": seq, "writer": w, "seq": seq} for seq in range(4, 12)],
    }
