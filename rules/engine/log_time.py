"""The second half of a step, in log time: what the horizon has passed is folded, and what is missing gets its verdict.

The partition's time passes tick by tick (`rules.settling.frontier`). Readers' moves and polls are taken in the order of
their times, whatever order they came in; then the settled frontier moves up, and rules about absence and order decide.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import OFFSETS
from rules.arrays.intervals import Ints, indices
from rules.checks.ends import log_ends
from rules.checks.order import poll_order
from rules.checks.records import losses
from rules.engine import order
from rules.kept import dropped
from rules.kept.check import Passage
from rules.kept.chunks import Chunks
from rules.kept.codec import empty
from rules.kept.report import Report
from rules.kept.state import Moves, Passed, Places, State, concat, take
from rules.settling import completeness, frontier, log_starts, passes, positions, retrying_writers, window
from rules.settling.gate import Gate
from rules.settling.listings import Listings, prove_held, prove_passes
from rules.vocabulary.objectives import SECOND, Objectives

WHILE_HELD: Final = 16
"""So many times more may stay open while log time is held back, by a quarter of an hour: all of that is."""
FORGET_HOLES = 3_600 * SECOND
"""Holes are remembered for this long after everything that might rest on them has been decided."""


def fold(state: State, chunks: Chunks, report: Report, *, late: bool) -> Gate:
    """Let log time pass up to the horizon: fold what is complete, move the frontier, give the verdicts.

    `late`: rows have come from before the last tick. Returns what is known of the evidence after it."""
    objectives = report.objectives
    limit = completeness.horizon(state)
    at = frontier.ticks(state, limit) if limit >= 0 else intervals.EMPTY
    if not len(at) and late and state.tick >= 0:
        at = np.array([state.tick], np.int64)  # what comes late decides now, and not when somebody else has moved on
    if not len(at):
        _overflow(state, objectives, max(state.tick, 0), report)
        if state.tick >= 0:  # else it waits for the first tick
            dropped.tell(state, state.tick, report)
        return Gate(state)
    settled = state.settled
    passage = _pass(state, chunks, at, report)
    order.fold(passage)
    for cut in passage.cuts:
        log_starts.set_back(state, cut.at, cut.again)
    if passage.shown_places is not None:
        passage.placed = place_shown(state, chunks, passage.shown_places, passage.end, settled)
    order.fold_settled(passage)
    passes.remember(state, passage.proven)
    _judge_unverifiable(state, passage.gate, passage.at, report)
    steps = order.own(state, poll_order.CHECK)
    needed = poll_order.needed_from(steps, state)
    apart = 0 if passage.advance is None else passage.advance.apart
    still = min([needed, *completeness.awaited_from(state, apart)])
    # What a late reader goes over is named by its values as long as there is room, and by its offsets after that.
    roomy = len(state.log) <= _most_runs(state, objectives) // 2
    window.forget_below(state, still if roomy else needed, still)
    poll_order.forget_sends(steps, passage.gate, needed)  # once it is known from where on the index is kept
    retrying_writers.forget(state)
    _overflow(state, objectives, passage.end, report)
    dropped.tell(state, passage.end, report)
    return passage.gate


def _pass(state: State, chunks: Chunks, at: Ints, report: Report) -> Passage:
    """Let readers and writers make their moves up to the last tick; what that passes on."""
    end, objectives = int(at[-1]), report.objectives
    waits = {number: process.next for number, process in state.processes.items() if process.ahead}
    moves, state.moves = _until(waits, state.moves, end)
    polls, state.polls = _until(waits, state.polls, end)
    uncommitted, state.uncommitted = _until(waits, state.uncommitted, end)
    sends, state.sends = _until(waits, state.sends, end)
    moves = take(moves, np.lexsort((moves.slice, moves.process, moves.at)))
    before = state.log_start
    advance = frontier.advance(state, at, moves, objectives)
    holding = {number for number, _ in frontier.readers(state)} if len(at) > 1 else set()
    walked = positions.walk(state, moves, advance)
    listings = Listings.of(state, moves)
    went = walked.passes
    proven = prove_passes(state, Passed(went.start, went.end, went.at, went.at, went.process, went.boot), listings)
    proven = concat(proven, prove_held(state, end, listings))
    given_again = passes.note_given_again(state, proven, state.checks["lost-write"].outstanding, moves)
    observe(state, _of_this_log(state, moves))
    lost_writers, state.lost_writers = state.lost_writers, []
    return Passage(
        state,
        at,
        end,
        moves,
        sends,
        polls,
        uncommitted,
        advance,
        Gate(state),
        chunks,
        report,
        before,
        proven,
        went,
        walked.steps,
        listings,
        lost_writers,
        given_again=given_again,
        holding=holding,
    )


def _until(waits: dict[int, int], table: Any, end: int) -> tuple[Any, Any]:
    """The entries up to log time `end` before which nothing of their process is awaited, and the rest. `waits`: the
    first slice that is missing of the processes of which later ones are here."""
    if not len(table):
        return table, empty(type(table))
    ripe = table.at <= end
    if waits:
        observed = table.f == OFFSETS if isinstance(table, Moves) else False  # an observation stands by itself
        for number, first in waits.items():
            ripe &= (table.process != number) | (table.slice < first) | observed
    return take(table, ripe), take(table, ~ripe)


def place_shown(state: State, chunks: Chunks, shown: Places, at: int, settled: int) -> window.Placed | None:
    """Indefinite operations turned out visible: where what they wrote was acknowledged is part of the log. `settled`:
    where the frontier was before the step, of which the log is not forgotten yet."""
    if not len(shown):
        return None
    placed = window.place(state, chunks, shown, np.full(len(shown), at, np.int64), settled)
    window.note_index(state, shown.offset, shown.offset + shown.length)
    return placed


def _of_this_log(state: State, moves: Moves) -> Moves:
    """Without log starts of before the log was cut."""
    gone = order.own(state, log_ends.CHECK).gone
    if not len(gone):
        return moves
    return take(moves, ~log_starts.of_the_log_that_was(gone.at, gone.again, moves.at, moves.low))


def observe(state: State, moves: Any) -> None:
    """What the observers' rows told."""
    seen = indices(moves.stable >= 0)
    if len(seen):
        state.last_stable = max(state.last_stable, int(moves.stable[seen].max()))
    log_starts.observe(state, moves)


def _judge_unverifiable(state: State, gate: Gate, ticks: Ints, report: Report) -> None:
    """`unverifiable`: something is missing for good, until nothing that is open may rest on it. Where log time passes
    far at once, it has begun and ended at the ticks at which it would have."""
    if not state.holes and "unverifiable" not in state.open_conditions:
        return
    delivery, end = report.objectives.delivery, int(ticks[-1])
    open_since = int(state.checks["lost-write"].outstanding.invoked.min(initial=end))
    edges = np.array([edge for hole in state.holes for edge in (hole[5], hole[5] + delivery)], np.int64)
    moments = {*ticks[np.searchsorted(ticks, edges[(edges > ticks[0]) & (edges <= end)])].tolist(), end}
    for at in sorted(moments):
        known = at if at < end else state.now  # while log time is held back, what came since was not known then
        oldest = min(open_since, at)
        silent = [hole[0] for hole in state.holes if hole[5] <= known and (hole[2] > oldest or at - hole[5] < delivery)]
        named = sorted({number for number in silent if number >= 0}) or silent[:1]
        report.condition(
            "unverifiable",
            f"of the log of {len(named)} processes, something is missing for good" if silent else None,
            at=at,
            evidence={"processes": named[:10]},
        )
    through = min(gate.known_through(), open_since) - FORGET_HOLES
    state.holes_forgotten = max([state.holes_forgotten, *(hole[2] for hole in state.holes if hole[2] <= through)])
    state.holes = [hole for hole in state.holes if hole[2] > through]


def _most_runs(state: State, objectives: Objectives) -> int:
    """How many runs the open window may hold."""
    return objectives.window_runs * (WHILE_HELD if state.held else 1)


def _overflow(state: State, objectives: Objectives, at: int, report: Report) -> None:
    """Bound the open window: settle its older half unjudged when it holds too many runs."""
    runs, most = len(state.log), _most_runs(state, objectives)
    over = runs > most
    if over:
        state.settled = int(state.log.offset[runs // 2])
        state.reached = max(state.reached, state.settled)
        poll_order.give_up_below(order.own(state, poll_order.CHECK), state.settled)
        window.forget_below(state, state.settled, state.settled)
    losing = order.own(state, losses.CHECK)
    if len(losing.outstanding) > most:
        losing.outstanding = take(losing.outstanding, slice(len(losing.outstanding) - most, None))
        over = True
    if not over and "window-overflow" not in state.open_conditions:
        return
    report.condition(
        "window-overflow",
        f"the open window held {runs} runs; its older half was settled before its time"
        if over or (runs > most // 2 and "window-overflow" in state.open_conditions)
        else None,
        at=at,
        evidence={"runs": runs, "settled_below": state.settled},
    )
