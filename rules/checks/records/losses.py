"""`lost-write`: what was acknowledged, and what a reader has gone over, must have been polled.

Acknowledged values of visible writes are *outstanding* until an ok operation polls them. A write is visible when its
operation is ok, or is indefinite and one of its values was polled. An outstanding value is a loss when a reader in
assign mode went over its place while that lay above the log start (`rules.settling.listings`), the grace is over since
it was acknowledged and the first of them did so, and the log of everybody who may have polled it is here past that
point without a hole.

Whichever of these comes last decides, whenever it comes: what readers went over and what nobody has polled are kept
until then. A value that may have been polled in a hole is never called lost; it stays `suspected`.

A log that was cut gives offsets again: what was passed before a value was sent says nothing of that value
(`rules.settling.passes`).

State: the outstanding runs, bounded by `Objectives.window_runs` (`window-overflow`), and the indefinite sends that
readers may still prove visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Runs
from rules.arrays.intervals import Bools, Ints, indices, some
from rules.checks.records import unseen
from rules.checks.transactions import transaction_evidence
from rules.checks.transactions.transaction_evidence import TransactionTold
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import Chunks, Values, chunk_names, values
from rules.kept.report import Report
from rules.kept.state import Indefinite, Outstanding, Places, Polls, Proven, Spans, State, concat, take
from rules.settling import passes, strangers
from rules.settling.frontier import TICK, spread
from rules.settling.gate import READERS, Gate

NONE: Final = np.empty(0, np.int64)
STARTS_KEPT: Final = 64
"""Of a log start that rose more often while a reader is late, what lies below one that is forgotten is told as taken
by retention with the next one."""
UNCOMPARED: Final = -2
"""A `due` of what has not been compared yet with what readers had passed before it was known; -1 has, and was not."""


@dataclass(slots=True)
class Losses:
    """See the module. `uncommitted`: somebody polls at read_uncommitted. `starts`: [when it was told first, log start]
    of the newest `STARTS_KEPT` that count, of each log where it was cut below its start."""

    outstanding: Outstanding = field(default_factory=Outstanding)
    indefinite: Indefinite = field(default_factory=Indefinite)
    uncommitted: bool = False
    starts: list[list[int]] = field(default_factory=list)


def needs(own: Losses, asked: Asked) -> Iterable[str]:
    """The chunks of what is outstanding; those of what is being polled the engine asks for."""
    out, unsure = own.outstanding, own.indefinite
    return chunk_names(out.writer, out.seq, out.length) | chunk_names(unsure.writer, unsure.seq, unsure.length)


def arrive(own: Losses, new: News) -> None:
    """Take in new acknowledgements. What may have been polled by rows that are gone is not waited for."""
    columns = new.columns
    acknowledged, indefinite = new.acknowledged, new.indefinite
    if new.state.begins >= 0:
        acknowledged, indefinite = (
            runs.take(columns.invoked[runs.row] >= new.state.begins) for runs in (acknowledged, indefinite)
        )
    row = acknowledged.row
    sent = Sent(columns.completed[row], columns.invoked[row], columns.boot[row])
    acknowledge(own, new.state, _places(acknowledged), sent)
    if len(indefinite):
        row = indefinite.row
        made = Indefinite(
            columns.process[row],
            columns.op[row],
            indefinite.offset,
            indefinite.writer,
            indefinite.seq,
            indefinite.length,
            columns.completed[row],
            columns.invoked[row],
            columns.boot[row],
        )
        own.indefinite = concat(own.indefinite, made)


def _places(runs: Runs) -> Places:
    return Places(runs.offset, runs.writer, runs.seq, runs.length)


class Sent(NamedTuple):
    """When each of some runs was acknowledged, and sent, by the clock of which boot."""

    since: Ints
    invoked: Ints
    boot: Ints


def acknowledge(own: Losses, state: State, places: Places, sent: Sent) -> None:
    """Visible writes were acknowledged. Offsets are -1 where the acknowledgement had none."""
    if not len(places):
        return
    unknown = np.full(len(places), -1, np.int64)
    made = Outstanding(
        places.offset,
        places.writer,
        places.seq,
        places.length,
        sent.since,
        unknown,
        sent.invoked,
        np.full(len(places), UNCOMPARED, np.int64),
        sent.boot,
    )
    own.outstanding = concat(own.outstanding, made)
    state.acknowledged += sum(places.length.tolist())
    highest = max((places.offset + places.length).tolist()) - 1
    state.highest_acknowledged = max(state.highest_acknowledged, highest)


# What was polled is outstanding no longer.


def poll(own: Losses, chunks: Chunks, polled: Polls) -> None:
    """Ok operations polled these."""
    new = values(polled.writer, polled.seq, polled.length)
    chunks.add("polled", new)
    settle(own, chunks, new)


def settle(own: Losses, chunks: Chunks, new: Values) -> None:
    """Take from the outstanding what has been polled. `new` are the values polled most recently, merged."""
    out = own.outstanding
    if not len(out):
        return
    done = intervals.contained_grouped(*new, out.writer, out.seq, out.seq + out.length)
    rest = take(out, ~done)
    if len(rest):
        own.outstanding = _cut(rest, chunks.lacking("polled", values(rest.writer, rest.seq, rest.length)))
    else:
        own.outstanding = rest


def _cut(out: Outstanding, left: Values) -> Outstanding:
    """What of the runs is among the values `left`."""
    whole = intervals.contained_grouped(*left, out.writer, out.seq, out.seq + out.length)
    kept = take(out, whole)
    for i in indices(~whole).tolist():
        mine = left[0] == out.writer[i]
        low, high = out.seq[i : i + 1], out.seq[i : i + 1] + out.length[i]
        start, end = intervals.intersect(low, high, left[1][mine], left[2][mine])
        kept = concat(kept, _pieces(out, i, start, end))
    return kept


def _pieces(out: Outstanding, i: int, start: Ints, end: Ints) -> Outstanding:
    """The parts of one outstanding run that lie at these sequence numbers."""
    whole = take(out, np.full(len(start), i, np.int64))
    whole.offset = np.where(whole.offset < 0, -1, whole.offset + start - whole.seq)
    whole.seq, whole.length = start, end - start
    return whole


def deliver(own: Losses, chunks: Chunks, polled: Polls) -> None:
    """Ok operations at read_uncommitted polled these: outstanding or acknowledged later, they are not lost."""
    if len(polled):
        own.uncommitted = True
        chunks.add("delivered", values(polled.writer, polled.seq, polled.length))
    if own.uncommitted and len(own.outstanding):
        out = own.outstanding
        drop_delivered(own, chunks.having("delivered", values(out.writer, out.seq, out.length)))


def drop_delivered(own: Losses, delivered: Values) -> None:
    """Take from the outstanding what was delivered at read_uncommitted."""
    out = own.outstanding
    if not len(delivered[0]) or not len(out):
        return
    parts = []
    for i in range(len(out)):
        mine = delivered[0] == out.writer[i]
        low, high = out.seq[i : i + 1], out.seq[i : i + 1] + out.length[i]
        parts.append(_pieces(out, i, *intervals.subtract(low, high, delivered[1][mine], delivered[2][mine])))
    own.outstanding = Outstanding(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(out)))


def promote(
    own: Losses, state: State, chunks: Chunks, visible: set[tuple[int, int]]
) -> tuple[Places, set[tuple[int, int]]]:
    """Indefinite sends of which a value was polled are visible: acknowledge them. Returns their places, and which
    operations (process, op) they are.

    `visible`: operations (process, op) known to be visible from elsewhere."""
    waiting = own.indefinite
    if not len(waiting):
        return Places(), set()
    polled = chunks.having("polled", values(waiting.writer, waiting.seq, waiting.length))
    operations = list(zip(waiting.process.tolist(), waiting.op.tolist(), strict=True))
    touched = _touched_grouped(polled, waiting)
    shown = {operations[i] for i in indices(touched).tolist()} | visible
    seen = np.array([operation in shown for operation in operations], bool)
    if not seen.any():
        return Places(), shown
    out = take(waiting, seen)
    own.indefinite = take(waiting, ~seen)
    places = Places(out.offset, out.writer, out.seq, out.length)
    acknowledge(own, state, places, Sent(out.since, out.invoked, out.boot))
    return take(places, places.offset >= 0), shown


def _touched_grouped(of: Values, waiting: Indefinite) -> Bools:
    found = np.zeros(len(waiting), bool)
    for writer in intervals.each(of[0]):
        mine, rows = of[0] == writer, indices(waiting.writer == writer)
        low, high = waiting.seq[rows], (waiting.seq + waiting.length)[rows]
        found[rows] = intervals.touched(of[1][mine], of[2][mine], low, high)
    return found


# The verdict


def suspect(own: Losses, state: State, proven: Proven, grace: int) -> None:
    """Readers went over these places, proven at these times: say from when on what is outstanding there is lost. The
    first of them counts, whichever is known first."""
    out = own.outstanding
    new = out.due == UNCOMPARED
    if some(new):
        out.due[new] = -1
        for at, went in passes.by_time(state, state.passed, *_where(out, new)):
            _stamp(own, state, went, at, grace)
        out = own.outstanding
    if not len(out) or not len(proven):
        return
    place = np.maximum(out.offset, 0)
    if not some(intervals.touched(*intervals.merge(proven.start, proven.end), place, place + out.length)):
        return
    for at in intervals.each(proven.at):
        _stamp(own, state, take(proven, proven.at == at), at, grace)


def _where(out: Outstanding, among: Bools) -> tuple[Ints, Ints]:
    """The places of these, of those that have one."""
    low = out.offset[among]
    high = low + out.length[among]
    return low[low >= 0], high[low >= 0]


def _stamp(own: Losses, state: State, went: passes.Timed, at: int, grace: int) -> None:
    """`at`: by when they had gone over it."""
    out = own.outstanding
    every = intervals.merge(went.start, went.end)
    hit = (out.offset >= 0) & ((out.due < 0) | (out.due > np.maximum(out.since, at) + grace))
    hit &= intervals.touched(*every, out.offset, out.offset + out.length)
    if not hit.any():
        return
    kept = take(out, ~hit)
    for i in indices(hit).tolist():
        low, high = out.offset[i : i + 1], out.offset[i : i + 1] + out.length[i]
        sent = int(out.invoked[i]), int(out.boot[i])
        spans = passes.over(state, went, (int(low[0]), int(high[0])), sent)
        start, end = intervals.intersect(low, high, spans.start, spans.end)
        shift = int(out.seq[i] - out.offset[i])
        over = _pieces(out, i, start + shift, end + shift)
        over.due = np.maximum(over.since, at) + grace
        rest = intervals.subtract(low, high, start, end)
        kept = concat(concat(kept, over), _pieces(out, i, rest[0] + shift, rest[1] + shift))
    own.outstanding = kept


def _compare_anew(own: Losses, spans: Spans) -> None:
    """These offsets were given again: not all that went over them counts."""
    out = own.outstanding
    if len(spans) and len(out):
        there = (out.due >= 0) & intervals.touched(spans.start, spans.end, out.offset, out.offset + out.length)
        out.due[there] = UNCOMPARED


def judge(own: Losses, chunks: Chunks, gate: Gate, state: State, end: int, report: Report) -> None:
    """Call lost what is due, and may not have been polled by anybody whose log is not here."""
    out = own.outstanding
    proven = (out.due >= 0) & (out.due <= end)
    if not some(proven):
        return
    for boot in intervals.each(out.boot[proven]):
        due = indices(proven & (out.boot == boot))
        proven[due] = gate.complete(out.invoked[due], out.due[due], READERS, boot)
    if not some(proven):
        return
    lost = take(out, proven)
    own.outstanding = take(out, ~proven)
    for i in lost.offset.argsort(kind="stable").tolist():
        _report_run(lost, i, chunks, state, report)


def _report_run(lost: Outstanding, i: int, chunks: Chunks, state: State, report: Report) -> None:
    one = (lost.writer[i : i + 1], lost.seq[i : i + 1], lost.seq[i : i + 1] + lost.length[i])
    writer, start, end = chunks.lacking("lost", one)
    chunks.add("lost", one)
    at = -(-int(lost.due[i]) // TICK) * TICK
    for number, low, high in zip(writer.tolist(), start.tolist(), end.tolist(), strict=True):
        for seq in report.each("lost-write", low, high):
            offset = int(lost.offset[i]) + seq - int(lost.seq[i])
            told = transaction_evidence.of_value(state, chunks, number, seq)
            report_lost((number, seq), offset, max(state.reached, offset + 1), told, report, at=at)


def tells(own: Losses, chunks: Chunks, lost: Values) -> bool:
    """Are any of these values outstanding here, or told as lost? Then nobody else need tell it."""
    out = own.outstanding
    told = chunks.having("lost", lost)
    waits = intervals.touched_grouped(lost, out.writer, out.seq, out.seq + out.length)
    return bool(len(told[0]) or waits.any())


def report_lost(
    value: tuple[int, int], offset: int, read: int, told: TransactionTold, report: Report, *, at: int
) -> None:
    """Report one lost write; `read` is how far readers had read, `told` what is known of its transaction."""
    writer, seq = value
    report.add(
        "lost-write",
        (writer, seq),
        f"value {writer}/{seq} was acknowledged at offset {offset} and never polled; readers are past"
        f" {read - 1}{told.words}",
        at=at,
        evidence={"writer": writer, "seq": seq, "offset": offset, "read_to": read, **told.evidence},
    )


def age_out(own: Losses, state: State, gate: Gate, at: int, report: Report) -> None:
    """Outstanding values below the log start that no reader went over are gone by retention (`benign-retention`). The
    log start counts as it was up to when all that readers did is known: one that is late may have gone over them.
    Indefinite sends that nobody can have polled are dropped."""
    out = own.outstanding
    below = np.full(len(out), -1, np.int64)
    for told, start in _log_starts_by(own, gate.known_through(READERS) - spread(state)):
        # What was sent after it was told of a higher start is of another log, which was cut below it.
        below[(out.offset >= 0) & (out.offset + out.length <= start) & (out.invoked <= told) & (out.due < 0)] = start
    gone = below >= 0
    if some(gone):
        own.outstanding = take(out, ~gone)
        for i in indices(gone).tolist():
            writer, seq, count = int(out.writer[i]), int(out.seq[i]), int(out.length[i])
            report.add(
                "benign-retention",
                (writer, seq),
                f"{count} values from {writer}/{seq} on, acknowledged at offset {out.offset[i]}, fell below the log"
                " start before anybody polled them",
                at=at,
                evidence={
                    "writer": writer,
                    "seq": seq,
                    "values": count,
                    "offset": int(out.offset[i]),
                    "log_start": int(below[i]),
                },
            )
    waiting, grace = own.indefinite, report.objectives.grace
    if len(waiting):
        read = min(at, gate.known_through(READERS))
        keep = (waiting.since > read - 2 * grace) | (waiting.offset + waiting.length > state.settled)
        own.indefinite = take(waiting, keep & (waiting.since > read - 30 * grace))


def _note_log_start(own: Losses, passage: Passage) -> None:
    """Note when the log start was told to have risen, and to where, in the log as it was by then."""
    moves, cuts = passage.moves, sorted(passage.cuts)
    known = _known_start(own, passage.state.log_start)
    for at, low in zip(moves.at.tolist(), moves.low.tolist(), strict=True):
        while cuts and cuts[0].at <= at:
            known = _known_start(own, cuts.pop(0).again)
        if low > known:
            known = low
            own.starts.append([at, low])


def _known_start(own: Losses, log_start: int) -> int:
    """The highest noted, of a log that begins there at most: what is above that was told of one before it."""
    return max((low for _, low in own.starts if low <= log_start), default=-1)


def _log_starts_by(own: Losses, time: int) -> list[list[int]]:
    """The log starts as they had been told by this log time: the highest, and where the log was cut below one, those of
    each log. What they make needless is forgotten."""
    told: list[list[int]] = []
    for entry in sorted((one for one in own.starts if one[0] <= time), reverse=True):
        if not told or entry[1] > told[-1][1]:
            told.append(entry)
    own.starts = [*reversed(told), *(entry for entry in own.starts if entry[0] > time)][-STARTS_KEPT:]
    return told


def fold(own: Losses, passage: Passage) -> None:
    """Take what was polled, prove what is visible, and give the verdicts that are due."""
    state, chunks, report, end = passage.state, passage.chunks, passage.report, passage.end
    unseen.note_readable(own.outstanding, state, passage.moves, end)
    unseen.judge_between(own.outstanding, passage)
    poll(own, chunks, concat(passage.polls, _polled_by_now(own, passage)))
    waiting = len(own.indefinite)
    places, passage.shown = promote(own, state, chunks, set())
    passage.shown_places = places
    if len(own.indefinite) < waiting:  # what was promoted may have been polled
        settle(own, chunks, (NONE, NONE, NONE))
    deliver(own, chunks, passage.uncommitted)
    _compare_anew(own, passage.given_again)
    suspect(own, state, passage.proven, report.objectives.grace)
    judge(own, chunks, passage.gate, state, end, report)
    _note_log_start(own, passage)
    age_out(own, state, passage.gate, end, report)
    unseen.judge(own.outstanding, passage)


def _polled_by_now(own: Losses, passage: Passage) -> Polls:
    """The polls that are passed on later: because rows of their process are missing before them, or because its clock
    is ahead of those that what is outstanding was sent by. They are no less polled."""
    polls, state = passage.state.polls, passage.state
    if not len(polls):
        return polls
    until = np.full(len(polls), passage.end)
    if len(state.boot_names) > 1:
        senders = intervals.each(own.outstanding.boot)
        for polled_by in intervals.each(polls.boot):
            ahead = max((passage.gate.ahead(polled_by, boot) for boot in senders), default=0)
            until[polls.boot == polled_by] += max(ahead, 0)
    return take(polls, polls.at <= until)


def _later(own: Losses, passage: Passage) -> None:
    """Of a finished history `rules.engine.finished` gives the verdicts, when what is visible is known."""


CHECK: Final = Check("lost-write", Losses, needs=needs, arrive=arrive, fold=fold, finish=_later)


# Finished histories


def extreme_places(log: Places, of: Values, *, last: bool) -> Places:
    """The last (or first) place of each of these values that stands in the log, value by value."""
    step = np.arange(int(log.length.sum())) - np.repeat(np.cumsum(log.length) - log.length, log.length)
    offset, seq = np.repeat(log.offset, log.length) + step, np.repeat(log.seq, log.length) + step
    writer = np.repeat(log.writer, log.length)
    wanted = intervals.contained_grouped(*of, writer, seq, seq + 1)
    offset, writer, seq = offset[wanted], writer[wanted], seq[wanted]
    order = np.lexsort((-offset if last else offset, seq, writer))
    offset, writer, seq = offset[order], writer[order], seq[order]
    head = np.ones(len(order), bool)
    head[1:] = (writer[1:] != writer[:-1]) | (seq[1:] != seq[:-1])
    return Places(offset[head], writer[head], seq[head], np.ones(int(head.sum()), np.int64))


def settle_finished(own: Losses, state: State, chunks: Chunks, at: int, report: Report) -> None:
    """A finished history: lost is what lies, by its last place, at or below the highest index polled."""
    out = own.outstanding
    if not len(out):
        return
    lost = extreme_places(state.log, values(out.writer, out.seq, out.length), last=True)
    lost = take(lost, (lost.offset <= state.highest_polled) & (lost.offset >= state.log_start))
    lost = take(lost, ~strangers.nobody_knows(state, lost.offset, lost.offset + 1))
    for writer, seq, offset in zip(lost.writer.tolist(), lost.seq.tolist(), lost.offset.tolist(), strict=True):
        told = transaction_evidence.of_value(state, chunks, writer, seq)
        report_lost((writer, seq), offset, state.highest_polled + 1, told, report, at=at)
