"""The first half of a step, on arrival: rules about what was seen, in whatever order the rows came.

Sets only grow here. What needs the order of times is noted for the other half (`rules.engine.log_time`).
"""

from __future__ import annotations

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import FAIL, OK, Columns, Runs
from rules.arrays.intervals import Bools, Ints
from rules.audit import digests
from rules.checks import (
    aborted_reads,
    duplicates,
    irregular_records,
    phantom_reads,
    poll_order,
    send_order,
    zero_offsets,
)
from rules.engine import order
from rules.kept.check import News
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import Places, Polls, Spans, State, concat
from rules.registers import check
from rules.settling.clocks import measure


def news(
    state: State, chunks: Chunks, columns: Columns, fresh: Bools, visible: set[tuple[int, int]] | None, report: Report
) -> News:  # fmt: skip
    """What is new. `visible` is None for a live partition."""
    every = bool(fresh.all())
    sent = columns.sent if every else columns.sent.take(fresh[columns.sent.row])
    polled = columns.polled if every else columns.polled.take(fresh[columns.polled.row])
    return News(state, columns, fresh, sent, polled, chunks, report, visible is not None, visible or set())


def arrive(new: News, buckets: digests.Buckets) -> None:
    """Rules about what was seen, and the bookkeeping for the other half."""
    state, chunks, columns, fresh = new.state, new.chunks, new.columns, new.fresh
    sent, polled, visible, report = new.sent, new.polled, new.visible, new.report
    measure(state, columns, sent, polled)
    order.arrive(new)
    if len(sent) and len(polled):
        aborted_reads.read_own(columns, sent, polled, report)

    outcome = columns.type[sent.row]
    acknowledged, failed = (sent.take(outcome == o) for o in (OK, FAIL))
    committed = polled.take(columns.committed_only[polled.row])
    state.moves = concat(state.moves, poll_order.moves_of(columns, fresh, committed))
    written = send_order.placed(columns, sent, visible)
    state.sends = concat(state.sends, send_order.moves_of(columns, written))
    state.send_steps = concat(state.send_steps, send_order.inside(columns, written))
    state.inside = concat(state.inside, poll_order.inside(columns, committed))
    settled = committed.take(columns.type[committed.row] == OK)
    state.polled += int(settled.length.sum())
    if len(settled):
        state.highest_polled = max(state.highest_polled, int((settled.offset + settled.length).max()) - 1)
    state.polls = concat(state.polls, _polls(columns, settled))
    if len(committed) != len(polled):
        unproven = polled.take(~columns.committed_only[polled.row] & (columns.type[polled.row] == OK))
        state.uncommitted = concat(state.uncommitted, _polls(columns, unproven))
    aborted_reads.read_aborted(state, chunks, columns, settled, failed, state.polls, report)
    phantom_reads.note_sends(chunks, columns, sent)

    known = acknowledged.take(acknowledged.offset >= 0)
    seen_at = polled.take(polled.offset >= 0)
    when = np.concatenate((columns.completed[seen_at.row], columns.completed[known.row]))
    placed = concat(_places(seen_at), _places(known))
    duplicates.place(state, chunks, placed, when, report)
    irregular_records.place_displaced(order.own(state, irregular_records.CHECK), new)
    digests.note_places(state, buckets, chunks, placed)
    phantom_reads.note_places(chunks, placed)
    _index(state, committed.take(committed.offset >= 0), known)
    zero_offsets.judge_zeros(state, columns, fresh, known, seen_at, report)
    check.arrive(state, chunks, columns, fresh)
    seen = fresh & (columns.log_end >= 0)
    if seen.any():
        state.log_end = max(state.log_end, int(columns.log_end[seen].max()))


def _places(runs: Runs) -> Places:
    return Places(runs.offset, runs.writer, runs.seq, runs.length)


def _polls(columns: Columns, runs: Runs) -> Polls:
    row = runs.row
    return Polls(
        columns.completed[row],
        columns.process[row],
        columns.op[row],
        runs.offset,
        runs.writer,
        runs.seq,
        runs.length,
        columns.slice[row],
    )


def _index(state: State, polled: Runs, acknowledged: Runs) -> None:
    """The offsets that are no holes: what was polled at read_committed, and what was acknowledged."""
    start: Ints = np.concatenate((polled.offset, acknowledged.offset))
    end = np.concatenate((polled.offset + polled.length, acknowledged.offset + acknowledged.length))
    new = end > state.index_from
    state.index = Spans(
        *intervals.merge(np.append(state.index.start, start[new]), np.append(state.index.end, end[new]))
    )
