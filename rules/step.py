"""The one entry point of the checks: `step(stored, slices) -> state, findings, facts`, for many partitions at once.

The streaming job, `offsetwatch check`, the rebuild, the tests and the benchmarks all call it. It knows no Spark, no
Kafka and no clock: `now` of a partition is the time of the marks in its rows.

A partition's state is a small *hot* value, read and written at each step, and *chunks*: what is known of 8,192
consecutive sequence numbers of one writer, read and written only when they are touched. Both are bytes here, so that
any store can hold them.

A step has two halves. *On arrival*, rules about what was seen look at the new rows, in whatever order they came: sets
only grow there. *In log time*, once the horizon (`rules.settling.completeness`) has passed them, readers' moves and
polls are folded in the order of their times, the settled frontier (`rules.settling.frontier`) moves up, and rules about
what is missing give their verdict. That is why the findings do not depend on how the history was cut into batches. The
halves are `rules.engine.arrival` and `rules.engine.log_time`; `rules.engine.finished` is the second for a whole
history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from rules.arrays.columns import Columns, by_place, from_table
from rules.arrays.intervals import some
from rules.checks.order import send_order
from rules.checks.records import irregular_records
from rules.checks.transactions import aborted_reads, transaction_outcomes
from rules.engine import arrival, carried_over, log_time, order
from rules.engine import finished as finished_history
from rules.engine.carried_over import Told
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import State, UnknownFormat, dump, load
from rules.settling import clocks, completeness, frontier
from rules.settling.gate import Gate
from rules.vocabulary.finding import Finding, Recheck
from rules.vocabulary.objectives import SECOND, Objectives
from rules.vocabulary.slices import SLICE_SCHEMA, Place
from rules.vocabulary.times import from_micros

__all__ = [
    "HELD",
    "SUMMARY_SCHEMA",
    "Prepared",
    "Stepped",
    "Stored",
    "Told",
    "UnknownFormat",
    "carry",
    "prepare",
    "settle",
    "step",
]


HELD: Final = 900 * SECOND
"""By how much log time is held back while a log is read again in the order of its times: for so much hosts' clocks may
differ without a verdict that had to be told otherwise."""


@dataclass(slots=True)
class Stored:
    """One partition's state as it is kept between steps: `hot` is None before the first; `chunks` by chunk name."""

    hot: bytes | None = None
    chunks: dict[str, bytes] = field(default_factory=dict)

    def take(self, stepped: Stepped) -> None:
        """Keep what a step changed."""
        self.hot = stepped.hot
        for name, chunk in stepped.chunks.items():
            if chunk is None:
                self.chunks.pop(name, None)
            else:
                self.chunks[name] = chunk


@dataclass(slots=True)
class Stepped:
    """What a step made of one partition. `chunks` holds only those that changed; None means: delete it.

    `facts` is a table of `rules.vocabulary.finding.FACT_SCHEMA` for stage 2. `rechecks` are ranges of offsets that the
    log's rows must explain. `summary` is the partition's row for the Delta table `partition_state`: plain values by
    column name, see `SUMMARY_SCHEMA`; and `began`, of no column: when the earliest of its processes began there."""

    hot: bytes
    chunks: dict[str, bytes | None]
    findings: list[Finding]
    facts: pa.Table
    rechecks: list[Recheck]
    summary: dict[str, Any]


SUMMARY_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("now", pa.timestamp("us", tz="UTC")),
        pa.field("checked_through", pa.timestamp("us", tz="UTC")),
        pa.field("read_through", pa.timestamp("us", tz="UTC")),
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
        pa.field("send_skips", pa.int64()),
        pa.field("partial_reads", pa.int64()),
        pa.field("irregular", pa.int64()),
        pa.field("window_runs", pa.int64()),
        pa.field("processes", pa.int64()),
        pa.field(
            "readers",
            pa.list_(pa.struct([("process", pa.int64()), ("position", pa.int64()), ("mode", pa.string())])),
        ),
        pa.field("state_bytes", pa.int64()),
    ]
)
"""`now` is log time; through `checked_through` every verdict is given, also what needs the log of the process that is
furthest behind; through `read_through` all that readers did is here, as far as it is expected. `acknowledged`, `polled`
and `failed` count records since the start; `highest_*` are offsets; `frontier` is the offset below which everything is
settled; `unseen` counts the values past the delivery objective; `send_skips` and `partial_reads` count what is legal
(`int-send-skip`, `G1b`) since the start, `irregular` the records that were corrupted, foreign or relocated;
`state_bytes` is the size of the hot value."""


@dataclass(slots=True)
class Prepared:
    """A step that is about to be made in one partition: `chunks` names what it will want of the store."""

    place: Place
    columns: Columns
    state: State
    chunks: list[str]

    def step(self, chunks: Mapping[str, bytes], objectives: Objectives) -> Stepped:
        """Make it. `chunks` holds those of the named ones that are stored."""
        return _stepped(self, Chunks(chunks, set(self.chunks)), objectives, None)


def prepare(hot: bytes | None, slices: pa.Table, *, held: int = 0) -> Prepared:
    """Read a partition's hot value and its new rows (`slices`, `SLICE_SCHEMA`, of that partition alone).

    `held`: log time stays so many microseconds behind the newest mark. Rows that are read again in the order of their
    times come from hosts whose clocks differ: what one of them did may come as much later.

    Raises `UnknownFormat` where the state was written by a version that this one does not know."""
    columns = from_table(slices)
    place = Place(*(columns.arrays[name][0].as_py() for name in ("cluster", "topic_id", "partition")))
    state = load(hot, order.KINDS) if hot is not None else State()
    state.held = held
    clocks.set_times(state, columns)  # what is asked for rests on log time, as what is judged does
    return Prepared(place, columns, state, sorted(order.chunks_needed(state, columns)))


def settle(place: Place, hot: bytes) -> Prepared:
    """A step without rows, for a partition whose log time was `held` back: it comes to the newest mark now."""
    columns, state = from_table(SLICE_SCHEMA.empty_table()), load(hot, order.KINDS)
    clocks.settle(state)
    state.held = 0
    return Prepared(place, columns, state, sorted(order.chunks_needed(state, columns)))


def carry(hot: bytes, told: Mapping[str, Told], objectives: Objectives) -> tuple[bytes, set[str]]:
    """Conditions that were told as open before a rebuild, and that the rebuilt state (`hot`) does not hold: the state
    that goes on with those of them that it cannot judge yet, and which these are."""
    state = load(hot, order.KINDS)
    carried = carried_over.carry(state, told, objectives)
    return (dump(state, order.KINDS), carried) if carried else (hot, carried)


def step(
    stored: Mapping[Place, Stored],
    slices: pa.Table,
    objectives: Objectives,
    *,
    finished: bool = False,
) -> dict[Place, Stepped]:
    """Check the slices of many partitions.

    `slices` is a table of `SLICE_SCHEMA`, of any partitions and in any order; `stored` holds for each of them the
    hot value and all chunks, and nothing where the partition is new. `finished` says that no
    further row will ever come: everything still open is settled, as for a history read from a file; the table then
    holds the whole history.

    Raises `UnknownFormat` where a state was written by a version that this one does not know.
    """
    if finished:
        columns = {place: from_table(rows) for place, rows in by_place(slices).items()}
        visible = finished_history.visible_operations(columns)
        made = {}
        for place, own in columns.items():  # one after the other, so that one state is in memory at a time
            state = State()
            clocks.set_times(state, own)
            made[place] = _stepped(Prepared(place, own, state, []), Chunks({}, None), objectives, visible)
        return made
    made = {}
    for place, rows in by_place(slices).items():
        kept = stored.get(place) or Stored()
        made[place] = prepare(kept.hot, rows).step(kept.chunks, objectives)
    return made


def _stepped(
    prepared: Prepared, chunks: Chunks, objectives: Objectives, visible: set[tuple[int, int]] | None
) -> Stepped:
    """`visible`: the indefinite operations of a finished history that turned out visible; None for a live one."""
    state, columns, place = prepared.state, prepared.columns, prepared.place
    if len(columns):
        state.topic = columns.arrays["topic"][0].as_py()
    report = Report(place, state, objectives)
    fresh = completeness.new_rows(state, columns)
    completeness.note_lives(state, columns)
    arrival.arrive(state, chunks, columns, fresh, visible, report)
    if visible is not None:
        finished_history.locate_polls(state, columns, fresh)
        finished_history.finish(state, chunks, columns, fresh, visible, report)
        finished_history.explain_all(columns, report)
        gate = Gate(state)
    else:
        late = some(columns.completed[fresh] <= state.tick)
        gate = log_time.fold(state, chunks, report, late=late)
    hot = dump(state, order.KINDS)
    facts = report.facts.table(place, state.topic)
    summary = _summary(place, state, gate, len(hot))
    return Stepped(hot, chunks.changed(), report.findings(), facts, report.rechecks, summary)


def _summary(place: Place, state: State, gate: Gate, size: int) -> dict[str, Any]:
    def known(value: int) -> int | None:
        return None if value < 0 else value

    checked, read = min(state.tick, gate.known_through()), min(state.tick, gate.read_through())
    return {
        "cluster": place.cluster,
        "topic_id": place.topic_id,
        "topic": state.topic,
        "partition": place.partition,
        "began": min((one.first for one in state.processes.values() if one.first >= 0), default=None),
        "now": from_micros(state.now) if state.now >= 0 else None,
        "checked_through": from_micros(checked) if checked >= 0 else None,
        "read_through": from_micros(read) if read >= 0 else None,
        "log_start": known(state.log_start),
        "log_end": known(state.log_end),
        "last_stable": known(state.last_stable),
        "frontier": state.settled,
        "acknowledged": state.acknowledged,
        "polled": state.polled,
        "failed": order.own(state, aborted_reads.CHECK).failed,
        "highest_acknowledged": known(state.highest_acknowledged),
        "highest_polled": known(state.highest_polled),
        "unseen": state.unseen,
        "send_skips": order.own(state, send_order.CHECK).skips,
        "partial_reads": order.own(state, transaction_outcomes.CHECK).partial_reads,
        "irregular": order.own(state, irregular_records.CHECK).records,
        "window_runs": len(state.log),
        "processes": len(state.processes),
        "readers": [
            {"process": n, "position": known(p.position), "mode": "subscribe" if p.subscribed else "assign"}
            for n, p in frontier.readers(state)
        ],
        "state_bytes": size,
    }
