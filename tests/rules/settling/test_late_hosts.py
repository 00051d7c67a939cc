"""A host that is away, and what its readers did meanwhile: nothing is concluded without it, nor forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rules.vocabulary.slices import Mark, Slice
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.cut_logs.test_given_again import Boots
from tests.rules.histories import History, Store, number, without
from tests.rules.settling.going_on import W, going_on, lost
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.whole import Told, whole


def vouched(h: History, process: str, slices: int, **more: Any) -> Mark:
    """What its host says of a process now, or at the time that is given."""
    return Mark(number(process), slices, more.pop("at", h.at(h.time)), **more)


def away(h: History, *marks: Mark) -> None:
    """A committer of another host speaks, whose processes the history's own does not vouch for."""
    here = list(h.processes)
    h.row("another committer", "mark", marks=marks, invoked=h.at(h.time), completed=h.at(h.time))
    h.processes = here


def alone(h: History, *marks: Mark) -> None:
    """It speaks for the last time in long."""
    away(h, *marks)
    h.processes = []


def is_back(h: History, *those: tuple[str, int, Any]) -> None:
    """It is heard of every second from now on: (process, slices, when it was over or None)."""
    h.processes = [p for p in h.processes if p not in [name for name, _, _ in those]]
    for _ in range(15):
        away(h, *(vouched(h, name, slices, ended=ended) for name, slices, ended in those))
        h.mark(1.0)


@pytest.mark.parametrize("polled", [True, False])
def test_a_reader_that_has_only_begun_may_poll_what_nobody_else_did(polled: bool) -> None:
    """Its host told that it began, and how it will read, and was not heard of for a minute and a half after that."""
    h, store = History(), Store()
    h.row("s", "start", mode="assign", isolation="read_committed", settings={})
    alone(h, vouched(h, "s", 1, at=h.at(0.5)))
    h.assign("r")
    going_on(h, 90, first=0, lose=[5])
    store.feed(h.rows)
    assert lost(store) == []
    h.rows.clear()
    at = h.at(5.5)
    h.assign("s", invoked=at, completed=at)
    h.poll("s", [("w", 5, 1, 5)] if polled else [], invoked=at, completed=at)
    is_back(h, ("s", 3, None))
    store.feed(h.rows)
    assert lost(store) == ([] if polled else [(W, 5)])


@pytest.mark.parametrize("lose", [[41], []])
@pytest.mark.parametrize("closed", [True, False])
def test_a_reader_that_began_while_its_host_was_away_is_judged_by_what_it_went_over(
    closed: bool, lose: Sequence[int]
) -> None:
    """The host's reader of before is over: nobody that is known of will go on from where it stood."""
    h, store = History(), Store()
    h.assign("r")
    slices = h.assign("b").slice + 1
    if closed:
        h.row("b", "close")
        slices += 1
    ended = h.at(h.time) if closed else None
    alone(h, vouched(h, "b", slices, at=h.at(0.5), ended=ended))
    h.processes = ["r"]
    going_on(h, 90, first=0)
    store.feed(h.rows)
    h.rows.clear()
    at = h.at(40.5)
    h.row("s", "start", mode="assign", settings={}, invoked=at, completed=at)
    h.assign("s", invoked=at, completed=at)
    for i in (40, 41, 42):
        if i not in lose:
            h.poll("s", [("w", i, 1, i)], invoked=h.at(i + 0.5), completed=h.at(i + 0.5))
    is_back(h, ("s", 5 - len(lose), None), ("b", slices, ended))
    store.feed(h.rows)
    told = [f.subject for f in store.findings if f.anomaly == "poll-skip"]
    assert told == [(number("s"), 3)] * len(lose)


def of_5(store: Store) -> list[str]:
    """What was said of the value at offset 5."""
    told = [f.anomaly for f in store.findings if f.subject == (W, 5)]
    return [anomaly for anomaly in told if anomaly in ("lost-write", "benign-retention")]


@pytest.mark.parametrize("polled_at", [8, 60])
def test_a_late_reader_may_have_gone_over_what_retention_took_since(polled_at: int) -> None:
    """The only reader's host is away for a minute and a half; at second 40 the log start passes offset 5."""
    h, store = History(), Store()
    h.assign("r")
    alone(h, vouched(h, "r", 1, at=h.at(0.5)))
    for i in range(90):
        h.send("w", i, at=i)
        h.observe(end=i + 1, start=6 if i >= 40 else 0)
        h.mark(1.0)
    store.feed(h.rows)
    assert of_5(store) == []
    h.rows.clear()
    at, first = h.at(polled_at + 0.5), 0 if polled_at == 8 else 6
    seen = [("w", i, 1, i) for i in range(first, polled_at) if i != 5]
    h.poll("r", seen, position_before=first, position_after=polled_at, invoked=at, completed=at)
    is_back(h, ("r", 2, None))
    store.feed(h.rows)
    assert of_5(store) == (["lost-write"] if polled_at == 8 else ["benign-retention"])


@pytest.mark.parametrize("lag", [0.0, 40.0])
def test_what_retention_took_is_told_soon_also_where_a_reader_s_log_is_always_a_little_behind(lag: float) -> None:
    """The log start passes the values once, and stays: the listings that tell it are always newer than what is known of
    the reader."""
    h, store = History(), Store()
    h.assign("r")
    for second in range(120):
        if second < 10:
            h.send("w", second, at=second)
        h.observe(end=10, start=10 if second >= 20 else 0)
        h.time += 1.0
        others = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in ("w", "observer")]
        behind = Mark(number("r"), 1, h.at(max(h.time - lag, 0.0)))
        h.row("committer", "mark", marks=[*others, behind], invoked=h.at(h.time), completed=h.at(h.time))
    rows = h.rows
    for at in range(0, len(rows), 3):
        store.feed(rows[at : at + 3])
    told = [f for f in store.findings if f.anomaly == "benign-retention"]
    assert [f.subject for f in told] == [(W, seq) for seq in range(10)]


def clocks(h: History) -> Callable[[str, float], dict[str, Any]]:
    """Moments, one after the other, by the clock of a boot that is so many seconds ahead."""

    def by(boot: str, ahead: float) -> dict[str, Any]:
        h.time += 0.002
        times = {"invoked": h.at(h.time + ahead - 0.001), "completed": h.at(h.time + ahead)}
        mono = round((h.time + 100) * 1e9)
        return {"boot": boot, "mono_invoked": mono - 1_000_000, "mono_completed": mono, **times}

    return by


@pytest.mark.long
@pytest.mark.parametrize("there", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("late", [True, False])
def test_a_late_reader_whose_clock_is_ahead_is_judged_by_what_was_settled_where_the_others_were(
    late: bool, there: bool
) -> None:
    """At second 34 `q` goes over offset 68, which `r` polls if it is `there`. By its own clock, which is 15 s ahead, it
    did so at second 49; when its host is heard of again, at 47, offset 68 is settled."""
    h, store, waiting = History(), Store(), list[Slice]()
    by = clocks(h)
    h.assign("q", **by("b", 15))
    h.row("there", "mark", marks=[Mark(number("q"), 1, h.at(15.004))], **by("b", 15))
    h.assign("r", **by("a", 0))
    for i in range(75):
        if i != 34 or there:
            h.send("w", i, at=2 * i, **by("a", 0))
        v = h.send("v", i, at=2 * i + 1, **by("b", 15))
        polled = [("w", i, 1, 2 * i), ("v", i, 1, 2 * i + 1)]
        h.poll("r", polled[i == 34 and not there :], **by("a", 0))
        q = h.poll("q", polled[i == 34 :], **by("b", 15))
        end = 2 * i + 2
        h.row("observer", "offsets", log_start=0, log_end=end, last_stable=end, **by("a", 0))
        h.time = i + 1.0
        here = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in ("w", "r", "observer")]
        h.row("here", "mark", marks=here, **by("a", 0))
        h.rows = [row for row in h.rows if row not in (v, q)]
        waiting += [v, q]
        if i >= 46 or not late:
            h.rows += waiting
            told = [Mark(number(p), h._slices[number(p), 0], h.at(h.time + 15)) for p in ("q", "v")]
            h.row("there", "mark", marks=told, **by("b", 15))
            waiting = []
        store.feed(h.rows)
        h.rows = []
    who, values = number("q"), [{"offset": 68, "writer": W, "seq": 34}]
    evidence = {"process": who, "op": 35, "previous_op": 34, "previous_offset": 67, "offset": 69, "skipped": values}
    message = f"process {who} went from offset 67 to 69 over 1 known values"
    skip = Told("poll-skip", (who, 35), message, evidence, 50.0 if late else 61.0, context={"mode": "assign"})
    assert whole(store, ["poll-skip"]) == ([skip] if there else [])


@pytest.mark.parametrize("shown", [[("w", 6, 1, 6)], [("w", 5, 1, 6)], [("v", 0, 1, 6)]])
def test_what_a_late_reader_was_shown_contradicts_what_everybody_else_was(
    shown: list[tuple[str, int, int, int]],
) -> None:
    """All others have long gone on, offset 6 is settled, and no reader reads its block to the end."""
    h, store = History(), Store()
    h.row("s", "start", mode="assign", isolation="read_committed", settings={})
    alone(h, vouched(h, "s", 1, at=h.at(0.5)))
    h.assign("r")
    going_on(h, 90, first=0)
    h.send("v", 0)
    store.feed(h.rows)
    h.rows.clear()
    at = h.at(8.5)
    h.assign("s", invoked=at, completed=at)
    h.poll("s", shown, position_before=6, invoked=at, completed=at)
    is_back(h, ("s", 3, None))
    store.feed(h.rows)
    ((writer, seq, _, offset),) = shown
    other, then = number(writer), 8.5
    told = whole(store, ["inconsistent-offsets", "duplicate"])
    if (writer, seq) == ("w", 6):
        assert told == []
        return
    values = sorted(
        [{"writer": W, "seq": 6}, {"writer": other, "seq": seq}], key=lambda one: (one["writer"], one["seq"])
    )
    listed = " and ".join(f"{one['writer']}/{one['seq']}" for one in values)
    expected = [
        Told(
            "inconsistent-offsets",
            (offset,),
            f"offset {offset} holds 2 values: {listed}",
            {"offset": offset, "values": values},
            then,
        )
    ]
    if writer == "w":
        twice = Told(
            "duplicate",
            (W, 5),
            f"value {W}/5 stands at offsets 5 and 6",
            {"writer": W, "seq": 5, "offsets": [5, 6]},
            then,
            context={"idempotent": "true"},
        )
        expected = [twice, *expected]
    assert told == expected


@pytest.mark.long
@pytest.mark.parametrize("polled", [True, False])
@pytest.mark.parametrize(("writes", "speaks"), [(True, 0), (True, 5), (False, 0)])
def test_who_followed_a_reader_on_a_host_that_is_away_may_have_polled_it(
    writes: bool, speaks: int, polled: bool
) -> None:
    """The host told that its reader is over, and was not heard of for three minutes. If a writer of it lives, it is at
    work; else its probes were stopped, and nobody is waited for."""
    h, store = History(), Store()
    h.assign("r")
    slices = h.assign("b").slice + 2
    h.row("b", "close")
    ended = h.at(h.time)
    marks = [vouched(h, "b", slices, at=h.at(0.5), ended=ended)]
    if writes:
        marks.append(vouched(h, "v", h.send("v", 0, at=0).slice + 1))
    for _ in range(speaks):  # until the reader is forgotten
        away(h, vouched(h, "b", slices, ended=ended), vouched(h, "v", 1))
        h.processes = ["r"]
        h.mark(1.0)
    alone(h, *(marks if not speaks else [vouched(h, "v", 1)]))
    h.processes = ["r"]
    going_on(h, 180, first=1, lose=[41])
    for first in range(0, len(h.rows), 7):
        store.feed(h.rows[first : first + 7])
    assert lost(store) == ([] if writes else [(W, 41)])
    h.rows.clear()
    at = h.at(41.5)
    h.row("s", "start", mode="assign", isolation="read_committed", settings={}, invoked=at, completed=at)
    h.assign("s", invoked=at, completed=at)
    h.poll("s", [("w", 41, 1, 41)] if polled else [], invoked=at, completed=at)
    those = [("s", 3, None), *([("v", 1, None)] * writes), *([("b", slices, ended)] * (not speaks))]
    is_back(h, *those)
    store.feed(h.rows)
    assert lost(store) == ([] if polled and writes else [(W, 41)])


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_who_followed_a_reader_on_a_host_that_went_down_may_have_polled_it(
    fed: Callable[[History], Store], read: bool
) -> None:
    """Two seconds after the reader b has ended in order its host is not heard of any more; then it is, booted anew, and
    v's journal has no end. Whether another reader had begun before that nobody knows."""
    h = Boots(ahead={}, one=("w", "r", "o"), two=("v", "b") if read else ("v",))
    h.row("v", "start")
    h.assign("r")
    if read:
        h.assign("b")
    for i in range(5):
        h.send("w", i, 1, at=i)
        for reader in ("r", "b") if read else ("r",):
            h.poll(reader, [("w", i, 1, i)])
        h.row("o", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1)
        h.second()
    known = h.at(h.time)
    if read:
        h.row("b", "close")
        marks = [Mark(number("b"), 7, known, h.at(h.time), lost=False), Mark(number("v"), 1, h.at(h.time))]
        h.row("committer two", "mark", marks=marks, invoked=h.at(h.time), completed=h.at(h.time))
    h.hosts["two"], h.silent = (), {"two"}
    for i in range(5, 160):
        if i == 60:
            h.silent = set()
            lost = Mark(number("v"), 1, known, h.at(h.time), lost=True)
            h.row("committer two", "mark", marks=[lost], invoked=h.at(h.time), completed=h.at(h.time))
        h.send("w", i, 1, at=i)
        if i != 20:
            h.poll("r", [("w", i, 1, i)])
        h.row("o", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1)
        h.second()
    for row in h.rows:
        if row.process == number("committer two") and row.invoked > h.at(60.0):
            row.boot = "two, booted anew"
    found = [one.subject for one in whole(fed(h), ["lost-write"])]
    assert found == ([] if read else [(W, 20)])


@pytest.mark.parametrize("skips", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("away_for", [3_000, 4_000])
@pytest.mark.parametrize("who", ["r", "o"])
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_a_step_waits_to_be_told_where_the_log_started_from_when_it_is_here(
    fed: Callable[[History], Store], who: str, away_for: int, skips: bool
) -> None:
    """The host of the reader that went over offset 2, or of the only observer, is away; a value stands there, or a
    marker."""
    h = Hosts(one=[p for p in ("w", "r", "s", "o") if p != who], two=[who])
    h.row("o", "offsets", log_start=0, log_end=0, last_stable=0)
    h.assign("r")
    h.assign("s")
    h.second()
    begun = len(h.rows)
    runs = [("w", 0, 5, 0)] if skips else [("w", 0, 2, 0), ("w", 2, 2, 3)]
    for writer, seq, length, at in runs:
        h.send(writer, seq, length, at=at)
    h.poll("s", runs)
    h.poll("r", [("w", 0, 2, 0)])
    h.poll("r", [("w", 3, 2, 3)] if skips else [("w", 2, 2, 3)])
    h.silent = {"two"}
    for _ in range(away_for // 100):
        h.time += 99.0
        h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    late = [row for row in h.rows[begun:] if row.process == number(who)]
    h.rows = without(h.rows, late) + late
    h.silent = set()
    for _ in range(30):
        h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    told = [(one.anomaly, one.subject) for one in whole(fed(h), ["poll-skip", "int-poll-skip", "lost-write"])]
    assert told == ([("poll-skip", (number("r"), 2))] if skips else [])
