"""The first half of a step, on arrival: rules about what was seen, in whatever order the rows came.

Sets only grow here. What needs the order of times is noted for the other half (`rules.passage`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rules import (
    aborted,
    audit,
    conditions,
    delivery,
    exactly_once,
    intervals,
    phantom,
    placement,
    polls,
    records,
    registers,
    sends,
    transactions,
    zero,
)
from rules.chunks import Chunks
from rules.columns import FAIL, INFO, OK, Columns, Runs
from rules.intervals import Ints
from rules.report import Report
from rules.state import Indefinite, Places, Polls, Spans, State, concat


def arrive(
    state: State, chunks: Chunks, buckets: audit.Buckets, columns: Columns, fresh: Any,
    visible: set[tuple[int, int]], report: Report,
) -> None:  # fmt: skip
    """Rules about what was seen, and the bookkeeping for the other half."""
    every = bool(fresh.all())
    sent = columns.sent if every else columns.sent.take(fresh[columns.sent.row])
    polled = columns.polled if every else columns.polled.take(fresh[columns.polled.row])
    records.judge_records(columns, fresh, report)
    if len(sent) and len(polled):
        aborted.read_own(columns, sent, polled, report)

    outcome = columns.type[sent.row]
    acknowledged, failed, indefinite = (sent.take(outcome == o) for o in (OK, FAIL, INFO))
    committed = polled.take(columns.committed_only[polled.row])
    state.moves = concat(state.moves, polls.moves_of(columns, fresh, committed))
    written = sends.placed(columns, sent, visible)
    state.sends = concat(state.sends, sends.moves_of(columns, written))
    state.send_steps = concat(state.send_steps, sends.inside(columns, written))
    state.inside = concat(state.inside, polls.inside(columns, committed))
    settled = committed.take(columns.type[committed.row] == OK)
    state.polled += int(settled.length.sum())
    if len(settled):
        state.highest_polled = max(state.highest_polled, int((settled.offset + settled.length).max()) - 1)
    state.polls = concat(state.polls, _polls(columns, settled))
    if len(committed) != len(polled):
        unproven = polled.take(~columns.committed_only[polled.row] & (columns.type[polled.row] == OK))
        state.uncommitted = concat(state.uncommitted, _polls(columns, unproven))
    aborted.read_aborted(state, chunks, columns, settled, failed, state.polls, report)
    transactions.note(state, columns, sent, report)
    exactly_once.note_reflections(state, chunks, columns, fresh, visible, report)
    phantom.note_sends(chunks, columns, sent)

    # What may have been polled by rows that are gone is not waited for.
    indefinite = indefinite.take(columns.invoked[indefinite.row] >= state.begins)
    awaited = acknowledged.take(columns.invoked[acknowledged.row] >= state.begins)
    delivery.acknowledge(state, _places(awaited), columns.completed[awaited.row])
    if len(indefinite):
        state.indefinite = concat(
            state.indefinite,
            Indefinite(
                columns.process[indefinite.row], columns.op[indefinite.row], indefinite.offset, indefinite.writer,
                indefinite.seq, indefinite.length, columns.completed[indefinite.row],
            ),
        )  # fmt: skip
    known = acknowledged.take(acknowledged.offset >= 0)
    seen_at = polled.take(polled.offset >= 0)
    when = np.concatenate((columns.completed[seen_at.row], columns.completed[known.row]))
    placed = concat(_places(seen_at), _places(known))
    placement.place(state, chunks, placed, when, report)
    records.note_displaced(state, columns, fresh)
    records.judge_displaced(state, report)
    audit.note_places(state, buckets, placed)
    _index(state, committed.take(committed.offset >= 0), known)
    zero.judge_zeros(state, columns, fresh, known, seen_at, report)
    conditions.arrive(state, chunks, columns, fresh, sent, polled, report)
    registers.arrive(state, chunks, columns, fresh)
    seen = fresh & (columns.log_end >= 0)
    if seen.any():
        state.log_end = max(state.log_end, int(columns.log_end[seen].max()))


def _places(runs: Runs) -> Places:
    return Places(runs.offset, runs.writer, runs.seq, runs.length)


def _polls(columns: Columns, runs: Runs) -> Polls:
    row = runs.row
    return Polls(
        columns.completed[row], columns.process[row], columns.op[row], runs.offset, runs.writer, runs.seq, runs.length
    )


def _index(state: State, polled: Runs, acknowledged: Runs) -> None:
    """The offsets that are no holes: what was polled at read_committed, and what was acknowledged."""
    start: Ints = np.concatenate((polled.offset, acknowledged.offset))
    end = np.concatenate((polled.offset + polled.length, acknowledged.offset + acknowledged.length))
    new = end > state.settled
    state.index = Spans(
        *intervals.merge(np.append(state.index.start, start[new]), np.append(state.index.end, end[new]))
    )
