"""Whom an observer asks in vain, and how long it waits."""

from __future__ import annotations

import pytest

from probes.workloads.unanswered import PATIENT, Unanswered

A, B = ("t", 0), ("t", 1)


def test_who_was_asked_in_vain_is_silent_until_it_answers_what_was_sent_later() -> None:
    one = Unanswered(2.5)
    one.answered(A, 1, 10)
    one.in_vain(A, 1, 20)
    one.in_vain(A, 1, 30)
    assert (one.silent({}), one.asked(A), one.asked(B)) == ({1}, 1, None)
    assert one.silent({1: 19}) == {1}, "what it acknowledged was sent before the first question in vain"
    assert one.silent({1: 20}) == set()
    one.answered(B, 1, 19)
    assert one.silent({}) == {1}
    one.answered(B, 1, 20)
    assert one.silent({}) == set()
    one.answered(A, 1, 40)
    assert (one.asked(A), one.silent({})) == (None, set())


def test_of_whom_nobody_knows_who_it_was_nobody_is_silent() -> None:
    one = Unanswered(2.5)
    one.in_vain(A, None, 20)
    assert (one.silent({}), one.asked(A)) == (set(), None)


def test_who_may_not_ask_asks_nobody_in_vain() -> None:
    one = Unanswered(2.5)
    one.in_vain(A, 1, 20)
    one.refused(A)
    assert (one.silent({}), one.asked(A)) == (set(), None)
    one.in_vain(A, 1, 50)
    assert one.silent({1: 40}) == {1}, "since then, and not since before"


@pytest.mark.parametrize(("request_timeout", "longest"), [(2.5, PATIENT), (30.0, 30.0)])
def test_a_leader_that_has_not_answered_is_given_twice_the_time(request_timeout: float, longest: float) -> None:
    one = Unanswered(request_timeout)
    one.took(1, request_timeout, request_timeout)
    assert (one.patience(1), one.patience(2)) == (min(2 * request_timeout, longest), request_timeout)
    for _ in range(3):
        one.took(1, one.patience(1), one.patience(1))
    assert one.patience(1) == longest
    one.took(1, request_timeout + 0.1, 2 * longest)
    assert one.patience(1) == longest, "it answers, and is slow"
    one.took(1, request_timeout, longest + 1)
    assert one.patience(1) == request_timeout
