"""`phantom-read`: a polled value that nobody sent.

Writers count their sequence numbers per partition and reserve them before they send, so that a value beyond the
highest one that its writer ever invoked was never sent. That is known once the writer's log is complete past the poll,
by its own host's clock: a poll of another host waits until that clock has passed it by the measured bound of the two
(`rules.settling.clocks`), and by the grace. What no send is known of waits until then (at most `KEPT` runs). So does
what is polled of a writer that the log does not know: its host's log may come an hour late (at most `STRANGERS_KEPT`
runs). Of more, those are kept of each writer that hold its highest values, of which one is a phantom if any is. Where
something of a writer's log is missing for good, nothing is concluded from what was polled after that began.

A poll counts as soon as its own row is here: nothing else of its reader is needed.

One small chunk for each writer that sent here, dropped with its last values below the log start
(`rules.audit.digests`); a writer that sent nothing is known as long as its process is, and as it is among the newest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import OK, START, Columns, Runs, integers
from rules.arrays.intervals import EMPTY, Bools, Ints, distinct, heads, indices, numbered
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import Chunks
from rules.kept.codec import names
from rules.kept.report import Report
from rules.kept.state import NEVER, Hole, Places, Polls, State, concat, take
from rules.settling.clocks import UNKNOWN, ahead
from rules.settling.moves import polls_of

KEPT: Final = 10_000
"""Runs of a partition that wait for their sends; of more, the highest of each writer are kept."""
STRANGERS_KEPT: Final = 1_000
"""Likewise of writers that the log does not know, and may never: another tool's values wait here as well."""
SILENT_KEPT: Final = 256
"""Beside those that live. Of one that is over, and sent nothing before as many others had begun, what somebody polls is
taken for a stranger's, and waits."""
_FORM: Final = struct.Struct("<qqqb")


class Record(NamedTuple):
    """What is known of a writer: the highest sequence number that it sent, its process, the highest offset at which a
    value of it stands, and whether something of its log is missing for good (1)."""

    highest: int = -1
    process: int = -1
    top: int = -1
    lost: int = 0


def record_name(writer: int) -> str:
    """The chunk that holds what is known of a writer."""
    return f"writer.{writer:x}"


def record(chunks: Chunks, writer: int) -> Record | None:
    """What is known of a writer, None where nothing is."""
    stored = chunks.blob(record_name(writer))
    return None if stored is None else Record(*_FORM.unpack(stored))


def record_top(chunks: Chunks, writer: int) -> int:
    """The highest offset at which a value of the writer stands, -1 for none."""
    known = record(chunks, writer)
    return -1 if known is None else known.top


def unsent_in(state: State) -> Unsent:
    """What was polled of which no send was known, as of the step before or this one."""
    own: Phantoms | None = state.checks.get(CHECK.name)
    return Unsent() if own is None else own.unsent


def _keep(chunks: Chunks, writer: int, one: Record) -> None:
    chunks.put(record_name(writer), _FORM.pack(*one))


@dataclass(slots=True)
class Unsent(Polls):
    """`mono`: when each was polled at read_committed, by its boot's monotonic clock (ns); -1 where it was not, or
    nobody tells."""

    mono: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Phantoms:
    """`unsent`: polls of which no send is known yet, at most `KEPT` and `STRANGERS_KEPT`. `silent`: [writer, process]
    of the newest `SILENT_KEPT` that said that they began. `lost`: writers of whose log something is missing for good,
    until the next step tells their records so."""

    unsent: Unsent = field(default_factory=Unsent)
    silent: list[list[int]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


def needs(own: Phantoms, asked: Asked) -> Iterable[str]:
    """The records of the writers that a step will meet."""
    runs = (asked.columns.sent, asked.columns.polled, own.unsent)
    writers = distinct(np.concatenate([one.writer for one in runs]))
    return map(record_name, [*writers.tolist(), *own.lost])


def arrive(own: Phantoms, new: News) -> None:
    """Learn what was sent, what was polled of which no send is known, and where values stand."""
    for writer in own.lost:
        _keep(new.chunks, writer, (record(new.chunks, writer) or Record())._replace(lost=1))
    own.lost = []
    _note_beginnings(own, new)
    _note_sends(new.chunks, new.columns, new.sent)
    _note_polls(own, new)
    _note_places(new.chunks, new.placed.places)


def _note_beginnings(own: Phantoms, new: News) -> None:
    """A writer that has sent nothing here is known by its start row."""
    for row in new.where(START).tolist():
        number = int(new.columns.process[row])
        process = new.state.processes.get(number)
        if process is not None and process.writer >= 0 and [process.writer, number] not in own.silent:
            own.silent = [*own.silent, [process.writer, number]][-SILENT_KEPT:]


def _note_sends(chunks: Chunks, columns: Columns, sent: Runs) -> None:
    """New sends, of any outcome."""
    if not len(sent):
        return
    writers, inverse = numbered(sent.writer)
    highest = np.full(len(writers), -1, np.int64)
    np.maximum.at(highest, inverse, sent.seq + sent.length - 1)
    first: Ints = np.zeros(len(writers), np.int64)
    first[inverse] = np.arange(len(sent))
    for writer, top, at in zip(writers.tolist(), highest.tolist(), first.tolist(), strict=True):
        known = record(chunks, writer) or Record()
        if known.highest < top:
            _keep(chunks, writer, known._replace(highest=top, process=int(columns.process[sent.row[at]])))


def _note_polls(own: Phantoms, new: News) -> None:
    """What ok operations polled beyond what is known to be sent; committed or not, what was never sent may not be
    there."""
    polled = new.polled.take(new.columns.type[new.polled.row] == OK)
    if not len(polled):
        return
    writers, inverse = numbered(polled.writer)
    known = [record(new.chunks, writer) for writer in writers.tolist()]
    highest = np.array([-1 if one is None else one.highest for one in known], np.int64)
    beyond = polled.take(polled.seq + polled.length - 1 > highest[inverse])
    if len(beyond):
        own.unsent = concat(own.unsent, _unsent(new.columns, beyond))


def _unsent(columns: Columns, beyond: Runs) -> Unsent:
    polls, mono = polls_of(columns, beyond), integers(columns.arrays["mono_completed"])[beyond.row]
    known = columns.committed_only[beyond.row] & (polls.boot >= 0)
    return Unsent(*[*(getattr(polls, name) for name in names(Polls)), np.where(known, mono, -1)])


def _note_places(chunks: Chunks, placed: Places) -> None:
    """Values of these writers stand at these offsets."""
    if not len(placed):
        return
    writers, inverse = numbered(placed.writer)
    tops = np.full(len(writers), -1, np.int64)
    np.maximum.at(tops, inverse, placed.offset + placed.length - 1)
    for writer, top in zip(writers.tolist(), tops.tolist(), strict=True):
        known = record(chunks, writer)
        if known is not None and known.top < top:
            _keep(chunks, writer, known._replace(top=top))


def fold(own: Phantoms, passage: Passage) -> None:
    """Decide the polls that wait, as far as their writers' logs are here."""
    own.lost += passage.lost_writers
    if not len(own.unsent):
        return
    polled, state, report = take(own.unsent, own.unsent.at.argsort(kind="stable")), passage.state, passage.report
    writers, inverse = numbered(polled.writer)
    known = _known(own, passage, writers)
    limits, process = known.highest[inverse], known.process[inverse]
    grace, waiting = report.objectives.grace, []
    missing, through = _missing(state), {}
    for i in indices(polled.seq + polled.length - 1 > limits).tolist():
        hole = missing.get(int(process[i]))
        if hole is not None and not _is_before(state, polled, i, hole, grace):
            continue
        pair = int(process[i]), int(polled.boot[i])
        if pair not in through:
            through[pair] = NEVER if passage.finished else _here_through(state, *pair)
        if through[pair] < int(polled.at[i]) + grace:
            waiting.append(i)
            continue
        highest = int(limits[i])
        start, end = max(int(polled.seq[i]), highest + 1), int(polled.seq[i] + polled.length[i])
        for seq in report.each("phantom-read", start, end):
            _report(polled, i, seq, highest, report)
    here = _highest(polled, np.array(waiting, np.int64), KEPT, report)
    own.unsent = take(
        polled, np.append(here, _highest(polled, indices(known.strange[inverse]), STRANGERS_KEPT, report))
    )


def _highest(polled: Polls, rows: Ints, most: int, report: Report) -> Ints:
    """Of more than `most` of these rows those that hold the highest values of each writer."""
    if len(rows) <= most:
        return rows
    end = (polled.seq + polled.length)[rows]
    ordered = rows[np.lexsort((-end, polled.writer[rows]))]
    first = heads(polled.writer[ordered])
    rank = np.arange(len(ordered)) - first.repeat(np.diff(np.append(first, len(ordered))))
    report.drop("writers of values that were polled", len(first) - most)
    return np.sort(ordered[rank.argsort(kind="stable")[:most]])


class _Writers(NamedTuple):
    """Of each writer: the highest sequence number that it sent, `NEVER` where nothing may be concluded; its process;
    and whether it is one that the log does not know."""

    highest: Ints
    process: Ints
    strange: Bools


def _known(own: Phantoms, passage: Passage, writers: Ints) -> _Writers:
    state, chunks = passage.state, passage.chunks
    highest = np.full(len(writers), NEVER, np.int64)
    process = np.full(len(writers), -1, np.int64)
    strange = np.zeros(len(writers), bool)
    silent = {entry[0]: entry[1] for entry in own.silent}
    silent |= {one.writer: number for number, one in state.processes.items() if one.writer >= 0}
    missing = _missing(state)
    for i, writer in enumerate(writers.tolist()):
        known = record(chunks, writer)
        if known is None and writer not in silent:
            strange[i] = not passage.finished
            continue
        process[i] = known.process if known is not None and known.process >= 0 else silent.get(writer, -1)
        lost = writer in own.lost or (known is not None and known.lost)
        if not lost or int(process[i]) in missing:  # what is missing is remembered, and when: long enough
            highest[i] = known.highest if known is not None else -1
    return _Writers(highest, process, strange)


def _missing(state: State) -> dict[int, Hole]:
    """By process, the first of what is missing for good."""
    first: dict[int, Hole] = {}
    for hole in (Hole(*entry) for entry in state.holes):
        if hole.process not in first or hole.start < first[hole.process].start:
            first[hole.process] = hole
    return first


def _is_before(state: State, polled: Polls, i: int, hole: Hole, grace: int) -> bool:
    """Was this polled before anything of its writer is missing, so that all it had sent by then is here?"""
    bound = ahead(state, hole.boot, int(polled.boot[i]))
    return bound < UNKNOWN and hole.start >= int(polled.at[i]) + max(bound, 0) + grace


def _here_through(state: State, writer: int, reader: int) -> int:
    """Of what a process sent before when, by the clock of boot `reader`, all is in the log; `NEVER` where all of it
    is."""
    process = state.processes.get(writer)
    if process is None or process.complete:
        return NEVER  # it is over, and all of its log is here, or was: no clock need be compared
    bound = ahead(state, process.boot, reader)
    return process.known_through - max(bound, 0) if bound < UNKNOWN else -UNKNOWN


def _report(polled: Polls, i: int, seq: int, highest: int, report: Report) -> None:
    writer, offset = int(polled.writer[i]), int(polled.offset[i])
    offset = offset + seq - int(polled.seq[i]) if offset >= 0 else -1
    if not report.once(f"phantom:{writer}:{seq}"):
        return
    sent = f"it sent up to {highest}" if highest >= 0 else "it sent nothing here"
    report.add(
        "phantom-read",
        (writer, seq),
        f"value {writer}/{seq} was polled, and its writer never sent it: {sent}",
        at=int(polled.at[i]),
        evidence={
            "writer": writer,
            "seq": seq,
            "offset": offset if offset >= 0 else None,
            "highest_sent": highest if highest >= 0 else None,
            "process": int(polled.process[i]),
            "op": int(polled.op[i]),
        },
    )


CHECK: Final = Check("phantom-read", Phantoms, needs=needs, arrive=arrive, fold=fold)
