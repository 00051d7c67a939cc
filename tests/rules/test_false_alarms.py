"""Small histories in which the rules once said what was not so, or missed what was. The model and the reference checker
found them; each stands beside the guilty history that it resembles."""

from __future__ import annotations

import pytest

from rules.engine.order import KINDS
from rules.kept.state import load
from rules.vocabulary.finding import Recheck
from rules.vocabulary.slices import Irregular
from tests.rules.histories import History, Store, found, number, singly
from tests.rules.transforms.transform_pair import Pair

W = number("w")
RELOCATED = Irregular(0, 0, "relocated", 1, number("v"), 5, "topic", 3)


def settle(h: History) -> None:
    for _ in range(20):
        h.observe(end=100)
        h.mark(1.0)


def finished(h: History) -> Store:
    store = Store()
    store.feed(h.rows, finished=True)
    return store


def live(h: History, *, one_by_one: bool = False) -> Store:
    settle(h)
    store = Store()
    for rows in [[row] for row in h.rows] if one_by_one else [h.rows]:
        store.feed(rows)
    return store


@pytest.mark.parametrize("closed", [False, True])
def test_an_output_is_no_input_of_its_transform(closed: bool) -> None:
    """The transform's life ends, which every partition is told; others write to its output's topic, too."""
    pair, store = Pair(), Store()
    pair.feed(0, 10)
    pair.transform(0, 0, 5, 0)
    if closed:
        for h in (pair.inputs, pair.outputs):
            h.row("x", "close")
    pair.outputs.send("v", 0, 3, at=8)
    pair.outputs.poll("q", [("v", 0, 3, 8)])
    pair.transform(1, 5, 5, 20, process="x2")
    pair.wait(40)
    for row in singly(pair.rows):
        store.feed(row)
    assert found(store.findings) == set()


@pytest.mark.parametrize(
    ("back", "expected"),
    [(True, set()), (False, {("late-record", (3, W, 3))})],
    ids=["went back over nothing", "went over it"],
)
def test_a_poll_that_went_back_has_not_passed_what_lies_between(
    back: bool, expected: set[tuple[str, tuple[int | str, ...]]]
) -> None:
    """It got offset 5, then 1: it has not gone over 3, where a record is polled later."""
    h = History()
    h.poll("r", [("w", 5, 1, 5), ("w", 1, 1, 1)] if back else [("w", 1, 1, 1), ("w", 5, 1, 5)])
    h.poll("s", [("w", 2, 1, 2)])
    h.poll("s", [("w", 3, 1, 3), ("w", 4, 1, 4)])
    told = {f for f in found(finished(h).findings) if f[0] in ("late-record", "vanished-record")}
    assert told >= expected
    assert not {f for f in told if f[1][0] == 3} - expected


def test_what_went_back_settles_no_loss() -> None:
    """Acknowledged at 3 and never polled; one reader got 5 and then 1, in one operation, and nobody went over 3."""
    h = History()
    h.assign("r")
    h.send("w", 0, 6, at=0)
    h.poll("r", [("w", 5, 1, 5), ("w", 1, 1, 1)])
    store = live(h)
    (kept,) = store.stored.values()
    assert kept.hot is not None
    passed = load(kept.hot, KINDS).passed
    assert not any(low <= 3 < high for low, high in zip(passed.start.tolist(), passed.end.tolist(), strict=True))


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_relocated_record_over_one_of_ours(first: bool, one_by_one: bool) -> None:
    h = History()
    h.assign("r")
    if first:
        h.irregular("r", RELOCATED)
    h.send("w", 0, at=0)
    if not first:
        h.irregular("r", RELOCATED)
    assert ("inconsistent-offsets", (0,)) in found(live(h, one_by_one=one_by_one).findings)


def test_a_relocated_record_at_an_offset_of_its_own() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, at=1)
    h.irregular("r", RELOCATED)
    assert "inconsistent-offsets" not in {name for name, _ in found(live(h).findings)}


def test_a_step_between_unclear_offsets_is_looked_up() -> None:
    """No skip can be told where an end has two values; that others saw something between can."""
    h = History()
    h.assign("r")
    h.poll("s", [("w", 0, 3, 0)])
    h.poll("q", [("v", 0, 1, 2)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])
    h.poll("r", [("w", 4, 1, 4)])
    h.poll("s", [("w", 4, 1, 4)])
    store = live(h)
    assert Recheck(1, 2) in [recheck for _, recheck in store.rechecks]
    assert {name for name, _ in found(store.findings)} == {"inconsistent-offsets", "duplicate"} & {
        name for name, _ in found(store.findings)
    }
