"""What passes a drill, and what does not: made-up findings beside their nearest innocent twins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from monitor.drill.definition.drill import ORDER, Drill, found
from monitor.drill.definition.found import Found
from monitor.drill.definition.verdict import complete, judge
from tests.monitor.drill.made import one


class Made(Drill):
    """A made-up drill."""

    name = "made"
    seen_in = "a test"


class Duplicate(Made):
    must = (found("duplicate", severity="warning"),)
    may = ORDER


class Both(Made):
    must = (found("lost-write"), found("poll-skip", "int-poll-skip"))


class Shows(Made):
    must = (found("unseen"), found("unseen", event="closed"))


class Classes(Made):
    must = tuple(found("abort-position", **{"class": name}) for name in ("advance", "rewind"))


class Once(Made):
    must = (found("duplicate", times=1),)


class Quiet(Made):
    never = frozenset({"hanging-transaction"})
    closes = True


WARNED = one("duplicate", "warning")

CASES: list[tuple[str, Drill, Sequence[Found], str]] = [
    ("what must be found is found", Duplicate(), [WARNED], "passed"),
    ("a consequence", Duplicate(), [WARNED, one("poll-skip")], "passed"),
    ("nothing is found", Duplicate(), [], "failed: missed duplicate (warning)"),
    ("found, but too severe", Duplicate(), [one("duplicate")],
     "failed: missed duplicate (warning), false alarm duplicate x1"),
    ("found, and once too severe", Duplicate(), [WARNED, one("duplicate", subject="other")],
     "failed: false alarm duplicate x1"),
    ("another violation", Duplicate(), [WARNED, one("G1a"), one("G1a", subject="other")],
     "failed: false alarm G1a x2"),
    ("another violation that the policy allows", Duplicate(), [WARNED, one("G1a", "allowed")], "passed"),
    ("a warning is a violation, too", Duplicate(), [WARNED, one("offset-regression", "warning")],
     "failed: false alarm offset-regression x1"),
    ("a condition", Duplicate(), [WARNED, one("stuck-consumer", event="opened")], "passed"),
    ("a classified finding", Duplicate(), [WARNED, one("rebalance", "info")], "passed"),
    ("a rule crashed", Duplicate(), [WARNED, one("check-failed", event="opened")],
     "failed: false alarm check-failed x1"),
    ("one of two", Both(), [one("lost-write")], "failed: missed poll-skip or int-poll-skip"),
    ("either of two names will do", Both(), [one("lost-write"), one("int-poll-skip")], "passed"),
    ("both names", Both(), [one("lost-write"), one("int-poll-skip"), one("poll-skip")], "passed"),
    ("opened and closed", Shows(), [one("unseen", event="opened"), one("unseen", event="closed")], "passed"),
    ("opened for good", Shows(), [one("unseen", event="opened")], "failed: missed unseen (closed)"),
    ("told apart by evidence", Classes(),
     [one("abort-position", "info", evidence={"class": "advance"}),
      one("abort-position", "info", evidence={"class": "rewind"})], "passed"),
    ("the same evidence twice", Classes(), [one("abort-position", "info", evidence={"class": "advance"})] * 2,
     "failed: missed abort-position (class rewind)"),
    ("once, and it has to be once", Once(), [one("duplicate")], "passed"),
    ("twice, and it has to be once", Once(), [one("duplicate")] * 2, "failed: missed duplicate (once)"),
    ("never, and it has to be once", Once(), [], "failed: missed duplicate (once)"),
    ("nothing, where nothing must be", Quiet(), [], "passed"),
    ("a violation where nothing must be", Quiet(), [one("duplicate")], "failed: false alarm duplicate x1"),
    ("a condition that closes", Quiet(), [one("unseen", event="opened"), one("unseen", event="closed")], "passed"),
    ("a condition that lasts", Quiet(), [one("unseen", event="opened")], "failed: still open unseen"),
    ("one that opens again", Quiet(),
     [one("unseen", event="opened"), one("unseen", event="closed"), one("unseen", event="opened")],
     "failed: still open unseen"),
    ("a condition that must never be, and is explained", Quiet(),
     [one("hanging-transaction", event="opened", implied_by="another"),
      one("hanging-transaction", event="closed", implied_by="another")], "passed"),
    ("a condition that must never be", Quiet(),
     [one("hanging-transaction", event="opened"), one("hanging-transaction", event="closed")],
     "failed: false alarm hanging-transaction x1"),
]  # fmt: skip


@pytest.mark.parametrize(("drill", "findings", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_verdict(drill: Drill, findings: Sequence[Found], expected: str) -> None:
    verdict = judge(drill, findings, 0.0)
    assert str(verdict) == expected
    assert verdict.passed is (expected == "passed")


def test_a_drill_that_was_not_performed_proves_nothing() -> None:
    verdict = judge(Duplicate(), [WARNED], 0.0, "the lie was never told")
    assert not verdict.passed and not verdict.recalled
    assert str(verdict) == "not performed: the lie was never told"


def test_detection_is_timed_from_the_first_act() -> None:
    verdict = judge(Both(), [one("lost-write", seen=107.5), one("poll-skip", seen=109.0)], 100.0)
    assert (verdict.first, verdict.complete) == (7.5, 9.0)
    half = judge(Both(), [one("lost-write", seen=107.5)], 100.0)
    assert (half.first, half.complete) == (7.5, None)


def test_waiting_is_over_when_every_must_is_there() -> None:
    assert not complete(Both(), [one("lost-write")])
    assert complete(Both(), [one("lost-write"), one("poll-skip")])


def test_a_drill_that_this_machine_cannot_do_has_not_failed() -> None:
    verdict = judge(Duplicate(), [], None, "libfaketime is not installed", skipped=True)
    assert str(verdict) == "skipped: libfaketime is not installed"
    assert not verdict.passed and not verdict.failed
