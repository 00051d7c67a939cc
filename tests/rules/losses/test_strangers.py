"""Probes that begin under another run do not know the records of the run before: what they went over proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rules.audit.explain import concerns, explain
from rules.audit.readings import Readings
from rules.audit.sums import BLOCK
from rules.kept.state import Foreign, Moves, Spans, State
from rules.settling import strangers
from rules.vocabulary.slices import Irregular, Slice
from tests.rules.cut_logs.test_audit import PLACE, explained, subjects
from tests.rules.histories import History, Store, number
from tests.rules.whole import in_any_way, whole

Fed = Callable[[History], Store]
RULES = ("lost-write", "unseen", "suspected", "vanished-record", "late-record", "poll-skip", "torn-transaction")


class Runs(History):
    """Each process is of the run that it is told to begin under."""

    def __init__(self) -> None:
        super().__init__()
        self.run_of: dict[str, str] = {}

    def row(self, process: str, f: Any, **more: Any) -> Slice:
        made = super().row(process, f, **more)
        made.run = self.run_of.get(process, "after")
        return made

    def begin(self, process: str, run: str) -> None:
        self.run_of[process] = run
        self.start(process)


def foreign(index: int, offset: int, run: str) -> Irregular:
    return Irregular(index, offset, "foreign", 9, number("w" if run == "before" else "x"), offset, "topic", 0, run)


def begun_again(h: Runs, run: str = "before", *, knows: bool = False, lost: bool = False, also: bool = False) -> None:
    """The probes are killed after fifty sends of which ten were read, and begin under another run. A reader lists the
    first and the last of the others as foreign; or it `knows` the run before, and is not given those between (`lost`).
    `also`: a value of the new run stands among them, and was acknowledged; nobody is given it."""
    h.begin("w", "before")
    h.begin("r", "before")
    h.assign("r")
    h.send("w", 0, 50, at=0)
    h.poll("r", [("w", 0, 10, 0)], position_before=0, position_after=10)
    h.observe(end=50)
    h.mark(1.0)
    h.begin("v", "after")
    h.begin("s", "after")
    h.assign("s")
    if knows:
        runs = [("w", 10, 1, 10), ("w", 49, 1, 49)] if lost else [("w", 10, 40, 10)]
        h.poll("s", runs, position_before=10, position_after=50)
    else:
        h.irregular("s", foreign(0, 10, run), foreign(1, 49, run), position_before=10, position_after=50)
    h.send("v", 0, 3, at=50)
    polled = [("v", 0, 1, 50), ("v", 2, 1, 52)] if also else [("v", 0, 3, 50)]
    h.poll("s", polled, position_before=50, position_after=53)
    for _ in range(45):
        h.observe(end=53)
        h.mark(1.0)


@in_any_way()
@pytest.mark.parametrize(("run", "lost"), [("before", False), ("elsewhere", True)], ids=["innocent", "guilty"])
def test_what_readers_take_for_a_strangers_is_not_lost(fed: Fed, run: str, lost: bool) -> None:
    """Where the records are those of another log, what was acknowledged there is gone."""
    h = Runs()
    begun_again(h, run)
    found = whole(fed(h), RULES)
    told = {one.subject for one in found if one.anomaly == "lost-write"}
    assert told == ({(number("w"), seq) for seq in range(10, 50)} if lost else set())
    if not lost:
        assert found == []


@in_any_way()
@pytest.mark.parametrize("lost", [True, False], ids=["guilty", "innocent"])
def test_who_knows_the_run_before_proves_a_loss(fed: Fed, lost: bool) -> None:
    h = Runs()
    begun_again(h, knows=True, lost=lost)
    told = {one.subject for one in whole(fed(h), RULES) if one.anomaly == "lost-write"}
    assert told == ({(number("w"), seq) for seq in range(11, 49)} if lost else set())


@in_any_way()
def test_what_the_readers_know_is_missed_as_ever(fed: Fed) -> None:
    h = Runs()
    begun_again(h, also=True)
    lost = [one.subject for one in whole(fed(h), RULES) if one.anomaly == "lost-write"]
    assert lost == [(number("v"), 1)]


@pytest.mark.parametrize(("run", "gone"), [("before", False), ("elsewhere", True)], ids=["innocent", "guilty"])
def test_an_audit_that_does_not_know_the_run_finds_nothing_gone(run: str, gone: bool) -> None:
    """It reads two blocks in one poll, of which it lists the first record and the last."""
    h = Runs()
    for name in ("w", "r"):
        h.begin(name, "before")
    h.assign("r")
    h.send("w", 0, 2 * BLOCK, at=0)
    h.poll("r", [("w", 0, 2 * BLOCK, 0)], position_before=0, position_after=2 * BLOCK)
    for _ in range(30):
        h.observe(end=2 * BLOCK)
        h.mark(1.0)
    h.begin("audit", "after")
    h.assign("audit")
    h.irregular(
        "audit", foreign(0, 0, run), foreign(1, 2 * BLOCK - 1, run), position_before=0, position_after=2 * BLOCK
    )
    for _ in range(30):
        h.observe(end=2 * BLOCK)
        h.mark(1.0)
    store = Store()
    store.feed(h.rows)
    assert bool(store.rechecks) == gone
    assert {name for name, _ in subjects(explained(h, store))} == ({"vanished-record"} if gone else set())


@pytest.mark.parametrize("listed", [True, False], ids=["passed", "waiting to be passed"])
@pytest.mark.parametrize(("run", "lost"), [("before", False), ("elsewhere", True)], ids=["innocent", "guilty"])
def test_whose_run_it_is_may_be_known_later(run: str, lost: bool, listed: bool) -> None:
    """The rows of the writer's host come when the others' have been judged: what its records were taken for is known by
    then, and its run is not. `listed`: by then the log's start had been told again, too."""
    h, store = Runs(), Store()
    h.begin("s", "after")
    h.assign("s")
    h.observe(end=50)
    h.mark(1.0)
    h.begin("w", "before")
    h.send("w", 0, 50, at=0)
    late, h.rows = h.rows[-2:], h.rows[:-2]
    h.processes.remove("w")
    h.irregular("s", foreign(0, 0, run), foreign(1, 49, run), position_before=0, position_after=50)
    for _ in range(20):
        if listed:
            h.observe(end=50)
        h.mark(1.0)
    store.feed(h.rows)
    h.rows.clear()
    h.processes.append("w")
    store.feed(late)
    for _ in range(60):
        h.observe(end=50)
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    found = whole(store, RULES)
    assert {one.subject for one in found if one.anomaly == "lost-write"} == (
        {(number("w"), seq) for seq in range(50)} if lost else set()
    )
    if not lost:
        assert found == []


@pytest.mark.parametrize(("run", "lost"), [("before", False), ("elsewhere", True)], ids=["innocent", "guilty"])
def test_of_many_stretches_beside_strangers_none_is_taken_for_passed(
    run: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second poll lists records of a run that is not known yet, for as long as its host is away: they are more
    stretches than are kept apart."""
    monkeypatch.setattr(strangers, "KEPT", 4)
    h, store = Runs(), Store()
    for name in ("s", "v"):
        h.begin(name, "after")
    h.assign("s")
    h.begin("w", "before")
    late, h.rows = h.rows[-1:], h.rows[:-1]
    for i in range(12):
        low = 20 * i
        h.send("w", low, 10, at=low)
        late.append(h.rows.pop())
        h.irregular("s", foreign(0, low, run), foreign(1, low + 9, run), position_before=low, position_after=low + 10)
        h.send("v", 10 * i, 10, at=low + 10)
        h.poll("s", [("v", 10 * i, 10, low + 10)], position_before=low + 10, position_after=low + 20)
        h.observe(end=240)
        h.processes.remove("w")
        h.mark(1.0)
        h.processes.append("w")
        store.feed(h.rows)
        h.rows.clear()
    store.feed(late)
    for _ in range(60):
        h.observe(end=240)
        h.mark(1.0)
        store.feed(h.rows)
        h.rows.clear()
    found = whole(store, RULES)
    told = {one.subject for one in found if one.anomaly == "lost-write"}
    assert told == ({(number("w"), 20 * i + k) for i in range(12) for k in range(10)} if lost else set())
    if not lost:
        assert found == []


def test_stretches_become_one_where_least_lies_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one run, and the log start takes what it has passed as before."""
    monkeypatch.setattr(strangers, "KEPT", 3)
    state = State(log_start=15)
    runs, starts = [1, 1, 1, 1, 2, 3], [0, 20, 100, 110, 105, 500]
    state.foreign = Foreign(*(np.array(one) for one in (runs, starts, [one + 5 for one in starts])))
    state.strange = Spans(*(np.array(one) for one in ([0, 20, 100, 110, 500], [5, 25, 105, 115, 505])))
    strangers.note(state, Moves(), np.array([], np.int64), np.array([], np.int64))
    assert list(
        zip(*(c.tolist() for c in (state.foreign.run, state.foreign.start, state.foreign.end)), strict=True)
    ) == [
        (1, 20, 115),
        (2, 105, 110),
        (3, 500, 505),
    ]
    assert list(zip(state.strange.start.tolist(), state.strange.end.tolist(), strict=True)) == [
        (20, 25),
        (100, 115),
        (500, 505),
    ]


@in_any_way(file=False)
def test_what_somebody_reads_later_who_knows_it_was_not_unseen(fed: Fed) -> None:
    h = Runs()
    h.begin("w", "before")
    h.send("w", 0, 50, at=0)
    h.begin("s", "after")
    h.assign("s")
    h.irregular("s", foreign(0, 0, "before"), foreign(1, 49, "before"), position_before=0, position_after=50)
    for _ in range(90):
        h.observe(end=50)
        h.mark(1.0)
    h.begin("k", "after")
    h.assign("k")
    h.poll("k", [("w", 0, 50, 0)], position_before=0, position_after=50)
    assert whole(fed(h), RULES) == []


@pytest.mark.parametrize(("run", "gone"), [("before", False), ("elsewhere", True)], ids=["innocent", "guilty"])
def test_rows_that_explain_a_range_list_no_stranger_in_it(run: str, gone: bool) -> None:
    """The audit lists the first record and the last of three blocks, and the second one is asked for."""
    h = Runs()
    h.begin("w", "before")
    h.begin("r", "before")
    h.assign("r")
    h.send("w", 0, 3 * BLOCK, at=0)
    for at in range(0, 3 * BLOCK, BLOCK):
        h.poll("r", [("w", at, BLOCK, at)], position_before=at, position_after=at + BLOCK)
    h.begin("audit", "after")
    h.assign("audit")
    end = 3 * BLOCK
    h.time += 1
    h.irregular("audit", foreign(0, 0, run), foreign(1, end - 1, run), position_before=0, position_after=end)
    h.observe(end=end)
    table, asked = h.table(), (BLOCK, 2 * BLOCK)
    rows = table.filter(concerns(table, [asked]))
    found = explain(Readings(rows), PLACE, *asked) or ()
    assert {one.anomaly for one in found} == ({"vanished-record"} if gone else set())


@in_any_way()
@pytest.mark.parametrize("lost", [True, False], ids=["guilty", "innocent"])
def test_who_comes_by_later_and_knows_the_run_proves_a_loss(fed: Fed, lost: bool) -> None:
    """After others had taken the records there for a stranger's."""
    h = Runs()
    begun_again(h)
    h.begin("k", "after")
    h.assign("k")
    runs = [("w", 10, 1, 10), ("w", 49, 1, 49)] if lost else [("w", 10, 40, 10)]
    h.poll("k", [*runs, ("v", 0, 3, 50)], position_before=10, position_after=53)
    for _ in range(45):
        h.observe(end=53)
        h.mark(1.0)
    told = {one.subject for one in whole(fed(h), RULES) if one.anomaly == "lost-write"}
    assert told == ({(number("w"), seq) for seq in range(11, 49)} if lost else set())
