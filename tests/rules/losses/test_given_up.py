"""Indefinite transactions that nobody was shown for long (`rules.checks.transactions.given_up`): one is visible after
all."""

from __future__ import annotations

import orjson
import pytest

from rules.checks.transactions import given_up
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.histories import Store
from tests.rules.transactions.test_transactions import Log, begun, died, is_zombie
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


def kept(store: Store) -> dict[str, bytes]:
    """The chunks of what partition 0 has given up."""
    (chunks,) = (one.chunks for place, one in store.stored.items() if place.partition == 0)
    return {name: stored for name, stored in sorted(chunks.items()) if name.startswith("given-up")}


def kept_of_one_writer(operations: int) -> int:
    """Bytes, of a writer that leaves a transaction open every 20 s: retention follows closely."""
    h, store = Log(), Store()
    begun(h)
    h.filled(0, 0, 4)
    for i in range(operations):
        offset = 5 + 2 * i
        died(h, offset, op=1 + i, txn=7 + i)
        h.filled(0, 1 + i, offset + 1)
        h.wait(20, every=10)
        h.start_offset[0] = offset - 3
        store.feed(h.rows)
        h.rows.clear()
    return sum(map(len, kept(store).values()))


def test_what_retention_has_taken_is_not_kept_as_long_as_its_writer_goes_on() -> None:
    few, many = kept_of_one_writer(8), kept_of_one_writer(24)
    assert few > 0
    assert many < 1.5 * few


def test_a_step_reads_and_writes_only_the_parts_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten transactions are given up in one step, four in a part, and the sixth one is shown to somebody."""
    monkeypatch.setattr(given_up, "PART", 4)
    h, store = Log(), Store()
    begun(h)
    h.filled(0, 0, 4)
    for i in range(10):
        died(h, 5 + i, op=1 + i, txn=7 + i)
    h.filled(0, 1, 16)
    h.wait(60, every=10)
    store.feed(h.rows)
    before = kept(store)
    assert {name: len(orjson.loads(stored)) for name, stored in before.items()} == {
        "given-up.0": 4,
        "given-up.1": 4,
        "given-up.2": 2,
    }
    h.rows.clear()
    h.assign("audit")
    h.read(0, ("v", 0, 1, 4), ("w", 6, 1, 10), ("v", 1, 1, 16), reader="audit")
    h.wait(30)
    store.feed(h.rows)
    assert [one.subject[1] for one in whole(store, ["zombie-write"])] == [6]
    after = kept(store)
    assert [name for name in before if after[name] != before[name]] == ["given-up.1"]
    assert [record["op"] for record in orjson.loads(after["given-up.1"])] == [5, 7, 8]


def test_runs_that_are_given_up_in_the_step_that_divides_them_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what two transactions wrote, two values each, readers that begin there go over the second, and another one
    over the first."""
    monkeypatch.setattr(given_up, "PART", 2)
    h, store = Log(), Store()
    begun(h)
    h.filled(0, 0, 4)
    for op, offset in ((1, 5), (3, 8)):
        h.transaction({0: (op, 2, offset)}, "info", op=op, txn=6 + op, ended=None, boot="b")
        h.send("v", op, at=offset + 2)
        h.assign(f"s{op}")
        h.poll(f"s{op}", [("v", op, 1, offset + 2)], position_before=offset + 1)
    h.wait(20)
    h.read(0, ("v", 1, 1, 7), ("v", 3, 1, 10))
    h.wait(60, every=10)
    store.feed(h.rows)
    assert [one.message for one in store.findings if one.anomaly == "check-failed"] == []
    records = [record for one in kept(store).values() for record in orjson.loads(one)]
    assert sorted((record["op"], record["seq"], record["length"]) for record in records) == [
        (1, 1, 1),
        (1, 2, 1),
        (3, 3, 1),
        (3, 4, 1),
    ]
