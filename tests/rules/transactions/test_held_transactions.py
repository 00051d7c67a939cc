"""A log that is read again, a quarter of an hour and more at once: of transactions that wait to be judged none is too
many, however many of them one step brings."""

from __future__ import annotations

import pytest

from rules.checks.transactions import transaction_outcomes
from rules.step import HELD
from rules.vocabulary.finding import Finding
from tests.rules.conditions.liveness_of import at_once
from tests.rules.histories import Store
from tests.rules.transactions.test_transactions import Log
from tests.rules.transactions.test_transactions import W as W

TORN = 5
MANY = 100


def history(type: str, *, guilty: bool) -> Log:
    """A transaction a second, of a value in each of two partitions, all read at once; of one only half."""
    h = Log()
    for i in range(MANY):
        h.transaction({0: (2 * i, 1, 2 * i), 1: (2 * i + 1, 1, 2 * i)}, type, op=i, txn=100 + i)
        h.read(0, ("w", 2 * i, 1, 2 * i))
        if i != TORN or not guilty:
            h.read(1, ("w", 2 * i + 1, 1, 2 * i))
        h.wait(1)
    h.wait(20)
    return h


def told(findings: list[Finding]) -> list[tuple[str, tuple[int | str, ...]]]:
    wanted = ("torn-transaction", "lost-write")
    return sorted((f.anomaly, f.subject) for f in findings if f.anomaly in wanted and f.event == "raised")


@pytest.mark.long
@pytest.mark.parametrize("guilty", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("type", ["info", "ok"])
@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_one_of_many_that_is_torn_is_found(
    type: str, pieces: int, guilty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_outcomes, "CERTAIN_KEPT", 64)
    h = history(type, guilty=guilty)
    store = Store()
    store.store.held = HELD
    rows = sorted(h.rows, key=lambda row: row.completed)
    size = -(-len(rows) // pieces)
    for first in range(0, len(rows), size):
        store.feed(rows[first : first + size])
    store.settle()
    expected = [("lost-write", (W, 2 * TORN + 1)), ("torn-transaction", (100 + TORN,))] if guilty else []
    assert told(store.findings) == expected
    assert told(at_once(h).findings) == expected
