"""What cannot be decided yet waits, and is never dropped: whatever decides it comes last, an hour late, or alone."""

from __future__ import annotations

from typing import Any

import pytest

from rules.engine.order import KINDS
from rules.kept.chunks import SPAN
from rules.kept.state import load
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, number, without
from tests.rules.settling.going_on import W, fed, going_on, lost, marking, second


@pytest.mark.long
def test_an_acknowledgement_that_comes_an_hour_late_finds_its_loss() -> None:
    h = History()
    h.assign("r")
    going_on(h, 30, first=0)
    late = h.send("v", 0, at=30, invoked=h.at(h.time), completed=h.at(h.time + 0.01))
    h.processes.remove("v")  # its host is away: no mark speaks of it
    going_on(h, 600, first=31)
    rows = [row for row in h.rows if row is not late]
    store = fed(rows)
    assert lost(store) == []
    h.rows = []
    h.processes.append("v")
    h.mark(1.0)
    store.feed([late, *h.rows])
    assert lost(store) == [(number("v"), 0)]
    (found,) = [f for f in store.findings if f.anomaly == "lost-write"]
    assert found.evidence == {"writer": number("v"), "seq": 0, "offset": 30, "read_to": 631}


def test_its_innocent_twin_was_polled_by_somebody() -> None:
    h = History()
    h.assign("r")
    going_on(h, 30, first=0)
    late = h.send("v", 0, at=30)
    h.poll("r", [("v", 0, 1, 30)])
    h.processes.remove("v")
    going_on(h, 100, first=31)
    store = fed([row for row in h.rows if row is not late])
    h.rows = []
    h.mark(1.0)
    store.feed([late, *h.rows])
    assert lost(store) == []


def test_another_writer_s_call_that_hangs_delays_no_loss() -> None:
    h = History()
    h.assign("r")
    h.start("x")
    h.send("x", 0, at=0)
    h.poll("r", [("x", 0, 1, 0)])
    going_on(h, 120, first=1, lose=[40], mark=marking(h, {"x": 2.0}))
    (found,) = [f for f in fed(h.rows).findings if f.anomaly == "lost-write"]
    assert found.subject == (W, 40) and second(found) <= 40 + 15


def test_a_reader_s_call_that_hangs_is_waited_for_however_long() -> None:
    """It may have polled what is missing. When it returns without it, that is lost."""
    h = History()
    h.assign("r")
    h.assign("q")
    h.poll("q", [])
    going_on(h, 900, first=0, lose=[40], mark=marking(h, {"q": 5.0}))
    store = fed(h.rows, 50)
    assert lost(store) == []
    h.rows = []
    h.poll("q", [], invoked=h.at(5.0))
    going_on(h, 3, first=900)
    store.feed(h.rows)
    assert lost(store) == [(W, 40)]


def test_a_reader_s_call_that_hung_had_polled_it() -> None:
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 900, first=0, lose=[40], mark=marking(h, {"q": 5.0}))
    store = fed(h.rows, 50)
    h.rows = []
    h.poll("q", [("w", 40, 1, 40)], invoked=h.at(5.0))
    going_on(h, 30, first=900)
    store.feed(h.rows)
    assert lost(store) == []


def rebooted(h: History, *, down: float, up: float) -> Any:
    """Marks of two hosts. That of q goes down and comes up without anything that its journal held."""

    def mark(after: float) -> None:
        h.time += after
        now, mono = h.at(h.time), round(h.time * 1e9)
        mine = [Mark(number(p), h._slices[number(p), 0], now) for p in h.processes if p not in ("q", "next", "other")]
        h.row("committer", "mark", marks=mine, invoked=now, completed=now)
        told: dict[str, Any] = {"invoked": now, "completed": now, "mono_invoked": mono, "mono_completed": mono}
        if h.time < down:
            h.row("other", "mark", marks=[Mark(number("q"), h._slices[number("q"), 0], now)], boot="first", **told)
        elif h.time >= up:
            mine = [Mark(number(p), h._slices[number(p), 0], now) for p in h.processes if p == "next"]
            h.row("other", "mark", marks=mine, boot="second", **told)

    return mark


def test_a_reader_was_over_by_the_next_boot_of_its_host() -> None:
    """Nothing of it comes any more. What was sent before may have been polled by it; what was sent later was not."""
    h = History()
    h.assign("r")
    h.assign("q", boot="first", mono_invoked=0, mono_completed=1)
    mark = rebooted(h, down=50, up=70)
    going_on(h, 110, first=0, lose=[20, 60, 80], mark=mark)
    store = fed(h.rows)
    assert lost(store) == [(W, 20), (W, 80)]
    assert [f.event for f in store.findings if f.anomaly == "unverifiable"] == []
    h.rows = []
    going_on(h, 700, first=110, mark=mark)
    for at in range(0, len(h.rows), 100):
        store.feed(h.rows[at : at + 100])
    assert lost(store) == [(W, 20), (W, 80)]
    assert [f.event for f in store.findings if f.anomaly == "unverifiable"] == ["opened"]
    (stepped,) = store.last.values()
    assert number("q") not in load(stepped.hot, KINDS).processes


def test_a_reader_was_over_by_what_is_done_in_the_next_boot_of_its_host() -> None:
    """Its first mark comes a little later than its first record."""
    h = History()
    h.assign("r")
    h.assign("q", boot="first", mono_invoked=0, mono_completed=1)
    mark = rebooted(h, down=50, up=70)
    going_on(h, 69, first=0, mark=mark)
    mono = round(h.time * 1e9)
    h.send("next", 0, at=69, boot="second", mono_invoked=mono + 1_000_000, mono_completed=mono + 2_000_000)
    going_on(h, 40, first=70, mark=mark)
    for size in (7, 900):
        assert lost(fed(h.rows, size)) == [(number("next"), 0)]


def test_the_observer_is_out_and_nothing_is_dropped() -> None:
    h = History()
    h.assign("r")
    going_on(h, 30, first=0)
    for i in range(30, 70):
        h.send("w", i, at=i)
        if i != 40:
            h.poll("r", [("w", i, 1, i)])
        h.mark(1.0)
    store = fed(h.rows)
    assert lost(store) == []  # retention may have sent the reader forward
    h.rows = []
    going_on(h, 3, first=70)
    store.feed(h.rows)
    assert lost(store) == [(W, 40)]


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_listing_in_flight_tells_nothing_of_the_log_start(in_flight: bool) -> None:
    """Retention takes 0 to 4 while the reader is held back; a listing asked before that is answered after its poll."""
    h = History()
    h.assign("r")
    h.poll("r", [("w", 0, 1, 0)])
    h.send("w", 0, 6, at=0)
    asked = h.at(h.time)
    h.time += 1
    h.poll("r", [("w", 5, 1, 5)])
    if in_flight:
        h.row("observer", "offsets", log_start=0, log_end=6, last_stable=6, invoked=asked)
    for _ in range(20):
        h.observe(start=5, end=6)
        h.mark(1.0)
    found = {f.anomaly for f in fed(h.rows, 1).findings}
    assert not found & {"lost-write", "poll-skip"}


def test_a_listing_that_was_asked_after_the_poll_proves_the_skip_and_the_loss() -> None:
    h = History()
    h.assign("r")
    h.poll("r", [("w", 0, 1, 0)])
    h.send("w", 0, 6, at=0)
    h.poll("r", [("w", 5, 1, 5)])
    for _ in range(20):
        h.observe(start=0, end=6)
        h.mark(1.0)
    found = {f.anomaly for f in fed(h.rows, 1).findings}
    assert {"lost-write", "poll-skip"} <= found


def test_a_duplicate_of_a_fast_writer_loses_no_other_value_s_fate() -> None:
    """The copy stands in a chunk of values that the step brings nothing else of: the fates of its 8,192 stay known."""
    h = History()
    h.assign("r")
    for i in range(0, 3 * SPAN, 1000):
        h.send("w", i, 1000, at=i)
        h.poll("r", [("w", i, 1000, i)])
        h.observe(end=i + 1000)
        h.mark(1.0)
    end = h.rows[-2].log_end or 0
    h.poll("r", [("w", 17, 1, end)])
    h.observe(end=end + 1)
    h.mark(1.0)
    h.poll("r", [("w", 18, 1, end + 1)])
    h.observe(end=end + 2)
    for _ in range(15):
        h.mark(1.0)
    store = fed(h.rows, 4)
    told = [f for f in store.findings if f.anomaly == "duplicate"]
    assert [f.subject for f in told] == [(W, 17), (W, 18)]
    assert all(f.at > micros(START) for f in told)


def test_a_slow_writer_s_values_are_no_phantoms_once_the_log_start_has_passed_the_first_of_them() -> None:
    """Its values stand in the first and the third 65,536 offsets, and none between."""
    h = History()
    h.assign("r")
    h.send("slow", 0, at=0)
    h.poll("r", [("slow", 0, 1, 0)])

    def bulk(start: int, end: int, low: int) -> None:
        for i in range(start, end, 10_000):
            n = min(10_000, end - i)
            h.send("w", i, n, at=i)
            h.poll("r", [("w", i, n, i)])
            h.observe(start=low, end=i + n)
            h.mark(1.0)

    bulk(1, 140_000, 0)
    h.send("slow", 1, at=140_000)
    h.poll("r", [("slow", 1, 1, 140_000)])
    bulk(140_001, 160_001, 70_000)
    h.poll("late", [("slow", 1, 1, 140_000)])
    h.poll("r", [("slow", 1, 1, 160_001)])  # and a real duplicate of it
    for _ in range(20):
        h.observe(start=70_000, end=160_002)
        h.mark(1.0)
    found = {(f.anomaly, f.subject) for f in fed(h.rows, 4).findings if f.anomaly in ("phantom-read", "duplicate")}
    assert found == {("duplicate", (number("slow"), 1))}


@pytest.mark.long
@pytest.mark.parametrize("late", ["acknowledgement", "poll", "poll of a copy", "later poll", "nothing"])
def test_a_step_over_what_a_late_host_alone_tells_of_is_judged_when_that_comes(late: str) -> None:
    """All others saw offset 30 as a hole, and the log around it is settled long before the host is heard of again."""
    h = History()
    h.assign("r")
    h.start("v")
    h.assign("q")
    going_on(h, 30, first=0)
    came: list[Slice] = []
    if late == "acknowledgement":
        came = [h.send("v", 0, 3, at=30)]  # and 32 too, which all others saw
    elif late.startswith("poll"):
        came = [h.poll("q", [("v", 0, 1, 30), *([("v", 0, 1, 340)] if late == "poll of a copy" else [])])]
    away = h.rows[-len(came) :] if came else []
    h.processes = [p for p in h.processes if p not in ("v", "q")]
    skip = h.poll("r", [("v", 2, 1, 32)])
    if late != "acknowledgement":
        h.send("v", 2, at=32)
    going_on(h, 300, first=33)
    store = fed(without(h.rows, away))
    assert [f for f in store.findings if f.anomaly == "poll-skip"] == []
    h.rows = []
    if late == "later poll":
        h.poll("audit", [("v", 0, 1, 30)])
    h.processes += ["v", "q"]
    h.mark(1.0)
    store.feed([*came, *h.rows])
    told = [f for f in store.findings if f.anomaly == "poll-skip"]
    if late in ("nothing", "later poll", "poll of a copy"):
        assert told == []  # a value that stands at two offsets counts at the last of them
        return
    (found,) = told
    r = number("r")
    values = 2 if late == "acknowledgement" else 1
    assert (found.subject, found.message) == (
        (r, skip.op),
        f"process {r} went from offset 29 to 32 over {values} known values",
    )
    assert 40 <= second(found) <= 45
    assert found.evidence == {
        "process": r,
        "op": skip.op,
        "previous_op": skip.op - 1,
        "previous_offset": 29,
        "offset": 32,
        "skipped": [{"offset": 30 + i, "writer": number("v"), "seq": i} for i in range(values)],
    }
    assert found.context == {"mode": "assign"}


def test_a_reader_whose_clock_is_ahead_is_judged_by_what_was_settled_where_the_others_were() -> None:
    """q goes on a millisecond after r, and by its own clock 15 s later: longer than the grace."""
    h = History()

    def by(boot: str, ahead: float, after: float = 0.0) -> dict[str, Any]:
        h.time += 0.002 + after
        times = {"invoked": h.at(h.time + ahead - 0.001), "completed": h.at(h.time + ahead)}
        mono = round((h.time + 100) * 1e9)
        return {"boot": boot, "mono_invoked": mono - 1_000_000, "mono_completed": mono, **times}

    def marks(boot: str, ahead: float, host: str, *processes: str) -> None:
        now = h.at(h.time + ahead)
        told = [Mark(number(p), h._slices[number(p), 0], now) for p in processes]
        h.row(host, "mark", marks=told, **by(boot, ahead))

    h.assign("r", **by("a", 0))
    h.assign("q", **by("b", 15))
    for i in range(90):
        h.send("w", i, at=2 * i, **by("a", 0))
        h.send("v", i, at=2 * i + 1, **by("b", 15))
        polled = [("w", i, 1, 2 * i), ("v", i, 1, 2 * i + 1)][i == 40 :]
        h.poll("r", polled, **by("a", 0))
        h.poll("q", polled, **by("b", 15))
        end = 2 * i + 2
        h.row("observer", "offsets", log_start=0, log_end=end, last_stable=end, **by("a", 0))
        h.time += 1.0
        marks("a", 0, "here", "w", "r", "observer")
        marks("b", 15, "there", "q", "v")
    for size in (9, 400):
        skips = [f.subject[0] for f in fed(h.rows, size).findings if f.anomaly == "poll-skip"]
        assert sorted(skips) == sorted([number("r"), number("q")])


@pytest.mark.parametrize("size", [7, 400])
def test_a_life_that_was_lost_holds_up_no_verdict_once_it_was_over(size: int) -> None:
    """The mark that ends it tells when; whether the step that brings it forgets the life is no matter."""
    h = History()
    h.assign("r")
    h.assign("q")
    going_on(h, 20, first=0)
    h.poll("q", [("w", 0, 20, 0)])
    h.mark(1.0)
    ended = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(number("q"), 2, ended, ended, lost=True)], invoked=ended, completed=ended)
    h.processes.remove("q")
    going_on(h, 24, first=20, lose=[25])
    (skip,) = [f for f in fed(h.rows, size).findings if f.anomaly == "poll-skip"]
    assert (skip.subject[0], second(skip)) == (number("r"), 38)


def test_a_reader_that_has_nearly_caught_up_is_still_compared_with_what_it_went_over() -> None:
    """Its host comes back, and is no longer so late that log time would not wait for it; but log time has gone on."""
    h = History()
    there: list[Slice] = []
    h.assign("r")
    there.append(h.assign("q"))
    h.processes = ["w", "r", "observer"]
    for i in range(90):
        h.send("w", i, at=i)
        if i != 70:
            h.poll("r", [("w", i, 1, i)])
            there.append(h.poll("q", [("w", i, 1, i)]))
            h.processes = ["w", "r", "observer"]
        h.observe(end=i + 1)
        h.mark(1.0)
        now = h.at(h.time)
        told = [Mark(number("q"), h._slices[number("q"), 0], now)]
        there.append(h.row("committer there", "mark", marks=told, invoked=now, completed=now))
    apart = {id(row) for row in there}
    store = Store()
    store.feed([row for row in h.rows if id(row) not in apart or row.completed < h.at(10)])
    for low, high in ((10, 65), (65, 99)):
        store.feed([row for row in there if h.at(low) <= row.completed < h.at(high)])
    skips = [f.subject[0] for f in store.findings if f.anomaly == "poll-skip"]
    assert sorted(skips) == sorted([number("r"), number("q")])


@pytest.mark.parametrize("at_13", ["a record", "a marker"])
def test_a_host_that_is_late_may_have_a_clock_that_was_far_ahead(at_13: str) -> None:
    """The writer's clock is 15 s ahead of the reader's, which only polls: nobody can tell by how much. What it sent at
    second 28 of its own time went to an offset that the reader went over at second 13, settled at second 24."""
    h = History()
    away: list[Slice] = []

    def by(boot: str, ahead: float) -> dict[str, Any]:
        h.time += 0.002
        times = {"invoked": h.at(h.time + ahead - 0.001), "completed": h.at(h.time + ahead)}
        mono = round((h.time + 100) * 1e9)
        return {"boot": boot, "mono_invoked": mono - 1_000_000, "mono_completed": mono, **times}

    def marks(boot: str, ahead: float, host: str, *processes: str) -> Slice:
        told = [Mark(number(p), h._slices[number(p), 0], h.at(h.time + ahead)) for p in processes]
        return h.row(host, "mark", marks=told, **by(boot, ahead))

    h.assign("r", **by("a", 0))
    for i in range(90):
        told = []
        if i != 13 or at_13 == "a record":
            told.append(h.send("w", i, at=i, **by("b", 15)))
        if i != 13:
            h.poll("r", [("w", i, 1, i)], **by("a", 0))
        h.row("observer", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1, **by("a", 0))
        h.time += 1.0
        marks("a", 0, "here", "r", "observer")
        told.append(marks("b", 15, "there", "w"))
        away += told if i >= 5 else []
    apart = {id(row) for row in away}
    store = Store()
    here = [row for row in h.rows if id(row) not in apart]
    for rows in (here[:30], here[30:], away):
        store.feed(rows)
    skips = [f.subject[0] for f in store.findings if f.anomaly == "poll-skip"]
    assert skips == ([number("r")] if at_13 == "a record" else [])


@pytest.mark.parametrize("polled", [False, True])
def test_where_nobody_lives_any_more_no_host_is_waited_for(polled: bool) -> None:
    """A topic was deleted: one host marks it no longer, and another one for ten seconds more."""
    h = History()
    h.assign("r")
    going_on(h, 20, first=0)
    h.send("v", 0, at=20)
    h.poll("r", [("v", 0, 1, 20)] * polled + [("w", 20, 1, 21)])
    h.observe(end=22)
    h.mark(1.0)
    closed = h.at(h.time)
    marks = [Mark(number(p), h._slices[number(p), 0], closed, closed) for p in ("w", "r", "observer")]
    h.row("committer", "mark", marks=marks, invoked=closed, completed=closed)
    for i in range(15):
        now = h.at(h.time + i)
        over = [Mark(number("v"), 1, now, closed)]
        h.row("other", "mark", marks=over, invoked=now, completed=now)
    found = [(f.subject, second(f)) for f in fed(h.rows).findings if f.anomaly == "lost-write"]
    assert found == ([] if polled else [((number("v"), 0), 31)])


@pytest.mark.parametrize(("down", "found"), [(45, True), (25, False)])
def test_a_reader_of_a_later_boot_came_after_all_that_an_earlier_one_was_there_for(down: int, found: bool) -> None:
    """Its clock can be compared with nobody's, as it polls nothing. The loss is known to be one only then."""
    h = History()

    def by(boot: str) -> dict[str, Any]:
        h.time += 0.002
        mono = round((h.time + 100) * 1e9)
        times = {"invoked": h.at(h.time - 0.001), "completed": h.at(h.time)}
        return {"boot": boot, "mono_invoked": mono - 1_000_000, "mono_completed": mono, **times}

    def marks(boot: str, host: str, *processes: str) -> None:
        told = [Mark(number(p), h._slices[number(p), 0], h.at(h.time)) for p in processes]
        h.row(host, "mark", marks=told, **by(boot))

    h.assign("r", **by("here"))
    h.assign("q", **by("first"))
    late: list[Slice] = []
    for i in range(110):
        sent = h.send("w", i, at=i, **by("here"))
        late += [sent] if i == 20 else []
        if i != 20:
            h.poll("r", [("w", i, 1, i)], **by("here"))
        if i < down and i != 20:
            h.poll("q", [("w", i, 1, i)], **by("first"))
        h.row("observer", "offsets", log_start=0, log_end=i + 1, last_stable=i + 1, **by("here"))
        h.time += 1.0
        marks("here", "here", "w", "r", "observer")
        if i < down:
            marks("first", "there", "q")
        elif i == 60:
            h.assign("next", **by("second"))
        if i >= 60:
            marks("second", "there", "next")
    store = fed(without(h.rows, late), 50)
    assert lost(store) == []
    store.feed(late)
    assert lost(store) == ([(W, 20)] if found else [])
