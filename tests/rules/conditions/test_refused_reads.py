"""`refused-reads`: readers that do not come to read, beside those that have trouble on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.kept.outages import cause_id
from rules.vocabulary.slices import Mark, Slice
from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, away_after_seconds, row_by_row
from tests.rules.conditions.test_unreachable import answered, unanswered
from tests.rules.histories import START, History, Store, number, without
from tests.rules.whole import Told, finished, in_any_way, live, whole

R1 = "reader-1 of run run"

Fed = Callable[[History], Store]
NAME = "refused-reads"
DENIED, NO_TOPIC = "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"


def at(second: float) -> int:
    """Microseconds of log time."""
    return micros(START) + round(second * 1e6)


def born(h: History, life: str, name: str = "reader-1", mode: str = "assign", **told: str) -> None:
    h.row(life, "start", settings={"name": name} | told, mode=mode)


def passes(h: History, seconds: int) -> None:
    for _ in range(seconds):
        h.mark(1.0)


def failing(h: History, lives: int, *, error: str = DENIED, first: int = 0, lasting: int = 8) -> None:
    """Lives that end before they have begun to read."""
    for life in range(first, first + lives):
        born(h, f"r{life}")
        passes(h, lasting)
        h.row(f"r{life}", "close", type="info", error=error)
        passes(h, 2)


def comes(h: History, life: str) -> None:
    h.assign(life)
    h.poll(life, [(life, 0, 1, 0)])


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_a_reader_that_may_not_read_and_then_may(fed: Fed) -> None:
    h = History()
    failing(h, 4)
    born(h, "r9")
    comes(h, "r9")
    opened, closed = whole(fed(h), [NAME])
    evidence = {"process": number("r3"), "reader": R1, "error": DENIED, "since": at(0.002)}
    message = f"{R1} has not come to read for 38 s: it is refused with {DENIED}"
    assert opened == Told(NAME, (R1,), message, evidence, 38.092, None, "opened")
    assert closed == Told(
        NAME, (R1,), f"{NAME} ended after 2.0 s", {"reader": R1, "lasted_s": 2.008}, 40.1, None, "closed"
    )


def life_after_life(h: History) -> None:
    failing(h, 5)


def members(h: History, reads_from: str = "topic") -> None:
    """A member of a group is told once, and waits."""
    born(h, "r0", mode="subscribe", reads_from=reads_from)
    h.assign("r0", f="subscribe", assigned=False)
    passes(h, 3)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, 33)


def taken_from_members(h: History) -> None:
    """The right is taken away while it reads: it loses its partitions."""
    born(h, "r0", mode="subscribe")
    comes(h, "r0")
    passes(h, 10)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    h.assign("r0", f="revoke", assigned=False)
    passes(h, 33)


def before_it_gave_itself_any(h: History) -> None:
    """It asks its group first from where to read."""
    born(h, "r0")
    passes(h, 3)
    h.row("r0", "poll", type="info", error=DENIED, mode="assign")
    passes(h, 33)


def taken_with_the_topic(h: History) -> None:
    """Whoever gave itself its partitions may not read them any more."""
    born(h, "r0")
    comes(h, "r0")
    h.row("r0", "poll", type="info", error=NO_TOPIC, mode="assign")
    passes(h, 33)


def without_a_reason(h: History) -> None:
    failing(h, 5, error="_TIMED_OUT")


def one_of_two(h: History) -> None:
    born(h, "q", "reader-2")
    comes(h, "q")
    failing(h, 5)


def also_sends(h: History) -> None:
    """Of a transaction's two clients it is the consumer that may not."""
    for life in range(5):
        h.row(f"t{life}", "start", settings={"name": "reader-1", "writer": str(number("t"))}, mode="assign")
        h.row(f"t{life}", "init")
        passes(h, 8)
        h.row(f"t{life}", "close", type="info", error=DENIED)


def one_of_two_that_begin_anew(h: History) -> None:
    """Each life of the other one comes to read."""
    for life in range(5):
        born(h, f"q{life}", "reader-2")
        comes(h, f"q{life}")
        failing(h, 1, first=life)


def polls_in_vain(h: History) -> None:
    """A poll that ends with an error is no coming to read."""
    for life in range(5):
        born(h, f"r{life}")
        passes(h, 4)
        h.poll(f"r{life}", [], type="info", error="_TIMED_OUT")
        passes(h, 4)
        h.row(f"r{life}", "close", type="info", error="_TIMED_OUT")


@pytest.mark.parametrize(
    "build",
    [
        life_after_life,
        members,
        taken_from_members,
        before_it_gave_itself_any,
        taken_with_the_topic,
        without_a_reason,
        one_of_two,
        also_sends,
        one_of_two_that_begin_anew,
        polls_in_vain,
    ],
)
@in_any_way(file=False)
def test_a_reader_that_does_not_come_to_read(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    (opened,) = whole(fed(h), [NAME])
    assert (opened.event, opened.subject) == ("opened", (R1,))
    assert opened.evidence["error"] in (DENIED, NO_TOPIC, "_TIMED_OUT")


def for_less_than_the_objective(h: History) -> None:
    failing(h, 2)
    born(h, "r9")
    comes(h, "r9")
    passes(h, 60)


def comes_now_and_then(h: History) -> None:
    for round_ in range(5):
        failing(h, 2, first=10 * round_)
        born(h, f"s{round_}")
        comes(h, f"s{round_}")
        h.row(f"s{round_}", "close", type="info", error="_TIMED_OUT")


def reads_and_ends(h: History) -> None:
    """Its lives end with an error each, after they have read."""
    for life in range(6):
        born(h, f"r{life}")
        comes(h, f"r{life}")
        passes(h, 8)
        h.row(f"r{life}", "close", type="info", error=DENIED)


def does_not_read(h: History) -> None:
    """A writer."""
    for life in range(6):
        h.start(f"w{life}", name="writer-1", writer=str(number(f"w{life}")))
        passes(h, 8)
        h.row(f"w{life}", "close", type="info", error=DENIED)


def ends_in_order(h: History) -> None:
    for life in range(6):
        born(h, f"r{life}")
        passes(h, 8)
        h.row(f"r{life}", "close")


def is_killed(h: History) -> None:
    """Its process went away each time."""
    failing(h, 6, error="_CRASHED")


def the_topic_is_gone(h: History) -> None:
    failing(h, 2, error="UNKNOWN_TOPIC_OR_PART")
    for life in range(2, 8):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        failing(h, 1, error="UNKNOWN_TOPIC_OR_PART", first=life)


def is_refused_once(h: History) -> None:
    """Its group has it again a moment later."""
    born(h, "r0", mode="subscribe")
    comes(h, "r0")
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    h.assign("r0", f="revoke", assigned=False)
    passes(h, 5)
    comes(h, "r0")
    passes(h, 60)


def needs_no_group(h: History) -> None:
    """It gave itself its partitions, and nobody sends to this one: nothing else is heard of it here."""
    born(h, "r0")
    h.assign("r0")
    h.row("r0", "poll", type="info", error=DENIED, mode="assign")
    passes(h, 60)


def members_of_another_topic(h: History) -> None:
    """What the client says of its group belongs to no partition, and is logged at each."""
    members(h, reads_from="another-topic")


def reads_another_topic(h: History) -> None:
    for life in range(5):
        born(h, f"r{life}", reads_from="another-topic")
        passes(h, 8)
        h.row(f"r{life}", "close", type="info", error=DENIED)
        passes(h, 2)


def waits_for_its_group(h: History) -> None:
    """Nobody says that it may not: a member more than there are partitions."""
    born(h, "r0", mode="subscribe")
    h.assign("r0", f="subscribe", assigned=False)
    passes(h, 60)


def polls_again(h: History) -> None:
    """It is refused once, and the next poll gives it a record."""
    born(h, "r0", mode="subscribe")
    comes(h, "r0")
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, 5)
    h.poll("r0", [("w", 1, 1, 1)])
    passes(h, 60)


def has_other_trouble(h: History) -> None:
    """Nobody says that it may not."""
    born(h, "r0")
    comes(h, "r0")
    for _ in range(10):
        h.poll("r0", [], type="info", error="_TRANSPORT")
        passes(h, 4)


def another_one_fails(h: History) -> None:
    """For long; it itself has only just begun to, is refused in the life after, and comes to read then."""
    for life in range(4):
        born(h, f"q{life}", "reader-2")
        passes(h, 8)
        h.row(f"q{life}", "close", type="info", error=DENIED)
    failing(h, 1)
    born(h, "r1", mode="subscribe")
    h.row("r1", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, 5)
    comes(h, "r1")
    passes(h, 3)


def fails_reads_and_fails(h: History) -> None:
    failing(h, 1)
    born(h, "r5")
    comes(h, "r5")
    passes(h, 30)
    h.row("r5", "close")
    failing(h, 1, first=6)


@pytest.mark.parametrize(
    "build",
    [
        polls_again,
        has_other_trouble,
        another_one_fails,
        fails_reads_and_fails,
        for_less_than_the_objective,
        comes_now_and_then,
        reads_and_ends,
        does_not_read,
        ends_in_order,
        is_killed,
        is_refused_once,
        waits_for_its_group,
        needs_no_group,
        members_of_another_topic,
        reads_another_topic,
    ],
)
@in_any_way()
def test_nobody_is_called_so_who(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    told = [one.subject for one in whole(fed(h), [NAME])]
    assert told == [("reader-2 of run run",)] * (build is another_one_fails and fed is not finished)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_nobody_reads_a_topic_that_is_gone(fed: Fed) -> None:
    h = History()
    the_topic_is_gone(h)
    assert whole(fed(h), [NAME]) == []


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_it_is_over_when_nobody_bears_the_name(fed: Fed) -> None:
    h = History()
    failing(h, 5)
    passes(h, 130)
    opened, closed = whole(fed(h), [NAME])
    assert (opened.event, closed.event) == ("opened", "closed")


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_while_a_life_of_the_name_goes_on_it_is_not_over(fed: Fed) -> None:
    h = History()
    failing(h, 5)
    born(h, "r9")
    passes(h, 130)
    assert [one.event for one in whole(fed(h), [NAME])] == ["opened"]


def test_it_is_over_when_the_topic_is_gone() -> None:
    h = History()
    members(h)
    h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    passes(h, 3)
    _, closed = whole(row_by_row(h), [NAME])
    ended = f"{NAME} ended after 3.1 s"
    assert closed == Told(NAME, (R1,), ended, {"reader": R1, "lasted_s": 3.068}, 36.08, None, "closed")


def lost(h: History, *, after: int) -> None:
    """A member is refused; so many seconds later its host goes down, and the end of its log with it."""
    born(h, "r0", mode="subscribe")
    h.assign("r0", f="subscribe", assigned=False)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, after)
    h.processes.remove("r0")
    over = h.at(h.time)
    h.row("committer", "mark", marks=[Mark(number("r0"), 3, over, over)])
    h.start("w", name="writer-1", writer=str(number("w")))
    passes(h, 60)


@pytest.mark.parametrize("fed", [row_by_row, at_once, away_after_seconds])
def test_it_is_over_when_the_process_is_and_nothing_says_how(fed: Fed) -> None:
    h = History()
    lost(h, after=33)
    _, closed = whole(fed(h), [NAME])
    ended = f"{NAME} ended after 4.0 s"
    assert closed == Told(NAME, (R1,), ended, {"reader": R1, "lasted_s": 3.994}, 34.0, None, "closed")


@pytest.mark.parametrize("fed", [row_by_row, at_once])
def test_who_is_over_soon_after_it_was_refused_does_not_wait(fed: Fed) -> None:
    h = History()
    lost(h, after=10)
    assert whole(fed(h), [NAME]) == []


def test_what_a_client_says_at_its_end_is_why_unless_it_was_refused() -> None:
    h = History()
    for life, error in enumerate(
        ("_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED", "_TIMED_OUT", "_TIMED_OUT", "_TIMED_OUT")
    ):
        born(h, f"r{life}", mode="subscribe")
        h.row(f"r{life}", "poll", type="info", error=DENIED, mode="subscribe")
        passes(h, 8)
        h.row(f"r{life}", "close", type="info", error=error)
    (opened,) = whole(live(row_by_row)(h), [NAME])
    assert opened.evidence["error"] == DENIED
    h = History()
    for life in range(5):
        born(h, f"r{life}", mode="subscribe")
        h.row(f"r{life}", "poll", type="info", error=DENIED, mode="subscribe")
        passes(h, 8)
        h.row(f"r{life}", "close", type="info", error="TOPIC_AUTHORIZATION_FAILED")
    (opened,) = whole(live(at_once)(h), [NAME])
    assert opened.evidence["error"] == "TOPIC_AUTHORIZATION_FAILED"
    h = History()
    failing(h, 5, error="_TIMED_OUT")
    (opened,) = whole(live(row_by_row)(h), [NAME])
    assert opened.message == f"{R1} has not come to read for 38 s: each client of it ends by _TIMED_OUT"


@pytest.mark.parametrize("fed", [row_by_row, at_once])
@pytest.mark.parametrize(
    ("peace", "silence", "explained"),
    [(6, 32, True), (6, 60, True), (28, 4, False)],
    ids=["just before the outage", "and outlasts its decision", "long before"],
)
def test_whose_life_ends_in_an_outage_is_explained_by_it(
    fed: Fed, peace: int, silence: int, *, explained: bool
) -> None:
    """Whenever it was born, it might have come to read until it ended."""
    h = History()
    answered(h, 5)
    born(h, "r0")
    answered(h, peace, first=5)
    unanswered(h, silence)
    h.row("r0", "close", type="info", error="_TIMED_OUT")
    unanswered(h, 60)
    (opened,) = whole(fed(h), [NAME])
    assert opened.implied_by == (cause_id("cluster-unreachable", "c") if explained else None)
    message = f"{R1} has not come to read for {peace + silence} s: each client of it ends by _TIMED_OUT"
    assert opened.message == message


def test_who_was_refused_before_another_life_of_its_name_waits_since_then() -> None:
    h = History()
    born(h, "r0", mode="subscribe")
    passes(h, 3)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    refused = round(h.time, 3)
    passes(h, 15)
    failing(h, 1, first=1)
    passes(h, 20)
    (opened,) = whole(live(row_by_row)(h), [NAME])
    assert (opened.evidence["process"], opened.evidence["since"]) == (number("r0"), at(refused))


# What comes late, or twice


@pytest.mark.parametrize("comes_again", [True, False], ids=["innocent", "guilty"])
def test_whoever_is_refused_and_reads_again_in_the_same_step_is_not_refused(comes_again: bool) -> None:
    h = History()
    born(h, "r0", mode="subscribe")
    comes(h, "r0")
    passes(h, 3)
    before = len(h.rows)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, 5)
    if comes_again:
        comes(h, "r0")
    passes(h, 60)
    store = Store()
    store.feed(h.rows[:before])
    store.feed(h.rows[before:])
    assert [one.event for one in whole(store, [NAME])] == ([] if comes_again else ["opened"])


def in_two(h: History, late: list[Slice], *, marks: bool = True) -> list[Told]:
    """What is told when these rows come after the others; `marks`: when the marks are here, but for the first few."""
    store = Store()
    first = [row for row in h.rows if row not in late and (marks or row.f != "mark" or row.completed < h.at(5))]
    store.feed(first)
    store.feed(without(h.rows, first))
    passes(h, 3)
    store.feed(h.rows[-3:])
    return [one for one in whole(store, [NAME]) if one.subject == (R1,)]


def test_that_it_came_is_known_before_log_time_has_come_so_far() -> None:
    h = History()
    failing(h, 2)
    born(h, "r5")
    comes(h, "r5")
    h.row("r5", "close")
    failing(h, 2, first=2)
    late = [row for row in h.rows if row.process == number("r5")]
    assert in_two(h, late, marks=False) == []
    assert in_two(h, [], marks=False) == []


def test_a_failure_from_before_it_came_counts_no_more_whenever_it_is_known() -> None:
    h = History()
    failing(h, 1)
    late = [row for row in h.rows if row.process == number("r0")]
    born(h, "r5")
    comes(h, "r5")
    passes(h, 45)
    early = len(h.rows)
    failing(h, 1, first=6)
    store = Store()
    store.feed(without(h.rows[:early], late))
    store.feed(late)
    passes(h, 3)
    store.feed(h.rows[early:])
    assert whole(store, [NAME]) == []


def test_that_another_one_came_later_says_nothing_of_what_is_known_late() -> None:
    h = History()
    born(h, "r9")
    comes(h, "r9")
    h.row("r9", "close")
    failing(h, 4)
    late = [row for row in h.rows if row.process in {number(name) for name in ("r9", "r0", "r1", "r2", "r3")}]
    born(h, "q", "reader-2")
    comes(h, "q")
    passes(h, 45)
    assert [one.event for one in in_two(h, late)] == ["opened"]


def test_who_was_refused_is_so_still_when_what_it_did_before_comes_twice() -> None:
    h = History()
    born(h, "r0", mode="subscribe")
    comes(h, "r0")
    passes(h, 10)
    h.row("r0", "poll", type="info", error=DENIED, mode="subscribe")
    passes(h, 3)
    store = Store()
    store.feed(h.rows)
    store.feed(h.rows[1:3])
    before = len(h.rows)
    passes(h, 33)
    store.feed(h.rows[before:])
    assert [one.event for one in whole(store, [NAME])] == ["opened"]
