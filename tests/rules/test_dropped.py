"""More waits for a verdict than is kept: what is dropped is told, once, and where nothing is, nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.kept import dropped
from rules.kept.report import Report
from rules.kept.state import State
from rules.vocabulary.finding import Event
from rules.vocabulary.objectives import SECOND, Objectives
from rules.vocabulary.slices import Place
from tests.rules.conditions.liveness_of import row_by_row
from tests.rules.conditions.test_stuck_writers import born
from tests.rules.histories import History, number
from tests.rules.records.test_altered_records import APPENDED, one, poll
from tests.rules.settling.test_late_evidence import Hosts, a_host_comes_back
from tests.rules.whole import whole

FOR_SECONDS = 20


def fenced(h: History) -> None:
    """Whether somebody else has used the ids depends on the log of `away`, which does not come."""
    for i in range(FOR_SECONDS):
        h.row(f"t{i}", "init", transactional_id=f"x{i}")
        of_its_own: dict[str, Any] = {"type": "info", "txn": i, "transactional_id": f"x{i}", "error": "PRODUCER_FENCED"}
        h.txn(f"t{i}", sends=[(f"t{i}", 0, 1, None)], **of_its_own)
        h.mark(10.0)


def awaited(h: History) -> None:
    """A process of whose log the first row is missing."""
    h.start("away")
    h.rows.pop()


def by_the_broker_s_time(h: History) -> None:
    """No observer tells whether the topic asks for it."""
    for i in range(FOR_SECONDS):
        poll(h, one("timestamp-type", seq=i, offset=10 + i, told=APPENDED))
        h.mark(10.0)


def fences(h: History) -> None:
    awaited(h)
    fenced(h)


def readers(h: History) -> None:
    assert isinstance(h, Hosts)
    a_host_comes_back(h, 60, reads="rs")


def writers(h: History) -> None:
    """Each of many is refused, life after life."""
    for life in range(3):
        for i in range(8):
            born(h, f"w{i}-{life}", f"writer-{i}")
            h.row(f"w{i}-{life}", "init", type="info", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
            h.row(f"w{i}-{life}", "close", type="info", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        h.mark(5.0)


CASES: list[tuple[Callable[[History], None], str, str, int]] = [
    (fences, "transactions.fences.KEPT", "fencing errors", 4),
    (by_the_broker_s_time, "records.altered_records.KEPT", "altered records", 4),
    (readers, "conditions.stuck_consumers.WAITING_KEPT", "moves of readers", 8),
    (writers, "conditions.refused_writes.KEPT", "writers that are refused", 4),
]


@pytest.mark.parametrize("enough", [True, False], ids=["room", "too many"])
@pytest.mark.parametrize(("build", "bound", "what", "kept"), CASES, ids=[case[0].__name__ for case in CASES])
def test_what_is_dropped_is_told(
    build: Callable[[History], None], bound: str, what: str, kept: int, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not enough:
        monkeypatch.setattr(f"rules.checks.{bound}", kept)
    h = Hosts() if build is readers else History()
    build(h)
    told = [one for one in whole(row_by_row(h), ["window-overflow"]) if one.event == "opened"]
    assert [one.subject for one in told] == ([] if enough else [(what,)])
    for told_of in told:
        assert told_of.evidence["what"] == what and told_of.evidence["dropped"] > 0
        assert told_of.message == (
            f"more {what} wait for a verdict than are kept: the oldest are dropped, and none is given on them"
        )


@pytest.mark.parametrize("kept", [4, FOR_SECONDS])
def test_of_what_is_dropped_no_verdict_is_given(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when the log comes that all was waiting for."""
    monkeypatch.setattr("rules.checks.transactions.fences.KEPT", kept)
    h = History()
    late = h.start("away")
    h.rows.remove(late)
    fenced(h)
    store = row_by_row(h)
    assert whole(store, ["misleading-fence"]) == []
    store.feed([late])
    store.feed([h.mark(10.0)])
    newest = [(number(f"t{i}"), 1) for i in range(FOR_SECONDS)][-kept - 1 :]  # and the one of which no mark had come
    assert sorted(one.subject for one in whole(store, ["misleading-fence"])) == sorted(newest)


def said(*ticks: int, drops: dict[int, int]) -> list[tuple[Event, int, int]]:
    """What is told at these ticks (in seconds), where so many are dropped at some of them."""
    state, told = State(), list[tuple[Event, int, int]]()
    for tick in ticks:
        report = Report(Place("c", "t", 0), state, Objectives())
        state.tick = tick * SECOND
        report.drop("things", drops.get(tick, 0))
        dropped.tell(state, state.tick, report)
        told += [(one.event, tick, one.evidence["dropped"]) for one in report.findings()]
    return told


def test_it_is_over_when_nothing_has_been_dropped_for_ten_minutes() -> None:
    many = {5: 2, 300: 1, 2_000: 7}
    assert said(1, 5, 300, 899, 900, 1_999, 2_000, drops=many) == [
        ("opened", 5, 2),
        ("closed", 900, 3),
        ("opened", 2_000, 7),
    ]
    assert said(1, 5, 6, drops={}) == []


def test_what_is_dropped_before_there_is_a_log_time_is_told_at_the_first() -> None:
    state = State()
    Report(Place("c", "t", 0), state, Objectives()).drop("things", 2)
    report = Report(Place("c", "t", 0), state, Objectives())
    dropped.tell(state, 50 * SECOND, report)
    assert [(one.event, one.at, one.evidence["since"]) for one in report.findings()] == [
        ("opened", 50 * SECOND, 50 * SECOND)
    ]
    dropped.tell(state, 649 * SECOND, report)
    assert len(report.findings()) == 1
