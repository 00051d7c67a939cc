"""`stuck-consumer`: a reader has not moved for the liveness objective, and there is more to read, or nobody can see.

A reader that polled records, of any outcome, moved. One that did not is stuck in three cases, each counted from when
it moved last:

- *known*: the log is known to hold a value at or past its position, acknowledged or polled by somebody, and below what
  it may read: the last stable offset for read_committed, the log end for read_uncommitted. Transaction markers, aborted
  records and what lies below the log start are no such values, nor is what was there before the log was cut.
- *stands*: it logs its own position, which runs past markers and aborted records, and a `position` row says that it
  still stands there a liveness objective after it had to move. For read_committed that is when the last stable offset
  has reached an earlier log end, at which it was past the position already: whatever stands between was ended by then,
  and its markers, which a reader goes past, lie below. The last stable offset alone proves nothing: what it has passed
  may be aborted, with a marker that lies above it while another transaction is open.
- *blind*: for that long no watermark could be read either, although somebody asked: a consumer polls a dead cluster
  without a word.

Where a reader began is not logged. Until it has polled, it counts as standing at the highest offset known when it took
the partition: what is acknowledged later lies ahead of it. Processes that write transactions are left out: their polls
wait for their transactions, and what they wait for shows in `stuck-producer`.

All of it is judged tick by tick in log time, so that a condition that opens and closes inside one catch-up batch is
reported as it would have been live. Each reader is judged as far as its own log and the observers' is here, and no
further: one that is late goes through its ticks later, and holds back nobody else. Where a part of its log is missing
for good, it may have moved there: it counts as having moved at the end of it, to where nobody knows. Where its host
stood still, or it broke off (`rules.settling.standstills`), it counts as having moved at the end of that, to where it
was. What observers on another host saw counts from when it had certainly been by the reader's clock, where the
difference has been measured (`rules.settling.clocks`).

Its name is told where its start row tells one, and the error in which its polls ended since it moved last, if any.

State: fourteen numbers for each reader that holds the partition, and the last error of its polls; while one is late,
its moves (`WAITING_KEPT`: what is more counts as having gone on) and the watermarks since then (`watermarks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

from rules.arrays.columns import INIT, OFFSETS, OK, POLL, TXN
from rules.arrays.intervals import Bools, Ints, each, heads, indices
from rules.checks.conditions.reader_walks import Reader, Spell, Steps, Walk, go_on
from rules.checks.ends.watermarks import Observed
from rules.kept.check import Check, News, Passage
from rules.kept.codec import concat, take
from rules.kept.report import Report
from rules.kept.state import Moves, State
from rules.settling import clocks, standstills
from rules.settling.frontier import TICK
from rules.settling.gate import Who
from rules.vocabulary.objectives import SECOND

NAME: Final = "stuck-consumer"
WAITING_KEPT: Final = 4096
BRIEF: Final = 5 * SECOND


@dataclass(slots=True)
class Consumers:
    """`transacting`, `observing`: living processes that write transactions, that read watermarks. `observed`: what the
    latter read, since the tick that the latest reader was judged at. `waiting`: what late readers did beyond what is
    known of them."""

    readers: dict[int, Reader] = field(default_factory=dict, metadata={"of": Reader})
    transacting: list[int] = field(default_factory=list)
    observing: list[int] = field(default_factory=list)
    observed: Observed = field(default_factory=Observed)
    waiting: Steps = field(default_factory=Steps)
    errors: list[list[Any]] = field(default_factory=list)  # [process, when, error]: the last of its polls that had one


def arrive(own: Consumers, new: News) -> None:
    """Learn which of the living processes write transactions, which observe, and how readers' polls fail."""
    own.transacting = _with(own.transacting, new, INIT, TXN)
    own.observing = _with(own.observing, new, OFFSETS)
    columns = new.columns
    polled = new.where(POLL)
    for row in polled[columns.type[polled] != OK].tolist():
        error = columns.table["error"][row].as_py()
        known = next((entry for entry in own.errors if entry[0] == columns.process[row]), None)
        if error is None or (known is not None and known[1] > columns.completed[row]):
            continue
        if known is not None:
            own.errors.remove(known)
        own.errors.append([int(columns.process[row]), int(columns.completed[row]), error])


def _with(known: list[int], new: News, *functions: int) -> list[int]:
    rows = new.where(*functions)
    more = {*each(new.columns.process[rows])} - {*known} if len(rows) else ()
    return sorted(number for number in {*known, *more} if number in new.state.processes) if more else known


def fold(own: Consumers, passage: Passage) -> None:
    """Go through the ticks with the moves up to the last of them, each reader as far as its log is here."""
    state, report = passage.state, passage.report
    sights = own.observed.look(passage.moves, state.index)
    steps = _in_order(own, passage.moves)
    first = heads(steps.process)
    begun = first.tolist()
    bounds = dict(zip(steps.process[first].tolist(), pairwise([*begun, len(steps)]), strict=True))
    errors = {number: (when, error) for number, when, error in own.errors}
    transacting, waiting = set(own.transacting), np.zeros(len(steps), bool)
    observed = passage.gate.told_through(Who(lambda number, process: number in own.observing or not process.next))
    stuck = any(key.startswith(NAME) for key in state.open_conditions)
    brisk = _brisk(own, steps, bounds, report.objectives.liveness) if not stuck else {}
    for process in sorted({*own.readers, *bounds}):
        a, b = bounds.get(process, (0, 0))
        if process in transacting or (process not in state.processes and a == b):
            own.readers.pop(process, None)
            continue
        ahead = _ahead(state, process, own.observed.boot)
        walk = Walk(
            process,
            own.readers.pop(process, None),
            state,
            [(at + ahead if at >= 0 else at, sight.by(ahead)) for at, sight in sights],
            report.objectives.liveness,
            passage.log_start_before,
            _name(state, process),
            *errors.get(process, (-1, "")),
            f"{NAME}:{process}" in state.open_conditions,
        )
        until = walk.known_through(passage, observed + ahead)
        ripe = a + int(steps.at[a:b].searchsorted(until, side="right"))
        waiting[ripe:b] = True
        at = walk.ticks(passage, steps.at[a:ripe], until)
        went = not walk.holes and not walk.stood
        if walk.reader is not None and ripe == b and process in brisk and went:
            go_on(walk.reader, steps, b - 1, brisk[process])
            walk.weigh(walk.over)
        elif ripe == a and went:
            walk.weigh(walk.over)
        else:
            walk.go(take(steps, slice(a, ripe)))
        if walk.reader is not None:
            walk.look_ahead()
            walk.reader.judged = max(walk.reader.judged, until)
            walk.reader.remember(walk.over, standstills.known(state, process))
            own.readers[process] = walk.reader
        if len(at) and (walk.spells or stuck):
            _tell(walk, at, report)
    _close_rest(own, passage, set(steps.process[waiting].tolist()))
    own.waiting = _bounded(own, take(steps, waiting), report)
    followed = state.processes.keys() | set(own.waiting.process.tolist())
    own.readers = {number: reader for number, reader in own.readers.items() if number in followed}
    own.errors = [entry for entry in own.errors if entry[0] in state.processes]
    late = [*(reader.judged for reader in own.readers.values()), *own.waiting.at.tolist()]
    own.observed.forget(min([passage.end, *late]))


def judged_through(own: Consumers, number: int) -> int | None:
    """The log time through which this reader has been judged, -1 for none; None where it holds the partition no
    more, by all that is known of it."""
    if number in own.readers:
        return own.readers[number].judged
    return -1 if (own.waiting.process == number).any() else None


def _name(state: State, number: int) -> str:
    known = state.processes.get(number)
    return known.name if known is not None and known.name else f"process {number}"


def _ahead(state: State, number: int, observer: int) -> int:
    """By how much the reader's clock is ahead of the observer's, at most; 0 where that has not been measured."""
    process = state.processes.get(number)
    if process is None or observer < 0 or process.boot in (-1, observer):
        return 0
    bound = clocks.ahead(state, process.boot, observer)
    return 0 if bound >= clocks.UNKNOWN else bound


def _in_order(own: Consumers, moves: Moves) -> Steps:
    """What readers did, those that waited and the new moves, by process and in the order of time."""
    rows = indices(moves.f != OFFSETS)
    steps = Steps.of(moves, rows)
    if not len(own.waiting):
        return take(steps, steps.process.argsort(kind="stable"))
    steps = concat(own.waiting, steps)
    return take(steps, np.lexsort((steps.slice, steps.at, steps.process)))


def _brisk(own: Consumers, steps: Steps, bounds: dict[int, tuple[int, int]], limit: int) -> dict[int, int]:
    """Those readers that only polled, and never paused for as long as the objective: the last step that tells where
    each stands, -1 for none. Nearly all readers, nearly always."""
    if not len(steps) or len(own.waiting):
        return {}
    first = np.array([a for a, _ in bounds.values()], np.int64)
    before = np.concatenate(([0], steps.at[:-1]))
    before[first] = [own.readers[p].moved if p in own.readers else -(2**62) for p in bounds]
    stopped = ((steps.f != POLL) & (steps.f != TXN)) | (steps.at - before >= limit)
    told = np.where(steps.tell(), np.arange(len(steps)), -1)
    slow, last = np.logical_or.reduceat(stopped, first), np.maximum.reduceat(told, first)
    return {p: at for p, was, at in zip(bounds, slow.tolist(), last.tolist(), strict=True) if not was}


def _bounded(own: Consumers, waiting: Steps, report: Report) -> Steps:
    """What waits, as far as there is room. Of polls in a row the last of each few seconds is enough. Where that is too
    much all the same, the oldest are no longer waited for: the readers had gone on by then, and whether they had stood
    still before is not told."""
    if len(waiting) <= WAITING_KEPT:
        return waiting
    row = waiting.tell() & ((waiting.f == POLL) | (waiting.f == TXN))
    same = (waiting.process[1:] == waiting.process[:-1]) & (waiting.at[1:] // BRIEF == waiting.at[:-1] // BRIEF)
    between = np.append(row[:-1] & row[1:] & same, np.zeros(min(len(row), 1), bool))
    waiting = take(waiting, ~between)
    over = np.zeros(len(waiting), bool)
    over[waiting.at.argsort(kind="stable")[: max(0, len(waiting) - WAITING_KEPT)]] = True
    gone, told = take(waiting, over), waiting.tell()
    report.drop("moves of readers", len(gone))
    for number in each(gone.process):
        mine, reader = indices(over & (waiting.process == number)), own.readers.get(number)
        if reader is not None:
            go_on(reader, waiting, int(mine[-1]), int(mine[told[mine]].max(initial=-1)))
            reader.judged = max(reader.judged, reader.moved // TICK * TICK)
    return take(waiting, ~over)


def _close_rest(own: Consumers, passage: Passage, late: set[int]) -> None:
    """Nobody is stuck who does not hold the partition any more."""
    for key in [k for k in passage.state.open_conditions if k.startswith(NAME)]:
        number = int(key.partition(":")[2])
        if number not in late and (number not in own.readers or number not in passage.state.processes):
            evidence = {"process": number}
            passage.report.condition(NAME, None, at=passage.end, evidence=evidence, subject=(number,))


def _tell(walk: Walk, at: Ints, report: Report) -> None:
    """Open and close the reader's condition at the ticks at which it changes."""
    since = walk.state.open_conditions.get(f"{NAME}:{walk.process}")
    was = since is not None
    if since is not None:  # after a rebuild it may have been told as of later than was judged anew
        at = at[at >= since]
        if not len(at):
            return
    spells = [s for s in walk.spells if s.start < s.end and s.start <= at[-1]]
    if not spells and not was:
        return
    holds: Bools = np.zeros(len(at), bool)
    bounds = [(int(at.searchsorted(s.start)), int(at.searchsorted(s.end)), s) for s in spells]
    for first, last, _ in bounds:
        holds[first:last] = True
    tell = partial(_tell_at, walk, at, bounds, report)
    for first, last in pairwise([0, *(indices(np.diff(holds)) + 1).tolist(), len(at)]):
        if holds[first]:
            _open(walk, at, range(first, last), tell, report)
        else:
            tell(first, False)


def _open(walk: Walk, at: Ints, ticks: range, tell: Callable[[int, bool], None], report: Report) -> None:
    """It holds at all of these ticks: open it, at the first at which it does not wait for another condition, and again
    where it outlasts that one."""
    key = f"{NAME}:{walk.process}"
    for t in ticks:
        if key in walk.state.open_conditions:
            break
        tell(t, True)
    if key in walk.state.open_conditions:
        until = report.explained_until(NAME, key, walk.state.run_of(walk.process))
        t = max(ticks.start, int(at.searchsorted(until)))
        if t < ticks.stop:
            tell(t, True)


def _tell_at(walk: Walk, at: Ints, bounds: list[tuple[int, int, Spell]], report: Report, t: int, holds: bool) -> None:
    spell = next((s for first, last, s in bounds if first <= t < last), None)
    evidence: dict[str, Any] = dict(spell.evidence) if spell else {"process": walk.process}
    run = walk.state.run_of(walk.process) if report.outages.alone else ""  # which of several hosts
    of = f" of run {run}" if run else ""
    where = (
        f"has not moved from offset {evidence.get('position')}" if evidence.get("position", -1) >= 0 else "is nowhere"
    )
    message = f"{walk.name}{of} {where}" + (
        ", and no watermark can be read" if evidence.get("why") == "blind" else ", and there is more to read"
    )
    if spell and walk.failed >= evidence["moved"]:
        evidence["error"] = walk.error
        message += f"; its polls end with {walk.error}"
    report.condition(
        NAME,
        message if holds else None,
        at=int(at[t]),
        since=spell.start if spell else None,
        evidence=evidence,
        subject=(walk.process,),
    )


CHECK: Final = Check(
    NAME, Consumers, arrive=arrive, fold=fold, live_only=True, rows=frozenset({INIT, TXN, OFFSETS, "error"})
)
