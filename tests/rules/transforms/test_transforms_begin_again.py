"""A transform whose group's offsets have expired begins again where the log starts, and reflects anew; one that aborted
a transaction which the coordinator committed goes on behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rules.arrays.columns import from_table
from rules.checks.transactions.group_beginnings import (
    MINUTE,
    RETENTION,
    WEEK,
    Beginnings,
    expires_after,
    note_retention,
)
from rules.checks.transactions.transforms import FORGET_GROUP
from rules.vocabulary.objectives import SECOND
from tests.rules.histories import History, Store
from tests.rules.splits import WAYS
from tests.rules.transforms.transform_pair import Pair, W
from tests.rules.whole import Told, whole


def keeps_offsets_for(pair: Pair, minutes: int) -> None:
    for h in (pair.inputs, pair.outputs):
        told = {"offsets_retention_minutes": str(minutes)}
        h.row("observer", "offsets", log_start=0, log_end=0, last_stable=0, settings=told)


def begun_again(pair: Pair, away: float, again: Iterable[int] = (0,)) -> None:
    """Ten inputs are reflected; then nobody is there for a time, and the transform begins at the log's start, with
    ten more. Each of `again` is reflected twice within that."""
    pair.feed(0, 10)
    pair.transform(0, 0, 10, 0)
    pair.wait(20)
    pair.time += away
    for h in (pair.inputs, pair.outputs):
        h.row("y", "start", kind="transform", settings={"group.id": "g"})
        pair.begun("y", h)
    pair.inputs.assign("y", f="subscribe")
    pair.feed(10, 10)
    pair.transform(1, 0, 10, 11, process="y")
    pair.transform(2, 10, 10, 22, process="y")
    for i, seq in enumerate(again):
        pair.transform(3 + i, seq, 1, 33 + 2 * i, process="y")
    pair.wait(40)


def twice(told: list[Told]) -> list[tuple[int, int]]:
    """(value, operation that reflected it again)."""
    assert all(one.subject[:3] == ("twice", "g", W) for one in told)
    return [(one.evidence["seq"], one.evidence["op"]) for one in told]


@pytest.mark.long
@pytest.mark.parametrize("minutes", [1, 60, None], ids=["a minute", "an hour", "a week, as nobody tells"])
@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_a_group_reflects_again_after_its_offsets_have_expired_is_none_of_twice(
    fed: Callable[[Any], Store], minutes: int | None
) -> None:
    """Only what it reflects twice since then is; before they can have expired, all of it."""
    innocent, soon, retention = Pair(), Pair(), 60.0 * minutes if minutes else FORGET_GROUP / SECOND
    for pair in (innocent, soon):
        if minutes:
            keeps_offsets_for(pair, minutes)
    begun_again(innocent, retention)
    begun_again(soon, retention - 30.0)
    assert twice(whole(fed(innocent), ("eos-violation",))) == [(0, 13)]
    assert twice(whole(fed(soon), ("eos-violation",))) == [(seq, 11) for seq in range(10)]


def aborted_but_committed(pair: Pair, *, polled: bool) -> None:
    """Operation 1 was told to be aborted, and the next one goes on behind what it read."""
    pair.feed(0, 15)
    pair.transform(0, 0, 5, 0)
    pair.transform(1, 5, 5, 6, "fail")
    pair.transform(2, 10, 5, 12)
    pair.wait(2)
    if polled:
        pair.outputs.poll("q", [("o", 6, 5, 6)])
    pair.wait(40)


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_an_aborted_transaction_reflected_counts_once_it_was_read_as_committed(
    fed: Callable[[Any], Store],
) -> None:
    """That it could be read is the violation; that its inputs are missing would be none."""
    innocent, guilty = Pair(), Pair()
    aborted_but_committed(innocent, polled=True)
    aborted_but_committed(guilty, polled=False)
    assert [one.anomaly for one in whole(fed(innocent), ("eos-violation", "G1a"))] == ["G1a"] * 5
    told = whole(fed(guilty), ("eos-violation", "G1a"))
    assert [one.subject for one in told] == [("missing", "g", W, seq) for seq in range(5, 10)]


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_was_read_of_an_aborted_transaction_and_reflected_again_is_there_twice(
    fed: Callable[[Any], Store],
) -> None:
    pair = Pair()
    pair.feed(0, 10)
    pair.transform(0, 0, 5, 0)
    pair.transform(1, 5, 1, 6, "fail")
    pair.outputs.poll("q", [("o", 6, 1, 6)])
    pair.wait(2)
    pair.transform(2, 5, 5, 12)
    pair.wait(40)
    assert twice(whole(fed(pair), ("eos-violation",))) == [(5, 12)]


@pytest.mark.parametrize(
    ("told", "minutes"), [("60", 60), ("0", None), ("²", None), ("soon", None), ("-5", None), (None, None)]
)
def test_what_is_no_number_of_minutes_says_nothing_of_how_long_offsets_are_kept(
    told: str | None, minutes: int | None
) -> None:
    h, own = History(), Beginnings()
    h.row("observer", "offsets", settings={RETENTION: told} if told else {"leader": "1"})
    note_retention(own, from_table(h.table()))
    assert expires_after(own) == (minutes * MINUTE if minutes else WEEK)
