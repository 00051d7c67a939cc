"""A value that stands twice in what a log goes on with that was cut below the settled frontier."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.settling import window
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import History, Store, number
from tests.rules.whole import Told, in_any_way, whole

Fed = Callable[[History], Store]
W = number("w")


def gone_on(h: History, *polls: tuple[int, int, int]) -> None:
    """Of 60 records, 40 and more of which are settled by then, nothing is left; then these (seq, length, offset) are
    written, and polled four seconds after one another."""
    h.assign("r")
    for i in range(60):
        h.send("v", i, at=i)
        h.poll("r", [("v", i, 1, i)])
        h.observe(end=i + 1)
        h.mark(1.0)
    h.observe(end=0)
    h.mark(1.0)
    h.send("w", 0, 10)
    for seq, length, offset in polls:
        h.poll("r", [("w", seq, length, offset)])
        for _ in range(4):
            h.observe(end=offset + length)
            h.mark(1.0)


@pytest.mark.parametrize("again", [4, 3], ids=["twice", "once"])
@in_any_way(25)
def test_a_value_that_a_cut_log_holds_twice_is_found(fed: Fed, again: int) -> None:
    """The reader was given what stands at 0 to 3, and one value of it once more at `again`; or it goes on."""
    h = History()
    gone_on(h, (0, 4, 0), (3 if again == 4 else 4, 1, 4))
    told = whole(fed(h), ["duplicate"])
    if again == 3:
        assert told == []
        return
    (one,) = told
    expected = Told(
        "duplicate",
        (W, 3),
        f"value {W}/3 stands at offsets 3 and 4",
        {"writer": W, "seq": 3, "offsets": [3, 4]},
        one.at,
        context={"idempotent": "true"},
    )
    assert told == [expected]
    assert 65 < one.at < 70


@pytest.mark.parametrize("kept", [8, 1])
def test_so_much_is_kept_of_what_it_goes_on_with(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "RELAID_KEPT", kept)
    h = History()
    gone_on(h, (0, 1, 0), (9, 1, 1), (0, 1, 2))
    assert len(whole(row_by_row(h), ["duplicate"])) == (kept > 1)


@pytest.mark.parametrize("again", [4, 3], ids=["twice", "once"])
@in_any_way(25)
def test_nor_does_it_matter_that_others_write_after_it(fed: Fed, again: int) -> None:
    """What was told of a value that stands twice is not asked for with what another one's rows place there later."""
    h = History()
    rest = [(3, 1, 4), (4, 6, 5)] if again == 4 else [(4, 1, 4), (5, 5, 5)]
    gone_on(h, (0, 4, 0), *rest)
    h.send("x", 0, 2)
    for seq in 0, 1:
        h.poll("r", [("x", seq, 1, 11 + seq)])
        for _ in range(4):
            h.observe(end=12 + seq)
            h.mark(1.0)
    found = [(one.anomaly, one.subject) for one in whole(fed(h), ["duplicate"])]
    assert found == ([("duplicate", (W, 3))] if again == 4 else [])
