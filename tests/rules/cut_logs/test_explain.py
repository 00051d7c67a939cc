"""Explaining a changed log over runs and intervals says what reading it offset by offset says."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from itertools import compress
from typing import Any

import pytest

from rules.audit.explain import SHOWN, concerns, explain
from rules.audit.readings import Readings
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Irregular, Place, Slice, to_table
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, number
from tests.rules.reference_explain import explained

PLACE = Place("c", "t", 0)
OFFSETS = 60


def _log(dice: random.Random) -> dict[int, tuple[str, int]]:
    """offset -> (writer, seq): two writers, with holes."""
    log, counts = {}, Counter[str]()
    for offset in range(OFFSETS):
        if dice.random() < 0.85:
            writer = "v" if dice.random() < 0.2 else "w"
            log[offset] = writer, counts[writer]
            counts[writer] += 1
    return log


def _changed(dice: random.Random, log: dict[int, tuple[str, int]]) -> dict[int, tuple[str, int]]:
    changed = dict(log)
    for _ in range(dice.choice((0, 0, 1, 3))):
        first = dice.randrange(OFFSETS)
        for offset in range(first, min(OFFSETS, first + dice.choice((1, 2, 9)))):
            if dice.random() < 0.3:
                changed[offset] = "x", offset
            else:
                changed.pop(offset, None)
    return changed


def _poll(h: History, dice: random.Random, reader: str, log: dict[int, tuple[str, int]], start: int) -> int:
    """One poll from `start`; where it ended."""
    end = min(OFFSETS, start + dice.choice((1, 5, 12, 30)))
    parts = [(start, end)]
    if dice.random() < 0.1:  # it went back inside
        back = dice.randrange(OFFSETS)
        parts.append((back, min(OFFSETS, back + 4)))
    polled = [(*log[offset], 1, offset) for low, high in parts for offset in range(low, high) if offset in log]
    odd = [Irregular(0, dice.randrange(OFFSETS), "corrupted", 1)] if dice.random() < 0.05 else []
    if not polled and not odd:
        return end
    more: dict[str, Any] = {"boot": dice.choice(("one", "one", "two", None))}
    if more["boot"] and dice.random() < 0.9:
        more |= {"mono_invoked": round(h.time * 1e9), "mono_completed": round(h.time * 1e9) + 1_500_000}
    if dice.random() < 0.4:
        more["position_before"] = start
    h.poll(
        reader,
        polled,
        irregular=odd,
        type=dice.choice(("ok", "ok", "ok", "ok", "info", "fail")),
        mode="subscribe" if reader == "group" else "assign",
        rebalanced=dice.random() < 0.05,
        isolation="read_uncommitted" if dice.random() < 0.03 else "read_committed",
        **more,
    )
    return polled[-1][3] + 1 if polled else end


def history(seed: int) -> History:
    """Readers read a log to its end, in an order of their own, while it changes a few times."""
    dice = random.Random(seed)
    log, h = _log(dice), History()
    stands = dict.fromkeys(("r", "s", "q", "group"), 0)
    if dice.random() < 0.5:
        h.send("w", dice.randrange(20), dice.choice((1, 3, 10)), type="fail")
    for _ in range(dice.choice((10, 40))):
        reader = dice.choice(list(stands))
        if dice.random() < 0.1:
            log = _changed(dice, log)
            h.time += dice.choice((0.0, 1.0, 600.0))
        if stands[reader] >= OFFSETS or dice.random() < 0.05:
            h.assign(reader, assigned=dice.random() < 0.5, f=dice.choice(("assign", "revoke")))
            stands[reader] = dice.choice((0, dice.randrange(OFFSETS)))
        stands[reader] = _poll(h, dice, reader, log, stands[reader])
    h.observe(start=dice.choice((0, 0, 7)), end=OFFSETS)
    if dice.random() < 0.5:
        _observed_meanwhile(h, dice)
    return h


def _observed_meanwhile(h: History, dice: random.Random) -> None:
    """Observers of two hosts, whose log starts mostly rise."""
    start, last = 0, h.rows[-1].invoked
    for _ in range(dice.choice((3, 12))):
        start = max(0, start + dice.choice((0, 0, 4, 15, -3)))
        at = last - timedelta(seconds=dice.choice((0, 0.02, 0.1, 300, 601)))
        boot = dice.choice(("one", "two", None))
        row = h.row("observer", "offsets", log_start=start, log_end=OFFSETS, boot=boot, invoked=at, completed=at)
        if boot:
            row.mono_invoked = row.mono_completed = (at - START) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize("seeds", [range(0, 50), range(50, 100)], ids=str)
def test_runs_tell_what_single_offsets_tell(seeds: range) -> None:
    told = Counter[str]()
    for seed in seeds:
        h = history(seed)
        dice = random.Random(seed)
        start, end = sorted(dice.sample(range(OFFSETS + 1), 2)) if seed % 3 else (0, OFFSETS)
        table = to_table(h.rows)
        needed = concerns(table, [(start, end)])
        found = explain(Readings(table.filter(needed)), PLACE, start, end, finished=False)
        assert found is not None
        expected = list(explained(list(compress(h.rows, needed.to_pylist())), start, end))
        assert [(f.anomaly, f.subject, dict(f.evidence), f.at) for f in found] == expected, seed
        told.update(f.anomaly for f in found)
    assert min(told[name] for name in ("inconsistent-offsets", "vanished-record", "late-record")) > 5


@pytest.mark.parametrize("gone", [SHOWN, SHOWN + 1, 5_000])
def test_of_many_differences_the_first_are_told_and_the_rest_counted(gone: int) -> None:
    h = History()
    for first in range(0, 10_000, 500):
        h.poll("r", [("w", first, 500, first)])
    h.poll("s", [("w", 0, 1_000, 0)])
    h.poll("s", [("w", 1_000 + gone, 1, 1_000 + gone)])
    h.observe(end=10_000)
    found = explain(Readings(to_table(h.rows)), PLACE, 0, 10_000, finished=False) or []
    assert [f.subject[0] for f in found] == list(range(1_000, 1_000 + SHOWN))
    assert {f.anomaly for f in found} == {"vanished-record"}
    assert [f.evidence.get("more_of_the_same", 0) for f in found] == [0] * (SHOWN - 1) + [gone - SHOWN]


def _told(h: History) -> list[Finding]:
    h.observe(end=100)
    return explain(Readings(to_table(h.rows)), PLACE, 0, 100, finished=False) or []


def _whole(f: Finding) -> tuple[Any, ...]:
    return f.anomaly, f.subject, f.message, dict(f.evidence), f.at, f.decidable


def _of_reads(saw: Slice, passed: Slice, seq: int, offset: int) -> tuple[dict[str, Any], int]:
    ends = micros(saw.completed), micros(passed.completed)
    evidence = {
        "writer": saw.polled[0].writer,
        "seq": seq,
        "offset": offset,
        "process": saw.process,
        "op": saw.op,
        "passed_process": passed.process,
        "passed_op": passed.op,
        "apart_s": round(abs(ends[1] - ends[0]) / 1e6, 6),
    }
    return evidence, max(ends)


HOLED = [("w", 0, 5, 0), ("w", 6, 4, 6)]
FULL = [("w", 0, 10, 0)]


def test_a_record_that_is_gone_is_told_whole() -> None:
    h = History()
    saw, passed = h.poll("r", FULL), h.poll("s", HOLED)
    evidence, at = _of_reads(saw, passed, 5, 5)
    assert list(map(_whole, _told(h))) == [
        (
            "vanished-record",
            (5, number("w"), 5),
            f"value {number('w')}/5 was polled at offset 5 by process {number('r')}, and process {number('s')} passed"
            " that offset later without it",
            evidence,
            at,
            at,
        )
    ]


def test_a_record_that_comes_late_is_told_whole() -> None:
    h = History()
    passed, saw = h.poll("s", HOLED), h.poll("r", FULL)
    evidence, at = _of_reads(saw, passed, 5, 5)
    assert list(map(_whole, _told(h))) == [
        (
            "late-record",
            (5, number("w"), 5),
            f"value {number('w')}/5 was polled at offset 5 by process {number('r')}, and process {number('s')} had"
            " passed that offset before, when nothing was there",
            evidence,
            at,
            at,
        )
    ]


def test_what_was_sent_where_somebody_had_gone_by_comes_late_for_nobody() -> None:
    """The log was cut, and gave the offset again."""
    h = History()
    h.poll("s", HOLED)
    h.send("w", 5, at=5)
    h.poll("r", FULL)
    assert _told(h) == []


def test_there_it_comes_late_for_whoever_went_by_after_that() -> None:
    h = History()
    h.poll("s", HOLED)
    h.send("w", 5, at=5)
    passed, saw = h.poll("q", HOLED), h.poll("r", FULL)
    assert [(f.anomaly, dict(f.evidence)) for f in _told(h)] == [("late-record", _of_reads(saw, passed, 5, 5)[0])]


def test_who_may_have_gone_by_after_it_was_sent_tells_that_it_came_late() -> None:
    """Nobody knows which was first, by the clocks of two hosts: nothing says that the log was cut."""
    h = History()
    passed = h.poll("s", HOLED, boot="one")
    h.send("w", 5, at=5, boot="two")
    saw = h.poll("r", FULL, boot="one")
    assert [(f.anomaly, dict(f.evidence)) for f in _told(h)] == [("late-record", _of_reads(saw, passed, 5, 5)[0])]


@pytest.mark.parametrize("other", ["offsets", "poll"])
def test_the_newest_log_start_is_picked_and_no_other_row_for_it(other: Any) -> None:
    """What an observer says of a group has no log start, and who polls may say one, which no rule asks for."""
    h = History()
    h.observe(end=100)
    h.poll("r", FULL)
    h.poll("s", HOLED)
    h.observe(end=100)
    if other == "offsets":
        h.row("o", "offsets", committed=3, group="g")
    else:
        h.poll("r", [("w", 90, 1, 900)], log_start=50)
    table = to_table(h.rows)
    found = explain(Readings(table.filter(concerns(table, [(0, 100)]))), PLACE, 0, 100, finished=False)
    assert [f.anomaly for f in found or ()] == ["vanished-record"]


def _by_what_is_picked(h: History) -> list[str]:
    """As the rows that are read again tell it, and as all of them do."""
    table = to_table(h.rows)
    picked = explain(Readings(table.filter(concerns(table, [(0, 100)]))), PLACE, 0, 100) or []
    assert list(map(_whole, picked)) == list(map(_whole, explain(Readings(table), PLACE, 0, 100) or []))
    return [f.anomaly for f in picked]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("boot", [None, "one"])
def test_what_retention_removes_later_was_there_when_it_was_read(late: bool, boot: str | None) -> None:
    """A history of days, whose first records are long gone."""
    h = History()
    h.observe(end=100)
    for reader, runs in (("s", HOLED), ("r", FULL)) if late else (("r", FULL), ("s", HOLED)):
        h.poll(reader, runs)
    h.observe(end=100)
    h.time += 3600
    h.observe(start=50, end=100)
    h.observe(start=90, end=100)
    for row in h.rows:
        row.boot = boot
        if boot:
            row.mono_invoked, row.mono_completed = (micros(at) * 1000 for at in (row.invoked, row.completed))
    assert _by_what_is_picked(h) == ["late-record" if late else "vanished-record"]


@pytest.mark.parametrize("away", [299.0, 301.0])
def test_nor_does_who_was_sent_forward_by_retention_tell_of_anything(away: float) -> None:
    """It was removed before anybody saw the log start; or an observer on another host did, whose clock is another."""
    h = History()
    h.poll("r", FULL)
    h.poll("s", HOLED)
    h.observe(start=50, end=100)
    h.observe(start=90, end=100)
    assert _by_what_is_picked(h) == []
    h = History()
    h.poll("r", FULL, boot="one")
    h.poll("s", HOLED, boot="one")
    h.time += away
    h.observe(end=100)
    h.rows[-1].boot = "two"
    h.time += 400
    h.observe(start=90, end=100)
    h.rows[-1].boot = "two"
    assert _by_what_is_picked(h) == (["vanished-record"] if away > 300 else [])


def test_an_observer_who_is_behind_does_not_bring_back_what_another_had_seen_removed() -> None:
    """As where the next leader has not heard yet how far retention had gone."""
    h = History()
    h.poll("r", FULL, boot="one")
    h.observe(start=50, end=100)
    h.rows[-1].boot = "one"
    h.poll("s", HOLED, boot="one")
    h.observe(start=50, end=100)
    h.rows[-1].boot = "one"
    h.time += 400
    h.observe(start=0, end=100)
    h.rows[-1].boot = "two"
    assert _by_what_is_picked(h) == []
