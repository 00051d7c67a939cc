"""What groups commit and are told, in a line each, and what is found of it.

commit(h, 100)         # process r commits 100 for group g
read(h, 70, by="o")    # process o is told that group g had committed 70
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.rules.histories import History, Store, number
from tests.rules.whole import Told

Fed = Callable[[History], Store]
VERDICTS = ("offset-regression", "lost-commit", "foreign-commit")
RULES = (*VERDICTS, "spurious-zero-offset")
READER, OBSERVER = number("r"), number("o")


def commit(h: History, offset: int, *, by: str = "r", group: str = "g", **more: Any) -> None:
    h.row(by, "commit", committed=offset, group=group, **more)


def read(h: History, offset: int | None, *, by: str = "r", group: str = "g", **more: Any) -> None:
    """The process `by` is told this offset; None for none."""
    h.row(by, "offsets", committed=offset, group=group, **more)


def later(h: History, seconds: float = 11.0) -> None:
    """Time passes, and the partition is still there."""
    h.time += seconds
    h.observe(end=1000)


def on(boot: str, begins: int, ends: int) -> dict[str, Any]:
    """Times of one host's monotonic clock, in milliseconds."""
    return {"boot": boot, "mono_invoked": begins * 10**6, "mono_completed": ends * 10**6}


def regression(before: int, after: int, at: float, by: int = OBSERVER) -> Told:
    message = f"group g had committed {before}, then {after}, which nobody asked for"
    evidence = {"group": "g", "before": before, "after": after, "read_by": by}
    return Told("offset-regression", ("g", before, after), message, evidence, at)


def lost(
    committed: int, told: int | None, at: float, *, to: int = READER, by: int = READER, after: float = 0.001
) -> Told:
    evidence = {
        "group": "g",
        "committed": committed,
        "committed_by": by,
        "told": told,
        "told_to": to,
        "after_s": after,
    } | ({"retention_minutes": 10_080} if told is None else {})
    word = "none" if told is None else told
    message = f"group g committed {committed}, and was told {word} {after:.1f} s after that was acknowledged"
    subject = ("g", committed, -1 if told is None else told)
    return Told("lost-commit", subject, message, evidence, at, round(at + 10, 3))


def foreign(told: int, before: int | None, at: float, *, to: int = READER) -> Told:
    word = "none" if before is None else before
    message = f"group g was told {told}, which nobody ever committed, where {word} had been before"
    evidence = {"group": "g", "told": told, "told_to": to, "before": before}
    return Told("foreign-commit", ("g", told), message, evidence, at, round(at + 10, 3))


def in_order(expected: list[Told], finished: bool) -> list[Told]:
    """Of a finished history nothing had to be waited for."""
    told = [one._replace(decidable=None) if finished else one for one in expected]
    return sorted(told, key=lambda one: (one.at, one.anomaly, str(one.subject), one.event))
