"""The settled frontier: the offset below which everything is decided and may be forgotten.

The partition's log time advances in *ticks* of one second, up to the horizon. At each tick, the *reached* offset is the
lowest position of its readers: those that are assigned, are not silent for the liveness objective, and are not still
catching up from below. Where nobody is left but such as have fallen silent, it is where others had been when they let
go: else a topic that is deleted would keep its last steps open for ever. What was reached is *settled* once the grace
time has passed, and as much more as the clocks of those that write and read here are apart: one whose clock is ahead is
at every tick where the others were so much earlier. All of this depends on the times in the rows alone, so that every
order of arrival gives the same frontier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from rules.arrays.columns import ASSIGN, CLOSE, OK, REVOKE, SUBSCRIBE
from rules.arrays.intervals import Bools, Ints, distinct, indices
from rules.kept.state import Moves, Process, State
from rules.settling.clocks import UNKNOWN, ahead
from rules.vocabulary.objectives import SECOND, Objectives

TICK: Final = SECOND
SPREAD_MOST: Final = 120 * SECOND
FOREVER: Final = 2**62
TICKS_AT_ONCE: Final = 100_000
"""A clock that jumped by years makes no more ticks than this in one step: a day's worth, the rest is passed over."""


@dataclass(slots=True)
class Advance:
    """The ticks that a step went through: their times, and what was settled at each."""

    at: Ints
    settled: Ints
    before: int
    """What was settled before the first tick."""
    apart: int = 0
    """How far the clocks are apart of those that live here, in whole ticks."""

    def settled_before(self, time: Ints) -> Ints:
        """What was settled at the last tick before each time: polls below it came too late to count for a verdict."""
        index = self.at.searchsorted(time, side="left") - 1
        if not len(self.at):
            return np.full(len(time), self.before, np.int64)
        return np.where(index < 0, self.before, self.settled[np.maximum(index, 0)])

    def settled_at(self, offset: int) -> int:
        """The tick at which this offset was settled; the last one if it was already."""
        return int(self.all_settled_at(np.array([offset], np.int64))[0])

    def all_settled_at(self, offsets: Ints) -> Ints:
        """The same of each of many."""
        index = self.settled.searchsorted(offsets, side="right")
        return self.at[np.minimum(index, len(self.at) - 1)]


class Steps(Protocol):
    """The columns of `Moves` that tell who holds the partition."""

    f: Ints
    type: Ints
    assigned: Ints


def forgets(moves: Steps) -> Bools:
    """Which moves end a reader's hold on the partition, or begin it afresh."""
    gave_up = (
        ((moves.f == ASSIGN) | (moves.f == SUBSCRIBE) | (moves.f == REVOKE)) & (moves.type != 1) & (moves.assigned == 0)
    )
    return np.asarray(gave_up | (moves.f == CLOSE), dtype=bool)


def ticks(state: State, horizon: int) -> Ints:
    """The times of the ticks that lie between the last one and the horizon."""
    end = horizon // TICK * TICK
    if state.tick < 0:
        earliest = [int(t.min()) for t in (state.moves.at, state.polls.at) if len(t)]
        start = min([*earliest, end]) // TICK * TICK
    else:
        start = state.tick + TICK
    return np.arange(max(start, end - TICKS_AT_ONCE * TICK), end + 1, TICK, dtype=np.int64)


def advance(state: State, at: Ints, moves: Moves, objectives: Objectives) -> Advance:
    """Move `reached` and `settled` through the ticks `at`. `moves`: those up to the last tick, in canonical order."""
    before = state.settled
    # What late ones went over before the first of these ticks was reached, too, though they may be over since.
    late = moves.at[moves.at <= at[0] - TICK]
    times = np.concatenate((distinct(-(-late // TICK) * TICK), at)) if len(late) else at
    lives = _lives(state, moves)
    tracks = _positions(lives, times, moves)
    settled = np.empty(len(times), np.int64)
    reached, queue, apart = state.reached, state.reached_at, spread(state)
    wait = objectives.grace + apart
    held = {number: process.position for number, process in lives.items()}
    for t, time in enumerate(times.tolist()):
        lowest = FOREVER
        for number, track in tracks:
            position = track[t]
            process = lives[number]
            if position != held[number]:
                if position < 0:
                    state.left = max(state.left, held[number])
                held[number] = position
                process.moved = time
            if position >= reached and position >= 0 and time - process.moved < objectives.liveness:
                lowest = min(lowest, position)
        lowest = lowest if lowest < FOREVER else state.left
        if reached < lowest:
            reached = lowest
            queue.append((time, reached))
        while queue and queue[0][0] <= time - wait:
            state.settled = max(state.settled, queue.pop(0)[1])
        settled[t] = state.settled
    state.reached = reached
    if len(at):
        state.tick = int(at[-1])
    return Advance(at, settled[len(times) - len(at) :], before, apart)


def spread(state: State, unknown: int = 0) -> int:
    """How far the clocks of those that live here are apart, in whole ticks; `unknown` where nobody knows."""
    if len(state.boot_names) < 2:
        return 0
    boots = {process.boot for process in state.processes.values() if process.boot >= 0 and process.over_by < 0}
    bounds = (ahead(state, one, other) for one in boots for other in boots)
    spread = max((abs(bound) if bound < UNKNOWN else unknown for bound in bounds), default=0)
    return 0 if spread < TICK else min(-(-spread // TICK) * TICK, SPREAD_MOST)


def _lives(state: State, moves: Moves) -> dict[int, Process]:
    """The processes that may have moved; of those that are over and forgotten already, until when."""
    processes = moves.process.tolist()
    if state.processes.keys() >= set(processes):
        return state.processes
    times = zip(processes, moves.at.tolist(), strict=True)  # in the order of times
    over = {number: Process(closes_at=0, closed=at) for number, at in times if number not in state.processes}
    return state.processes | over


def _positions(lives: dict[int, Process], at: Ints, moves: Moves) -> list[tuple[int, list[int]]]:
    """For each reader its position at each tick: one past what it polled last, -1 while it has none."""
    tracks = []
    dropped = forgets(moves)
    polled = (moves.type == OK) & (moves.last >= 0)
    counts = dropped | polled
    after = np.where(dropped, -1, moves.last + 1)
    moving = set(moves.process[counts].tolist())
    for number, process in lives.items():
        if number in moving:
            own = indices(counts & (moves.process == number))
            index = moves.at[own].searchsorted(at, side="right") - 1
            track = np.where(index < 0, process.position, after[own][np.maximum(index, 0)]).tolist()
        elif process.position >= 0:
            track = [process.position] * len(at)
        else:
            continue
        if process.closes_at >= 0:  # it may be remembered for longer than it lived
            track = [-1 if time > process.closed else place for time, place in zip(at.tolist(), track, strict=True)]
        tracks.append((number, track))
    return tracks


def readers(state: State) -> list[tuple[int, Process]]:
    """Those that hold the partition now."""
    return [(number, p) for number, p in state.processes.items() if p.reads and p.assigned]
