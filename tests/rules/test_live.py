"""What holds while rows still come: frontier, completeness, conditions, and what arrives late or in pieces."""

from __future__ import annotations

import pytest

from rules.engine.order import KINDS
from rules.kept.state import UnknownFormat, dump, load
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.times import EPOCH, micros
from tests.known import known
from tests.rules.histories import START, History, Store, found, number, singly

W = number("w")


def healthy(h: History, seconds: int, *, lose: int | None = None, first: int = 0) -> None:
    """Five records a second to one reader; the one at `lose` seconds is acknowledged and shown to nobody."""
    h.assign("r")
    for i in range(seconds):
        h.send("w", i * 5, 5, at=first + i * 6)
        if i != lose:
            h.poll("r", [("w", i * 5, 5, first + i * 6)])
        h.observe(end=first + i * 6 + 6)
        h.mark(1.0)


def row_by_row(h: History, objectives: Objectives | None = None) -> Store:
    store = Store(objectives)
    for row in singly(h.rows):
        store.feed(row)
    return store


def events(store: Store, name: str) -> list[str]:
    return [f.event for f in store.findings if f.anomaly == name]


def test_a_loss_waits_for_grace_and_is_suspected_until_then() -> None:
    h = History()
    healthy(h, 40, lose=10)
    store = row_by_row(h)
    lost = [f for f in store.findings if f.anomaly == "lost-write"]
    assert [f.subject for f in lost] == [(W, 50 + i) for i in range(5)]
    passed = micros(START) + 11_000_000  # about when the reader went past them
    assert all(passed + 10_000_000 <= f.at <= passed + 13_000_000 for f in lost)
    assert events(store, "suspected") == ["opened", "closed"]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("polled elsewhere", set()),
        ("not read again", set()),
        ("read again", {"lost-write"}),
    ],
)
def test_an_acknowledgement_names_a_place_that_everybody_has_read(early: bool, then: str, expected: set[str]) -> None:
    """Its row may be here before that is settled. The record may come at another place, a moment later; and it may
    stand where it was acknowledged, if the log was cut: who read on before has not seen it, who reads again would."""
    h = History()
    healthy(h, 15)
    told_wrong = h.send("v", 0, at=2)
    for second in range(15):
        if then == "polled elsewhere" and second == 4:
            h.poll("r", [("v", 0, 1, 90)])
        if then == "read again" and second == 4:
            h.assign("audit")
            h.poll("audit", [("w", 0, 5, 0), ("w", 5, 5, 6)])
        h.observe(end=91)
        h.mark(1.0)
    if early:
        h.rows.remove(told_wrong)
        h.rows.insert(5, told_wrong)
    names = {name for name, _ in found(row_by_row(h).findings)} - {"duplicate", "inconsistent-offsets"}
    assert names == expected


def test_nothing_is_lost_while_somebody_s_log_is_incomplete() -> None:
    """The same history, but one slice of a second reader does not come: it may have polled what is missing."""
    h = History()
    h.assign("q")
    hidden = h.row("q", "position", position_after=7)
    healthy(h, 40, lose=10)
    h.rows.remove(hidden)
    store = row_by_row(h)
    assert {name for name, _ in found(store.findings)} == {"poll-skip"}  # that one needs no other log
    store.feed([hidden])
    store.feed([h.mark(1.0)])
    assert {name for name, _ in found(store.findings)} == {"lost-write", "poll-skip"}


def test_a_log_with_a_hole_that_goes_on_keeps_little_and_blinds_nobody_else_for_long() -> None:
    """One row of a living observer never comes, as if it had been rejected. For the completion limit everything waits
    for it; from then on losses are called, also much later, and the state stays small."""
    h = History()
    h.assign("r")
    h.start("o")
    hidden = h.row("o", "offsets", log_start=0, log_end=0, last_stable=0)
    lost = []
    for i in range(1700):
        h.send("w", i, at=i)
        if i % 500 != 250:
            h.poll("r", [("w", i, 1, i)])
        else:
            lost.append(i)
        h.row("o", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1)
        h.mark(1.0)
    h.rows.remove(hidden)
    store, sizes = Store(), []
    for first in range(0, len(h.rows), 200):
        store.feed(h.rows[first : first + 200])
        (stored,) = store.stored.values()
        assert stored.hot is not None
        sizes.append(len(stored.hot))
    assert [f.subject for f in store.findings if f.anomaly == "lost-write"] == [(W, i) for i in lost]
    assert events(store, "unverifiable") == ["opened", "closed"]
    state = load(known(stored.hot), KINDS)
    assert state.processes[number("o")].missing == [[1, 2]]
    assert not state.processes[number("o")].ahead
    assert sizes[-1] < 3_000 + min(sizes[len(sizes) // 2 :])


def test_a_silent_log_holds_no_reader_back_for_ever() -> None:
    """A reader that stops moving for the liveness objective no longer holds the frontier."""
    h = History()
    h.assign("q")
    h.send("v", 0, at=0)
    h.poll("q", [("v", 0, 1, 0)])
    healthy(h, 90, first=1)
    store = row_by_row(h)
    (last,) = store.last.values()
    assert last.summary["frontier"] > 400
    assert found(store.findings) == set()


def test_unseen_opens_after_the_objective_and_closes() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 5, at=0)
    for _ in range(15):
        h.observe(end=5)
        h.mark(1.0)
    h.poll("r", [("w", 0, 5, 0)])
    for _ in range(3):
        h.observe(end=5)
        h.mark(1.0)
    store, caught_up = row_by_row(h), Store()
    caught_up.feed(h.rows)
    for one in (store, caught_up):
        assert events(one, "unseen") == ["opened", "closed"]
        assert found(one.findings) == set()
    assert [f.at for f in store.findings] == [f.at for f in caught_up.findings]


def test_unseen_needs_a_reader_and_a_stable_offset() -> None:
    h = History()
    h.assign("r")
    h.send("w", 0, 5, at=0)
    for _ in range(30):
        h.observe(end=5, stable=0)  # a transaction before it is open: nobody may read it
        h.mark(1.0)
    assert events(row_by_row(h), "unseen") == []


def test_the_window_is_bounded() -> None:
    """Without a reader nothing settles by itself; the window overflows, says so, and makes no violation."""
    h = History()
    for i in range(300):
        h.send("w", i, at=i * 2)
        h.mark(0.1)
    store = row_by_row(h, Objectives(window_runs=50))
    (last,) = store.last.values()
    assert last.summary["window_runs"] <= 51
    assert "opened" in events(store, "window-overflow")
    assert found(store.findings) == set()


def test_a_row_that_comes_twice_counts_once() -> None:
    h = History()
    healthy(h, 5)
    store = Store()
    store.feed(h.rows)
    store.feed(h.rows[3:9])
    (last,) = store.last.values()
    assert last.summary["acknowledged"] == 25
    assert found(store.findings) == set()


def test_duplicates_in_two_batches_are_both_remembered() -> None:
    h = History()
    h.poll("r", [("w", 0, 1, 0), ("v", 0, 1, 1)])
    first = h.poll("s", [("w", 0, 1, 5)])
    second = h.poll("s", [("v", 0, 1, 6)])
    store = Store()
    store.feed(h.rows[:-1])
    assert first in h.rows
    store.feed([second])
    assert found(store.findings) == {("duplicate", (W, 0)), ("duplicate", (number("v"), 0))}
    (kept,) = store.stored.values()
    assert kept.hot is not None
    assert load(kept.hot, KINDS).moved.offset.tolist() == [0, 1]


def test_the_order_of_arrival_of_committed_offsets_does_not_matter() -> None:
    h = History()
    h.row("r", "commit", committed=5, group="g")
    h.row("o", "offsets", committed=0, group="g")
    for _ in range(3):
        h.mark(1.0)
    assert found(row_by_row(h).findings) == {("spurious-zero-offset", ("committed", "g"))}
    h.rows[:2] = reversed(h.rows[:2])
    assert found(row_by_row(h).findings) == {("spurious-zero-offset", ("committed", "g"))}


def test_a_zero_that_was_committed_is_no_surprise() -> None:
    h = History()
    h.row("r", "commit", committed=5, group="g")
    h.row("r", "commit", committed=0, group="g")
    h.row("o", "offsets", committed=0, group="g")
    assert found(row_by_row(h).findings) == set()


def test_retention_that_was_observed_just_after_the_poll() -> None:
    h = History()
    h.assign("r")
    h.poll("s", [("w", 0, 5, 0)])
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 4, 1, 4)])
    for _ in range(20):
        h.observe(start=4, end=5)
        h.mark(1.0)
    assert found(row_by_row(h).findings) == set()


def test_an_order_finding_inherits_how_bad_its_duplicate_is() -> None:
    h = History()
    h.start("w", writer=str(W), idempotent="false")
    h.send("w", 0, 2)
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("s", [("w", 0, 1, 7)])
    h.poll("r", [("w", 1, 1, 3)])
    store = Store()
    store.feed(h.rows, finished=True)
    judged = {f.anomaly: severity(f.anomaly, f.context) for f in store.findings if f.event == "raised"}
    assert judged == {"duplicate": "warning", "nonmonotonic-poll": "warning", "int-nonmonotonic-send": "warning"}


def test_a_state_survives_its_bytes() -> None:
    h = History()
    healthy(h, 12, lose=9)
    (kept,) = row_by_row(h).stored.values()
    assert kept.hot is not None
    assert dump(load(kept.hot, KINDS), KINDS) == kept.hot


def test_a_state_of_another_version_is_refused() -> None:
    h = History()
    healthy(h, 2)
    store = row_by_row(h)
    (kept,) = store.stored.values()
    assert kept.hot is not None
    kept.hot = kept.hot[:3] + bytes([99]) + kept.hot[4:]
    with pytest.raises(UnknownFormat, match="another version"):
        store.feed([h.observe(end=99)])


def test_a_clock_that_jumps_by_years_costs_no_more_than_a_jump() -> None:
    h = History()
    healthy(h, 3)
    early = h.row("observer", "offsets", log_start=0, last_stable=18)
    early.completed = early.invoked = EPOCH
    h.mark(1.0)
    assert found(row_by_row(h).findings) == set()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_what_a_reader_at_read_uncommitted_got_is_not_lost(isolation: str) -> None:
    """It proves no commit, and it is a delivery; a reader that got it when it was settled long ago is late."""
    h = History()
    healthy(h, 40, lose=10)
    during = next(i for i, row in enumerate(h.rows) if row.f == "poll" and row.completed > h.at(12))
    late = History()
    late.time = 11.5
    late.assign("u")
    late.poll("u", [("w", 50, 5, 60)], isolation=isolation)
    late.row("u", "close")
    h.rows[during:during] = late.rows
    lost = {name for name, _ in found(row_by_row(h).findings)} & {"lost-write"}
    assert lost == set()
