"""A loss counts from when its place was passed first, whichever comes first: the pass, or what tells of the sending.

A value is acknowledged at offset 5 and second 5, and polled by nobody that is known of. What a reader polled in a hole
of its log nobody knows: one that begins within the grace of the pass decides that nothing is told, a later one does not
matter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rules.vocabulary.slices import Mark, Slice
from tests.rules.histories import History, Store, number
from tests.rules.told_of_cases import lost_at
from tests.rules.whole import whole

V, ENDS = number("v"), 60
ORDERS = ["in order", "the sending is told late", "the first pass is told late"]


def history(hole: tuple[int, int], *, passes: Sequence[tuple[str, int]]) -> tuple[History, list[Slice], list[Slice]]:
    """All rows, the row that tells of the sending, and the first pass. `hole`: between which seconds what `q` did is
    lost; `passes`: who went over offset 5, and when, in the only poll of theirs."""
    h, sending, first = History(), list[Slice](), list[Slice]()
    h.start("v")
    readers = dict.fromkeys([*(name for name, _ in passes), "q"])
    for name in readers:
        h.assign(name)
    for second in range(ENDS):
        h.time = float(second)
        if second == 5:
            sending.append(h.send("v", 0, 1, at=5))
        else:
            h.send("w", second, 1, at=second)
        for name, at in passes:
            if at == second:
                seen = [("w", 0, 5, 0), ("w", 6, second - 5, 6)]
                polled = h.poll(name, seen, position_before=0, position_after=second + 1)
                first += [polled] if not first else []
        h.observe(end=second + 1)
        now, here = h.at(second + 0.9), [name for name in (*readers, "w", "v", "observer") if name != "q"]
        marks = [Mark(number(p), h._slices[number(p), 0], now) for p in here]
        if second < hole[0]:
            marks.append(Mark(number("q"), 1, now))
        elif second >= hole[1]:
            marks.append(Mark(number("q"), 1, h.at(hole[0]), h.at(hole[1]), lost=True))
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)
    return h, sending, first


def fed(h: History, late: Sequence[Slice], *, size: int = 9) -> Store:
    """In order, but for what is `late`, which comes just before the rows of the last second."""
    store = Store()
    rows = [row for row in h.rows if row not in late]
    for at in range(0, len(rows) - 3, size):
        store.feed(rows[at : min(at + size, len(rows) - 3)])
    store.feed(late)
    store.feed(rows[-3:])
    return store


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("passes", "hole", "lost"),
    [
        ([20], (34, 40), 31),
        ([20], (27, 40), None),
        ([20, 45], (34, 40), 31),
        ([20, 45], (27, 40), None),
        ([8, 20], (22, 40), 19),
        ([8, 20], (15, 40), None),
    ],
)
def test_it_counts_from_the_first_pass_in_every_order(
    passes: list[int], hole: tuple[int, int], lost: int | None, order: str
) -> None:
    """`passes`: when `r`, and then `s`, went over it."""
    h, sending, first = history(hole, passes=list(zip("rs", passes, strict=False)))
    store = fed(h, {ORDERS[0]: [], ORDERS[1]: sending, ORDERS[2]: first}[order])
    read_to = (passes[0] if order == ORDERS[0] else passes[-1]) + 1
    assert whole(store, ["lost-write"]) == ([] if lost is None else [lost_at(5, V, 0, read_to, float(lost))])
