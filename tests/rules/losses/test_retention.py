"""A log that begins in the middle: what is gone is not waited for, and nothing that it may have said is called lost."""

from __future__ import annotations

import pytest

from rules.engine.retention import MARGIN, begun
from rules.step import Stored
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Place, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, found, number

W = number("w")
PLACE = Place("c", "t", 0)
EDGE = 100.0


def history(seconds: int, *, lose: tuple[int, ...] = (), shift: int = 0) -> History:
    """One writer, one reader, five records a second; those of the seconds `lose` are polled by nobody. With `shift`, a
    reader is so quick that its poll completes that many seconds before the acknowledgement."""
    h = History()
    h.start("w")
    h.assign("r")
    h.observe(end=0)
    for i in range(seconds):
        if shift:
            invoked = h.at(h.time)
            h.poll("r", [("w", i * 5, 5, i * 5)])
            h.time += shift
            h.send("w", i * 5, 5, at=i * 5, invoked=invoked)
        else:
            h.send("w", i * 5, 5, at=i * 5)
            if i not in lose:
                h.poll("r", [("w", i * 5, 5, i * 5)])
        h.observe(end=i * 5 + 5)
        h.mark(1.0)
    return h


def aged(h: History, edge: float) -> list[Slice]:
    """What retention leaves: the rows that completed from `edge` seconds on."""
    return [row for row in h.rows if row.completed >= h.at(edge)]


def store(rows: list[Slice], *, told: bool = True) -> Store:
    """Fed second by second, as a rebuild would; `told` where the log begins."""
    made = Store()
    if told:
        firsts: dict[int, tuple[int, int]] = {}
        for row in rows:
            if row.f != "mark":
                firsts.setdefault(row.process, (row.slice, micros(row.completed)))
        made.stored[PLACE] = Stored(begun({p: first for p, first in firsts.items() if first[0] > 0}))
    for i in range(0, len(rows), 20):
        made.feed(rows[i : i + 20])
    return made


LATE = int(EDGE + MARGIN / SECOND) + 20


def test_a_loss_well_after_the_edge_is_found_without_waiting_for_what_is_gone() -> None:
    rows = aged(history(LATE + 60, lose=(LATE,)), EDGE)
    checked = store(rows)
    assert {subject for name, subject in found(checked.findings) if name == "lost-write"} == {
        (W, LATE * 5 + i) for i in range(5)
    }
    (first,) = {f.at for f in checked.findings if f.anomaly == "lost-write"}
    assert first <= micros(START) + (LATE + 20) * SECOND
    assert not [f for f in checked.findings if f.anomaly == "unverifiable"]


@pytest.mark.long
@pytest.mark.parametrize(("lose", "lost"), [(99, False), (100, False), (300, True)])
def test_without_being_told_it_waits_for_what_is_gone_and_finds_what_came_after(lose: int, lost: bool) -> None:
    """What is gone had completed before the rows that are left: it polled nothing that was sent later."""
    rows = aged(history(LATE - 60, lose=(lose,)), EDGE)
    assert found(store(rows, told=False).findings) == {("lost-write", (W, lose * 5 + i)) for i in range(5) if lost}


@pytest.mark.long
@pytest.mark.parametrize("lose", [(99,), (100,), (101,), (150,)])
def test_nothing_near_the_edge_is_called_lost_unseen_or_suspected(lose: tuple[int, ...]) -> None:
    """Whether these were polled, nobody knows: the poll may have been in a row that is gone."""
    checked = store(aged(history(LATE, lose=lose), EDGE))
    assert {f.anomaly for f in checked.findings} <= {"poll-skip"}


def test_a_poll_that_is_gone_makes_no_loss_of_an_acknowledgement_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    h = history(60, shift=3)
    # Between a poll and the acknowledgement of what it polled.
    last = next(row for row in h.rows if row.polled and row.completed > h.at(EDGE))
    edge = (last.completed - START).total_seconds() + 1
    rows = aged(h, edge)
    assert any(run.seq == last.polled[0].seq for row in rows for run in row.sent)
    assert store(rows).findings == []
    # Without the margin it would wait for what was polled long ago.
    monkeypatch.setattr("rules.engine.retention.MARGIN", -micros(h.at(edge)))
    assert "unseen" in {f.anomaly for f in store(rows).findings}


def test_what_is_seen_near_the_edge_is_proven() -> None:
    h = history(int(EDGE) + 5)
    h.poll("r", [("w", (int(EDGE) + 4) * 5, 1, 5000)])
    h.mark(1.0)
    assert ("duplicate", (W, (int(EDGE) + 4) * 5)) in found(store(aged(h, EDGE)).findings)


def test_a_slice_that_is_missing_after_the_edge_is_waited_for_as_ever() -> None:
    h = history(LATE + 60, lose=(LATE,))
    rows = aged(h, EDGE)
    hidden = next(row for row in rows if row.polled and row.polled[0].seq > LATE * 5)  # it may have polled them, too
    rows.remove(hidden)
    checked = store(rows)
    assert not {name for name, _ in found(checked.findings)} & {"lost-write"}
    checked.feed([hidden])
    checked.feed([h.mark(1.0)])
    assert {name for name, _ in found(checked.findings)} >= {"lost-write"}
