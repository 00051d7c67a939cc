"""Times of one boot are those of its monotonic clock; between boots only what records prove is concluded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from rules.arrays.columns import Columns, all_marks, from_table, journals_read
from rules.kept.state import Hole, Process, Sightings, State
from rules.settling.clocks import DRIFT, UNKNOWN, ahead, measure, set_times, settle
from rules.settling.completeness import horizon, new_rows, note_lives
from rules.step import HELD
from rules.vocabulary.slices import Mark, to_table
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, Store, found, number

SECOND = 1_000_000


def timed(boot: str, wall: float, mono: float) -> dict[str, Any]:
    """An operation of a millisecond that ends then."""
    at, ns = START + timedelta(seconds=wall), round(mono * 1e9)
    return {
        "boot": boot,
        "invoked": at - timedelta(milliseconds=1),
        "completed": at,
        "mono_invoked": ns - 1_000_000,
        "mono_completed": ns,
    }


def taken(state: State, h: History) -> Columns:
    columns = from_table(to_table(h.rows))
    set_times(state, columns)
    measure(state, columns, columns.sent, columns.polled)
    return columns


def test_a_wall_clock_that_jumps_moves_nothing() -> None:
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 10, 1010))
    h.send("w", 0, at=0, **timed("a", 1511, 1011))  # 25 minutes ahead
    h.send("w", 1, at=1, **timed("a", 12, 1012))
    columns = taken(state, h)
    assert [(t - micros(START)) / SECOND for t in columns.completed.tolist()] == [10, 11, 12]
    assert [(t - micros(START)) / SECOND for t in columns.invoked.tolist()] == [9.999, 10.999, 11.999]


@pytest.mark.parametrize("later", [1, 130])
def test_a_mark_may_tell_of_times_by_a_clock_that_is_not_ahead_any_more(later: int) -> None:
    """The clock was 25 s ahead at 11. A mark tells how far the log was complete, and nobody knows when that was."""
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 10, 1010))
    h.send("w", 0, at=0, **timed("a", 36, 1011))
    taken(state, h)
    h.rows = []
    now = START + timedelta(seconds=11 + later)
    h.row("committer", "mark", marks=[Mark(number("w"), 1, now)], **timed("a", 11 + later, 1011 + later))
    columns = taken(state, h)
    (through,) = all_marks(columns).through.tolist()
    assert (through - micros(START)) / SECOND == 11 + later - (25 if later < 120 else 0)


@pytest.mark.parametrize(("backlog", "later"), [(0, 1), (5, 1), (5, 130)], ids=["none", "doubtful", "long after"])
def test_journals_were_read_when_a_mark_was_written_but_in_a_backlog(backlog: int, later: int) -> None:
    """The clock was 25 s ahead at 11, and the monotonic one runs 1000 s beside it and 3 s before."""
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 10, 1010))
    h.send("w", 0, at=0, **timed("a", 36, 1011))
    taken(state, h)
    h.rows = []
    at = timed("a", 8 + later, 1011 + later)
    h.row("committer", "mark", **(at | {"invoked": at["completed"] - timedelta(seconds=backlog)}))
    columns = taken(state, h)
    (read,) = journals_read(columns, np.array([0])).tolist()
    told = 8 + later - backlog
    expected = 11 + later if not backlog else min(told, told - 25) if later < 120 else min(told, told + 3)
    assert (read - micros(START)) / SECOND == expected


@pytest.mark.parametrize(("jumped", "jumps"), [(0, 0), (0, 3), (3, 0)], ids=["never", "ahead", "ahead long before"])
def test_what_a_later_boot_tells_of_a_life_of_an_earlier_one_is_by_the_earlier_clock(jumped: int, jumps: int) -> None:
    """The wall clock jumped ahead before the host went down. All that the process did is here through 99 s of log time,
    and the committer of the next boot gives that time as its predecessor had noted it, by the wall clock. What the
    first boot's committer tells of its own boot stays as it was told before."""
    state = State()

    def step(h: History) -> None:
        columns = from_table(to_table(h.rows))
        set_times(state, columns)
        new_rows(state, columns)
        note_lives(state, columns)
        horizon(state)

    h, wall = History(), START + timedelta(seconds=99 + jumps)
    h.row("committer", "mark", **timed("first", 10, 0))
    h.row("m", "start", settings={"group.id": "g"}, **timed("first", 11 + jumped, 1))
    h.row("m", "commit", committed=1, group="g", **timed("first", 96 + jumps, 86))
    marks = [Mark(number("m"), 2, wall - timedelta(seconds=2))]
    h.row("committer", "mark", marks=marks, **timed("first", 99.1 + jumps, 89.1))
    step(h)
    assert (state.processes[number("m")].through - micros(START)) / SECOND == 97
    h.rows = []
    lost = Mark(number("m"), 2, wall, ended=START + timedelta(seconds=160), lost=True)
    h.row("committer", "mark", marks=[lost], **timed("second", 160, 5))
    step(h)
    (hole,) = (Hole(*one) for one in state.holes)
    assert [(t - micros(START)) / SECOND for t in (hole.start, hole.end)] == [99, 160]


def test_rows_of_a_boot_that_no_mark_has_told_of_keep_their_times() -> None:
    h = History()
    h.send("w", 0, at=0, **timed("a", 1511, 1011))
    assert taken(State(), h).completed.tolist() == [micros(START) + 1511 * SECOND]


def exchange(*, back: bool) -> State:
    """b's clock is 15 s ahead of a's. a sends at 100 (b: 115), b polls 5 ms later; b sends, and a polls 3 ms later."""
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 90, 90))
    h.row("other", "mark", **timed("b", 105, 5))
    h.send("w", 0, 10, at=0, **timed("a", 100, 100))
    h.poll("r", [("w", 0, 10, 0)], **timed("b", 115.005, 15.005))
    if back:
        h.send("v", 0, at=10, **timed("b", 116, 16))
        h.poll("q", [("v", 0, 1, 10)], **timed("a", 101.003, 101.003))
    taken(state, h)
    return state


def test_records_bound_the_difference_of_two_clocks_from_both_sides() -> None:
    state = exchange(back=True)
    a, b = state.boot_names.index("a"), state.boot_names.index("b")
    assert ahead(state, b, a) == 15_006_000  # the send began a millisecond before it was answered
    assert ahead(state, a, b) == -14_996_000
    assert ahead(state, a, a) == 0


def test_what_no_record_bounds_is_unknown() -> None:
    state = exchange(back=False)
    a, b = state.boot_names.index("a"), state.boot_names.index("b")
    assert ahead(state, b, a) == 15_006_000
    assert ahead(state, a, b) == UNKNOWN


def test_a_send_that_came_with_an_earlier_step_is_met() -> None:
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 90, 90))
    h.row("other", "mark", **timed("b", 105, 5))
    h.send("w", 0, 10, at=0, **timed("a", 100, 100))
    taken(state, h)
    h.rows = []
    h.poll("r", [("w", 0, 10, 0)], **timed("b", 115.005, 15.005))
    taken(state, h)
    assert ahead(state, state.boot_names.index("b"), state.boot_names.index("a")) == 15_006_000


def listed(state: State, *ends: tuple[int, float], through: float = 1e6) -> None:
    """b lists these log ends, at these times of its own clock; all is here that it did `through` then."""
    b, h = state.boot_names.index("b"), History()
    state.processes[number("observer")] = Process(boot=b, marked=micros(START) + round(through * SECOND))
    for end, at in ends:
        h.row("observer", "offsets", log_start=0, log_end=end, last_stable=end, **timed("b", at, at - 100))
    taken(state, h)


def sent_by_a(*sends: tuple[int, int, float]) -> State:
    """a sends runs: (offset, records, time)."""
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 90, 90))
    h.row("other", "mark", **timed("b", 105, 5))
    for i, (offset, length, at) in enumerate(sends):
        h.send("w", 100 * i, length, at=offset, **timed("a", at, at))
    taken(state, h)
    return state


def later_by_a(state: State, *sends: tuple[int, int, float]) -> None:
    h = History()
    for offset, length, at in sends:
        h.send("w", 10 * offset + round(at), length, at=offset, **timed("a", at, at))
    taken(state, h)


def about(microseconds: float, within: int) -> Any:
    """What is equal to a number that is no farther off."""
    return pytest.approx(microseconds, abs=within)


def between(state: State) -> tuple[int, int]:
    a, b = state.boot_names.index("a"), state.boot_names.index("b")
    return ahead(state, b, a), ahead(state, a, b)


def test_a_listing_shows_the_records_below_its_end() -> None:
    state = sent_by_a((0, 10, 100), (10, 5, 101), (15, 5, 102))
    listed(state, (15, 116.004), (15, 117))
    assert between(state) == (15_005_000, UNKNOWN)  # what lies at 15 may have been sent after it
    listed(state, (14, 116.002), (16, 117.5))
    assert between(state) == (about(15_003_000, within=1_000), UNKNOWN)


@pytest.mark.parametrize(("later", "bound"), [(15.2, 15_200_000), (15.9, 15_305_000)])
def test_what_was_measured_earlier_bounds_less_as_clocks_drift(later: float, bound: int) -> None:
    """By the half of a thousandth: ten minutes after a bound of 15.005 s, it is one of 15.305 s."""
    state = sent_by_a((0, 10, 100))
    listed(state, (10, 115.004), (10, 115.5))
    later_by_a(state, (10, 5, 700))
    listed(state, (15, 700.0 + later - 0.001), (15, 720))
    assert between(state) == (about(bound, within=5_000), UNKNOWN)


def test_and_so_does_what_was_measured_earlier_and_comes_later() -> None:
    state = sent_by_a((10, 5, 700))
    listed(state, (15, 715.9), (15, 720))
    assert between(state) == (about(15_900_000, within=5_000), UNKNOWN)
    later_by_a(state, (0, 10, 100))
    listed(state, (10, 115.004), (10, 115.5))
    assert between(state) == (about(15_305_000, within=5_000), UNKNOWN)


def test_a_listing_from_before_a_cut_says_nothing_of_what_took_an_offset_again() -> None:
    """b saw an end of 20. The log was cut to 10, and a was given 10 again much later."""
    state = sent_by_a((0, 10, 100), (10, 10, 101), (10, 5, 160))
    listed(state, (20, 116.5), (20, 117))
    assert between(state) == (15_501_000, UNKNOWN)


def test_nor_does_it_once_the_sends_before_the_cut_are_forgotten() -> None:
    """a sends much between two listings."""
    state = sent_by_a((0, 10, 100), (10, 10, 101))
    state.sightings = Sightings()
    later_by_a(state, (10, 5, 160))
    listed(state, (18, 115.5), (20, 116.5))
    assert between(state) == (UNKNOWN, UNKNOWN)
    later_by_a(state, (20, 5, 200))
    listed(state, (25, 215.5), (25, 216))
    assert between(state) == (15_501_000, UNKNOWN), "it is beyond where it was"


def test_nor_of_what_an_earlier_boot_of_its_host_was_given_before() -> None:
    """a was given offsets up to 20, and booted anew; the log was cut to 5. What b had listed before comes late."""
    state, h = sent_by_a((0, 20, 100)), History()
    h.row("committer", "mark", op=1, **timed("a", 116, 116))
    h.row("committer", "mark", op=2, **timed("a2", 60, 1))
    h.send("v", 0, 3, at=5, **timed("a2", 61, 2))
    columns = from_table(to_table(h.rows))
    set_times(state, columns)
    note_lives(state, columns)
    measure(state, columns, columns.sent, columns.polled)
    listed(state, (20, 30), (20, 31))
    b, a2 = state.boot_names.index("b"), state.boot_names.index("a2")
    assert ahead(state, b, a2) == UNKNOWN
    h = History()
    h.send("v", 3, 3, at=20, **timed("a2", 70, 11))
    taken(state, h)
    listed(state, (23, 85.5), (23, 86))
    assert ahead(state, b, a2) == 15_501_000


def test_nor_of_what_another_host_was_given_before() -> None:
    """c, with which a has exchanged records, was given offsets up to 20 before the log was cut, and a was given 5."""
    h, state = History(), State()
    for host, boot, at, mono in (("committer", "a", 90, 90), ("other", "b", 105, 5), ("third", "c", 90, 90)):
        h.row(host, "mark", **timed(boot, at, mono))
    h.send("u", 0, 20, at=0, **timed("c", 100, 100))
    h.poll("r", [("u", 0, 20, 0)], **timed("a", 100.005, 100.005))
    h.send("w", 0, 3, at=5, **timed("a", 160, 160))
    taken(state, h)
    listed(state, (20, 116.5), (20, 117))
    assert between(state) == (UNKNOWN, UNKNOWN)


def test_but_of_what_was_sent_while_another_host_was_given_a_higher_offset() -> None:
    h, state = History(), State()
    for host, boot, at, mono in (("committer", "a", 90, 90), ("other", "b", 105, 5), ("third", "c", 90, 90)):
        h.row(host, "mark", **timed(boot, at, mono))
    h.send("u", 0, 10, at=5, **timed("c", 100, 100))
    h.poll("r", [("u", 0, 10, 5)], **timed("a", 100.005, 100.005))
    h.send("w", 0, 5, at=0, **timed("a", 100.1, 100.1))
    taken(state, h)
    listed(state, (20, 116.5), (20, 117))
    assert between(state) == (16_401_000, UNKNOWN)


def test_a_listing_shows_no_more_than_those_that_its_host_listed_later() -> None:
    """b saw an end of 20. The log was cut to 5 then, and a, which nobody had given an offset before, was given 5."""
    state = sent_by_a()
    listed(state, (20, 116.5))
    later_by_a(state, (5, 3, 160))
    assert between(state) == (UNKNOWN, UNKNOWN), "a cut may follow"
    listed(state, (5, 117.5))
    later_by_a(state, (8, 3, 160.5))
    assert between(state) == (UNKNOWN, UNKNOWN)
    listed(state, (9, 176), (12, 177))
    assert between(state) == (15_501_000, UNKNOWN)


def test_a_lower_end_may_be_still_to_come_from_a_host_that_is_late() -> None:
    """b saw an end of 20, and another one. The log was cut to 5, and a, whose clock nobody can compare, was given 5: a
    comes first."""
    state = sent_by_a()
    later_by_a(state, (5, 3, 160))
    listed(state, (20, 116), (20, 117), through=145.9)
    assert between(state) == (UNKNOWN, UNKNOWN)
    listed(state, (5, 118), (9, 176), (12, 177), through=206)
    assert between(state) == (16_001_000, UNKNOWN)


@pytest.mark.parametrize("cut", [True, False])
def test_and_from_one_whose_clock_is_compared_until_all_is_here_that_it_did_before_the_record_was_sent(
    cut: bool,
) -> None:
    """By the clock of b, which is 15.006 s ahead of that of a at most, a sent at 175.006 or before."""
    state = exchange(back=False)
    later_by_a(state, (20, 3, 160))
    listed(state, (40, 170), (40, 172), through=175)
    assert between(state) == (15_006_000, UNKNOWN)
    listed(state, *[(20, 173)] * cut, (41, 174.5), (41, 174.8), (41, 176), through=175.1)
    assert between(state)[0] == about(14_501_000 if cut else 10_001_000, within=40_000)


def test_while_log_time_is_held_back_a_lower_end_may_be_still_to_come() -> None:
    """What a sent comes before what b had listed long before that, and before what it listed as the log was cut."""
    state = sent_by_a()
    state.held = HELD
    later_by_a(state, (5, 3, 160))
    listed(state, (20, 116.5), (20, 117))
    assert between(state) == (UNKNOWN, UNKNOWN)
    listed(state, (5, 118), (9, 176), (12, 177))
    assert between(state) == (UNKNOWN, UNKNOWN)
    settle(state)
    assert between(state) == (about(16_001_000 + HELD // DRIFT, within=1_000), UNKNOWN)


def test_nor_is_all_here_by_two_clocks_that_are_further_apart_than_log_time_is_held_back() -> None:
    """a's clock is 20 minutes behind b's: what b lists a quarter of an hour later, by the numbers, is from before."""
    state = sent_by_a()
    state.held = HELD
    later_by_a(state, (5, 3, 160))
    listed(state, (20, 1100), (20, 1200))
    assert between(state) == (UNKNOWN, UNKNOWN)
    listed(state, (5, 1300), (9, 1370), (12, 1371))
    settle(state)
    assert between(state) == (about(1_210_000_000 + HELD // DRIFT, within=10_000), UNKNOWN)


def test_nor_where_a_record_has_told_how_far_they_are_apart() -> None:
    state = sent_by_a((0, 1, 100))
    state.held = HELD
    h = History()
    h.poll("r", [("w", 0, 1, 0)], **timed("b", 1_305, 1_205))
    taken(state, h)
    apart, _ = between(state)
    later_by_a(state, (5, 3, 160))
    listed(state, (20, 1_100), (20, 1_200))
    assert between(state)[0] == about(apart, within=500_000) and apart > 1_200_000_000


def test_what_was_listed_before_a_cut_shows_what_lies_below_it() -> None:
    state = sent_by_a((0, 5, 100), (5, 5, 101))
    listed(state, (10, 116.004), (10, 116.5), (5, 117), (6, 118))
    assert between(state) == (about(16_005_000, within=1_000), UNKNOWN), "the second may have been sent later"


def test_nor_once_a_later_boot_of_its_host_has() -> None:
    state = sent_by_a()
    h = History()
    h.row("other", "mark", op=1, **timed("b", 116, 16))
    h.row("observer", "offsets", log_start=0, log_end=20, last_stable=20, **timed("b", 116.5, 16.5))
    h.row("other", "mark", op=2, **timed("b2", 118, 1))
    h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5, **timed("b2", 118, 1))
    columns = from_table(to_table(h.rows))
    set_times(state, columns)
    note_lives(state, columns)
    measure(state, columns, columns.sent, columns.polled)
    later_by_a(state, (5, 3, 160))
    assert between(state) == (UNKNOWN, UNKNOWN)


def test_what_a_later_boot_of_its_host_sent_no_boot_has_listed() -> None:
    """The log was cut to 5 while the host of a was down, whose next boot's clock is behind: nobody tells of the cut."""
    state = sent_by_a()
    h = History()
    h.row("committer", "mark", op=1, **timed("a", 116, 116))
    for end, at in ((19, 117), (20, 118)):
        h.row("observer", "offsets", log_start=0, log_end=end, last_stable=end, **timed("a", at, at))
    h.row("committer", "mark", op=2, **timed("a2", 60, 1))
    h.send("w", 0, 3, at=5, **timed("a2", 61, 2))
    columns = from_table(to_table(h.rows))
    set_times(state, columns)
    note_lives(state, columns)
    measure(state, columns, columns.sent, columns.polled)
    before, after = (state.boot_names.index(name) for name in ("a", "a2"))
    assert ahead(state, before, after) == UNKNOWN


def test_bounds_that_contradict_each_other_bound_nothing() -> None:
    """Each clock would be behind the other: one of the two is wrong, and nobody knows which."""
    state = exchange(back=True)
    there, back = between(state)
    assert 0 < there < UNKNOWN > abs(back)
    state.clocks.least[0] -= there + back + 900_000
    assert UNKNOWN not in between(state), "clocks drift"
    state.clocks.least[0] -= 200_000
    assert between(state) == (UNKNOWN, UNKNOWN)


def test_a_third_clock_bounds_two_that_exchange_nothing() -> None:
    state = exchange(back=True)
    h = History()
    h.row("third", "mark", **timed("c", 50, 1))
    h.send("w", 10, at=20, **timed("a", 110, 110))
    h.poll("s", [("w", 10, 1, 20)], **timed("c", 70.002, 21.002))
    taken(state, h)
    a, b, c = (state.boot_names.index(name) for name in "abc")
    assert ahead(state, c, a) == -39_997_000
    assert ahead(state, c, b) == -39_997_000 - 14_996_000  # c behind a, and a behind b
    assert ahead(state, b, c) == UNKNOWN


def test_a_third_clock_bounds_better_than_a_record_that_was_old_when_it_was_polled() -> None:
    """c has begun to read late, and polls first what a sent a minute and a half ago, and b just now."""
    state = exchange(back=True)
    h = History()
    h.row("third", "mark", **timed("c", 50, 1))
    h.poll("s", [("w", 0, 10, 0)], **timed("c", 150, 101))
    h.send("v", 1, at=11, **timed("b", 205, 105))
    taken(state, h)
    a, b, c = (state.boot_names.index(name) for name in "abc")
    assert (ahead(state, c, a), ahead(state, c, b)) == (50_001_000, 50_001_000 - 14_996_000)
    h.rows = []
    h.poll("s", [("v", 1, 1, 11)], **timed("c", 150.002, 101.002))
    taken(state, h)
    assert ahead(state, c, b) == -54_997_000
    assert ahead(state, c, a) == -54_997_000 + 15_006_000


def test_a_third_clock_that_is_behind_bounds_nobody_whom_it_has_not_met() -> None:
    """What b is ahead of c is not known, however far a is behind c."""
    h, state = History(), State()
    h.send("c", 0, at=0, **timed("c", 10, 1010))
    h.poll("a", [("c", 0, 1, 0)], **timed("a", 1, 970))
    h.send("b", 0, at=1, **timed("b", 10, 1010))
    taken(state, h)
    a, b, c = (state.boot_names.index(name) for name in "abc")
    assert ahead(state, a, c) == -8_999_000
    assert ahead(state, b, c) == UNKNOWN


def test_what_was_seen_may_be_here_before_what_was_sent() -> None:
    h, state = History(), State()
    h.row("committer", "mark", **timed("a", 90, 90))
    h.row("other", "mark", **timed("b", 105, 5))
    h.poll("r", [("w", 0, 10, 0)], **timed("b", 115.005, 15.005))
    taken(state, h)
    listed(state, (20, 116.002), (20, 117.002))
    h.rows = []
    h.send("w", 0, 10, at=0, **timed("a", 100, 100))
    taken(state, h)
    assert between(state) == (about(15_006_000, within=1_000), UNKNOWN)
    h.rows = []
    h.send("w", 10, 10, at=10, **timed("a", 101, 101))
    taken(state, h)
    assert between(state) == (about(15_003_000, within=1_000), UNKNOWN)


@pytest.mark.parametrize("sent", [True, False])
def test_a_poll_of_a_reader_that_is_over_is_judged_by_its_clock(sent: bool) -> None:
    """b is 15 s ahead. An operation of b hangs; a polls what it has sent meanwhile, and closes. It is no phantom
    before all that b invoked until then is here, by a's clock."""
    h, store = History(), Store()

    def at(host: str, t: float) -> dict[str, Any]:
        return timed("a", t, t) if host == "a" else timed("b", t + 15, t - 85)

    def marked(t: float, through: float) -> None:
        told = {"a": [("w", 1, t), ("q", slices["q"], t)], "b": [("r", 1, t + 15), ("v", slices["v"], through + 15)]}
        for host, vouched in told.items():
            marks = [Mark(number(name), count, START + timedelta(seconds=until)) for name, count, until in vouched]
            h.row(f"committer of {host}", "mark", marks=marks, **at(host, t))

    slices = {"q": 0, "v": 0}
    marked(90, 90)
    h.send("w", 0, 10, at=0, **at("a", 100))
    h.poll("r", [("w", 0, 10, 0)], **at("b", 100.005))
    h.send("v", 0, at=10, **at("b", 101))
    h.poll("q", [("v", 0, 1, 10)], **at("a", 101.003))
    h.poll("q", [("v", 1, 1, 11)], **at("a", 110.003))
    h.row("q", "close", **at("a", 110.1))
    slices = {"q": 3, "v": 1}
    for t in range(102, 130):
        marked(t, min(t, 109.999))
    store.feed(h.rows)
    assert found(store.findings) == set()
    h.rows.clear()
    if sent:
        began, ended = at("b", 110), at("b", 130)
        h.send("v", 1, at=11, **ended | {name: began[name] for name in ("invoked", "mono_invoked")})
        slices["v"] = 2
    for t in range(131, 150):
        marked(t, t)
    store.feed(h.rows)
    assert found(store.findings) == (set() if sent else {("phantom-read", (number("v"), 1))})
