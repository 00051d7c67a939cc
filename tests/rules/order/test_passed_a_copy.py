"""`nonmonotonic-poll` of a value that stands at several offsets: what is told does not depend on when one looked.

A value counts at the last of its places, as far as these were known when the step was decided. Behind each record
stands a marker, so that the order of offsets alone does not explain it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.finding import identity
from tests.rules.conditions.liveness_of import at_once, away, away_in_the_midst, back, row_by_row, shuffled
from tests.rules.histories import History, number
from tests.rules.splits import in_pieces, in_random_pieces
from tests.rules.whole import Told, finished, live, whole

VALUES = 5
COPIED, COPY = 2, 20
WRITER = number("w")
ORDER = ("nonmonotonic-poll", "int-nonmonotonic-poll", "poll-skip", "int-poll-skip")
ON_TIME = [
    row_by_row,
    at_once,
    away_in_the_midst,
    back,
    in_pieces,
    in_random_pieces,
    *(lambda h, cut=cut: away(h, cut) for cut in (20, 40, 60)),
]
"""What a late reader's steps are compared with is what is left of the index (`rules.settling.positions`)."""


def seconds(h: History, number: int) -> None:
    for _ in range(number):
        h.observe(end=1000)
        h.mark(1.0)


def log(h: History) -> None:
    """A value at every second offset, each read at once."""
    h.start("w")
    h.assign("r")
    h.assign("a")
    for i in range(VALUES):
        h.send("w", i, at=2 * i)
        h.poll("r", [("w", i, 1, 2 * i)])


def copied(h: History) -> None:
    """A value stands once more, and that is read."""
    h.poll("r", [("w", COPIED, 1, COPY)])


def audited(h: History) -> None:
    h.poll("a", [("w", i, 1, 2 * i) for i in range(VALUES)])


def before_it_is_decided(h: History) -> None:
    log(h)
    seconds(h, 2)
    copied(h)
    seconds(h, 20)


def after_it_was_decided(h: History) -> None:
    log(h)
    seconds(h, 20)
    copied(h)
    seconds(h, 20)


def audited_before_it_is_decided(h: History) -> None:
    log(h)
    seconds(h, 2)
    audited(h)
    copied(h)
    seconds(h, 20)


def audited_after_it_was_decided(h: History) -> None:
    """The copy stands above the settled frontier still, and the record before it no more."""
    log(h)
    seconds(h, 20)
    copied(h)
    seconds(h, 2)
    audited(h)
    seconds(h, 20)


def back_from(process: str, *, op: int, previous_op: int, internal: bool, at: float) -> Told:
    n = number(process)
    evidence = {
        "process": n,
        "op": op,
        "previous_op": previous_op,
        "previous_offset": 2 * COPIED,
        "offset": 2 * COPIED + 2,
    }
    return Told(
        "int-nonmonotonic-poll" if internal else "nonmonotonic-poll",
        (n, op, 2 * COPIED + 2) if internal else (n, op),
        f"process {n} went from offset 4, whose value stands at 20 too, back to 6",
        evidence,
        at,
        context={"mode": "assign", "duplicate": "critical"},
        implied_by=identity("duplicate", "c", "t", 0, (WRITER, COPIED)),
    )


READER = back_from("r", op=4, previous_op=3, internal=False, at=11.0)
AUDIT = back_from("a", op=1, previous_op=1, internal=True, at=11.0)
OVER = AUDIT._replace(
    anomaly="int-poll-skip",
    subject=(number("a"), 1, 4),
    message=f"process {number('a')} went from offset 2 to 4, whose value stands at 20 too, over 2 known values",
    evidence={
        "process": number("a"),
        "op": 1,
        "previous_op": 1,
        "previous_offset": 2,
        "offset": 4,
        "skipped": [{"offset": offset, "writer": WRITER, "seq": offset // 2} for offset in (6, 8)],
    },
)


@pytest.mark.parametrize(
    "happens, found",
    [
        (before_it_is_decided, [READER]),
        (after_it_was_decided, []),
        (audited_before_it_is_decided, [AUDIT, OVER, READER]),
        (audited_after_it_was_decided, []),
    ],
)
@pytest.mark.parametrize("fed", ON_TIME)
def test_a_copy_counts_as_far_as_it_was_known_when_the_step_was_decided(
    happens: Callable[[History], None], found: list[Told], fed: Callable[[History], Any]
) -> None:
    h = History()
    happens(h)
    store = live(fed)(h)
    assert whole(store, ORDER) == found
    assert [one.subject for one in whole(store, ("duplicate",))] == [(WRITER, COPIED)]


def test_nor_does_what_was_known_long_after_a_step_that_comes_late() -> None:
    """Had it come in time, it would have been decided a liveness objective and the grace time later at the latest."""
    h = History()
    log(h)
    seconds(h, 45)
    copied(h)
    seconds(h, 20)
    store = live(lambda h: shuffled(h, 3))(h)
    assert whole(store, ORDER) == []
    assert [one.subject for one in whole(store, ("duplicate",))] == [(WRITER, COPIED)]


@pytest.mark.parametrize("happens", [after_it_was_decided, audited_after_it_was_decided])
def test_a_finished_history_knows_all_places(happens: Callable[[History], None]) -> None:
    h = History()
    happens(h)
    told = {(one.anomaly, one.subject) for one in whole(finished(h), ORDER)}
    assert (READER.anomaly, READER.subject) in told
    assert ((AUDIT.anomaly, AUDIT.subject) in told) == (happens is audited_after_it_was_decided)
