"""Offsets that a log gave again after it was cut: who had gone over them before has skipped nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.histories import History, Store, number
from tests.rules.liveness_of import at_once
from tests.rules.whole import finished, in_any_way, live, whole

Fed = Callable[[History], Store]
Sent = Callable[[History], Any]
SKIPS = ("poll-skip", "int-poll-skip")


def sent(h: History) -> None:
    h.send("z", 0, 1, at=3)


def sent_in_a_transaction(h: History) -> None:
    """Its commit stayed indefinite; a reader shows that it was none the less."""
    h.txn("t", sends=[("z", 0, 1, 3)], txn=7, type="info")


def went_over_3(h: History, first: Sent | None, later: Sent | None) -> History:
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


@pytest.mark.parametrize("later", [sent, sent_in_a_transaction])
@pytest.mark.xfail(strict=True, reason="a step is judged by what stands there now, not by what did then")
def test_who_went_over_an_offset_before_it_was_given_again_skipped_nothing(later: Sent) -> None:
    assert whole(live(at_once)(went_over_3(History(), None, later)), SKIPS) == []


@pytest.mark.parametrize("later", [sent, sent_in_a_transaction])
def test_what_was_sent_where_readers_had_passed_is_not_late(later: Sent) -> None:
    assert whole(finished(went_over_3(History(), None, later)), ["late-record"]) == []


def test_what_was_sent_before_a_reader_passed_is_late() -> None:
    (told,) = whole(finished(went_over_3(History(), sent, None)), ["late-record"])
    assert told.subject == (3, number("z"), 0)


@pytest.mark.parametrize("first", [sent, sent_in_a_transaction])
@in_any_way()
def test_who_went_over_what_was_there_skipped_it(fed: Fed, first: Sent) -> None:
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
