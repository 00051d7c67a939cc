"""`refused-reads`: readers that do not come to read, beside those that have trouble on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.liveness_of import at_once, row_by_row
from tests.rules.whole import Told, in_any_way, live, whole

R1 = "reader-1 of run run"

Fed = Callable[[History], Store]
NAME = "refused-reads"
DENIED = "GROUP_AUTHORIZATION_FAILED"


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
    assert (opened.event, opened.subject, opened.message) == (
        "opened", (R1,), f"{R1} has not come to read for 38 s: it is refused with {DENIED}",
    )  # fmt: skip
    evidence = dict(opened.evidence)
    since = evidence.pop("since")
    assert evidence == {"process": number("r3"), "reader": R1, "error": DENIED}
    assert opened.decidable == pytest.approx(30, abs=0.1)
    assert isinstance(since, int)
    assert closed == Told(
        NAME, (R1,), f"{NAME} ended after {closed.evidence['lasted_s']:.1f} s",
        {"reader": R1, "lasted_s": closed.evidence["lasted_s"]}, closed.at, None, "closed",
    )  # fmt: skip
    assert closed.at == pytest.approx(40.2, abs=0.2)


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


@pytest.mark.parametrize(
    "build", [life_after_life, members, taken_from_members, without_a_reason, one_of_two, also_sends]
)
@in_any_way(file=False)
def test_a_reader_that_does_not_come_to_read(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    (opened,) = whole(fed(h), [NAME])
    assert (opened.event, opened.subject) == ("opened", (R1,))
    assert opened.evidence["error"] in (DENIED, "_TIMED_OUT")


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


@pytest.mark.parametrize(
    "build",
    [
        for_less_than_the_objective, comes_now_and_then, reads_and_ends, does_not_read, ends_in_order, is_killed,
        is_refused_once, waits_for_its_group, members_of_another_topic, reads_another_topic,
    ],
)  # fmt: skip
@in_any_way()
def test_nobody_is_called_so_who(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), [NAME]) == []


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
