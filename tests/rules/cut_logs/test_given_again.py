"""Offsets that a log gave again after it was cut: who had gone over them before has skipped nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from rules.checks.order.poll_order import CHECK, Steps
from rules.engine.order import KINDS
from rules.kept.state import Spans, State, load
from rules.settling.gate import Gate
from rules.settling.given_again import KEPT, Sends, Sent, forget_below, unseen_by
from rules.vocabulary.slices import Slice
from tests.rules.conditions.liveness_of import at_once, delayed, row_by_row, shuffled
from tests.rules.histories import START, History, Store, number, seeds
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.whole import finished, in_any_way, live, whole

Fed = Callable[[History], Store]
Sender = Callable[[History], Any]
SKIPS = ("poll-skip", "int-poll-skip")
MICROSECOND = timedelta(microseconds=1)


def sent(h: History) -> None:
    h.send("z", 0, 1, at=3)


def sent_in_a_transaction(h: History) -> None:
    """Its commit stayed indefinite; a reader shows that it was none the less."""
    h.txn("t", sends=[("z", 0, 1, 3)], txn=7, type="info")


def sent_without_an_acknowledgement(h: History) -> None:
    """Nobody was told where it went, or whether."""
    h.send("z", 0, 1, type="info")


def went_over_3(h: History, first: Sender | None, later: Sender | None) -> History:
    """A marker stood at offset 3, which two readers went over: one inside an operation. A third polls there what was
    sent before them (`first`), or after the log had been cut (`later`)."""
    for reader in ("r", "s", "q"):
        h.assign(reader)
    h.observe(start=0, end=0)
    h.mark(1.0)
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=4)
    h.poll("s", [("w", 0, 3, 0)])
    if first is not None:
        first(h)
    h.poll("r", [("w", 0, 3, 0), ("v", 0, 1, 4)])
    h.poll("s", [("v", 0, 1, 4)])
    h.observe(start=0, end=5)
    h.mark(2.0)
    if later is not None:
        later(h)
    h.poll("q", [("w", 0, 3, 0), ("z", 0, 1, 3)])
    h.poll("q", [("v", 0, 1, 4)])
    for _ in range(25):
        h.observe(start=0, end=5)
        h.mark(1.0)
    return h


@pytest.mark.parametrize("later", [sent, sent_in_a_transaction, sent_without_an_acknowledgement])
@in_any_way()
def test_who_went_over_an_offset_before_it_was_given_again_skipped_nothing(fed: Fed, later: Sender) -> None:
    assert whole(fed(went_over_3(History(), None, later)), SKIPS) == []


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("later", [sent, sent_in_a_transaction])
def test_nor_where_each_row_is_late(later: Sender, seed: int) -> None:
    assert whole(live(lambda h: delayed(h, seed))(went_over_3(History(), None, later)), SKIPS) == []


SENDER_LATER_STILL = [8, 9, 47, 48, 53, 54]
"""Orders in which a reader is heard of when all is settled, and the sender later still, or in between."""
PLACE_FORGOTTEN = [1, 6, 7, 9, 14, 27, 28, 43, 47, 53, 54, 107]
"""Those in which, besides, nobody was told where it stands, and where a reader polled it had been settled before: also
(14, 107) before its sender was heard of."""
POLLED_LATER = [21, 29, 51, 64, 83, 116, 138]
"""Those in which a step waits for whoever is late, and the poll that tells what it went over comes last."""
LATE = [(sent, seed) for seed in SENDER_LATER_STILL]
LATE += [(by, seed) for by in (sent_in_a_transaction, sent_without_an_acknowledgement) for seed in PLACE_FORGOTTEN]


@pytest.mark.parametrize(("later", "seed"), LATE)
def test_nor_where_a_reader_is_heard_of_when_all_is_settled(later: Sender, seed: int) -> None:
    fed = live(lambda h: shuffled(h, seed, parts=2 + seed % 5))
    assert whole(fed(went_over_3(History(), None, later)), SKIPS) == []


@pytest.mark.parametrize(("first", "seed"), [*LATE, *((sent_in_a_transaction, seed) for seed in POLLED_LATER)])
def test_who_is_heard_of_when_all_is_settled_skipped_what_was_there(first: Sender, seed: int) -> None:
    fed = live(lambda h: shuffled(h, seed, parts=2 + seed % 5))
    found = whole(fed(went_over_3(History(), first, None)), SKIPS)
    assert sorted((one.anomaly, one.subject[0]) for one in found) == [
        ("int-poll-skip", number("r")),
        ("poll-skip", number("s")),
    ]


@pytest.mark.parametrize("later", [sent, sent_in_a_transaction])
def test_what_was_sent_where_readers_had_passed_is_not_late(later: Sender) -> None:
    assert whole(finished(went_over_3(History(), None, later)), ["late-record"]) == []


def test_what_was_sent_before_a_reader_passed_is_late() -> None:
    (told,) = whole(finished(went_over_3(History(), sent, None)), ["late-record"])
    assert told.subject == (3, number("z"), 0)


@pytest.mark.parametrize("first", [sent, sent_in_a_transaction, sent_without_an_acknowledgement])
@in_any_way()
def test_who_went_over_what_was_there_skipped_it(fed: Fed, first: Sender) -> None:
    found = whole(fed(went_over_3(History(), first, None)), SKIPS)
    told = [(one.anomaly, one.evidence.get("skipped"), one.evidence.get("previous_offset")) for one in found]
    skipped = [{"offset": 3, "writer": number("z"), "seq": 0}]
    assert sorted(told) == [("int-poll-skip", skipped, 2), ("poll-skip", skipped, 2)]


def test_of_those_that_passed_only_who_came_after_the_send_tells_that_it_is_late() -> None:
    h = History()
    for reader in ("r", "s", "q"):
        h.assign(reader)
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=4)
    h.poll("r", [("w", 0, 3, 0), ("v", 0, 1, 4)])
    h.mark(1.0)
    sent(h)
    h.poll("s", [("w", 0, 3, 0), ("v", 0, 1, 4)])
    h.mark(1.0)
    h.poll("q", [("w", 0, 3, 0), ("z", 0, 1, 3), ("v", 0, 1, 4)])
    h.observe(start=0, end=5)
    (told,) = whole(finished(h), ["late-record"])
    assert (told.subject, told.evidence["passed_process"]) == ((3, number("z"), 0), number("s"))


class Boots(Hosts):
    """Hosts whose clocks are so many seconds ahead; `time` is the true one."""

    def __init__(self, *, ahead: dict[str, float], **hosts: tuple[str, ...]) -> None:
        super().__init__(**hosts)
        self.ahead = ahead

    def row(self, process: str, f: Any, **more: Any) -> Slice:
        made = super().row(process, f, **more)
        (host,) = (name for name, own in self.hosts.items() if process in own or process == f"committer {name}")
        apart = timedelta(seconds=self.ahead.get(host, 0.0))
        made.boot = host
        made.mono_invoked, made.mono_completed = (
            (t - START) // MICROSECOND * 1000 for t in (made.invoked, made.completed)
        )
        made.invoked, made.completed = made.invoked + apart, made.completed + apart
        made.marks = [m._replace(through=m.through + apart, ended=m.ended and m.ended + apart) for m in made.marks]
        return made


def apart(ahead: float, *, compared: bool, sent_before: bool) -> Boots:
    """Two hosts: one writes, and its clock is ahead; the other one's r goes over offset 3, q polls there what z sent
    before that, or after. `compared`: r polls what the other host sent."""
    h = Boots(ahead={"one": ahead}, one=("w", "z", "o"), two=("v", "r", "q"))
    h.row("z", "start")
    h.second()
    h.assign("r")
    h.assign("q")
    first = [("w", 0, 2, 0), ("v", 9, 1, 2)] if compared else [("v", 7, 3, 0)]
    for writer, seq, length, at in first:
        h.send(writer, seq, length, at=at)
    h.send("v", 10, 1, at=4)
    h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
    if sent_before:
        h.send("z", 0, 1, at=3)
    h.poll("r", first)
    h.second()
    h.poll("r", [("v", 10, 1, 4)])
    h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
    h.second()
    if not sent_before:
        h.second()
        h.row("o", "offsets", log_start=0, log_end=3, last_stable=3)
        h.send("z", 0, 1, at=3)
    h.poll("q", [*first, ("z", 0, 1, 3), ("v", 10, 1, 4)])
    for _ in range(100):
        h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    return h


AHEAD = pytest.mark.parametrize("ahead", [0.0, 30.0, -30.0, 3000.0])
WAYS: dict[str, Fed] = {
    "row_by_row": row_by_row,
    "at_once": at_once,
    "shuffled": lambda h: shuffled(h, 8, parts=3),
    "finished": finished,
}
FEEDS = pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))


@AHEAD
@FEEDS
def test_by_the_measured_difference_of_two_clocks_it_was_sent_before(fed: Fed, ahead: float) -> None:
    found = whole(fed(apart(ahead, compared=True, sent_before=True)), SKIPS)
    assert [(one.anomaly, one.subject) for one in found] == [("poll-skip", (number("r"), 2))]


@AHEAD
@FEEDS
def test_by_the_measured_difference_of_two_clocks_it_was_sent_after(fed: Fed, ahead: float) -> None:
    assert whole(fed(apart(ahead, compared=True, sent_before=False)), SKIPS) == []


@AHEAD
@FEEDS
def test_what_was_skipped_in_a_log_that_was_never_cut_is_found_whatever_the_clocks(fed: Fed, ahead: float) -> None:
    """Nothing tells by how much the two clocks differ but the value that was skipped."""
    found = whole(fed(apart(ahead, compared=False, sent_before=True)), SKIPS)
    assert [(one.anomaly, one.subject) for one in found] == [("poll-skip", (number("r"), 2))]


def heard_of_later(ahead: float, *, sent_before: bool) -> Boots:
    """The same, where both hosts go on to send and to read, as they do: what is measured later tells of before."""
    h = Boots(ahead={"one": ahead}, one=("w", "z", "o", "p"), two=("v", "r", "q"))
    h.row("z", "start")
    h.second()
    for reader in ("r", "q", "p"):
        h.assign(reader)
    first: list[tuple[str, int, int, int]] = [("w", 0, 2, 0), ("v", 9, 1, 2)]
    for writer, seq, length, at in [*first, ("v", 10, 1, 4)]:
        h.send(writer, seq, length, at=at)
    if sent_before:
        h.send("z", 0, 1, at=3)
    h.poll("r", first)
    h.poll("r", [("v", 10, 1, 4)])
    h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
    h.second()
    if not sent_before:
        h.second()
        h.send("z", 0, 1, at=3)
    for reader in ("q", "p"):
        h.poll(reader, [*first, ("z", 0, 1, 3), ("v", 10, 1, 4)])
    for i in range(90):
        runs = [("w", 100 + i, 1, 5 + 2 * i), ("v", 11 + i, 1, 6 + 2 * i)]
        for writer, seq, length, at in runs:
            h.send(writer, seq, length, at=at)
        for reader in ("r", "q", "p"):
            h.poll(reader, runs)
        h.row("o", "offsets", log_start=0, log_end=7 + 2 * i, last_stable=7 + 2 * i)
        h.second()
    return h


@pytest.mark.parametrize("sent_before", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize("first", ["one", "two"])
@pytest.mark.parametrize("ahead", [30.0, -30.0, 3000.0])
def test_of_one_host_alone_is_heard_at_first_and_of_both_in_one_step_then(
    ahead: float, first: str, sent_before: bool
) -> None:
    """For three seconds only one committer appends; then the monitor is away."""
    h = heard_of_later(ahead, sent_before=sent_before)
    until = START + timedelta(seconds=3 + (ahead if first == "one" else 0))
    early = [row for row in h.rows if row.boot == first and row.completed <= until]
    store = Store()
    for row in early:
        store.feed([row])
    store.feed([row for row in h.rows if not (row.boot == first and row.completed <= until)])
    found = whole(store, SKIPS)
    assert [(one.anomaly, one.subject) for one in found] == ([("poll-skip", (number("r"), 2))] if sent_before else [])


def taken_by_another(ahead: float, *, again: bool) -> Boots:
    """r polls v's value at offset 3. Half a second later the log has been cut, and z on another host, whose clock is
    within a second of r's as far as it is known, is told that its own value stands there. s of z's host comes by
    afterwards without it (`again`), or nobody does."""
    h = Boots(ahead={"one": ahead}, one=("w", "z", "s", "o"), two=("v", "r"))
    h.row("z", "start")
    for reader in ("r", "s"):
        h.assign(reader)
    h.row("o", "offsets", log_start=0, log_end=0, last_stable=0)
    h.send("w", 0, 2, at=0)
    h.send("v", 0, 1, at=2)
    h.second()
    for reader in ("r", "s"):
        h.poll(reader, [("w", 0, 2, 0), ("v", 0, 1, 2)])
    h.second()
    h.send("v", 1, 1, at=3)
    h.poll("r", [("v", 1, 1, 3)])
    h.time += 0.5
    h.send("z", 0, 1, at=3)
    h.send("w", 2, 1, at=4)
    h.second()
    h.poll("r", [("w", 2, 1, 4)])
    if again:
        h.poll("s", [("w", 2, 1, 4)])
    for _ in range(100):
        h.row("o", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    return h


@pytest.mark.parametrize("again", [True, False])
@AHEAD
@pytest.mark.parametrize("fed", [row_by_row, at_once, lambda h: shuffled(h, 8, parts=3)])
def test_where_two_values_stand_at_an_offset_who_went_over_it_may_have_gone_over_the_other(
    fed: Fed, ahead: float, again: bool
) -> None:
    lost = [("lost-write", (number("z"), 0))] if again else []
    found = whole(fed(taken_by_another(ahead, again=again)), ["lost-write", "inconsistent-offsets"])
    assert sorted((one.anomaly, one.subject) for one in found) == [("inconsistent-offsets", (3,)), *lost]


@pytest.mark.parametrize("skipped", [True, False])
@in_any_way()
def test_a_value_that_stands_where_the_log_was_given_again_may_be_skipped_as_well(fed: Fed, skipped: bool) -> None:
    h = went_over_3(History(), None, sent)
    h.send("w", 3, 2, at=5)
    h.send("v", 1, 1, at=7)
    h.poll("q", [("w", 3, 2, 5), ("v", 1, 1, 7)])
    h.poll("r", [("v", 1, 1, 7)] if skipped else [("w", 3, 2, 5), ("v", 1, 1, 7)])
    for _ in range(25):
        h.observe(start=0, end=8)
        h.mark(1.0)
    found = whole(fed(h), SKIPS)
    assert [one.subject for one in found] == ([(number("r"), 2)] if skipped else [])


def remembered(own: Sends) -> list[tuple[int, int, int, int]]:
    placed = own.placed
    return sorted(
        zip(*(column.tolist() for column in (placed.start, placed.end, placed.invoked, placed.boot)), strict=True)
    )


def sends(*those: tuple[int, int, int, int]) -> Sends:
    return Sends(placed=Sent(*np.array(those, np.int64).reshape(-1, 4).T))


NOBODY = (np.empty(0, np.int64), np.empty(0, np.int64))


def test_sends_are_remembered_as_long_as_a_step_may_be_judged_by_them() -> None:
    """Those below the index are forgotten, and those below the settled frontier that did not come after higher ones."""
    state = State(index_from=2)
    again = (4, 5, 3_000_000, 0)
    own = sends((0, 2, 0, 0), (2, 4, 10, 0), (5, 9, 20, 0), again, (9, 10, 30, 0), (6, 7, 9_000_000, 1))
    forget_below(own, Gate(state, finished=True), 8, NOBODY)
    assert (remembered(own), own.forgotten) == ([again, (5, 9, 20, 0), (9, 10, 30, 0)], 8)
    forget_below(own, Gate(state, finished=True), 10, NOBODY)
    assert (remembered(own), own.forgotten) == ([again, (5, 9, 20, 0)], 10)
    asked = np.array([5]), np.array([6])
    forget_below(own, Gate(state, finished=True), 10, asked)
    assert (remembered(own), own.forgotten) == ([again, (5, 9, 20, 0)], 10)
    forget_below(own, Gate(state, finished=True), 10, NOBODY)
    assert remembered(own) == [again, (5, 9, 20, 0)], "by which it is known that it came again"
    state.index_from = 10
    forget_below(own, Gate(state, finished=True), 10, NOBODY)
    assert (remembered(own), own.forgotten) == ([], 10)


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_what_a_step_settles_is_forgotten_in_it(fed: Fed) -> None:
    """However many sends it brings: but for those of the last seconds, of which not all is here."""
    h = History()
    h.assign("r")
    for i in range(120):
        h.send("w", i, 1, at=2 * i)
        h.poll("r", [("w", i, 1, 2 * i)])
        h.observe(start=0, end=2 * i + 2)
        h.mark(1.0)
    (kept,) = fed(h).stored.values()
    assert kept.hot is not None
    steps: Steps = load(kept.hot, KINDS).checks[CHECK.name]
    assert 0 < len(steps.sends.placed) < 20


def test_what_something_above_may_have_come_before_is_remembered_until_that_is_known() -> None:
    state, late = State(), (2, 4, 3_000_000, 0)
    own = sends((0, 2, 10, 0), late)
    state.now = 2_999_999
    forget_below(own, Gate(state), 10, NOBODY)
    assert remembered(own) == [late]
    state.now = 3_000_000
    forget_below(own, Gate(state), 10, NOBODY)
    assert remembered(own) == []


def test_of_those_above_the_earliest_is_remembered() -> None:
    second = 1_000_000
    again = [(0, 1, 7 * second, 0), (4, 5, 9 * second, 0)]
    above = [(1, 2, 2_500_000, 0), (2, 3, 2 * second, 0), (5, 6, 5 * second, 0), (6, 7, 5 * second, 0)]
    own, state = sends(*again, *above, (8, 9, 30 * second, 0)), State(index_from=0)
    for _ in range(3):
        forget_below(own, Gate(state, finished=True), 10, NOBODY)
    assert remembered(own) == [again[0], above[1], again[1], above[3]]


def test_of_many_sends_the_older_ones_are_joined_where_they_are_neighbours_of_one_second() -> None:
    """As if they had been sent with the first of them: then they count."""
    own = sends(*((i, i + 1, i * 100_000, 0) for i in range(300)))
    forget_below(own, Gate(State(tick=30_000_000), finished=True), 0, NOBODY)
    old = [(i, i + 10, i * 100_000, 0) for i in range(0, 150, 10)]
    assert remembered(own) == [*old, (150, 151, 15_000_000, 0), *((i, i + 1, i * 100_000, 0) for i in range(151, 300))]


def test_sends_are_bounded_and_the_newest_are_kept() -> None:
    own = sends(*((2 * i, 2 * i + 1, i, i % 2) for i in range(5000)))
    forget_below(own, Gate(State(tick=5000), finished=True), 0, NOBODY)
    assert remembered(own) == [(2 * i, 2 * i + 1, i, i % 2) for i in range(5000 - KEPT, 5000)]


def test_what_was_sent_after_the_last_tick_is_beside_the_bound() -> None:
    made = [(2 * i, 2 * i + 1, i, i % 2) for i in range(3 * KEPT)]
    own = sends(*made)
    forget_below(own, Gate(State(tick=-1), finished=True), 0, NOBODY)
    assert remembered(own) == made
    forget_below(own, Gate(State(tick=2 * KEPT), finished=True), 0, NOBODY)
    assert remembered(own) == made[KEPT + 1 :]


def test_where_the_log_gave_offsets_again_only_what_was_certainly_sent_before_counts() -> None:
    """Elsewhere all counts but what was certainly sent later: of hosts whose clocks were never compared, everything."""
    state = State()
    state.boot_names = ["one", "two"]
    sent_by_two = sends((3, 4, 100, 1)).placed

    def unseen(at: int, boot: int) -> bool:
        return len(unseen_by(state, sent_by_two, at, boot)[0]) > 0

    assert [unseen(50, 1), unseen(150, 1), unseen(50, 0), unseen(150, 0)] == [True, False, False, False]
    state.given_again = Spans(np.array([3]), np.array([5]))
    assert [unseen(50, 1), unseen(150, 1), unseen(50, 0), unseen(150, 0)] == [True, False, True, True]
