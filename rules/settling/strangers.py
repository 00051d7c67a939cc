"""What readers took for a stranger's: records of a run of this log that they do not know.

Probes that begin under another run, because they were given another name or lost the folder where it is kept, do not
know the records of the run before. They list some of them as foreign, of a flood the first of each run alone, and the
edges. What such a poll went over proves nothing about what stands there: it is no pass (`rules.settling.positions`),
and that nobody has polled it is not to be known (`State.strange`). So it is where two hosts share a topic, and one has
not been told of the other's run. A run that no row of this log belongs to is a stranger's indeed, and whoever goes over
its records has read the partition: unless the run's first row comes later, which takes back the pass.

State: the `RUNS` newest runs of this partition's log, each as a number; the offsets gone over so, and beside real
strangers (`State.foreign`), until the log start has passed them. Of more than `KEPT` stretches those become one between
which least lies: what lies there is no pass either, and the next reader that comes by tells of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import FEW, FOREIGN, Columns, irregulars, said_to_stand_here
from rules.arrays.intervals import Bools, Ints, among, distinct, indices, some
from rules.kept.state import NEVER, Foreign, Moves, Passed, Spans, State, Went, take

RUNS: Final = 256
"""A run is what has one journal folder and one id: as many are lost with their folders in no log's time."""
KEPT: Final = 4096

T = TypeVar("T", Went, Passed)


@lru_cache(maxsize=1024)
def number_of(run: str) -> int:
    """A number for a run's id, above 0."""
    return 1 + (int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big") >> 2)


def note_runs(state: State, columns: Columns) -> None:
    """Learn whose rows these are. What was gone over beside records of a run that turns out to be of this log was not
    passed."""
    runs = columns.arrays["run"]
    told = dict.fromkeys(runs.to_pylist()) if len(runs) < FEW else pc.unique(runs).to_pylist()
    new = [number for run in told if run and (number := number_of(run)) not in state.runs]
    if not new:
        return
    state.runs = [*state.runs, *new][-RUNS:]
    ours = among(state.foreign.run, new)
    if some(ours):
        gone = take(state.foreign, ours)
        spans = Spans(*intervals.merge(gone.start, gone.end))
        state.foreign = take(state.foreign, ~ours)
        state.passed, state.unproven = _without(state.passed, spans), _without(state.unproven, spans)
        _keep(state, spans)


def _without(passed: T, spans: Spans) -> T:
    """What was passed, but for these offsets."""
    edges = distinct(np.concatenate((passed.start, passed.end, spans.start, spans.end)))
    low, high = edges.searchsorted(passed.start), edges.searchsorted(passed.end)
    row = np.repeat(np.arange(len(passed)), high - low)
    piece = np.arange(len(row)) - np.repeat((high - low).cumsum() - (high - low), high - low) + low[row]
    start, end = edges[piece], edges[np.minimum(piece + 1, len(edges) - 1)]
    left = ~intervals.touched(spans.start, spans.end, start, end)
    found = take(passed, row[left])
    return replace(found, start=start[left], end=end[left])


def listed(columns: Columns, known: list[int]) -> Ints:
    """Of each row the run of a record that it lists as foreign, and that says that it stands where it was meant to; 0
    for none. One of those that are `known` is told before others."""
    found = np.zeros(len(columns), np.int64)
    if not columns.tells("irregular"):
        return found
    odd = irregulars(columns)
    if not some(odd.status == FOREIGN):
        return found
    here, _, _ = said_to_stand_here(columns, odd)
    odd = odd.take(here)
    names = pc.fill_null(odd.listed.field("run").take(pa.array(odd.at)), "").dictionary_encode()
    numbers = np.array([number_of(name) if name else 0 for name in names.dictionary.to_pylist()], np.int64)
    run = numbers[names.indices.to_numpy()]
    order = among(run, known).argsort(kind="stable")
    found[odd.row[order]] = run[order]  # what is assigned last stays
    return found


def note(state: State, moves: Moves, start: Ints, end: Ints) -> Bools:
    """Which of these moves list a record of a run of this log as a stranger's. Keeps what they went over, [start, end),
    and what those did that list a stranger's indeed."""
    odd: Bools = moves.stranger > 0
    if not some(odd):
        if len(state.strange) or len(state.foreign):
            _forget(state)
        return odd
    ours = odd & among(moves.stranger, state.runs)
    _keep(state, Spans(start[ours], end[ours]))
    others = indices(odd & ~ours)
    if len(others):
        known, more = state.foreign, Foreign(moves.stranger[others], start[others], end[others])
        state.foreign = Foreign(
            *intervals.merge_grouped(
                *(np.append(getattr(known, name), getattr(more, name)) for name in ("run", "start", "end"))
            )
        )
        _forget(state)
    return ours


def _keep(state: State, more: Spans) -> None:
    known = state.strange
    if len(more):
        state.strange = Spans(*intervals.merge(np.append(known.start, more.start), np.append(known.end, more.end)))
    _forget(state)


def _forget(state: State) -> None:
    """What the log does not hold any more is forgotten; of too many stretches neighbours become one."""
    strange = take(state.strange, state.strange.end > state.log_start)
    if len(strange) > KEPT:
        _, start, end = _fewer(Foreign(np.zeros(len(strange), np.int64), strange.start, strange.end))
        strange = Spans(start, end)
    state.strange = strange
    foreign = take(state.foreign, state.foreign.end > state.log_start)
    if len(foreign) > KEPT:
        foreign = Foreign(*_fewer(foreign))
        # Of one run each are as many only where somebody makes ids up: none of those is a fleet's that will come.
        foreign = take(foreign, np.sort(foreign.end.argsort(kind="stable")[-KEPT:]))
    state.foreign = foreign


def _fewer(stretches: Foreign) -> tuple[Ints, Ints, Ints]:
    """These, merged by run, so that `KEPT` are left: those become one of a run between which least lies. Only of more
    runs than that one is left of each."""
    run, start, end = stretches.run, stretches.start, stretches.end
    gap = np.append(start[1:] - end[:-1], 0)
    gap[indices(np.append(run[1:] != run[:-1], True))] = NEVER  # the next one is another run's
    close = gap.argsort(kind="stable")[: len(run) - KEPT]
    end = end.copy()
    close = close[gap[close] < NEVER]
    end[close] = start[close + 1]
    return intervals.merge_grouped(run, start, end)


def nobody_knows(state: State, start: Ints, end: Ints) -> Bools:
    """Of which of these places readers may have gone over what they took for a stranger's, and nobody else has."""
    if not len(state.strange):
        return np.zeros(len(start), bool)
    strange = intervals.touched(state.strange.start, state.strange.end, start, end)
    return strange & ~intervals.contained(*intervals.merge(state.passed.start, state.passed.end), start, end)
