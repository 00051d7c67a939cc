"""Writers without idempotence are remembered as long as a duplicate of theirs may be found, and no longer."""

from __future__ import annotations

import pytest

from rules.engine import order
from rules.kept.state import State, load
from rules.settling.retrying_writers import writer_told
from rules.vocabulary.slices import Place
from tests.rules.histories import History, Store, number


def life(h: History, i: int, *, start: int) -> None:
    """A writer without idempotence starts, sends ten records, and closes; a minute passes."""
    name = f"w{i}"
    h.row(name, "start", settings={"idempotent": "false", "writer": str(number(name))})
    h.send(name, 0, 10, at=i * 10)
    h.poll("r", [(name, 0, 10, i * 10)])
    h.row(name, "close")
    for _ in range(12):
        h.observe(start=start, end=i * 10 + 10)
        h.mark(5.0)


def state_of(store: Store) -> State:
    hot = store.stored[Place("c", "t", 0)].hot
    assert hot is not None
    return load(hot, order.KINDS)


@pytest.mark.parametrize("retention", [30, None])
def test_they_are_forgotten_with_their_records(retention: int | None) -> None:
    """The log keeps 30 records, those of three lives; or all of them."""
    h, store = History(), Store()
    h.assign("r")
    for i in range(12):
        life(h, i, start=0 if retention is None else max(0, i * 10 + 10 - retention))
        store.feed(h.rows)
        h.rows = []
    state = state_of(store)
    assert len(state.not_idempotent) == len(state.not_idempotent_processes) == len(state.not_idempotent_until)
    known = {number(f"w{i}") for i in range(12)}
    if retention is None:
        assert set(state.not_idempotent) == known
    else:
        assert number("w11") in state.not_idempotent and len(state.not_idempotent) <= 6
        assert set(state.not_idempotent) < known


def test_a_duplicate_after_their_process_is_forgotten_is_still_theirs() -> None:
    h, store = History(), Store()
    h.assign("r")
    for i in range(5):
        life(h, i, start=0)
        store.feed(h.rows)
        h.rows = []
    assert number("w0") not in state_of(store).processes
    h.poll("r", [("w0", 3, 1, 60)])
    store.feed(h.rows)
    (duplicate,) = [f for f in store.findings if f.anomaly == "duplicate"]
    assert duplicate.context == {"idempotent": "false"}


@pytest.mark.parametrize(
    ("told", "writer"),
    [("17", 17), (str(2**63 - 1), 2**63 - 1), (str(2**63), -1), ("1" * 30, -1), ("-1", -1), ("²", -1), ("", -1)],
)
def test_a_writer_is_named_by_a_number_of_63_bits(told: str, writer: int) -> None:
    assert writer_told({"writer": told}) == writer
