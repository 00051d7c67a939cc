"""What passes a drill, and what does not: made-up findings beside their nearest innocent twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.graded import Graded
from monitor.drill.definition.play import Play
from monitor.drill.definition.verdict import complete, judge
from tests.monitor.drill.made import one

MADE = Drill(name="made", what="A made-up drill.", seen_in="a test", play=Play)
DUPLICATE = replace(MADE, must=(found("duplicate", severity="warning"),), may=ORDER)
BOTH = replace(MADE, must=(found("lost-write"), found("poll-skip", "int-poll-skip")))
SHOWS = replace(MADE, must=(found("unseen"), found("unseen", event="closed")))
OF_CLASS: tuple[dict[str, Any], ...] = ({"class": "advance"}, {"class": "rewind"})
CLASSES = replace(MADE, must=tuple(found("abort-position", **evidence) for evidence in OF_CLASS))
ONCE = replace(MADE, must=(found("duplicate", times=1),))
QUIET = replace(MADE, never=frozenset({"hanging-transaction"}), closes=True)
WARNED = one("duplicate", "warning")

CASES: list[tuple[str, Drill, Sequence[Graded], str]] = [
    ("what must be found is found", DUPLICATE, [WARNED], "passed"),
    ("a consequence", DUPLICATE, [WARNED, one("poll-skip")], "passed"),
    ("nothing is found", DUPLICATE, [], "failed: missed duplicate (warning)"),
    (
        "found, but too severe",
        DUPLICATE,
        [one("duplicate")],
        "failed: missed duplicate (warning), false alarm duplicate x1",
    ),
    (
        "found, and once too severe",
        DUPLICATE,
        [WARNED, one("duplicate", subject="other")],
        "failed: false alarm duplicate x1",
    ),
    ("another violation", DUPLICATE, [WARNED, one("G1a"), one("G1a", subject="other")], "failed: false alarm G1a x2"),
    ("another violation that the policy allows", DUPLICATE, [WARNED, one("G1a", "allowed")], "passed"),
    (
        "a warning is a violation, too",
        DUPLICATE,
        [WARNED, one("offset-regression", "warning")],
        "failed: false alarm offset-regression x1",
    ),
    ("a condition", DUPLICATE, [WARNED, one("stuck-consumer", event="opened")], "passed"),
    ("a classified finding", DUPLICATE, [WARNED, one("rebalance", "info")], "passed"),
    ("a rule crashed", DUPLICATE, [WARNED, one("check-failed", event="opened")], "failed: false alarm check-failed x1"),
    ("one of two", BOTH, [one("lost-write")], "failed: missed poll-skip or int-poll-skip"),
    ("either of two names will do", BOTH, [one("lost-write"), one("int-poll-skip")], "passed"),
    ("both names", BOTH, [one("lost-write"), one("int-poll-skip"), one("poll-skip")], "passed"),
    ("opened and closed", SHOWS, [one("unseen", event="opened"), one("unseen", event="closed")], "passed"),
    ("opened for good", SHOWS, [one("unseen", event="opened")], "failed: missed unseen (closed)"),
    (
        "told apart by evidence",
        CLASSES,
        [
            one("abort-position", "info", evidence={"class": "advance"}),
            one("abort-position", "info", evidence={"class": "rewind"}),
        ],
        "passed",
    ),
    (
        "the same evidence twice",
        CLASSES,
        [one("abort-position", "info", evidence={"class": "advance"})] * 2,
        "failed: missed abort-position (class rewind)",
    ),
    ("once, and it has to be once", ONCE, [one("duplicate")], "passed"),
    ("twice, and it has to be once", ONCE, [one("duplicate")] * 2, "failed: missed duplicate (once)"),
    ("never, and it has to be once", ONCE, [], "failed: missed duplicate (once)"),
    ("nothing, where nothing must be", QUIET, [], "passed"),
    ("a violation where nothing must be", QUIET, [one("duplicate")], "failed: false alarm duplicate x1"),
    ("a condition that closes", QUIET, [one("unseen", event="opened"), one("unseen", event="closed")], "passed"),
    ("a condition that lasts", QUIET, [one("unseen", event="opened")], "failed: still open unseen"),
    (
        "one that opens again",
        QUIET,
        [one("unseen", event="opened"), one("unseen", event="closed"), one("unseen", event="opened")],
        "failed: still open unseen",
    ),
    (
        "a condition that must never be, and is explained",
        QUIET,
        [
            one("hanging-transaction", event="opened", implied_by="another"),
            one("hanging-transaction", event="closed", implied_by="another"),
        ],
        "passed",
    ),
    (
        "a condition that must never be",
        QUIET,
        [one("hanging-transaction", event="opened"), one("hanging-transaction", event="closed")],
        "failed: false alarm hanging-transaction x1",
    ),
]


@pytest.mark.parametrize(("drill", "findings", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_verdict(drill: Drill, findings: Sequence[Graded], expected: str) -> None:
    verdict = judge(drill, findings, 0.0)
    assert str(verdict) == expected
    assert verdict.passed is (expected == "passed")


def test_a_drill_that_was_not_performed_proves_nothing() -> None:
    verdict = judge(DUPLICATE, [WARNED], 0.0, "the lie was never told")
    assert not verdict.passed and not verdict.recalled
    assert str(verdict) == "not performed: the lie was never told"


def test_detection_is_timed_from_the_first_act() -> None:
    verdict = judge(BOTH, [one("lost-write", seen=107.5), one("poll-skip", seen=109.0)], 100.0)
    assert (verdict.first, verdict.complete) == (7.5, 9.0)
    half = judge(BOTH, [one("lost-write", seen=107.5)], 100.0)
    assert (half.first, half.complete) == (7.5, None)


def test_waiting_is_over_when_every_must_is_there() -> None:
    assert not complete(BOTH, [one("lost-write")])
    assert complete(BOTH, [one("lost-write"), one("poll-skip")])


def test_a_drill_that_this_machine_cannot_do_has_not_failed() -> None:
    verdict = judge(DUPLICATE, [], None, "libfaketime is not installed", skipped=True)
    assert str(verdict) == "skipped: libfaketime is not installed"
    assert not verdict.passed and not verdict.failed
