"""Stage 2: torn transactions, losses that another partition proves, and transforms, live and in finished histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from rules.across.resolution import ABORTED_KEPT, OPEN_KEPT, expired, resolve
from rules.checks.transactions import transaction_outcomes
from rules.kept.state import UnknownFormat
from rules.store import MemoryStore
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Run
from tests.rules.histories import History, Store, found, number, seeds, singly

W = number("w")
Findings = set[tuple[str, tuple[int | str, ...]]]
BOTH = [("topic", 0), ("topic", 1)]


def broken(store: Store) -> Findings:
    """What was found, without the reader's step over what is missing."""
    return {f for f in found(store.findings) if f[0] != "poll-skip"}


def sent(h: History, partition: int, seq: int, at: int | None, type: str = "ok", txn: int = 7, **more: Any) -> None:
    """One partition's part of operation 0 of process t."""
    more.setdefault("txn_partitions", BOTH)
    run = [Run(W, seq, at, 1)]
    h.row("t", "txn", partition=partition, op=0, type=type, txn=txn, sent=run, txn_intent="commit", **more)


def reader(h: History, partition: int, *runs: tuple[str, int, int, int], name: str = "r") -> None:
    h.assign(name, partition=partition)
    for w, s, n, o in runs:
        h.poll(name, [(w, s, n, o)], partition=partition, position_before=o)


def torn(h: History, outcome: str = "ok") -> None:
    """Value 0 stands in partition 0; value 0 of partition 1 was acknowledged at offset 5, between 4 and 6."""
    sent(h, 0, 0, 5, outcome)
    sent(h, 1, 0, 5, outcome)
    reader(h, 0, ("w", 0, 1, 5))
    h.send("v", 0, 1, at=4, partition=1)
    h.send("v", 1, 1, at=6, partition=1)
    h.assign("r", partition=1)
    h.poll("r", [("v", 0, 1, 4)], partition=1)
    h.poll("r", [("v", 1, 1, 6)], partition=1)


def committed_and_torn(h: History) -> None:
    torn(h)


def aborted_and_torn(h: History) -> None:
    torn(h, "fail")


def indefinite_and_torn(h: History) -> None:
    torn(h, "info")


def whole(h: History) -> None:
    sent(h, 0, 0, 5)
    sent(h, 1, 0, 5)
    reader(h, 0, ("w", 0, 1, 5), ("v", 0, 1, 6))
    reader(h, 1, ("w", 0, 1, 5), ("v", 1, 1, 6))
    h.send("v", 0, 1, at=6)
    h.send("v", 1, 1, at=6, partition=1)


def nowhere(h: History) -> None:
    """Aborted, and seen by nobody."""
    sent(h, 0, 0, 5, "fail")
    sent(h, 1, 0, 5, "fail")
    for partition in (0, 1):
        h.send("v", partition * 2, 1, at=4, partition=partition)
        h.send("v", partition * 2 + 1, 1, at=6, partition=partition)
        reader(h, partition, ("v", partition * 2, 1, 4), ("v", partition * 2 + 1, 1, 6))


def not_passed(h: History) -> None:
    """Nobody has read as far as the other partition's value yet."""
    sent(h, 0, 0, 5)
    sent(h, 1, 0, 5)
    reader(h, 0, ("w", 0, 1, 5))
    h.send("v", 0, 1, at=4, partition=1)
    reader(h, 1, ("v", 0, 1, 4))


def passed_by_a_group_alone(h: History) -> None:
    """A group's member may have lost the partition in between: it proves no absence."""
    sent(h, 0, 0, 5)
    sent(h, 1, 0, None)
    reader(h, 0, ("w", 0, 1, 5))
    h.send("v", 0, 1, at=4, partition=1)
    h.send("v", 1, 1, at=6, partition=1)
    h.assign("g", f="subscribe", partition=1)
    h.poll("g", [("v", 0, 1, 4), ("v", 1, 1, 6)], partition=1, mode="subscribe")


LOST: Findings = {("lost-write", (W, 0))}
TORN: Findings = {("torn-transaction", (7,))}

CASES: list[tuple[Callable[[History], None], Findings]] = [
    (committed_and_torn, TORN | LOST),
    (aborted_and_torn, TORN | {("G1a", (W, 0))}),
    (indefinite_and_torn, TORN | LOST),
    (whole, set()),
    (nowhere, set()),
    (not_passed, set()),
    (passed_by_a_group_alone, set()),
]


def live(h: History, *, seed: int | None = None, observed: bool = True) -> Store:
    """Log time passes until everything is settled; rows come one by one, or in random batches."""
    for _ in range(30):
        for partition in sorted({row.partition for row in h.rows}):
            h.row("observer", "offsets", partition=partition, log_start=0, log_end=100, last_stable=100)
            h.mark(0.5, partition=partition)
    store = Store()
    rows = list(h.rows)
    if seed is None:
        for row in singly(rows):
            store.feed(row)
        return store
    rng = random.Random(seed)
    late = {row.process: rng.choice((0, 0, 5, 40)) for row in rows}
    order = sorted(range(len(rows)), key=lambda i: (i + late[rows[i].process] * rng.random(), i))
    while order:
        size = rng.randint(1, 30)
        store.feed([rows[i] for i in order[:size]])
        order = order[size:]
    return store


@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_finished(build: Callable[[History], None], expected: Findings) -> None:
    h, store = History(), Store()
    build(h)
    store.feed(h.rows, finished=True)
    assert broken(store) == expected


@pytest.mark.parametrize("seed", [None, *seeds(4)])
@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_live(build: Callable[[History], None], expected: Findings, seed: int | None) -> None:
    h = History()
    build(h)
    store = live(h, seed=seed)
    assert broken(store) == expected
    findings = store.findings
    assert len({(f.id, f.event, f.at) for f in findings if f.anomaly == "torn-transaction"}) <= 1


def test_a_torn_transaction_names_both_values() -> None:
    h = History()
    torn(h, "info")
    (finding,) = (f for f in live(h).findings if f.anomaly == "torn-transaction")
    assert finding.evidence["seen"] == {"topic": "topic", "partition": 0, "writer": W, "seq": 0, "offset": 5}
    assert finding.evidence["absent"] == {"topic": "topic", "partition": 1, "writer": W, "seq": 0, "offset": 5}
    assert finding.evidence["outcome"] == "info"
    assert finding.partition == -1


def test_retention_tears_nothing() -> None:
    """What is absent lies below the log start."""
    h = History()
    torn(h)
    for _ in range(30):
        h.row("observer", "offsets", partition=0, log_start=0, log_end=100, last_stable=100)
        h.row("observer", "offsets", partition=1, log_start=6, log_end=100, last_stable=100)
        for partition in (0, 1):
            h.mark(0.5, partition=partition)
    store = Store()
    for row in singly(h.rows):
        store.feed(row)
    assert broken(store) == set()


@pytest.mark.parametrize("room", [256, 0], ids=["room", "too many"])
def test_an_acknowledged_offset_that_holds_another_value(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction is visible in partition 0; in partition 1 its offset holds something else. Where it is not noted
    what that is, it is told so."""
    monkeypatch.setattr(transaction_outcomes, "GUARDS_KEPT", room)
    h = History()
    sent(h, 0, 0, 5, "info")
    sent(h, 1, 0, 5, "info")
    reader(h, 0, ("w", 0, 1, 5))
    for seq, offset in ((0, 4), (1, 5), (2, 6)):
        h.send("v", seq, 1, at=offset, partition=1)
    reader(h, 1, ("v", 0, 1, 4), ("v", 1, 1, 5), ("v", 2, 1, 6))
    findings = live(h).findings
    assert found(findings) == TORN | LOST | ({("inconsistent-offsets", (5,))} if room else set())
    dropped = {f.subject for f in findings if f.anomaly == "window-overflow"}
    assert dropped == (set() if room else {("values where a transaction may stand",)})


def test_what_became_of_an_indefinite_transaction_is_told() -> None:
    h = History()
    torn(h, "info")
    told = {(row["txn"], row["outcome"], row["partition"]) for row in live(h).transactions}
    assert told == {(7, "visible", 0), (7, "absent", 1)}


def test_facts_are_forgotten_in_time() -> None:
    """An aborted transaction's absent values wait for a quarter of an hour, what is open for a day."""
    fact = {
        "cluster": "c",
        "topic_id": "t",
        "topic": "topic",
        "partition": 0,
        "kind": "absent",
        "at": 10,
        "txn": 1,
        "outcome": "fail",
        "writer": 1,
        "seq": 0,
        "offset": 0,
        "length": 1,
    }
    store = MemoryStore()
    store.resolve(pa.Table.from_pylist([fact], schema=FACT_SCHEMA))
    store.resolve(pa.Table.from_pylist([fact | {"txn": 2, "outcome": "info"}], schema=FACT_SCHEMA))
    assert len(store.across) == 3, "with the format"
    assert expired(store.across, 10 + ABORTED_KEPT) == []
    assert len(expired(store.across, 11 + ABORTED_KEPT)) == 1
    assert len(expired(store.across, 11 + OPEN_KEPT)) == 2


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(UnknownFormat, match=r"^the state of stage 2 has format b'1', this version reads b'\d'$"):
        resolve({"format": b"1"}, FACT_SCHEMA.empty_table(), Objectives())
