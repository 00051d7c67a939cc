"""A finished history: nothing more will come, every outcome is known, and every verdict can be given at once.

It is the second half of a step (`rules.passage`) for a history that is read from a file and whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rules import (
    conditions,
    delivery,
    exactly_once,
    explain,
    frontier,
    intervals,
    located,
    phantom,
    polls,
    registers,
    sends,
    transactions,
)
from rules.chunks import Chunks, Values, values
from rules.columns import INFO, OK, Columns
from rules.history import Place
from rules.passage import observe, promote
from rules.readings import Readings
from rules.report import Report
from rules.state import Polls, Spans, State, take


def visible_operations(columns: Mapping[Place, Columns]) -> set[tuple[int, int]]:
    """The indefinite operations of a whole history of which some value was polled by an ok operation, anywhere."""
    visible: set[tuple[int, int]] = set()
    for own in columns.values():
        unsure = own.sent.take(own.type[own.sent.row] == INFO)
        shown = own.polled.take((own.type[own.polled.row] == OK) & own.committed_only[own.polled.row])
        if not len(unsure) or not len(shown):
            continue
        seen = intervals.merge_grouped(shown.writer, shown.seq, shown.seq + shown.length)
        for i in range(len(unsure)):
            mine = seen[0] == unsure.writer[i]
            low, high = unsure.seq[i : i + 1], unsure.seq[i : i + 1] + unsure.length[i]
            if intervals.touched(seen[1][mine], seen[2][mine], low, high)[0]:
                row = int(unsure.row[i])
                visible.add((int(own.process[row]), int(own.op[row])))
    return visible


def _delivered_uncommitted(columns: Columns) -> Values:
    """What ok operations polled at read_uncommitted: delivered, though no proof of a commit."""
    polled = columns.polled
    read = polled.take((columns.type[polled.row] == OK) & ~columns.committed_only[polled.row])
    return values(read.writer, read.seq, read.length)


def locate_polls(state: State, columns: Columns, fresh: Any) -> None:
    """A finished history: records that were polled without an offset lie where the log has their values."""
    committed = columns.polled.take((columns.committed_only & fresh)[columns.polled.row])
    if (committed.offset < 0).any():
        found = located.located(committed, state.log, state.index)
        state.moves = polls.moves_of(columns, fresh, found)
        state.inside = polls.inside(columns, found)


def _locate_sends(state: State, columns: Columns, fresh: Any, visible: set[tuple[int, int]]) -> None:
    """The same for records that were sent, of visible operations and of others."""
    sent = sends.placed(columns, columns.sent.take(fresh[columns.sent.row]), visible)
    if (sent.offset < 0).any():
        found = located.located(sent, state.log, state.index)
        state.sends, state.send_steps = sends.moves_of(columns, found), sends.inside(columns, found)


def finish(
    state: State, chunks: Chunks, columns: Columns, fresh: Any, visible: set[tuple[int, int]], report: Report
) -> None:  # fmt: skip
    """Nothing more will come: every outcome is known, and every verdict can be given."""
    delivered = _delivered_uncommitted(columns)
    end = max([0, *(int(t.max()) for t in (state.moves.at, state.polls.at, state.outstanding.since) if len(t))])
    moves, polled = state.moves, state.polls
    state.moves, state.polls = take(moves, slice(0, 0)), take(polled, slice(0, 0))
    polls.walk_inside(state, take(moves, np.argsort(moves.at, kind="stable")), None)
    moves = take(moves, np.lexsort((moves.slice, moves.process, moves.at)))
    conditions.finish(state, chunks, moves, state.sends, report)
    registers.finish(state, chunks, report)
    passes = polls.walk(state, moves, None)
    state.passed = Spans(*intervals.merge(passes.start, passes.end))
    observe(state, moves)
    phantom.judge(state, chunks, polled, frontier.FOREVER, report)
    transactions.judge_parts(state, polled, report, list_each=True)
    delivery.poll(state, chunks, polled)
    delivery.drop_delivered(state, delivered)
    delivery.judge_unseen(state, end, report)
    shown = promote(state, chunks, visible, end, report)
    _locate_sends(state, columns, fresh, visible)
    exactly_once.resolve_doubtful(state, chunks, shown, frontier.FOREVER, report)
    delivery.drop_delivered(state, delivered)
    state.highest_polled = _highest_first_place(state, polled)
    delivery.settle_finished(state, end, report)
    transactions.decide(state, chunks, end, report.objectives, report, finished=True)
    exactly_once.tell_inputs(state, chunks, moves, None, end, report)
    polls.judge_steps(state, frontier.FOREVER, lambda _: end, report)
    sends.walk(state, state.sends)
    sends.judge(state, frontier.FOREVER, end, report, list_skips=True)


def explain_all(columns: Columns, report: Report) -> None:
    """A finished history holds all rows: what was passed and is known elsewhere is explained at once."""
    if not report.rechecks:
        return
    readings = Readings(columns)
    ranges = intervals.merge(*np.array(report.rechecks, np.int64).T)
    for start, end in zip(*(bounds.tolist() for bounds in ranges), strict=True):
        for finding in explain.explain(readings, report.place, start, end) or ():
            report.take(finding)
    report.rechecks = []


def _highest_first_place(state: State, polled: Polls) -> int:
    """The highest index polled, each value counting at the first of its places."""
    if not len(polled):
        return -1
    if not len(state.moved.offset) and int(polled.offset.min()) >= 0:
        return int((polled.offset + polled.length).max()) - 1
    places = delivery.extreme_places(state.log, values(polled.writer, polled.seq, polled.length), last=False)
    return int(places.offset.max(initial=-1))
