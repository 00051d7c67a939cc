"""Rows that are missing: what a hole in a process's log excuses, and what is known past it."""

from __future__ import annotations

import pytest

from rules.vocabulary.slices import APPENDS_MISSING, Mark
from tests.rules.histories import START, History, number, without
from tests.rules.settling.going_on import W, fed, going_on, lost, second


def test_a_hole_in_a_reader_s_log_excuses_what_fell_into_it_and_nothing_else() -> None:
    """One row of a second reader never comes. What was sent before the hole ended may have been in it."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 60, first=0, lose=[10, 58])
    hidden = h.poll("q", [])
    going_on(h, 1300, first=60, lose=[70, 1000])
    rows = [row for row in h.rows if row is not hidden]
    store = fed(rows, 100)
    assert lost(store) == [(W, 10), (W, 70), (W, 1000)]  # and not 58, which the row that is missing may have polled
    (state,) = store.last.values()
    assert state.summary["unseen"] == 0
    assert [f.event for f in store.findings if f.anomaly == "suspected"][-1] == "opened"
    assert [f.event for f in store.findings if f.anomaly == "unverifiable"] == ["opened"]  # 58 rests on it


def test_what_was_sent_after_a_hole_does_not_wait_for_it_to_be_given_up() -> None:
    """One row of a second reader is missing, and may still come: what it polled in it was there before the next one."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 60, first=0, lose=[10, 58])
    hidden = h.poll("q", [])
    going_on(h, 5, first=60)
    h.poll("q", [])
    going_on(h, 40, first=65, lose=[70])
    store = fed([row for row in h.rows if row is not hidden])
    assert lost(store) == [(W, 10), (W, 70)]
    store.feed([hidden])
    assert lost(store) == [(W, 10), (W, 70), (W, 58)]


@pytest.mark.parametrize(("lost_life", "through"), [(False, 60), (True, 20)])
def test_what_readers_did_is_known_past_the_end_of_one_that_misses_an_early_row(lost_life: bool, through: int) -> None:
    """Who asks what became of a transaction waits for that. Of a lost life the end may be missing, too."""
    h = History()
    h.assign("q")
    h.assign("r")
    hidden = h.poll("q", [])
    going_on(h, 20, first=0)
    h.row("q", "close")
    h.processes.remove("q")
    closed = Mark(number("q"), 3, h.at(h.time), h.at(h.time), lost=lost_life)
    h.row("committer", "mark", marks=[closed], invoked=h.at(h.time), completed=h.at(h.time))
    going_on(h, 40, first=20)
    (told,) = fed([row for row in h.rows if row is not hidden]).last.values()
    assert (told.summary["read_through"] - START).total_seconds() // 1 == through


@pytest.mark.parametrize("lost_life", [False, True])
@pytest.mark.parametrize("size", [5, 10_000])
def test_what_readers_have_passed_and_a_lost_life_may_have_polled_is_suspected_and_not_unseen_for_ever(
    size: int, lost_life: bool
) -> None:
    """Whoever begins anew finds it no more, as where the log was cut meanwhile."""
    h = History()
    h.assign("q")
    h.assign("r")
    going_on(h, 20, first=0, lose=[18])
    h.row("q", "close", type="info" if lost_life else "ok")
    h.processes.remove("q")
    closed = Mark(number("q"), 2, h.at(h.time), h.at(h.time), lost=lost_life)
    h.row("committer", "mark", marks=[closed], invoked=h.at(h.time), completed=h.at(h.time))
    going_on(h, 40, first=20)
    store = fed(h.rows, size)
    events = {name: [f.event for f in store.findings if f.anomaly == name] for name in ("unseen", "suspected")}
    if not lost_life:
        assert (lost(store), events["unseen"][-1:]) == ([(W, 18)], ["closed"] if size == 5 else [])
        return
    assert lost(store) == []
    assert events["unseen"][-1:] in ([], ["closed"])
    assert events["suspected"] == ["opened"]


def test_what_came_after_a_missing_row_was_polled_all_the_same() -> None:
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 60, first=0)
    hidden = h.poll("q", [])
    going_on(h, 11, first=60, lose=[70])
    h.poll("q", [("w", 70, 1, 70)])
    going_on(h, 40, first=71)
    store = fed([row for row in h.rows if row is not hidden])
    assert lost(store) == []


def test_the_only_reader_goes_on_telling_what_it_passes_while_a_row_of_it_is_missing() -> None:
    """Each of its polls tells where it began and where it ended."""
    h = History()
    h.assign("r")
    going_on(h, 30, first=0)
    hidden = h.poll("r", [])
    for i in range(30, 90):
        h.send("w", i, at=i)
        if i != 50:
            h.poll("r", [("w", i, 1, i)], position_before=50 if i == 51 else i, position_after=i + 1)
        h.observe(end=i + 1)
        h.mark(1.0)
    store = fed([row for row in h.rows if row is not hidden])
    assert lost(store) == [(W, 50)]


def test_who_is_over_polled_nothing_later_also_where_a_row_of_it_is_missing() -> None:
    """Its committer mentions it no more; the row may come within the ten minutes, and concerns what was sent before."""
    h = History()
    h.assign("r")
    h.assign("q")
    hidden = h.poll("q", [])
    h.poll("q", [])
    h.row("q", "close")
    q = number("q")
    h.row("committer", "mark", marks=[Mark(q, h._slices[q, 0], h.at(h.time), h.at(h.time))])
    h.processes.remove("q")
    going_on(h, 60, first=0, lose=[20])
    store = fed([row for row in h.rows if row is not hidden])
    (found,) = [f for f in store.findings if f.anomaly == "lost-write"]
    assert found.subject == (W, 20) and second(found) <= 20 + 15


@pytest.mark.parametrize(("between", "found"), [("", True), ("revoke", False), ("missing", False)])
def test_a_hole_that_a_reader_passed_with_nothing_else_is_gone_over_by_its_next_poll(between: str, found: bool) -> None:
    """An early row is missing. An empty poll took it over the lost value, so that its next poll starts behind it."""
    h = History()
    h.assign("r")
    going_on(h, 3, first=0)
    hidden = [h.poll("r", [])]
    going_on(h, 3, first=3)
    h.send("w", 6, at=6)
    if between == "revoke":
        h.assign("r", assigned=False, f="revoke")
        h.assign("r")
    poll = h.poll("r", [], position_before=6, position_after=7)
    hidden += [poll] if between == "missing" else []
    h.send("w", 7, at=7)
    h.poll("r", [("w", 7, 1, 7)], position_before=7, position_after=8)
    going_on(h, 40, first=8)
    store = fed(without(h.rows, hidden))
    assert lost(store) == ([(W, 6)] if found else [])


def behind_a_gap(h: History) -> None:
    """As the intake of an evidence topic marks what follows appends that the topic has lost."""
    h.time += 1.0
    now = h.at(h.time)
    marks = [Mark(number(p), h._slices[number(p), 0], now) for p in h.processes]
    h.row("committer", "mark", error=APPENDS_MISSING, marks=marks, invoked=now, completed=now)


@pytest.mark.parametrize("told", [True, False])
def test_rows_that_are_known_not_to_come_are_not_waited_for(told: bool) -> None:
    """What was sent before the hole ended may have been polled in it; the rest is judged as ever."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 60, first=0, lose=[10, 58])
    hidden = h.poll("q", [])
    behind_a_gap(h) if told else h.mark(1.0)
    going_on(h, 60, first=60, lose=[70])
    store = fed([row for row in h.rows if row is not hidden])
    assert lost(store) == ([(W, 10), (W, 70)] if told else [(W, 10)]), "70 waits for the rows of q that are missing"
    opened = [(f.anomaly, f.event) for f in store.findings if f.anomaly in ("unverifiable", "evidence-late")]
    assert opened == [("unverifiable" if told else "evidence-late", "opened")]
    store.feed([hidden])
    assert sorted(lost(store)) == ([(W, 10), (W, 58), (W, 70)])


@pytest.mark.parametrize("size", [7, 10_000])
def test_who_was_over_in_a_gap_is_not_waited_for(size: int) -> None:
    """It polled 28 perhaps, and its end is gone with what is missing. What was sent after that is judged as ever."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 20, first=0)
    before = len(h.rows)
    going_on(h, 10, first=20, lose=[28])
    gone = [h.poll("q", [("w", 28, 1, 28)]), h.row("q", "close")]
    gone += [row for row in h.rows[before:] if row.f == "mark"]
    h.processes.remove("q")
    behind_a_gap(h)
    going_on(h, 60, first=30, lose=[50])
    store = fed(without(h.rows, gone), size)
    assert lost(store) == [(W, 50)]
    assert not [f for f in store.findings if f.anomaly == "evidence-late"]
    assert [f.event for f in store.findings if f.anomaly == "suspected"] == ["opened"]
    unseen = [f.evidence["first"][0]["seq"] for f in store.findings if f.anomaly == "unseen" and f.event == "opened"]
    assert unseen == ([50] if size == 7 else [])
    (end,) = store.last.values()
    assert (end.summary["read_through"] - START).total_seconds() > 85


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_the_only_reader_polled_in_a_gap_has_never_been_unseen(size: int) -> None:
    """It goes on behind it. Also where the checks catch up, and all has been polled by the end of the step."""
    h = History()
    h.assign("r")
    going_on(h, 20, first=0)
    before = len(h.rows)
    going_on(h, 15, first=20)
    gone = [row for row in h.rows[before:] if row.f == "mark" or row.process == number("r")]
    behind_a_gap(h)
    going_on(h, 20, first=35)
    store = fed(without(h.rows, gone), size)
    assert not [f for f in store.findings if f.anomaly in ("unseen", "lost-write")]


@pytest.mark.parametrize("size", [1, 10_000])
def test_who_had_ended_in_order_before_a_gap_is_over_as_it_said(size: int) -> None:
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 20, first=0)
    h.row("q", "close")
    closed = Mark(number("q"), h._slices[number("q"), 0], h.at(h.time), h.at(h.time))
    h.row("committer", "mark", marks=[closed], invoked=h.at(h.time), completed=h.at(h.time))
    h.processes.remove("q")
    going_on(h, 1, first=20, lose=[20])
    behind_a_gap(h)
    going_on(h, 40, first=21)
    store = fed(h.rows, size)
    assert lost(store) == [(W, 20)]
    assert not [f for f in store.findings if f.anomaly == "unverifiable"]


def test_a_mark_behind_a_gap_that_comes_late_ends_nobody_who_has_begun_since() -> None:
    """Nor who ended in order, or lives by that mark."""
    h = History()
    h.assign("r")
    going_on(h, 20, first=0)
    behind_a_gap(h)
    late = [h.rows[-1]]
    going_on(h, 5, first=20)
    h.assign("q")
    going_on(h, 30, first=25, lose=[40])
    store = fed([row for row in h.rows if row is not late[0]])
    store.feed(late)
    more = len(h.rows)
    going_on(h, 30, first=55)
    store.feed(h.rows[more:])
    assert lost(store) == [(W, 40)]
    assert not [f for f in store.findings if f.anomaly in ("unverifiable", "suspected")][2:]


@pytest.mark.long
@pytest.mark.parametrize("size", [50, 10_000])
def test_who_is_told_of_no_more_while_its_host_goes_on_is_not_waited_for_without_end(size: int) -> None:
    """Its end is missing, and nobody has said so."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 30, first=0, lose=[28])
    h.processes.remove("q")
    going_on(h, 590, first=30, lose=[580])
    assert lost(fed(h.rows, size)) == []
    going_on(h, 90, first=620, lose=[650])
    assert lost(fed(h.rows, size)) == [(W, 650)]


@pytest.mark.long
@pytest.mark.parametrize("size", [20, 10_000])
def test_who_comes_back_after_its_host_had_told_of_others_only_has_done_no_wrong(size: int) -> None:
    """A writer whose process stood still for longer than its end is waited for."""
    h = History()
    h.assign("r")
    h.start("q", writer=str(number("q")))
    going_on(h, 30, first=0)
    h.send("q", 0, at=30)
    h.poll("r", [("q", 0, 1, 30)])
    h.processes.remove("q")
    for i in range(700):
        h.send("w", 30 + i, at=31 + i)
        h.poll("r", [("w", 30 + i, 1, 31 + i)])
        h.observe(end=32 + i)
        h.mark(1.0)
    for i in range(60):
        h.send("q", 1 + i, at=731 + i)
        h.poll("r", [("q", 1 + i, 1, 731 + i)])
        h.observe(end=732 + i)
        h.processes += ["q"] * ("q" not in h.processes)
        h.mark(1.0)
    assert {f.anomaly for f in fed(h.rows, size).findings} <= {"evidence-late", "unverifiable"}


def test_a_gap_says_nothing_of_what_was_logged_after_it() -> None:
    """A row that is missing behind it is waited for like any other."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 20, first=0)
    behind_a_gap(h)
    going_on(h, 10, first=20, lose=[28])
    hidden = h.poll("q", [])
    going_on(h, 60, first=30)
    store = fed([row for row in h.rows if row is not hidden])
    assert lost(store) == [] and not [f for f in store.findings if f.anomaly == "unverifiable"]
    store.feed([hidden])
    assert lost(store) == [(W, 28)]


def test_one_that_lived_when_the_log_begins_is_waited_for_from_the_beginning() -> None:
    """No mark of its host had not told of it: it may have polled what was sent at any time."""
    h = History()
    hidden = [h.assign("q"), h.poll("q", [])]
    h.assign("r")
    going_on(h, 90, first=0, lose=[20])
    h.poll("q", [])
    going_on(h, 30, first=90)
    store = fed(without(h.rows, hidden), 10_000)
    assert lost(store) == []
    store.feed(hidden)
    assert lost(store) == [(W, 20)]
