"""Indefinite transactions that nobody was shown for long (`rules.checks.given_up`): one is visible after all."""

from __future__ import annotations

import pytest

from rules.checks import given_up
from tests.rules.liveness_of import row_by_row
from tests.rules.test_transactions import Log, begun, died, is_zombie
from tests.rules.whole import whole


def two_given_up(h: Log) -> None:
    """Operations 1 and 2 of one writer left their transactions 7 and 8 open, and readers went over both."""
    begun(h)
    died(h, 5)
    died(h, 6, op=2, txn=8)
    h.filled(0, 0, 4)
    h.filled(0, 1, 8)
    h.wait(200, every=5)


@pytest.mark.parametrize("op", [1, 2])
def test_only_the_one_that_is_visible_is_told_of(op: int) -> None:
    h = Log()
    two_given_up(h)
    h.assign("audit")
    h.read(0, ("v", 0, 1, 4), ("w", op, 1, 4 + op), ("v", 1, 1, 8), reader="audit")
    h.wait(30)
    told = is_zombie(200.546)
    changed = {"op": op, "txn": 6 + op, "seq": op}
    message = told.message.replace("transaction 7", f"transaction {6 + op}")
    told = told._replace(subject=(told.subject[0], op), message=message, evidence={**told.evidence, **changed})
    assert whole(row_by_row(h), ["zombie-write"]) == [told]


@pytest.mark.parametrize("kept", [2, 1], ids=["room", "too_many"])
def test_how_many_are_forgotten_for_want_of_room_is_told(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_up, "KEPT", kept)
    h = Log()
    two_given_up(h)
    h.wait(900, every=60)
    what = "indefinite transactions that nobody was shown"
    told = [(one.event, one.subject, one.evidence["dropped"]) for one in whole(row_by_row(h), ["window-overflow"])]
    assert told == ([("opened", (what,), 1), ("closed", (what,), 1)] if kept == 1 else [])
