"""`unseen` and `suspected`: acknowledged values that readers have not polled yet, while that lasts.

`unseen`: a value has been readable for longer than the delivery objective, counted from when the last stable offset had
passed it, although readers are assigned; an audit, which comes by now and then, is none of those. `suspected`: every
reader has gone past it, and it is not decided whether it is lost. Both are judged as of the log time through which
everything that readers had completed is here: what a reader that is late has polled, nobody knows yet. That is once a
step, at its last tick; of a catch-up also what was `unseen` within its step, while somebody was assigned, unless it was
before. While nobody read, because the hosts of all readers stood still or could not write their journals
(`rules.settling.standstills`), nothing becomes `unseen`: it is counted from when somebody is assigned again. What
readers polled where they take records of this log for a stranger's nobody knows (`rules.settling.strangers`), nor what
they did where their log is missing for good, and they went on: what was sent before that is `suspected` at most. For
one that went down another begins anew.

State: the outstanding values of `losses`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import OK
from rules.arrays.intervals import Bools, Ints, indices, some
from rules.kept.check import Passage
from rules.kept.chunks import values
from rules.kept.report import Report
from rules.kept.state import Moves, Outstanding, State, take
from rules.settling import standstills, strangers
from rules.settling.frontier import TICK, forgets, readers
from rules.settling.gate import READERS, Gate

UNSEEN: Final = "unseen"
SUSPECTED: Final = "suspected"
NEVER: Final = np.iinfo(np.int64).max


def note_readable(out: Outstanding, state: State, moves: Moves, end: int) -> None:
    """What the last stable offset, as observed, has passed is readable since then. What was acknowledged after `end`,
    which log time has reached, may be observed yet."""
    waiting = (out.readable < 0) & (out.since <= end)
    if not some(waiting):
        return
    seen = indices(moves.stable >= 0)
    at, stable = moves.at[seen], moves.stable[seen]
    if state.last_stable < 0:
        out.readable = np.where(waiting, out.since, out.readable)  # nobody observes: count from the acknowledgement
        return
    if not len(stable):
        return
    # Where the log was cut, other values had been passed before that: what counts was observed since the value was
    # acknowledged, or, by an observer whose clock is behind, is followed by nothing below it.
    stop, last = out.offset + out.length, len(at)
    since = np.maximum(np.maximum.accumulate(stable).searchsorted(stop), at.searchsorted(out.since))
    for i in indices((since < last) & (stable[np.minimum(since, last - 1)] < stop)).tolist():
        again = indices(stable[since[i] :] >= stop[i])
        since[i] = since[i] + int(again[0]) if len(again) else last
    index = np.minimum(since, np.minimum.accumulate(stable[::-1])[::-1].searchsorted(stop))
    passed = waiting & (out.offset >= 0) & (index < last)
    out.readable[passed] = np.maximum(at[index[passed]], out.since[passed])


def _judged_through(gate: Gate, end: int) -> int:
    """The tick through which it is known what readers had completed."""
    through = min(end, gate.told_through(READERS))
    return end if through >= end else through // TICK * TICK


def judge_between(out: Outstanding, passage: Passage) -> None:
    """Open and close `unseen` at the ticks before the last, where a catch-up goes through many at once: live it would
    have been seen. A value counts as polled when a reader went past it, which can only miss a spell, and makes none."""
    state, report, polled = passage.state, passage.report, passage.polls
    at, objectives = passage.at[passage.at <= _judged_through(passage.gate, passage.end)], report.objectives
    if len(at) < 2:
        return
    due = (out.readable >= 0) & (out.offset >= state.log_start) & (out.readable + objectives.delivery < at[-1])
    due &= ~_strange(out, state) & ~_missed(out, passage.gate, passage.end) & ~_passed_unknown(out, passage.gate)
    if not some(due) or "unseen" in state.open_conditions:
        return
    since = _due(out.readable[due] + objectives.delivery, state, objectives.delivery)
    due[due], since = since < at[-1], since[since < at[-1]]
    order = polled.at.argsort(kind="stable")
    high = np.maximum.accumulate((polled.offset + polled.length)[order])
    index = high.searchsorted((out.offset + out.length)[due])
    until = np.append(polled.at[order], NEVER)[index]
    late = at.searchsorted(since) < at.searchsorted(until)
    if not late.any():
        return
    start, end = intervals.intersect(*intervals.merge(since[late], until[late]), *_held(passage))
    for a, b in zip(at.searchsorted(start).tolist(), at.searchsorted(end).tolist(), strict=True):
        if a >= b:
            continue
        if b >= len(at):
            return  # it is open still: the last tick says so
        held = (since[late] <= at[a]) & (until[late] > at[a])
        values = int(out.length[due][late][held].sum())
        age = round((int(at[a]) - int(since[late][held].min()) + objectives.delivery) / 1e6, 3)
        report.condition(
            "unseen",
            _waiting(values, age),
            at=int(at[a]),
            since=int(since[late][held].min()),
            evidence={"values": values, "first": _some(take(take(take(out, due), late), held)), "age_s": age},
        )
        report.condition("unseen", None, at=int(at[b]), evidence={"values": 0})


def _held(passage: Passage) -> tuple[Ints, Ints]:
    """When somebody was assigned who is no audit, by these moves: [start, end), merged."""
    moves, start, end = passage.moves, list[int](), list[int]()
    drops = forgets(moves)
    tells = drops | (moves.assigned == 1) | ((moves.type == OK) & (moves.last >= 0))
    for number, process in passage.state.processes.items():
        if process.audits:
            continue
        since = 0 if number in passage.holding else NEVER
        for i in indices(tells & (moves.process == number)).tolist():
            at = int(moves.at[i])
            if not drops[i]:
                since = min(since, at)
            elif since < NEVER:
                start.append(since)
                end.append(at)
                since = NEVER
        if since < NEVER:
            start.append(since)
            end.append(NEVER if process.closed < 0 else max(process.closed, since))
    return intervals.merge(np.array(start, np.int64), np.array(end, np.int64))


def _somebody_reads(state: State, at: int) -> bool:
    """Whether somebody is assigned who is not over. Whoever went down with its host may have said nothing more, and has
    held the partition until it is forgotten."""
    return any(not process.audits and not 0 <= process.closed <= at for _, process in readers(state))


def _due(due: Ints, state: State, delivery: int) -> Ints:
    """When values become `unseen` that would at these times, had somebody read all the time."""
    for start, end in standstills.unread(state):
        due = np.where((due > start) & (due - delivery < end), np.maximum(due, end + delivery), due)
    return due


def judge(out: Outstanding, passage: Passage) -> None:
    """Open or close both conditions."""
    state, report = passage.state, passage.report
    at, delivery = _judged_through(passage.gate, passage.end), report.objectives.delivery
    if at < 0:
        return  # the beginning of a reader's log is missing, and waited for
    # A reader that is late does not change what was told as of later, but by what it polled.
    told = max(at, state.open_conditions.get(SUSPECTED, at))
    at = max(at, state.open_conditions.get(UNSEEN, at))
    above = _above(out, state)
    overdue = above & (out.readable >= 0) & (out.readable + delivery <= at)
    if some(overdue):
        overdue &= ~_missed(out, passage.gate, at) & ~_passed_unknown(out, passage.gate)
    if some(overdue) and not _somebody_reads(state, at):
        overdue = np.zeros(len(out), bool)
    past = above & _past(out, state)
    if not some(overdue | past) and state.open_conditions.keys().isdisjoint(("unseen", "suspected")):
        state.unseen = 0
        return
    due = at
    if overdue.any():
        since = _due(out.readable[overdue] + delivery, state, delivery)
        overdue[overdue] = since <= at
        due = int(since.min())
    state.unseen = int(out.length[overdue].sum())
    oldest = int(out.readable[overdue].min()) if overdue.any() else at
    report.condition(
        "unseen",
        _waiting(state.unseen, (at - oldest) / 1e6) if overdue.any() else None,
        at=at,
        since=due,
        evidence={"values": state.unseen, "first": _some(take(out, overdue)), "age_s": round((at - oldest) / 1e6, 3)},
    )
    passed = int(out.length[past].sum())
    report.condition(
        "suspected",
        f"{_acknowledged(passed, 'was', 'were')} passed by every reader that goes on, and polled by none"
        if passed
        else None,
        at=told,
        evidence={"values": passed, "first": _some(take(out, past))},
    )


def _missed(out: Outstanding, gate: Gate, at: int) -> Bools:
    """Which may have been polled by then where the log of somebody who reads is missing for good."""
    if not len(out) or not gate.state.holes:
        return np.zeros(len(out), bool)
    return np.asarray(out.invoked < gate.missing_through(int(out.invoked.min()), at, READERS))


def _passed_unknown(out: Outstanding, gate: Gate) -> Bools:
    """Which have readers gone over, and may have been polled before where the log of somebody is missing for good?"""
    found = np.zeros(len(out), bool)
    passed = out.due >= 0
    if gate.state.holes and some(passed):
        for boot in intervals.each(out.boot[passed]):
            mine = indices(passed & (out.boot == boot))
            found[mine] = gate.missing(out.invoked[mine], out.due[mine], READERS, boot)
    return found


def _waiting(values: int, age: float) -> str:
    oldest = "the oldest " * (values > 1)
    return f"{_acknowledged(values, 'has', 'have')} not been polled, {oldest}for {age:.1f} s"


def _acknowledged(values: int, one: str, several: str) -> str:
    return f"1 acknowledged value {one}" if values == 1 else f"{values} acknowledged values {several}"


class Claim(NamedTuple):
    """One of both conditions, as it was told to hold as of a log time."""

    name: str
    at: int
    delivery: int


def is_undecided(out: Outstanding, state: State, gate: Gate, claim: Claim) -> bool:
    """May it hold for all that this state knows? It has judged nothing as of that time, because the log of somebody who
    may have polled it is not here, and knows values of which it may be true."""
    if _judged_through(gate, state.tick) >= claim.at:
        return False
    if claim.name == UNSEEN:
        might = (out.readable >= 0) & (out.readable + claim.delivery <= claim.at)
    else:
        might = _past(out, state)
    return bool(some(might & _above(out, state)))


def _above(out: Outstanding, state: State) -> Bools:
    """Which of these are judged: those above the log start, and what had been passed before that rose."""
    above: Bools = (out.offset < 0) | (out.offset >= state.log_start) | (out.due >= 0)
    return above & ~_strange(out, state)


def _past(out: Outstanding, state: State) -> Bools:
    """Which of these every reader has gone past that goes on: one that stands still for the liveness objective does not
    hold it up."""
    reached = (out.offset + out.length <= state.reached) & ~_given_again(out, state)
    return (out.offset >= 0) & (reached | (out.due >= 0))


def _given_again(out: Outstanding, state: State) -> Bools:
    """Which stand where the log was cut: readers had reached other values there."""
    again = state.given_again
    if not len(again):
        return np.zeros(len(out), bool)
    return intervals.touched(again.start, again.end, out.offset, out.offset + out.length)


def _strange(out: Outstanding, state: State) -> Bools:
    """Which of these were polled by nobody but readers, perhaps, that take them for a stranger's."""
    return strangers.nobody_knows(state, out.offset, out.offset + out.length)


def _some(out: Outstanding) -> list[dict[str, int]]:
    """The first few values, as evidence."""
    order = out.offset.argsort(kind="stable")[:10]
    return [
        {
            "offset": int(out.offset[i]),
            "writer": int(out.writer[i]),
            "seq": int(out.seq[i]),
            "values": int(out.length[i]),
        }
        for i in order.tolist()
    ]


def judge_finished(out: Outstanding, state: State, at: int, report: Report) -> None:
    """A finished history: unseen is all that ok operations acknowledged and no ok operation polled."""
    cut = np.where(out.offset < 0, 0, np.clip(state.log_start - out.offset, 0, out.length))
    above = (cut < out.length) & ~_strange(out, state)
    writer, start, end = values(out.writer[above], (out.seq + cut)[above], (out.length - cut)[above])
    state.unseen = int((end - start).sum())
    if not state.unseen:
        return
    first: list[dict[str, Any]] = [
        {"writer": w, "seq": a, "values": b - a}
        for w, a, b in zip(*(c[:10].tolist() for c in (writer, start, end)), strict=True)
    ]
    report.condition(
        "unseen",
        f"{_acknowledged(state.unseen, 'was', 'were')} never polled",
        at=at,
        evidence={"values": state.unseen, "first": first},
    )
