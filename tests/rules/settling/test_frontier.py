"""The settled frontier follows the readers, by clocks that differ, and those whose rows come late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rules.engine.order import KINDS
from rules.kept.state import load
from rules.settling.frontier import spread
from rules.vocabulary.slices import Mark
from tests.rules.histories import START, History, Store, number


def timed(boot: str, seconds: float, behind: float = 0.0) -> dict[str, Any]:
    """An operation of a millisecond that ends then, by the clock of a boot that is so far behind."""
    at = START + timedelta(seconds=seconds - behind)
    ns = round(seconds * 1e9)
    return {
        "boot": boot,
        "invoked": at - timedelta(milliseconds=1),
        "completed": at,
        "mono_invoked": ns - 1_000_000,
        "mono_completed": ns,
    }


@pytest.mark.parametrize(
    ("behind", "exchange", "apart"), [(15.0, False, 15), (15.0, True, 16), (-15.0, False, 16), (0.1, False, 0)]
)
def test_clocks_are_known_to_be_apart_by_one_bound(behind: float, exchange: bool, apart: int) -> None:
    """Nobody sends by the clock of the reader: one that is behind polls before the time at which it was sent."""
    h = History()
    for second in range(1, 5):
        h.send("w", second, at=second, **timed("a", second))
        h.poll("r", [("w", second, 1, second)], **timed("b", second + 0.01, behind))
        if exchange:
            h.send("v", second, at=100 + second, **timed("b", second + 0.02, behind))
            h.poll("q", [("v", second, 1, 100 + second)], **timed("a", second + 0.03))
        for boot, of, names in (("a", 0.0, "wq"), ("b", behind, "vr")):
            marks = [Mark(number(p), h._slices[number(p), 0], h.at(second)) for p in names]
            h.row(f"{boot} committer", "mark", marks=marks, **timed(boot, second + 0.05, of))
    store = Store()
    store.feed(h.rows)
    (stepped,) = store.last.values()
    assert spread(load(stepped.hot, KINDS)) == apart * 10**6


def test_what_a_reader_skipped_is_told_though_it_has_closed_since_and_nobody_else_reads() -> None:
    """Its host was away for a minute; log time had gone on."""
    h, there = History(), History()
    there.assign("r")
    for second in range(140):
        h.time = there.time = float(second)
        h.send("w", second, at=second)
        if second < 80:
            there.poll("r", [("w", second, 1, second)] if second != 40 else [])
        elif second == 80:
            there.row("r", "close")
        h.observe(end=second + 1)
        h.mark()
        over = there.at(80.01) if second >= 80 else None
        if second <= 80:
            mark = Mark(number("r"), there._slices[number("r"), 0], there.at(second + 0.1), over)
            there.row("its committer", "mark", marks=[mark], invoked=h.at(second + 0.1), completed=h.at(second + 0.1))
    away = there.at(20), there.at(81)
    store = Store()
    for second in range(140):
        now = h.at(second), h.at(second + 1)
        here = [row for row in h.rows if now[0] <= row.completed < now[1]]
        late = [row for row in there.rows if now[0] <= row.completed < now[1] and row.completed < away[0]]
        if second == 90:
            late = [row for row in there.rows if row.completed >= away[0]]
        store.feed(here + late)
    found = [(f.anomaly, f.evidence["offset"]) for f in store.findings if f.anomaly == "poll-skip"]
    assert found == [("poll-skip", 41)]


@pytest.mark.parametrize(("lose", "slow_is_heard", "told"), [(30, False, [31]), (None, False, []), (30, True, [])])
def test_where_nobody_is_left_what_others_had_reached_is_settled(
    lose: int | None, slow_is_heard: bool, told: list[int]
) -> None:
    """A slow reader stands at 20 as its host falls silent; the other one goes on to 35 and leaves, as where a topic is
    deleted. While the slow one is heard of every few seconds, the frontier is its to move."""
    h, store = History(), Store()
    h.assign("slow")
    h.assign("r")
    for second in range(36):
        h.send("w", second, at=second)
        if second != lose:
            h.poll("r", [("w", second, 1, second)])
        if second < 20:
            h.poll("slow", [("w", second, 1, second)])
        elif not slow_is_heard and "slow" in h.processes:
            h.processes.remove("slow")
        h.observe(end=second + 1)
        h.mark(1.0)
    h.row("r", "close")
    for second in range(36, 100):
        if slow_is_heard and second % 20 == 0:  # so that its position moves before it counts as silent
            at = 20 + (second - 40) // 20
            h.poll("slow", [("w", at, 1, at)])
        h.observe(end=36)
        h.mark(1.0)
    store.feed(h.rows)
    assert [f.evidence["offset"] for f in store.findings if f.anomaly == "poll-skip"] == told
