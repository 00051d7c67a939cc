"""`stuck-producer`: who writes, and is not answered any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest

from rules.vocabulary.slices import Mark
from tests.rules.conditions.liveness_of import at_once, delayed, events, kinds, row_by_row, shuffled
from tests.rules.histories import History, Store, number
from tests.rules.transactions.test_stability import FEEDS


def writes(h: History, count: int, *, first: int = 0, type: str = "ok", name: str = "w", lasting: float = 0.0) -> None:
    for i in range(first, first + count):
        invoked = h.at(h.time)
        h.time += lasting
        h.send(name, i, 1, at=i if type == "ok" else None, type=type, invoked=invoked)
        h.mark(1.0)


def held(h: History, count: int, name: str = "w") -> None:
    """Marks that say: an operation of this process has been open since now."""
    through, slices = h.at(h.time), sum(row.process == number(name) for row in h.rows)
    for _ in range(count):
        h.time += 1.0
        now = h.at(h.time)
        h.row("committer", "mark", marks=[Mark(number(name), slices, through)], invoked=now, completed=now)


def born(h: History, process: str, name: str, **more: str) -> None:
    h.start(process, name=name, writer=str(number(process)), idempotent="true", **more)


def open_for_long(h: History) -> None:
    born(h, "w", "writer-1")
    writes(h, 3)
    held(h, 40)


def never_answered(h: History) -> None:
    """Every send times out; each takes eight seconds."""
    born(h, "w", "writer-1")
    writes(h, 2)
    writes(h, 6, first=2, type="info", lasting=8.0)


def while_another_host_s_of_that_name_goes_on(h: History) -> None:
    born(h, "w", "writer-1")
    writes(h, 3)
    h.start("other", name="writer-1", writer=str(number("other")), idempotent="true").run = "west"
    through, slices = h.at(h.time), sum(row.process == number("w") for row in h.rows)
    for i in range(40):
        h.send("other", i, at=100 + i)
        h.time += 1.0
        now = h.at(h.time)
        marks = [Mark(number("w"), slices, through), Mark(number("other"), i + 2, now)]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def stillborn(h: History) -> None:
    """Its producer id never came: it has sent nothing anywhere."""
    born(h, "w", "writer-1")
    held(h, 40)


def failing_lives(h: History, error: str = "_TIMED_OUT") -> None:
    """Each life gives up after fifteen seconds without an answer, and the next begins."""
    for life in range(4):
        born(h, f"w{life}", "writer-1")
        writes(h, 1, type="info", name=f"w{life}", lasting=15.0)
        h.row(f"w{life}", "close", type="info", error=error)


@pytest.mark.parametrize("error", ["_AUTHENTICATION", "_TIMED_OUT"])
@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_that_a_stuck_writer_s_login_is_refused_is_said(fed: Callable[[History], Store], error: str) -> None:
    h = History()
    failing_lives(h, error)
    (opened, *_) = [f for f in fed(h).findings if f.anomaly == "stuck-producer"]
    refused = error == "_AUTHENTICATION"
    assert opened.evidence.get("error") == (error if refused else None)
    assert opened.message.endswith("; the login is refused (_AUTHENTICATION)") == refused


def stillborn_here(h: History) -> None:
    """The same, and it says that it was to send here."""
    born(h, "w", "writer-1", sends_to="topic")
    held(h, 40)


STUCK = [
    open_for_long,
    while_another_host_s_of_that_name_goes_on,
    never_answered,
    stillborn,
    stillborn_here,
    failing_lives,
]


def answers_late(h: History) -> None:
    born(h, "w", "writer-1")
    writes(h, 5, lasting=25.0)


def times_out_now_and_then(h: History) -> None:
    born(h, "w", "writer-1")
    for i in range(0, 20, 2):
        writes(h, 1, first=i, type="info", lasting=20.0)
        writes(h, 1, first=i + 1)


def sends_elsewhere(h: History) -> None:
    """Its operation is open for long, but it has never sent to this partition, and it has worked before."""
    born(h, "w", "writer-1")
    h.mark(20.0)
    held(h, 40)


def stillborn_elsewhere(h: History) -> None:
    """Its producer id never came, or its first records wait for a topic that is gone: not here."""
    born(h, "w", "writer-1", sends_to="another-topic")
    held(h, 40)


def has_nothing_to_do(h: History) -> None:
    born(h, "w", "writer-1")
    writes(h, 3)
    for _ in range(50):
        h.mark(1.0)


def died_long_ago(h: History) -> None:
    """The host was away for an hour; its writer's next life is not stuck since then."""
    born(h, "w0", "writer-1")
    writes(h, 1, type="info", name="w0", lasting=5.0)
    h.row("w0", "close", type="info", error="process-died")
    h.mark(3600.0)
    born(h, "w1", "writer-1")
    writes(h, 3, name="w1")


FINE = [
    answers_late,
    times_out_now_and_then,
    sends_elsewhere,
    stillborn_elsewhere,
    has_nothing_to_do,
    died_long_ago,
]


@FEEDS
@pytest.mark.parametrize("build", STUCK)
def test_a_stuck_writer(build: Callable[[History], object], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert [e[:2] for e in events(fed(h), "stuck-producer")] == [("opened", ("writer-1 of run run",))]


@pytest.mark.parametrize("named", [True, False])
def test_who_is_over_is_stuck_no_more_though_rows_of_it_are_missing(named: bool) -> None:
    """It hung for 46 s, and closed; an append with an earlier row of it was lost."""
    h = History()
    if named:
        born(h, "w", "writer-1")
    writes(h, 3)
    hidden = h.send("w", 3, 1, at=3)
    writes(h, 1, first=4, type="info", lasting=46.0)
    h.row("w", "close", type="info", error="_STUCK")
    over = h.time
    h.row("committer", "mark", marks=[Mark(number("w"), h._slices[number("w"), 0], h.at(over), h.at(over))])
    h.processes.remove("w")
    for _ in range(120):
        h.mark(1.0)
    store = Store()
    for row in h.rows:
        if row is not hidden:
            store.feed([row])
    told = events(store, "stuck-producer")
    assert [event for event, _, _ in told] == ["opened", "closed"]
    assert told[-1][2] <= over + 75


@FEEDS
@pytest.mark.parametrize("build", FINE)
def test_a_writer_that_is_fine(build: Callable[[History], object], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert "stuck-producer" not in kinds(fed(h))


def looked_at(
    h: History, through: datetime, *, there: bool, seconds: int, error: str = "UNKNOWN_TOPIC_OR_PART"
) -> None:
    """The observer asks once a second while an operation of `w` is open since `through`."""
    for _ in range(seconds):
        h.time += 1.0
        if there:
            h.observe(end=3)
        else:
            h.row("observer", "offsets", type="info", error=error)
        now = h.at(h.time)
        slices = {name: sum(row.process == number(name) for row in h.rows) for name in ("w", "observer")}
        marks = [Mark(number("w"), slices["w"], through), Mark(number("observer"), slices["observer"], now)]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def deleted(h: History, *, after: int, away: int = 0, back: int = 0, error: str = "UNKNOWN_TOPIC_OR_PART") -> None:
    """An operation is open from second 3 on; so many seconds later its partition is not there, then it is again."""
    born(h, "w", "writer-1")
    writes(h, 3)
    h.mark()
    through = h.at(h.time)
    looked_at(h, through, there=True, seconds=after)
    looked_at(h, through, there=False, seconds=away, error=error)
    looked_at(h, through, there=True, seconds=back)


ABSENT_CASES = [
    pytest.param({"after": 40}, [("opened", 33)], id="never"),
    pytest.param({"after": 2, "away": 60}, [], id="before it is due"),
    pytest.param({"after": 2, "away": 60, "error": "topic-replaced"}, [], id="made again"),
    pytest.param({"after": 35, "away": 40}, [("opened", 33), ("closed", 39)], id="after it is open"),
    pytest.param({"after": 2, "away": 10, "back": 25}, [], id="back, not yet due"),
    pytest.param({"after": 2, "away": 10, "back": 40}, [("opened", 46)], id="back, and stuck from then on"),
    pytest.param({"after": 2, "away": 3, "back": 40}, [("opened", 33)], id="a broker that had just begun"),
    pytest.param({"after": 2, "away": 60, "error": "_TIMED_OUT"}, [("opened", 36)], id="not answered"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("history", "expected"), ABSENT_CASES)
def test_nobody_is_stuck_in_a_partition_that_is_not_there(history: Mapping[str, Any], expected: object) -> None:
    h = History()
    deleted(h, **history)
    whole = [(event, second) for event, _, second in events(at_once(h), "stuck-producer")]
    assert whole == expected
    assert [(event, second) for event, _, second in events(row_by_row(h), "stuck-producer")] == whole
    for seed in range(0 if whole else 5):  # a mark that comes after a later one says nothing new
        for fed in (shuffled(h, seed), delayed(h, seed)):
            assert not events(fed, "stuck-producer")


@pytest.mark.parametrize("answered", [False, True])
def test_marks_wait_for_the_slices_that_they_count(answered: bool) -> None:
    """All marks come first, the writer's rows after them, and no mark after those."""
    h = History()
    open_for_long(h)
    if answered:
        writes(h, 1, first=3)
    assert {row.process for row in h.rows} == {number("w"), number("committer")}
    store = Store()
    store.feed([row for row in h.rows if row.process == number("committer")])
    assert "stuck-producer" not in kinds(store)
    store.feed([row for row in h.rows if row.process == number("w")])
    assert [e[0] for e in events(store, "stuck-producer")] == ["opened", "closed"][: 1 + answered]


@FEEDS
def test_a_stuck_writer_that_is_answered_again(fed: Callable[[History], Store]) -> None:
    h = History()
    never_answered(h)
    writes(h, 1, first=9)
    assert [e[0] for e in events(fed(h), "stuck-producer")] == ["opened", "closed"]


@FEEDS
def test_a_writer_that_was_stuck_goes_on_elsewhere(fed: Callable[[History], Store]) -> None:
    """Its operation comes back in other partitions; to this one it sends nothing for long."""
    h = History()
    open_for_long(h)
    opened = h.time
    for _ in range(60):
        h.mark(1.0)
    (_, _, ended) = events(fed(h), "stuck-producer")[-1]
    assert [e[0] for e in events(fed(h), "stuck-producer")] == ["opened", "closed"]
    assert opened <= ended <= opened + 3


def test_the_next_life_of_a_stuck_writer_goes_on_elsewhere() -> None:
    """It begins, and has nothing to send here: it was given other partitions."""
    h = History()
    failing_lives(h)
    born(h, "w9", "writer-1")
    began = h.time
    for _ in range(60):
        h.mark(1.0)
    said = events(row_by_row(h), "stuck-producer")
    assert [e[0] for e in said] == ["opened", "closed"]
    assert began + 9 <= said[-1][2] <= began + 12


@FEEDS
def test_a_stuck_writer_whose_name_is_given_up(fed: Callable[[History], Store]) -> None:
    h = History()
    failing_lives(h)
    for _ in range(40):
        h.mark(1.0)
    assert [e[0] for e in events(fed(h), "stuck-producer")] == ["opened", "closed"]


def test_a_completion_that_is_late_in_coming_makes_nobody_stuck() -> None:
    """The marks are here, the rows that they count are not: they may hold the answer."""
    h = History()
    born(h, "w", "writer-1")
    writes(h, 2)
    late = h.send("w", 2, 1, at=2)
    held(h, 40)
    h.rows.remove(late)
    store = row_by_row(h)
    assert "stuck-producer" not in kinds(store)
