"""What a drill's findings mean: passed, or what was missed and what was a false alarm. Pure.

**Passed**: every *must* was found, every other violation is one of the *may* column, no rule crashed, and the drill's
own words about conditions hold. Violations that the policy allows are no alarms: nobody would have been alerted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.drill.definition.drill import Drill, Must
from monitor.drill.definition.graded import Graded
from monitor.history_files.checks import CHECK_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`missing`: must findings that did not come, in words. `alarms`: violations and others that must not have been.
    `open`: conditions that should have closed. `counts`: by anomaly, how many were raised or opened.

    `first` and `complete`: seconds from the first act to the first must finding, and until each of them was there;
    None where there is none. `error`: why the drill could not be performed, then nothing is proven; `skipped`: because
    this machine lacks something."""

    missing: tuple[str, ...] = ()
    alarms: tuple[Graded, ...] = ()
    open: tuple[Graded, ...] = ()
    counts: Mapping[str, int]
    first: float | None = None
    complete: float | None = None
    error: str | None = None
    skipped: bool = False

    @property
    def recalled(self) -> bool:
        """Were all the must findings raised?"""
        return self.error is None and not self.missing

    @property
    def passed(self) -> bool:
        return self.recalled and not self.alarms and not self.open

    @property
    def failed(self) -> bool:
        return not self.passed and not self.skipped

    def __str__(self) -> str:
        if self.error is not None:
            return f"{'skipped' if self.skipped else 'not performed'}: {self.error}"
        if self.passed:
            return "passed"
        parts = [f"missed {name}" for name in self.missing]
        parts += [f"false alarm {name} x{n}" for name, n in Counter(f.name for f in self.alarms).items()]
        parts += [f"still open {name}" for name in dict.fromkeys(f.name for f in self.open)]
        return "failed: " + ", ".join(parts)


def judge(
    drill: Drill,
    found: Sequence[Graded],
    acted: float | None,
    error: str | None = None,
    *,
    skipped: bool = False,
) -> Verdict:
    """The verdict on what was `found`, in the order in which it came. `acted`: when the drill first did something."""
    firsts = [(must, _first(must, found)) for must in drill.must]
    asked = {name for must in drill.must for name in must.names}
    alarms = [
        one
        for one in found
        if one.finding.event != "closed"
        and (
            one.name == CHECK_FAILED
            or (one.name in drill.never and one.finding.implied_by is None)
            or (one.violation and one.name not in drill.may and not _expected(drill, one, asked))
        )
    ]
    times = [max(0.0, one.seen - acted) for _, one in firsts if one is not None and acted is not None]
    return Verdict(
        missing=tuple(str(must) for must, one in firsts if one is None or not _as_often(must, found)),
        alarms=tuple(alarms),
        open=tuple(still_open(found)) if drill.closes else (),
        counts=Counter(one.name for one in found if one.finding.event != "closed"),
        first=min(times, default=None),
        complete=max(times, default=None) if len(times) == len(drill.must) else None,
        error=error,
        skipped=skipped,
    )


def complete(drill: Drill, found: Sequence[Graded]) -> bool:
    """Is every must finding there?"""
    return all(_first(must, found) is not None for must in drill.must)


def still_open(found: Sequence[Graded]) -> list[Graded]:
    """The conditions that have opened and not closed."""
    last: dict[str, Graded] = {}
    for one in found:
        if one.finding.event in ("opened", "closed"):
            last[one.finding.id] = one
    return [one for one in last.values() if one.finding.event == "opened"]


def _as_often(must: Must, found: Sequence[Graded]) -> bool:
    """Was it found as often as it has to be?"""
    return must.times is None or sum(must.matches(one.finding, one.severity) for one in found) == must.times


def _first(must: Must, found: Sequence[Graded]) -> Graded | None:
    return next((one for one in found if must.matches(one.finding, one.severity)), None)


def _expected(drill: Drill, one: Graded, asked: set[str]) -> bool:
    """Does a must finding name it? A warning that has to be one is no licence for critical ones of that name."""
    if one.name not in asked:
        return False
    naming = [must for must in drill.must if one.name in must.names]
    return any(must.severity in (None, one.severity) for must in naming)
