"""A space-time diagram: who sent and who polled what, each process in a lane of its own, time to the right.

    rows of the probe log -> space_time(rows, focus, names) -> SpaceTime -> monitor.diagrams.space_time_svg.svg

A lane is a small chart: offsets upward, around the records in `focus` and no others. An operation is a bar, from its
invocation to its completion, over the offsets that it sent or went over. On it stands a mark for each record in focus:
where it was sent, where it was given, where it was gone past and not given. A line leads from where a record was sent
to everyone who was given it. Nothing here knows of pixels but by the axes; the shapes are the same for the status page
and for a report.

What is drawn is bounded: `MOST` operations, `LANES` lanes; what is left out is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

MOST: Final = 160
LANES: Final = 14
AROUND_OFFSETS: Final = 4
"""Offsets that are shown below and above each record in focus."""
AROUND_TIME: Final = timedelta(milliseconds=400)
"""Neighbouring operations are drawn so long before and after those that concern a record in focus."""

Value = tuple[int, int]
"""Writer and sequence number."""
Kind = Literal["sent", "given", "passed"]


@dataclass(frozen=True, slots=True)
class Focus:
    """The records that the diagram is about: values, or what stands at offsets, of one partition."""

    values: Collection[Value] = ()
    offsets: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """One operation: `low` to `high` are the first and the last offset that it sent or went over, None where nobody
    knows them (a send that was told no offset). `rewound`: the poll began below where this process stood before.
    `ending`: of a transaction that sent a record in focus, whether commit or abort was asked for, and when. `did`: all
    of it in words."""

    f: str
    type: str
    invoked: datetime
    completed: datetime
    low: int | None
    high: int | None
    sends: bool
    in_focus: bool
    rewound: bool
    ending: tuple[str, datetime] | None
    did: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One record in focus, in one operation. `offset` is None for a send that was told none."""

    kind: Kind
    at: datetime
    offset: int | None
    value: Value | None
    type: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What one process did, in the order of time. `sends`: it is a writer."""

    process: int
    name: str
    sends: bool
    bars: Sequence[Bar]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A record on its way: lanes and marks by their numbers."""

    from_lane: int
    from_mark: int
    to_lane: int
    to_mark: int


@dataclass(frozen=True, slots=True)
class SpaceTime:
    """`offsets`: those of the records in focus, in order. `left_out`: operations that are not drawn, of those that
    touch these offsets at that time. Empty lanes: the probe log says nothing of these records."""

    lanes: Sequence[Lane]
    arrows: Sequence[Arrow]
    offsets: Sequence[int]
    left_out: int = 0


@dataclass(slots=True)
class _Operation:
    row: Mapping[str, Any]
    marks: list[Mark]
    spans: list[tuple[int, int]] = field(default_factory=list)
    rewound: bool = False

    @property
    def in_focus(self) -> bool:
        return bool(self.marks)

    @property
    def sent(self) -> bool:
        return any(mark.kind == "sent" for mark in self.marks)


def space_time(rows: Sequence[Mapping[str, Any]], focus: Focus, names: Mapping[int, str]) -> SpaceTime:
    """The diagram of these rows of the probe log (sends, polls and transactions of one partition, in any order).

    A row needs `process`, `f`, `type`, `error`, `invoked`, `completed`, `sent`, `polled`, `position_before` and
    `position_after`, and may have `transactional_id`, `txn_intent` and `end_invoked`. `names`: what processes and
    writers are called."""
    ordered = sorted(rows, key=lambda row: (row["invoked"], row["process"]))
    offsets = sorted({*focus.offsets, *_standing(ordered, focus.values)})
    operations = list(_operations(ordered, focus, offsets))
    drawn = _chosen(operations)
    lanes, left = _lanes(drawn, names, offsets)
    return SpaceTime(lanes, list(_arrows(lanes)), offsets, len(_near(operations)) - len(drawn) + left)


def runs(row: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The runs of a row's column `sent` or `polled`."""
    return row.get(name) or ()


def _standing(rows: Sequence[Mapping[str, Any]], values: Collection[Value]) -> set[int]:
    """The offsets at which these values stand, by what was acknowledged and polled."""
    found = set()
    for row in rows:
        for run in (*runs(row, "sent"), *runs(row, "polled")):
            if run["offset"] is not None:
                for writer, seq in values:
                    if writer == run["writer"] and run["seq"] <= seq < run["seq"] + run["length"]:
                        found.add(run["offset"] + seq - run["seq"])
    return found


def _operations(rows: Sequence[Mapping[str, Any]], focus: Focus, offsets: Sequence[int]) -> Iterator[_Operation]:
    """The operations that touch the offsets around the focus, or a value in it."""
    stood: dict[int, int] = {}
    for row in rows:
        marks = [*_sent(row, focus, offsets), *_given(row, offsets)]
        spans = [(run["offset"], run["offset"] + run["length"] - 1) for run in runs(row, "sent") if _known(run)]
        before, after = row["position_before"], row["position_after"]
        rewound = before is not None and before < stood.get(row["process"], before)
        if before is not None and after is not None:
            spans.append((before, after - 1) if after > before else (after, before))
            stood[row["process"]] = after
            given = {mark.offset for mark in marks}
            marks += [
                Mark("passed", row["completed"], offset, None, row["type"])
                for offset in offsets
                if before <= offset < after and offset not in given
            ]
        near = [span for span in spans if _touches(span, offsets) and not _idle(row)]
        if marks or near:
            yield _Operation(row, marks, near, rewound)


def _known(run: Mapping[str, Any]) -> bool:
    return run["offset"] is not None and run["offset"] >= 0


def _idle(row: Mapping[str, Any]) -> bool:
    """A poll that was given nothing and went nowhere."""
    return row["position_before"] is not None and row["position_before"] == row["position_after"]


def _touches(span: tuple[int, int], offsets: Sequence[int]) -> bool:
    return any(span[0] <= one + AROUND_OFFSETS and one - AROUND_OFFSETS <= span[1] for one in offsets)


def _sent(row: Mapping[str, Any], focus: Focus, offsets: Sequence[int]) -> Iterator[Mark]:
    for run in runs(row, "sent"):
        seqs = {
            seq
            for writer, seq in focus.values
            if writer == run["writer"] and run["seq"] <= seq < run["seq"] + run["length"]
        }
        if _known(run):
            seqs |= {run["seq"] + one - run["offset"] for one in offsets if 0 <= one - run["offset"] < run["length"]}
        for seq in sorted(seqs):
            offset = run["offset"] + seq - run["seq"] if _known(run) else None
            yield Mark("sent", row["invoked"], offset, (run["writer"], seq), row["type"])


def _given(row: Mapping[str, Any], offsets: Sequence[int]) -> Iterator[Mark]:
    for run in runs(row, "polled"):
        for offset in offsets:
            if _known(run) and 0 <= offset - run["offset"] < run["length"]:
                value = (run["writer"], run["seq"] + offset - run["offset"])
                yield Mark("given", row["completed"], offset, value, row["type"])


def _near(operations: Sequence[_Operation]) -> list[_Operation]:
    """Those that concern a record in focus, and their neighbours in time."""
    times = [(one.row["invoked"] - AROUND_TIME, one.row["completed"] + AROUND_TIME) for one in operations if one.marks]
    merged: list[tuple[datetime, datetime]] = []
    for low, high in sorted(times):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return [
        one
        for one in operations
        if any(one.row["invoked"] <= high and low <= one.row["completed"] for low, high in merged)
    ]


def _chosen(operations: Sequence[_Operation]) -> list[_Operation]:
    """Those that are drawn: in focus first, each process's first one before its second, then neighbours."""
    turns: dict[int, int] = defaultdict(int)
    ranked = []
    for number, one in enumerate(_near(operations)):
        turn = turns[one.row["process"]]
        turns[one.row["process"]] += one.in_focus
        ranked.append((not one.in_focus, turn, number, one))
    ranked.sort(key=lambda rank: rank[:3])
    chosen = [rank[3] for rank in ranked[:MOST]]
    return sorted(chosen, key=lambda one: (one.row["invoked"], one.row["process"]))


def _lanes(
    operations: Sequence[_Operation], names: Mapping[int, str], offsets: Sequence[int]
) -> tuple[list[Lane], int]:
    """One lane for each process that had to do with a record in focus, writers first; and how many operations of
    others are left out."""
    by: dict[int, list[_Operation]] = defaultdict(list)
    for one in operations:
        by[one.row["process"]].append(one)
    concerned = [process for process, done in by.items() if any(one.in_focus for one in done)]
    made = [_lane(process, by[process], names, offsets) for process in concerned]
    made.sort(key=lambda lane: (not lane.sends, min(mark.at for mark in lane.marks), lane.process))
    drawn = made[:LANES]
    return drawn, len(operations) - sum(len(lane.bars) for lane in drawn)


def _lane(process: int, done: Sequence[_Operation], names: Mapping[int, str], offsets: Sequence[int]) -> Lane:
    bars = []
    for one in done:
        row, asked = one.row, one.row.get("end_invoked")
        bars.append(
            Bar(
                f=row["f"],
                type=row["type"],
                invoked=row["invoked"],
                completed=row["completed"],
                low=min((span[0] for span in one.spans), default=None),
                high=max((span[1] for span in one.spans), default=None),
                sends=bool(runs(row, "sent")),
                in_focus=one.in_focus,
                rewound=one.rewound,
                ending=(row.get("txn_intent") or "end", asked) if asked is not None and one.sent else None,
                did=did(row, one.marks, names, one.rewound),
            )
        )
    marks = [mark for one in done for mark in one.marks]
    name = names.get(process, f"process …{process % 10_000:04d}")
    return Lane(process, name, any(mark.kind == "sent" for mark in marks), bars, marks)


def _arrows(lanes: Sequence[Lane]) -> Iterator[Arrow]:
    """From where a value was sent to that offset, to whoever was given it there."""
    sent = {
        (mark.value, mark.offset): (number, index)
        for number, lane in enumerate(lanes)
        for index, mark in enumerate(lane.marks)
        if mark.kind == "sent"
    }
    for number, lane in enumerate(lanes):
        for index, mark in enumerate(lane.marks):
            if mark.kind == "given":
                source = sent.get((mark.value, mark.offset)) or sent.get((mark.value, None))
                if source is not None:
                    yield Arrow(*source, number, index)


# In words


def did(row: Mapping[str, Any], marks: Sequence[Mark], names: Mapping[int, str], rewound: bool = False) -> str:
    """What one operation did, in one sentence: for whoever cannot see the diagram, or looks closer."""
    took = (row["completed"] - row["invoked"]).total_seconds()
    told = f"{', '.join(part for part in (row['type'], row['error']) if part)}, after {took:.3f} s"
    parts = []
    sends = runs(row, "sent")
    if sends:
        records = sum(run["length"] for run in sends)
        known = [run for run in sends if _known(run)]
        where = f" to {_ranges(known)}" if known else ", to no offset that it was told"
        within = f" in a transaction of {row['transactional_id']}" if row.get("transactional_id") else ""
        parts.append(f"sent {records} record{'s' * (records != 1)}{where}{within}")
    before, after = row["position_before"], row["position_after"]
    if before is not None and after is not None:
        given = sum(run["length"] for run in runs(row, "polled"))
        went = f"polled from offset {before} to {after}" + (", going back" if rewound else "")
        parts.append(f"{went}, and was given {given or 'no'} record{'s' * (given != 1)}")
    for kind, words in (("given", "among them"), ("passed", "it went past")):
        of = [mark for mark in marks if mark.kind == kind]
        if of:
            parts.append(f"{words} {', '.join(_named(mark, names) for mark in of[:6])}{', …' * (len(of) > 6)}")
    if row.get("end_invoked") is not None:
        parts.append(f"asked to {row.get('txn_intent') or 'end'} it at {row['end_invoked']:%H:%M:%S.%f}"[:-3])
    return f"{'; '.join(parts) or row['f']} ({told})"


def _named(mark: Mark, names: Mapping[int, str]) -> str:
    if mark.value is None:
        return f"offset {mark.offset}"
    return f"{names.get(mark.value[0], mark.value[0])}/{mark.value[1]} at offset {mark.offset}"


def _ranges(known: Sequence[Mapping[str, Any]]) -> str:
    said = [
        f"{run['offset']}" if run["length"] == 1 else f"{run['offset']} to {run['offset'] + run['length'] - 1}"
        for run in sorted(known, key=lambda run: run["offset"])
    ]
    return f"offset{'s' * (len(said) > 1 or ' to ' in said[0])} {', '.join(said[:4])}{', …' * (len(said) > 4)}"
