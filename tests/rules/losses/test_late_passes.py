"""A loss counts from when its place was passed first, whichever comes first: the pass, or what tells of the sending.

A transaction writes two values at second 5, to offsets 5 and 6, and whoever polls the first goes over the second. What
a reader polled in a hole of its log nobody knows: one that begins within the grace of the pass decides that nothing is
told, a later one does not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rules.vocabulary.slices import Mark, Slice
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import History, Store, number, without
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.told_of_cases import lost_at
from tests.rules.whole import Told, finished, whole

V, ENDS = number("v"), 60
ORDERS = ["in order", "the sending is told late", "the first pass is told late"]


def history(hole: tuple[int, int], *, passes: Sequence[tuple[str, int]]) -> tuple[History, list[Slice], list[Slice]]:
    """All rows, the row that tells of the sending, and the first pass. `hole`: between which seconds what `q` did is
    lost; `passes`: who went over offset 6, and when, in the only poll of theirs."""
    h, sending, first = History(), list[Slice](), list[Slice]()
    h.start("v")
    readers = dict.fromkeys([*(name for name, _ in passes), "q"])
    for name in readers:
        h.assign(name)
    for second in range(ENDS):
        h.time = float(second)
        if second == 5:
            sending.append(h.txn("v", [("v", 0, 2, 5)], txn=7, transactional_id="v"))
        elif second != 6:
            h.send("w", second, 1, at=second)
        for name, at in passes:
            if at == second:
                seen = [("w", 0, 5, 0), ("v", 0, 1, 5), ("w", 7, second - 6, 7)]
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
    rows = without(h.rows, late)
    for at in range(0, len(rows) - 3, size):
        store.feed(rows[at : min(at + size, len(rows) - 3)])
    store.feed(late)
    store.feed(rows[-3:])
    return store


def told(at: float, read_to: int) -> list[Told]:
    lost = lost_at(6, V, 1, read_to, at)
    of_it = {"txn": 7, "told": "committed", "transactional_id": "v"}
    where = {"topic": "topic", "partition": 0, "writer": V}
    torn = Told(
        "torn-transaction",
        (7,),
        f"of transaction 7 (ok), value {V}/0 was polled in partition 0 of topic, and value {V}/1 is absent from offset"
        " 6 of partition 0 of topic, which a reader passed",
        {
            "txn": 7,
            "outcome": "ok",
            "transactional_id": "v",
            "seen": {**where, "seq": 0, "offset": 5},
            "absent": {**where, "seq": 1, "offset": 6},
        },
        at,
    )
    words = "; its transaction 7 of v was told to be committed"
    return [lost._replace(message=lost.message + words, evidence={**lost.evidence, **of_it}), torn]


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
    store = fed(h, dict(zip(ORDERS, ([], sending, first), strict=True))[order])
    read_to = (passes[0] if order == ORDERS[0] else passes[-1]) + 1
    assert whole(store, ["lost-write", "torn-transaction"]) == ([] if lost is None else told(float(lost), read_to))


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("fed", [row_by_row, at_once, finished])
def test_a_late_reader_shows_by_itself_that_a_value_stands_twice(fed: Callable[[History], Store], twice: bool) -> None:
    """All is settled, and nobody else was given the second one."""
    h = Hosts(one=("w", "r", "observer"), two=("q",))
    h.assign("r")
    h.assign("q")
    h.second()
    h.silent = {"two"}
    h.send("w", 0, 5, at=0)
    h.send("w", 5, 2, at=6)
    h.poll("r", [("w", 0, 5, 0), ("w", 5, 2, 6)])
    h.row("observer", "offsets", log_start=0, log_end=8, last_stable=8)
    for _ in range(100):
        h.second()
    h.silent = set()
    h.poll("q", [("w", 0, 5, 0), *([("w", 3, 1, 5)] if twice else ()), ("w", 5, 2, 6)])
    h.second()
    told = whole(fed(h), ["duplicate"])
    assert [(one.subject, one.evidence["offsets"]) for one in told] == ([((number("w"), 3), [3, 5])] if twice else [])


@pytest.mark.parametrize("stood_before", [True, False])
@pytest.mark.parametrize("fed", [row_by_row, at_once, finished])
def test_what_a_late_reader_was_shown_in_a_hole_stands_twice_if_it_stood_before(
    fed: Callable[[History], Store], stood_before: bool
) -> None:
    """Each of its rows may be in a step of its own: what stands elsewhere is known of others, by whom the hole was
    settled. A value that nobody has placed before stands once."""
    h = Hosts(one=("w", "r", "observer"), two=("q",))
    h.assign("r")
    h.assign("q")
    h.second()
    h.silent = {"two"}
    h.send("w", 0, 5, at=0)
    h.send("w", 5, type="info")
    h.send("w", 6, 2, at=6)
    h.poll("r", [("w", 0, 5, 0), ("w", 6, 2, 6)])
    h.row("observer", "offsets", log_start=0, log_end=8, last_stable=8)
    for _ in range(100):
        h.second()
    h.silent = set()
    for run in [("w", 0, 5, 0), ("w", 3 if stood_before else 5, 1, 5), ("w", 6, 2, 6)]:
        h.poll("q", [run])
    h.second()
    found = [(one.subject, one.evidence["offsets"]) for one in whole(fed(h), ["duplicate"])]
    assert found == ([((number("w"), 3), [3, 5])] if stood_before else [])
