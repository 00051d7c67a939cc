"""The second half of a step, in log time: what the horizon has passed is folded, and what is missing gets its verdict.

The partition's time passes tick by tick (`rules.settling.frontier`). Readers' moves and polls are taken in the order of
their times, whatever order they came in; then the settled frontier moves up, and rules about absence and order decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules.arrays import intervals
from rules.audit import digests
from rules.checks import (
    duplicates,
    irregular_records,
    losses,
    phantom_reads,
    poll_order,
    send_order,
    transaction_outcomes,
    transforms,
)
from rules.engine import order, rare_rows
from rules.kept.check import Passage
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import Spans, State, take
from rules.registers import check
from rules.settling import completeness, frontier, transactional_ids
from rules.settling.gate import Gate
from rules.vocabulary.objectives import Objectives


def fold(state: State, chunks: Chunks, buckets: digests.Buckets, objectives: Objectives, report: Report) -> None:
    """Let log time pass up to the horizon: fold what is complete, move the frontier, give the verdicts."""
    limit = completeness.horizon(state)
    at = frontier.ticks(state, limit) if limit >= 0 else intervals.EMPTY
    if not len(at):
        _overflow(state, objectives, max(state.tick, 0), report)
        return
    end = int(at[-1])
    moves, state.moves = _until(state.moves, end)
    ripe, state.polls = _until(state.polls, end)
    unproven, state.uncommitted = _until(state.uncommitted, end)
    sent, state.sends = _until(state.sends, end)
    send_order.walk(state, sent)
    moves = take(moves, np.lexsort((moves.slice, moves.process, moves.at)))
    passage = Passage(state, at, end, moves, sent, ripe, unproven, None, Gate(state), chunks, report, state.log_start)
    order.fold(passage)
    rare_rows.fold(state, at, moves, report)
    check.judge(state, chunks, end, report)
    advance = frontier.advance(state, at, moves, objectives)
    poll_order.note_log_start(state, moves)
    poll_order.walk_inside(state, moves, advance)
    passes = poll_order.walk(state, moves, advance)
    observe(state, moves)
    digests.fold(state, buckets, passes, ripe, report)
    phantom_reads.judge(state, chunks, ripe, end - objectives.grace, report)
    transaction_outcomes.judge_parts(state, ripe, report)
    losses.judge_unseen_between(state, ripe, at, objectives, report)
    timely, late = losses.split_by_time(ripe, advance)
    losses.poll(state, chunks, timely)
    shown = promote(state, chunks, set(), end, report)
    transforms.resolve_doubtful(state, chunks, shown, end - 30 * objectives.grace, report)
    losses.deliver(state, chunks, losses.split_by_time(unproven, advance)[0])
    losses.note_passes(state, passes, advance)
    losses.judge_losses(state, advance, end, objectives, report)
    transaction_outcomes.decide(state, chunks, end, objectives, report)
    transforms.tell_inputs(state, chunks, moves, advance, end, report)
    transforms.tell_horizon(state, end, report)
    poll_order.judge_steps(state, state.settled, advance.settled_at, report)
    send_order.judge(state, state.settled, end, report, list_skips=False)
    if len(late):
        losses.poll(state, chunks, late)
    losses.age_out(state, end, objectives, report)
    losses.judge_conditions(state, end, objectives, report)
    _judge_unverifiable(state, end, report)
    needed = min(poll_order.needed_from(state), losses.needed_from(state, end - objectives.grace))
    duplicates.forget_below(state, needed)
    digests.forget(state, buckets, chunks)
    transaction_outcomes.forget_names(state)
    transactional_ids.forget(state)
    _overflow(state, objectives, end, report)


def _until(table: Any, end: int) -> tuple[Any, Any]:
    """The entries up to log time `end`, and the rest."""
    ripe = table.at <= end
    return (table, take(table, slice(0, 0))) if ripe.all() else (take(table, ripe), take(table, ~ripe))


def promote(
    state: State, chunks: Chunks, visible: set[tuple[int, int]], at: int, report: Report
) -> set[tuple[int, int]]:
    shown, operations = losses.promote(state, chunks, visible)
    if len(shown):
        duplicates.place(state, chunks, shown, np.full(len(shown), at, np.int64), report)
        irregular_records.judge_displaced(state, report)
        spans = intervals.merge(
            np.append(state.index.start, shown.offset), np.append(state.index.end, shown.offset + shown.length)
        )
        state.index = Spans(*spans)
    losses.settle_acknowledged(state, chunks, (intervals.EMPTY, intervals.EMPTY, intervals.EMPTY))
    return operations


def observe(state: State, moves: Any) -> None:
    """What the observers' rows told: the log start, and what is readable since when."""
    seen = np.flatnonzero(moves.stable >= 0)
    losses.note_readable(state, moves.at[seen], moves.stable[seen])
    if len(seen):
        state.last_stable = max(state.last_stable, int(moves.stable[seen].max()))
    lows = np.flatnonzero(moves.low >= 0)
    if len(lows):
        state.log_start = max(state.log_start, int(moves.low[lows].max()))
        state.log_start_at = max(state.log_start_at, int(moves.at[lows].max()))


def _judge_unverifiable(state: State, at: int, report: Report) -> None:
    silent = [number for number, p in state.processes.items() if p.unverifiable]
    report.condition(
        "unverifiable",
        bool(silent),
        f"the log of {len(silent)} processes never completed",
        at=at,
        evidence={"processes": silent[:10]},
    )


def _overflow(state: State, objectives: Objectives, at: int, report: Report) -> None:
    """Bound the open window: settle its older half unjudged when it holds too many runs."""
    runs = len(state.log)
    over = runs > objectives.window_runs
    if over:
        state.settled = int(state.log.offset[runs // 2])
        state.reached = max(state.reached, state.settled)
        # Steps that end below it can be judged no more: what they went over is being forgotten.
        gone = np.maximum(state.transitions.first, state.transitions.previous) < state.settled
        state.transitions = take(state.transitions, ~gone)
        duplicates.forget_below(state, state.settled)
    if len(state.outstanding) > objectives.window_runs:
        state.outstanding = take(state.outstanding, slice(len(state.outstanding) - objectives.window_runs, None))
        over = True
    report.condition(
        "window-overflow",
        over or (runs > objectives.window_runs // 2 and "window-overflow" in state.open_conditions),
        f"the open window held {runs} runs; its older half was settled before its time",
        at=at,
        evidence={"runs": runs, "settled_below": state.settled},
    )
