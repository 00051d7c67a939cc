"""The one entry point of the checks: `step(stored, slices) -> state, findings, facts`, for many partitions at once.

The streaming job, `offsetwatch check`, the rebuild, the tests and the benchmarks all call it. It knows no Spark, no
Kafka and no clock: `now` of a partition is the time of the marks in its rows.

A partition's state is a small *hot* value, read and written at each step, and *chunks*: what is known of 8,192
consecutive sequence numbers of one writer, read and written only when they are touched. Both are bytes here, so that
any store can hold them.

A step has two halves. *On arrival*, rules about what was seen look at the new rows, in whatever order they came: sets
only grow there. *In log time*, once the horizon (`rules.completeness`) has passed them, readers' moves and polls are
folded in the order of their times, the settled frontier (`rules.frontier`) moves up, and rules about what is
missing give their verdict. That is why the findings do not depend on how the history was cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rules import aborted, completeness, delivery, frontier, intervals, placement, polls, records, sends, zero
from rules.chunks import Chunks, Values, chunk_names, values
from rules.columns import FAIL, INFO, OK, Columns, Runs, by_place, from_table
from rules.finding import Fact, Finding
from rules.history import Place, from_micros
from rules.intervals import Ints
from rules.objectives import Objectives
from rules.report import Report
from rules.state import Indefinite, Places, Polls, Spans, State, UnknownFormat, concat, dump, load, take

__all__ = ["SUMMARY_SCHEMA", "Stepped", "Stored", "UnknownFormat", "chunks_needed", "step"]


@dataclass(slots=True)
class Stored:
    """One partition's state as it is kept between steps: `hot` is None before the first; `chunks` by chunk name."""

    hot: bytes | None = None
    chunks: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Stepped:
    """What a step made of one partition. `chunks` holds only those that changed; None means: delete it.

    `summary` is the partition's row for the Delta table `partition_state`: plain values by column name, see
    `SUMMARY_SCHEMA`."""

    hot: bytes
    chunks: dict[str, bytes | None]
    findings: list[Finding]
    facts: list[Fact]
    summary: dict[str, Any]


SUMMARY_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("now", pa.timestamp("us", tz="UTC")),
        pa.field("log_start", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("last_stable", pa.int64()),
        pa.field("frontier", pa.int64()),
        pa.field("acknowledged", pa.int64()),
        pa.field("polled", pa.int64()),
        pa.field("failed", pa.int64()),
        pa.field("highest_acknowledged", pa.int64()),
        pa.field("highest_polled", pa.int64()),
        pa.field("unseen", pa.int64()),
        pa.field("window_runs", pa.int64()),
        pa.field("processes", pa.int64()),
        pa.field(
            "readers",
            pa.list_(pa.struct([("process", pa.int64()), ("position", pa.int64()), ("mode", pa.string())])),
        ),
        pa.field("state_bytes", pa.int64()),
    ]
)
"""`now` is log time. `acknowledged`, `polled` and `failed` count records since the start; `highest_*` are offsets;
`frontier` is the offset below which everything is settled; `unseen` counts the values past the delivery objective;
`state_bytes` is the size of the hot value."""


def chunks_needed(hot: bytes | None, slices: pa.Table) -> list[str]:
    """The names of the chunks that `step` will want for one partition: those that `slices` or the open window touch."""
    columns = from_table(slices)
    names: set[str] = set()
    for runs in (columns.sent, columns.polled):
        names |= chunk_names(runs.writer, runs.seq, runs.length)
    if hot is not None:
        state = load(hot)
        for kept in (state.outstanding, state.indefinite, state.polls):
            names |= chunk_names(kept.writer, kept.seq, kept.length)
    return sorted(names)


def step(
    stored: Mapping[Place, Stored],
    slices: pa.Table,
    objectives: Objectives,
    *,
    finished: bool = False,
) -> dict[Place, Stepped]:
    """Check the slices of many partitions.

    `slices` is a table of `SLICE_SCHEMA`, of any partitions and in any order; `stored` holds for each of them the
    hot value and the chunks that `chunks_needed` named, and nothing where the partition is new. `finished` says that no
    further row will ever come: everything still open is settled, as for a history read from a file; the table then
    holds the whole history.

    Raises `UnknownFormat` where a state was written by a version that this one does not know.
    """
    columns = {place: from_table(rows) for place, rows in by_place(slices).items()}
    visible = _visible_operations(columns) if finished else set()
    return {
        place: _step_one(place, stored.get(place) or Stored(), own, objectives, finished, visible)
        for place, own in columns.items()
    }


def _step_one(
    place: Place, stored: Stored, columns: Columns, objectives: Objectives, finished: bool,
    visible: set[tuple[int, int]],
) -> Stepped:  # fmt: skip
    state = load(stored.hot) if stored.hot else State()
    state.topic = columns.table["topic"][0].as_py()
    chunks = Chunks(stored.chunks)
    report = Report(place, state, objectives)
    fresh = completeness.new_rows(state, columns)
    completeness.note_lives(state, columns)
    _arrive(state, chunks, columns, fresh, visible, report)
    if finished:
        _finish(state, chunks, visible, _delivered_uncommitted(columns), report)
    else:
        _fold(state, chunks, objectives, report)
    hot = dump(state)
    return Stepped(hot, dict(chunks.changed()), report.findings(), [], _summary(place, state, len(hot)))


def _arrive(
    state: State, chunks: Chunks, columns: Columns, fresh: Any, visible: set[tuple[int, int]], report: Report
) -> None:
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
    placed = sends.placed(columns, sent, visible)
    state.sends = concat(state.sends, sends.moves_of(columns, placed))
    state.send_steps = concat(state.send_steps, sends.inside(columns, placed))
    state.inside = concat(state.inside, polls.inside(columns, committed))
    settled = committed.take(columns.type[committed.row] == OK)
    state.polled += int(settled.length.sum())
    if len(settled):
        state.highest_polled = max(state.highest_polled, int((settled.offset + settled.length).max()) - 1)
    state.polls = concat(state.polls, _polls(columns, settled))
    aborted.read_aborted(state, chunks, columns, settled, failed, state.polls, report)

    delivery.acknowledge(state, _places(acknowledged), columns.completed[acknowledged.row])
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
    placement.place(state, chunks, concat(_places(seen_at), _places(known)), when, report)
    _index(state, committed.take(committed.offset >= 0), known)
    zero.judge_zeros(state, columns, fresh, known, seen_at, report)
    seen = fresh & (columns.log_end >= 0)
    if seen.any():
        state.log_end = max(state.log_end, int(columns.log_end[seen].max()))


def _fold(state: State, chunks: Chunks, objectives: Objectives, report: Report) -> None:
    """Let log time pass up to the horizon: fold what is complete, move the frontier, give the verdicts."""
    limit = completeness.horizon(state)
    at = frontier.ticks(state, limit) if limit >= 0 else intervals.EMPTY
    if not len(at):
        _overflow(state, objectives, max(state.tick, 0), report)
        return
    end = int(at[-1])
    moves, state.moves = _until(state.moves, end)
    ripe, state.polls = _until(state.polls, end)
    sent, state.sends = _until(state.sends, end)
    sends.walk(state, sent)
    moves = take(moves, np.lexsort((moves.slice, moves.process, moves.at)))
    advance = frontier.advance(state, at, moves, objectives)
    polls.note_log_start(state, moves)
    polls.walk_inside(state, moves, advance)
    passes = polls.walk(state, moves, advance)
    _observe(state, moves)
    timely, late = delivery.split_by_time(ripe, advance)
    delivery.poll(state, chunks, timely)
    _promote(state, chunks, set(), end, report)
    delivery.note_passes(state, passes, advance)
    delivery.judge_losses(state, advance, end, objectives, report)
    polls.judge_steps(state, state.settled, advance.settled_at, report)
    sends.judge(state, state.settled, end, report, list_skips=False)
    if len(late):
        delivery.poll(state, chunks, late)
    delivery.age_out(state, end, objectives)
    delivery.judge_conditions(state, end, objectives, report)
    _judge_unverifiable(state, end, report)
    placement.forget_below(state, polls.needed_from(state))
    _overflow(state, objectives, end, report)


def _delivered_uncommitted(columns: Columns) -> Values:
    """What ok operations polled at read_uncommitted: delivered, though no proof of a commit."""
    polled = columns.polled
    read = polled.take((columns.type[polled.row] == OK) & ~columns.committed_only[polled.row])
    return values(read.writer, read.seq, read.length)


def _finish(state: State, chunks: Chunks, visible: set[tuple[int, int]], delivered: Values, report: Report) -> None:
    """Nothing more will come: every outcome is known, and every verdict can be given."""
    end = max([0, *(int(t.max()) for t in (state.moves.at, state.polls.at, state.outstanding.since) if len(t))])
    moves, polled = state.moves, state.polls
    state.moves, state.polls = take(moves, slice(0, 0)), take(polled, slice(0, 0))
    polls.walk_inside(state, take(moves, np.argsort(moves.at, kind="stable")), None)
    polls.walk(state, take(moves, np.lexsort((moves.slice, moves.process, moves.at))), None)
    _observe(state, moves)
    delivery.poll(state, chunks, polled)
    delivery.drop_delivered(state, delivered)
    delivery.judge_unseen(state, end, report)
    _promote(state, chunks, visible, end, report)
    delivery.drop_delivered(state, delivered)
    state.highest_polled = _highest_first_place(state, polled)
    delivery.settle_finished(state, end, report)
    polls.judge_steps(state, frontier.FOREVER, lambda _: end, report)
    sends.walk(state, state.sends)
    sends.judge(state, frontier.FOREVER, end, report, list_skips=True)


def _promote(state: State, chunks: Chunks, visible: set[tuple[int, int]], at: int, report: Report) -> None:
    shown = delivery.promote(state, chunks, visible)
    if len(shown):
        placement.place(state, chunks, shown, np.full(len(shown), at, np.int64), report)
        spans = intervals.merge(
            np.append(state.index.start, shown.offset), np.append(state.index.end, shown.offset + shown.length)
        )
        state.index = Spans(*spans)
    delivery.settle_acknowledged(state, chunks, (intervals.EMPTY, intervals.EMPTY, intervals.EMPTY))


def _highest_first_place(state: State, polled: Polls) -> int:
    """The highest index polled, each value counting at the first of its places."""
    if not len(polled):
        return -1
    if not len(state.moved.offset) and int(polled.offset.min()) >= 0:
        return int((polled.offset + polled.length).max()) - 1
    places = delivery.extreme_places(state.log, values(polled.writer, polled.seq, polled.length), last=False)
    return int(places.offset.max(initial=-1))


def _observe(state: State, moves: Any) -> None:
    """What the observers' rows told: the log start, and what is readable since when."""
    seen = np.flatnonzero(moves.stable >= 0)
    delivery.note_readable(state, moves.at[seen], moves.stable[seen])
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
        placement.forget_below(state, state.settled)
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


def _visible_operations(columns: Mapping[Place, Columns]) -> set[tuple[int, int]]:
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


def _places(runs: Runs) -> Places:
    return Places(runs.offset, runs.writer, runs.seq, runs.length)


def _polls(columns: Columns, runs: Runs) -> Polls:
    subscribed = columns.subscribed[runs.row].astype(np.int64)
    return Polls(columns.completed[runs.row], runs.offset, runs.writer, runs.seq, runs.length, 1 - subscribed)


def _index(state: State, polled: Runs, acknowledged: Runs) -> None:
    """The offsets that are no holes: what was polled at read_committed, and what was acknowledged."""
    start: Ints = np.concatenate((polled.offset, acknowledged.offset))
    end = np.concatenate((polled.offset + polled.length, acknowledged.offset + acknowledged.length))
    new = end > state.settled
    state.index = Spans(
        *intervals.merge(np.append(state.index.start, start[new]), np.append(state.index.end, end[new]))
    )


def _until(table: Any, end: int) -> tuple[Any, Any]:
    """The entries up to log time `end`, and the rest."""
    ripe = table.at <= end
    return (table, take(table, slice(0, 0))) if ripe.all() else (take(table, ripe), take(table, ~ripe))


def _summary(place: Place, state: State, size: int) -> dict[str, Any]:
    def known(value: int) -> int | None:
        return None if value < 0 else value

    return {
        "cluster": place.cluster,
        "topic_id": place.topic_id,
        "topic": state.topic,
        "partition": place.partition,
        "now": from_micros(state.now) if state.now >= 0 else None,
        "log_start": known(state.log_start),
        "log_end": known(state.log_end),
        "last_stable": known(state.last_stable),
        "frontier": state.settled,
        "acknowledged": state.acknowledged,
        "polled": state.polled,
        "failed": state.failed,
        "highest_acknowledged": known(state.highest_acknowledged),
        "highest_polled": known(state.highest_polled),
        "unseen": state.unseen,
        "window_runs": len(state.log),
        "processes": len(state.processes),
        "readers": [
            {"process": n, "position": known(p.position), "mode": "subscribe" if p.subscribed else "assign"}
            for n, p in frontier.readers(state)
        ],
        "state_bytes": size,
    }
