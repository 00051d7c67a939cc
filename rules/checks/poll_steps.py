"""What is told of a reader that did not go on right after where it was (`rules.checks.poll_order`)."""

from __future__ import annotations

from typing import NamedTuple

from rules.kept.report import Report
from rules.kept.state import HELD_ON, Transitions
from rules.settling.window import duplicate_at, duplicate_in
from rules.vocabulary.finding import Finding, identity


class Step(NamedTuple):
    """One entry of `Transitions`: from the record at `previous` to the one at `first`."""

    process: int
    op: int
    first: int
    previous: int
    previous_op: int
    subscribed: int
    internal: bool
    implied_by: str | None = None


def step_of(steps: Transitions, i: int) -> Step:
    return Step(
        int(steps.process[i]), int(steps.op[i]), int(steps.first[i]), int(steps.previous[i]),
        int(steps.previous_op[i]), int(steps.subscribed[i]), bool(steps.internal[i]),
    )  # fmt: skip


def explained(step: Step, report: Report) -> Step:
    """In the order of offsets it was right: a value that stands twice explains it."""
    twice, here = duplicate_at(report.state, step.first, step.previous), report.here
    if twice is None:
        return step
    cause = identity("duplicate", here["cluster"], here["topic_id"], here["partition"], twice)
    return step._replace(implied_by=cause)


def place_of(offset: int, last: int) -> str:
    """An offset that was polled; `last`: the last at which its value stands."""
    return str(offset) if offset == last else f"{offset}, whose value stands at {last} too,"


def report_step(
    anomaly: str, step: Step, what: str, at: int, report: Report, more: dict[str, object] | None = None
) -> None:
    evidence = {
        "process": step.process,
        "op": step.op,
        "previous_op": step.previous_op,
        "previous_offset": step.previous,
        "offset": step.first,
        **(more or {}),
    }
    context = {"mode": "subscribe" if step.subscribed else "assign"}
    context |= {"held": "true"} if step.subscribed == HELD_ON else {}
    context |= duplicate_in(report.state, step.first, step.previous)
    report.tell(
        Finding(
            **report.here, anomaly=f"int-{anomaly}" if step.internal else anomaly,
            subject=(step.process, step.op, step.first) if step.internal else (step.process, step.op),
            message=f"{report.state.called(step.process)} {what}", evidence=evidence, context=context,
            at=at, decidable=at, implied_by=step.implied_by,
        )
    )  # fmt: skip


def report_back(step: Step, at: int, report: Report, previous: int | None = None, first: int | None = None) -> None:
    """Tell, at this log time, that a reader went back. `previous`, `first`: the last places of what it was at and of
    what it polled then, where these count and not where it polled them."""
    previous = step.previous if previous is None else previous
    first = step.first if first is None else first
    what = f"went back from offset {previous} to {first}"
    if step.first > step.previous:  # as a value counts that stands twice, and not as it was polled
        what = f"went from offset {place_of(step.previous, previous)} back to {place_of(step.first, first)}"
        step = explained(step, report)
    report_step("nonmonotonic-poll", step, what, at, report)
    if step.first == 0 and step.previous > 0 and not step.internal:
        what = f"was at offset {previous} and polled 0"
        report_step("spurious-zero-offset", step._replace(implied_by=None), what, at, report)
