"""`phantom-read` of a file: what was polled, and nobody sent, beside what was sent."""

from __future__ import annotations

from rules.checks.records.unsent_values import unsent
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, number

R, W = number("r"), number("w")


def test_a_value_that_nobody_sent_among_others() -> None:
    """The first operation that polled it, whatever became of it, and whatever came before and after."""
    h = History()
    h.send("v", 0, 9, at=50)
    h.send("w", 0, 3, at=60)
    h.send("w", 9, 1, at=63)
    h.poll("q", [("v", 0, 9, 50), ("w", 0, 3, 60), ("w", 9, 1, 63)])
    h.poll("r", [("w", 6, 3, 3)], type="info", op=4)
    h.poll("s", [("w", 7, 1, 3)])
    found = unsent(h.table(), Objectives())
    assert [f.subject for f in found] == [(W, 6), (W, 7), (W, 8)]
    told = found[1]
    assert told.message == f"value {W}/7 was polled at offset 4 of partition 0, to which nobody sent it"
    assert told.evidence == {"writer": W, "seq": 7, "offset": 4, "process": R, "op": 4}
    assert told.at == told.decidable == micros(START) + 10_000
    assert (told.topic, told.partition, told.anomaly) == ("topic", 0, "phantom-read")


def test_where_it_stands_may_be_unknown() -> None:
    h = History()
    h.send("w", 0, 3, at=60)
    h.poll("r", [("w", 7, 2, None)])  # type: ignore[list-item]
    first, second = unsent(h.table(), Objectives())
    assert second.message == f"value {W}/8 was polled at an unknown offset of partition 0, to which nobody sent it"
    assert (first.evidence["offset"], second.evidence["offset"]) == (None, None)
    assert unsent(h.table().slice(0, 1), Objectives()) == []
