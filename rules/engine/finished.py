"""A finished history: nothing more will come, every outcome is known, and every verdict can be given at once.

It is the second half of a step (`rules.engine.log_time`) for a history that is read from a file and whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import INFO, OK, Columns
from rules.audit import explain
from rules.audit.readings import Readings
from rules.checks.order import poll_order, send_order
from rules.checks.records import losses, unseen
from rules.engine import order, untold_offsets
from rules.engine.log_time import observe, place_shown
from rules.kept import dropped
from rules.kept.check import FOREVER, Passage
from rules.kept.chunks import NO_VALUES, Chunks, Values, values
from rules.kept.report import Report
from rules.kept.state import Polls, Proven, Spans, State, Transitions, take
from rules.settling import passes, positions
from rules.settling.gate import Gate
from rules.settling.moves import moves_of, sends_of, sent_to
from rules.settling.positions import Passes
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.slices import Place


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
        found = untold_offsets.located(committed, state.log, state.index)
        state.moves = moves_of(columns, fresh, found, state.runs)
        order.own(state, poll_order.CHECK).inside = poll_order.inside(columns, found)


def _passed(state: State, columns: Columns, fresh: Any, passes: Passes) -> Spans:
    """What readers passed: `passes`, unless polls did not tell all offsets. Where the first record of such a one lay
    nobody knows, nor from where it came."""
    committed = columns.polled.take((columns.committed_only & fresh)[columns.polled.row])
    if (committed.offset < 0).any():
        return untold_offsets.passed(columns, untold_offsets.located(committed, state.log, state.index))
    return Spans(*intervals.merge(passes.start, passes.end))


def _locate_sends(passage: Passage, columns: Columns, fresh: Any, visible: set[tuple[int, int]]) -> None:
    """The same for records that were sent, of visible operations and of others."""
    state, sent = passage.state, sent_to(columns, columns.sent.take(fresh[columns.sent.row]), visible)
    if (sent.offset < 0).any():
        found = untold_offsets.located(sent, state.log, state.index)
        passage.sends = sends_of(columns, found)
        order.own(state, send_order.CHECK).steps = send_order.inside(columns, found)


def finish(
    state: State, chunks: Chunks, columns: Columns, fresh: Any, visible: set[tuple[int, int]], report: Report
) -> None:
    """Nothing more will come: every outcome is known, and every verdict can be given."""
    delivered = _delivered_uncommitted(columns)
    losing = order.own(state, losses.CHECK)
    end = max([0, *(int(t.max()) for t in (state.moves.at, state.polls.at, losing.outstanding.since) if len(t))])
    moves, polled = state.moves, state.polls
    state.moves, state.polls = take(moves, slice(0, 0)), take(polled, slice(0, 0))
    moves = take(moves, np.lexsort((moves.slice, moves.process, moves.at)))
    none = state.uncommitted
    passage = Passage(
        state,
        np.array([end]),
        FOREVER,
        moves,
        state.sends,
        polled,
        none,
        None,
        Gate(state, finished=True),
        chunks,
        report,
        state.log_start,
        Proven(),
        Passes(),
        Transitions(),
        finished=True,
    )
    order.fold(passage)
    walked = positions.walk(state, moves, None)
    passage.passes, passage.steps = walked.passes, walked.steps
    state.passed = passes.timeless(_passed(state, columns, fresh, walked.passes))
    observe(state, moves)
    losses.poll(losing, chunks, polled)
    losses.drop_delivered(losing, delivered)
    unseen.judge_finished(losing.outstanding, state, end, report)
    places, passage.shown = losses.promote(losing, state, chunks, visible)
    passage.placed = place_shown(state, chunks, places, end, state.settled)
    losses.settle(losing, chunks, NO_VALUES)
    _locate_sends(passage, columns, fresh, visible)
    losses.drop_delivered(losing, delivered)
    state.highest_polled = _highest_first_place(state, polled)
    losses.settle_finished(losing, state, chunks, end, report)
    order.fold_settled(passage)
    dropped.tell(state, max(state.tick, 0), report)


def telling(facts: Sequence[pa.Table]) -> pa.Table:
    """The facts of all partitions of a finished history, without those that can prove nothing: that a transaction is
    visible matters only where one of its values is absent, and no other fact will come."""
    others = [one["txn"].filter(pc.not_equal(one["kind"], "visible")) for one in facts]
    concerned = pc.unique(pa.chunked_array([chunk for column in others for chunk in column.chunks], pa.int64()))
    kept = [
        one.filter(pc.or_(pc.not_equal(one["kind"], "visible"), pc.is_in(one["txn"], value_set=concerned)))
        for one in facts
    ]
    return pa.concat_tables(kept) if kept else FACT_SCHEMA.empty_table()


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
    places = losses.extreme_places(state.log, values(polled.writer, polled.seq, polled.length), last=False)
    return int(places.offset.max(initial=-1))
