"""What is told of a reader that did not go on right after where it was (`poll_order`), and what of the log it went
over."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rules.arrays.intervals import Ints, indices
from rules.checks.ends import log_ends
from rules.checks.transactions import aborted_reads
from rules.kept.report import Report
from rules.kept.state import HELD_ON, Moved, Places, State, Transitions
from rules.settling.window import duplicate_at, duplicate_in
from rules.vocabulary.finding import Finding, identity

SKIPPED_TOLD: Final = 10
"""Values that a skip's evidence lists; its message says how many there are."""


class Step(NamedTuple):
    """One entry of `Transitions`: from the record at `previous` to the one at `first`."""

    process: int
    op: int
    first: int
    previous: int
    previous_op: int
    subscribed: int
    internal: bool
    moved: Moved
    """What was known to stand at several offsets when it was decided."""
    implied_by: str | None = None


def step_of(steps: Transitions, i: int, moved: Moved) -> Step:
    return Step(
        int(steps.process[i]),
        int(steps.op[i]),
        int(steps.first[i]),
        int(steps.previous[i]),
        int(steps.previous_op[i]),
        int(steps.subscribed[i]),
        bool(steps.internal[i]),
        moved,
    )


def explained(step: Step, report: Report) -> Step:
    """In the order of offsets it was right: a value that stands twice explains it."""
    twice, here = duplicate_at(step.moved, step.first, step.previous), report.here
    if twice is None:
        return step
    cause = identity("duplicate", here["cluster"], here["topic_id"], here["partition"], twice)
    return step._replace(implied_by=cause)


def over_aborted(
    step: Step, log: Places, counted: tuple[Ints, Ints], known: int, at: int, report: Report
) -> tuple[Step, str]:
    """Who leaves out what was aborted is right, and what is wrong is that others were shown it. Where all the `known`
    values at the offsets `counted` are such: the step, explained by that, and what the message says of it."""
    shown = aborted_reads.shown_by(report.state, at)
    found: list[tuple[int, int, int]] = []
    for low, high in zip(*counted, strict=True) if len(shown) else ():
        for i in indices((log.offset < high) & (log.offset + log.length > low)).tolist():
            offset = shown.seq + int(log.offset[i] - log.seq[i])
            above = (shown.writer == log.writer[i]) & (offset >= max(low, log.offset[i]))
            mine = indices(above & (offset < min(high, log.offset[i] + log.length[i])))
            found += zip(offset[mine].tolist(), shown.writer[mine].tolist(), shown.seq[mine].tolist(), strict=True)
    if len(found) < max(known, 1):
        return step, ""
    here, (_, writer, seq) = report.here, min(found)
    cause = identity("G1a", here["cluster"], here["topic_id"], here["partition"], (writer, seq))
    return step._replace(implied_by=cause), ", aborted ones, which others were shown"


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
    context |= duplicate_in(report.state, step.moved, step.first, step.previous)
    report.tell(
        Finding(
            **report.here,
            anomaly=f"int-{anomaly}" if step.internal else anomaly,
            subject=(step.process, step.op, step.first) if step.internal else (step.process, step.op),
            message=f"{report.state.called(step.process)} {what}",
            evidence=evidence,
            context=context,
            at=at,
            decidable=at,
            implied_by=step.implied_by,
        )
    )


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


def over_a_cut(state: State, steps: Transitions) -> Ints:
    """When steps back are decided from what the log lost in a cut to what it gave again: readers reach that offset for
    the second time when the log is as long as it was, which may be never. -1 for all others."""
    found = np.full(len(steps), -1, np.int64)
    cuts = state.checks.get(log_ends.CHECK.name)
    if cuts is None or not len(cuts.gone):
        return found
    for again, known, told in zip(
        cuts.gone.again.tolist(), cuts.gone.known.tolist(), cuts.gone.at.tolist(), strict=True
    ):
        back = (again <= steps.previous) & (steps.previous <= known) & (steps.first < steps.previous)
        found = np.where(back & (found < 0), np.maximum(told, steps.at), found)
    return found


def values_between(log: Places, low: Ints, high: Ints) -> tuple[int, list[dict[str, int]]]:
    """How many values the log has at the offsets [low, high), merged, and the first few of them."""
    known, found = 0, list[dict[str, int]]()
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        start, end = np.maximum(log.offset, a), np.minimum(log.offset + log.length, b)
        known += int(np.maximum(end - start, 0).sum())
        for i in indices((start < end) & (log.writer >= 0)).tolist() if len(found) < SKIPPED_TOLD else ():
            shift = int(log.seq[i] - log.offset[i])
            for offset in range(int(start[i]), min(int(end[i]), int(start[i]) + SKIPPED_TOLD - len(found))):
                found.append({"offset": offset, "writer": int(log.writer[i]), "seq": offset + shift})
    return known, found
