"""`nonmonotonic-send` is told at the time at which the log around it was settled, in whatever steps it is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.conditions.liveness_of import at_once, away_in_the_midst, back, row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.splits import in_pieces, in_random_pieces
from tests.rules.whole import Told, live, whole

W = number("w")


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("fed", [row_by_row, at_once, away_in_the_midst, back, in_pieces, in_random_pieces])
def test_it_is_told_when_its_offsets_were_settled(fed: Callable[[History], Store], inside: bool, copied: bool) -> None:
    """Also where what lies too low is copied to the end of the log later, where it would lie right."""
    h = History()
    h.assign("r")
    if inside:
        h.txn("w", [("w", 0, 1, 5), ("w", 1, 1, 4)])
    else:
        h.send("w", 0, at=5)
        h.send("w", 1, at=4)
    for i in range(30):
        seq = 1 if copied and i == 25 else i + 1
        h.poll("r", [("w", 1, 1, 4), ("w", 0, 1, 5)] if i == 0 else [("w", seq, 1, i + 5)])
        h.observe(end=i + 6)
        h.mark(1.0)
    op, previous = (0, 0) if inside else (1, 0)
    evidence = {"process": W, "op": op, "previous_op": previous, "previous_offset": 5, "offset": 4}
    assert whole(live(fed)(h), ("nonmonotonic-send", "int-nonmonotonic-send")) == [
        Told(
            "int-nonmonotonic-send" if inside else "nonmonotonic-send",
            (W, op, 4) if inside else (W, op),
            f"process {W} wrote at offset 4 after offset 5",
            evidence,
            11.0,
            context={"idempotent": "true"},
        )
    ]
