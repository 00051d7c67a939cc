"""`stuck-producer`: what a writer's condition is not held for: what came late, another one's, an idle next life."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, events, row_by_row, shuffled
from tests.rules.conditions.test_stuck_writers import born, held, looked_at, open_for_long, writes
from tests.rules.histories import START, History, Store, number, without
from tests.rules.whole import Told, whole

FEEDS = pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
NAME = "stuck-producer"
W1 = "writer-1 of run run"


def told(store: Store) -> list[tuple[str, int]]:
    """(event, second) of writer-1's."""
    return [(event, second) for event, (who,), second in events(store, NAME) if who == W1]


def at_of(micros_: int) -> float:
    """Seconds of the history."""
    return (micros_ - micros(START)) / 1e6


def in_parts(h: History, *late: Slice, after: float) -> Store:
    """All that is known by this second, in two steps, without what comes `late`; then that with the rest."""
    store = Store()
    early = [row for row in h.rows if row not in late and row.completed <= h.at(after)]
    rest = without(h.rows, early)
    for rows in (early, rest):
        store.feed(rows)
    return store


def passes(h: History, seconds: int) -> None:
    for _ in range(seconds):
        h.mark(1.0)


def unanswered(h: History, seconds: float, *, name: str = "w") -> Slice:
    """An operation that ends after so long without an answer."""
    writes(h, 1, type="info", name=name, lasting=seconds, first=1000 + len(h.rows))
    return h.rows[-2]


def gives_up(h: History, life: str, seconds: float, *, who: str = "writer-1", error: str | None = "_TIMED_OUT") -> None:
    """A life that has no answer for so long, and ends."""
    born(h, life, who)
    unanswered(h, seconds, name=life)
    h.row(life, "close", type="ok" if error is None else "info", error=error)


# Who is not stuck


def reads(h: History) -> None:
    """A reader, which waits for its group from the beginning."""
    h.start("r", name="writer-1")
    held(h, 40, "r")


def has_another_operation_open(h: History) -> None:
    """What it sends here is answered all the time; what hangs went elsewhere."""
    born(h, "w", "writer-1")
    writes(h, 3)
    through = h.at(h.time)
    for second in range(40):
        h.send("w", 3 + second, 1, at=3 + second)
        h.time += 1.0
        now = h.at(h.time)
        marks = [Mark(number("w"), 5 + second, through)]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def others_gave_up(h: History) -> None:
    gives_up(h, "v", 25.0, who="writer-2")
    gives_up(h, "w", 12.0)
    passes(h, 3)


def gave_up_long_before(h: History) -> None:
    gives_up(h, "w0", 20.0)
    passes(h, 32)
    gives_up(h, "w1", 12.0)
    passes(h, 3)


def ended_in_order_before(h: History) -> None:
    gives_up(h, "w0", 20.0, error=None)
    gives_up(h, "w1", 12.0)
    passes(h, 3)


def tries_where_there_is_no_partition(h: History) -> None:
    born(h, "w", "writer-1")
    writes(h, 3)
    for _ in range(12):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        unanswered(h, 4.0)


def begins_anew_while_there_is_no_partition(h: History) -> None:
    """The life before it gave up; the topic is gone when it begins, and is there again a moment later."""
    gives_up(h, "w0", 14.0)
    looked_at(h, h.at(h.time), there=False, seconds=10)
    born(h, "w1", "writer-1")
    looked_at(h, h.at(h.time), there=True, seconds=1)
    unanswered(h, 16.0, name="w1")
    passes(h, 3)


def has_nothing_to_do_in_its_next_life(h: History) -> None:
    """A life gives up, and the next has nothing to send here for half a minute: what it sends elsewhere is answered.
    Then something takes a while."""
    gives_up(h, "w0", 15.0)
    born(h, "w1", "writer-1")
    passes(h, 30)
    unanswered(h, 8.0, name="w1")
    passes(h, 3)


def fails_elsewhere_after_its_name_was_answered(h: History, seconds: int = 60) -> None:
    """The life after the one that gave up is answered here, and crashes; the next has nothing to send here, and gives
    up for what it sent elsewhere. The last waits a while for its producer id."""
    gives_up(h, "w0", 15.0)
    born(h, "w1", "writer-1")
    writes(h, 1, name="w1")
    h.row("w1", "close", type="info", error="_CRASHED")
    born(h, "w2", "writer-1")
    passes(h, seconds)
    h.row("w2", "close", type="info", error="_MSG_TIMED_OUT")
    born(h, "w3", "writer-1")
    invoked = h.at(h.time)
    h.time += 20.0
    h.row("w3", "init", type="info", error="_TIMED_OUT", invoked=invoked)
    passes(h, 3)


def fails_at_once_after_its_name_was_answered(h: History) -> None:
    fails_elsewhere_after_its_name_was_answered(h, 5)


def fails_elsewhere_long_after_its_beginning(h: History) -> None:
    gives_up(h, "w0", 15.0)
    born(h, "w1", "writer-1")
    passes(h, 60)
    h.row("w1", "close", type="info", error="_MSG_TIMED_OUT")
    born(h, "w2", "writer-1")
    unanswered(h, 20.0, name="w2")
    passes(h, 3)


@pytest.mark.parametrize(
    "fed", [row_by_row, at_once, lambda h: shuffled(h, 3)], ids=["row_by_row", "at_once", "shuffled"]
)
@pytest.mark.parametrize(
    "build",
    [
        reads,
        has_another_operation_open,
        others_gave_up,
        gave_up_long_before,
        ended_in_order_before,
        tries_where_there_is_no_partition,
        begins_anew_while_there_is_no_partition,
        has_nothing_to_do_in_its_next_life,
        fails_elsewhere_after_its_name_was_answered,
        fails_at_once_after_its_name_was_answered,
        fails_elsewhere_long_after_its_beginning,
    ],
)
def test_who_is_not_stuck(build: Callable[[History], None], fed: Callable[[History], Store]) -> None:
    h = History()
    build(h)
    assert told(fed(h)) == []


# And their twins


def gave_up_before(h: History) -> None:
    gives_up(h, "w0", 20.0)
    gives_up(h, "w1", 12.0)
    passes(h, 3)


def gave_up_a_while_before(h: History) -> None:
    """The next life tries at once, and for as long as the one before."""
    gives_up(h, "w0", 20.0)
    passes(h, 25)
    gives_up(h, "w1", 12.0)
    passes(h, 3)


def is_given_no_producer_id_in_its_next_life(h: History) -> None:
    """Nor does the one after that send anything."""
    gives_up(h, "w0", 5.0)
    for life in ("w1", "w2"):
        born(h, life, "writer-1")
        invoked = h.at(h.time)
        h.time += 14.0
        h.row(life, "init", type="info", error="_TIMED_OUT", invoked=invoked)
        h.row(life, "close", type="info", error="_TIMED_OUT")
    passes(h, 3)


def fails_as_soon_as_it_has_its_producer_id(h: History) -> None:
    """The life after that sends here, in vain."""
    gives_up(h, "w0", 8.0)
    born(h, "w1", "writer-1")
    invoked = h.at(h.time)
    h.time += 14.0
    h.row("w1", "init", invoked=invoked)
    h.row("w1", "close", type="info", error="_MSG_TIMED_OUT")
    born(h, "w2", "writer-1")
    unanswered(h, 12.0, name="w2")
    passes(h, 3)


def waits_for_its_producer_id_in_its_next_life(h: History) -> None:
    """Nothing is sent in a transaction before there is one."""
    gives_up(h, "w0", 15.0)
    born(h, "w1", "writer-1")
    invoked = h.at(h.time)
    h.time += 14.0
    h.row("w1", "init", invoked=invoked)
    unanswered(h, 8.0, name="w1")
    passes(h, 3)


@FEEDS
@pytest.mark.parametrize(
    ("build", "life", "at", "began"),
    [
        (gave_up_before, "w1", 33.012, 0.002),
        (gave_up_a_while_before, "w1", 58.062, 0.002),
        (is_given_no_producer_id_in_its_next_life, "w2", 34.018, 0.002),
        (fails_as_soon_as_it_has_its_producer_id, "w2", 35.018, 0.002),
        (waits_for_its_producer_id_in_its_next_life, "w1", 38.014, 0.002),
    ],
)
def test_who_is(
    build: Callable[[History], None], life: str, at: float, began: float, fed: Callable[[History], Store]
) -> None:
    h = History()
    build(h)
    (opened,) = whole(fed(h), [NAME])
    seconds = at_of(opened.evidence["began"])
    assert (opened.event, opened.subject, opened.at, seconds) == ("opened", (W1,), at, began)
    assert {**opened.evidence, "began": 0} == {"process": number(life), "writer": W1, "answered": -1, "began": 0}


# What comes late


def answer_late(h: History) -> Iterator[Slice]:
    """It was answered before it gave up, and its next life, too, is answered in time; the row of the answer comes
    after that of the close."""
    born(h, "w0", "writer-1")
    unanswered(h, 15.0, name="w0")
    yield h.send("w0", 1, 1, at=1)
    h.row("w0", "close", type="info", error="_TIMED_OUT")
    passes(h, 3)
    over = h.time
    gives_up(h, "w1", 14.0)
    passes(h, 3)
    h.time, over = over, h.time


def failure_late(h: History) -> Iterator[Slice]:
    """Of an operation that ended without an answer it is known long after a later one was answered."""
    born(h, "w", "writer-1")
    yield unanswered(h, 8.0)
    writes(h, 1, first=1)
    passes(h, 40)
    over = h.time
    unanswered(h, 8.0)
    passes(h, 3)
    h.time, over = over, h.time


def begun_late(h: History) -> Iterator[Slice]:
    """It had begun before the one that gave up had. Its first row comes late."""
    born(h, "w0", "writer-1")
    began, settings = h.at(20.0), {"name": "writer-1", "writer": str(number("w1"))}
    yield h.row("w1", "start", settings=settings, invoked=began, completed=began)
    unanswered(h, 25.0, name="w0")
    h.row("w0", "close", type="info", error="_TIMED_OUT")
    h.mark()
    over = h.time
    unanswered(h, 8.0, name="w1")
    passes(h, 3)
    h.time, over = over, h.time


def begun_and_answered_late(h: History) -> Iterator[Slice]:
    """A life after one that gave up is answered, and its first row comes after that; then something takes a while."""
    gives_up(h, "w0", 20.0)
    yield h.start("w1", name="writer-1", writer=str(number("w1")))
    writes(h, 3, name="w1")
    passes(h, 3)
    over = h.time
    unanswered(h, 8.0, name="w1")
    passes(h, 3)
    h.time, over = over, h.time


@pytest.mark.parametrize("build", [answer_late, failure_late, begun_late, begun_and_answered_late])
def test_what_is_known_late_makes_nobody_stuck(build: Callable[[History], Iterator[Slice]]) -> None:
    h = History()
    late: Sequence[Slice] = list(build(h))
    assert told(in_parts(h, *late, after=h.time)) == []


@pytest.mark.parametrize("answered", [True, False], ids=["innocent", "guilty"])
def test_nothing_is_told_before_log_time_has_come_so_far(answered: bool) -> None:
    """The rows of two lives come before nearly all marks, and that of an answer with these."""
    h = History()
    born(h, "w0", "writer-1")
    passes(h, 1)
    unanswered(h, 15.0, name="w0")
    late = [h.send("w0", 1, 1, at=1)] if answered else []
    h.row("w0", "close", type="info", error="_TIMED_OUT")
    gives_up(h, "w1", 16.0)
    passes(h, 3)
    store = Store()
    first = [row for row in h.rows if (row.f != "mark" or row.completed < h.at(5)) and row not in late]
    store.feed(first)
    assert told(store) == []
    store.feed(without(h.rows, first))
    assert [event for event, _ in told(store)] == ([] if answered else ["opened"])


def test_a_name_that_is_given_up_is_stuck_no_more_after_half_a_minute() -> None:
    h = History()
    gave_up_before(h)
    passes(h, 40)
    _, ended = whole(row_by_row(h), [NAME])
    told = {"writer": W1, "lasted_s": 34.998}
    assert ended == Told(NAME, (W1,), f"{NAME} ended after 35.0 s", told, 65.0, None, "closed")


def test_an_earlier_answer_that_comes_late_ends_nothing() -> None:
    h = History()
    born(h, "w", "writer-1")
    late = h.send("w", 0, 1, at=0)
    writes(h, 2, first=1)
    for _ in range(6):
        unanswered(h, 8.0)
    passes(h, 40)
    store = in_parts(h, late, after=h.time)
    assert [event for event, _ in told(store)] == ["opened"]
    passes(h, 3)
    store.feed(h.rows[-3:])
    assert [event for event, _ in told(store)] == ["opened"]


@pytest.mark.parametrize("known", [True, False], ids=["its beginning is known", "its first row comes late"])
def test_what_a_step_brings_is_taken_in_the_order_of_time(known: bool) -> None:
    """An operation hangs for forty seconds, and is answered: all of that is known at once."""
    h = History()
    open_for_long(h)
    writes(h, 1, first=3)
    passes(h, 1)
    if known:
        assert [event for event, _ in told(in_parts(h, after=3.0))] == ["opened", "closed"]
    else:
        assert [event for event, _ in told(in_parts(h, h.rows[0], after=3.0))] == ["opened", "closed"]


@pytest.mark.parametrize("group", ["g", None], ids=["what a group is told", "what the observer is told"])
def test_what_a_group_is_told_of_a_partition_does_not_say_that_it_is_not_there(group: str | None) -> None:
    h = History()
    born(h, "w", "writer-1")
    for _ in range(9):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART", group=group)
        unanswered(h, 4.0)
    assert [event for event, _ in told(row_by_row(h))] == (["opened"] if group else [])


@FEEDS
def test_a_stuck_writer_that_closes_in_order_is_stuck_no_more(fed: Callable[[History], Store]) -> None:
    h = History()
    open_for_long(h)
    h.row("w", "close")
    closed = round(h.time)
    passes(h, 3)
    assert told(fed(h)) == [("opened", 33), ("closed", closed)]
