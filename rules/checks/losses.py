"""`lost-write`, and the conditions `unseen` and `suspected`: what was acknowledged must be polled.

Acknowledged values of visible writes are *outstanding* until an ok operation polls them. A write is visible when its
operation is ok, or is indefinite and one of its values was polled. An outstanding value is `unseen` once it has been
readable for longer than the delivery objective, `suspected` once every reader has gone past it, and a `lost-write`
when its offset is settled, a reader in assign mode has passed it, and it does not lie below the log start. Only polls
that came before its offset was settled count for that verdict: a later one adds, and takes nothing back.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from rules.arrays import intervals
from rules.arrays.intervals import Bools, Ints
from rules.checks import transaction_evidence
from rules.checks.poll_order import Passes
from rules.kept.chunks import Chunks, Values, values
from rules.kept.report import Report
from rules.kept.state import Outstanding, Places, Polls, Spans, State, concat, take
from rules.settling.frontier import Advance, readers
from rules.vocabulary.objectives import Objectives


def acknowledge(state: State, places: Places, since: Ints) -> None:
    """Visible writes were acknowledged, at log times `since`. Offsets are -1 where the acknowledgement had none."""
    state.outstanding = concat(
        state.outstanding,
        Outstanding(places.offset, places.writer, places.seq, places.length, since, np.full(len(places), -1, np.int64)),
    )
    state.acknowledged += int(places.length.sum())
    if len(places):
        state.highest_acknowledged = max(state.highest_acknowledged, int((places.offset + places.length).max()) - 1)


def promote(state: State, chunks: Chunks, visible: set[tuple[int, int]]) -> tuple[Places, set[tuple[int, int]]]:
    """Indefinite sends of which a value was polled are visible: acknowledge them. Returns their places, and which
    operations (process, op) they are.

    `visible`: operations (process, op) known to be visible from elsewhere."""
    waiting = state.indefinite
    if not len(waiting):
        return Places(), set()
    own = {
        (int(p), int(o))
        for p, o, w, s, n in zip(waiting.process, waiting.op, waiting.writer, waiting.seq, waiting.length, strict=True)
        if len(chunks.having("polled", (np.array([w]), np.array([s]), np.array([s + n])))[0])
    } | visible
    if not own:
        return Places(), own
    seen = np.array(
        [(p, o) in own for p, o in zip(waiting.process.tolist(), waiting.op.tolist(), strict=True)], dtype=bool
    )
    if not seen.any():
        return Places(), own
    out = take(waiting, seen)
    state.indefinite = take(waiting, ~seen)
    places = Places(out.offset, out.writer, out.seq, out.length)
    acknowledge(state, places, out.since)
    return take(places, places.offset >= 0), own


def poll(state: State, chunks: Chunks, polled: Polls) -> None:
    """Ok operations polled these: they are outstanding no longer."""
    new = values(polled.writer, polled.seq, polled.length)
    chunks.add("polled", new)
    settle_acknowledged(state, chunks, new)


def settle_acknowledged(state: State, chunks: Chunks, new: Values) -> None:
    """Take from the outstanding what has been polled. `new` are the values polled most recently, merged."""
    out = state.outstanding
    if not len(out):
        return
    done = intervals.contained_grouped(*new, out.writer, out.seq, out.seq + out.length)
    rest = take(out, ~done)
    state.outstanding = _without_polled(rest, chunks)


def _without_polled(out: Outstanding, chunks: Chunks) -> Outstanding:
    """The runs cut down to what no ok operation has polled."""
    if not len(out):
        return out
    left = chunks.lacking("polled", values(out.writer, out.seq, out.length))
    whole = intervals.contained_grouped(*left, out.writer, out.seq, out.seq + out.length)
    parts = [take(out, whole)]
    for i in np.flatnonzero(~whole).tolist():
        own = left[0] == out.writer[i]
        low, high = int(out.seq[i]), int(out.seq[i] + out.length[i])
        start, end = intervals.intersect(np.array([low]), np.array([high]), left[1][own], left[2][own])
        if len(start):
            parts.append(_pieces(out, i, start, end))
    kept = parts[0]
    for part in parts[1:]:
        kept = concat(kept, part)
    return kept


def _pieces(out: Outstanding, i: int, start: Ints, end: Ints) -> Outstanding:
    """The parts of one outstanding run that lie at these sequence numbers."""
    n = len(start)
    offset = np.where(out.offset[i] < 0, -1, out.offset[i] + start - out.seq[i])
    return Outstanding(
        offset, np.full(n, out.writer[i]), start, end - start, np.full(n, out.since[i]), np.full(n, out.readable[i])
    )


def split_by_time(polled: Polls, advance: Advance) -> tuple[Polls, Polls]:
    """The polls that came before their offsets were settled, and the parts that came after."""
    if not len(polled):
        return polled, polled
    cut = np.clip(advance.settled_before(polled.at) - polled.offset, 0, polled.length)
    late = take(polled, cut > 0)
    late.length = cut[cut > 0]
    timely = take(polled, cut < polled.length)
    skip = cut[cut < polled.length]
    timely.offset = timely.offset + skip
    timely.seq = timely.seq + skip
    timely.length = timely.length - skip
    return timely, late


def note_passes(state: State, passes: Passes, advance: Advance) -> None:
    """Readers in assign mode went over these offsets before they were settled."""
    start = np.maximum(passes.start, advance.settled_before(passes.at))
    keep = start < passes.end
    state.passed = Spans(
        *intervals.merge(np.append(state.passed.start, start[keep]), np.append(state.passed.end, passes.end[keep]))
    )


def judge_losses(state: State, advance: Advance, at: int, objectives: Objectives, report: Report) -> None:
    """Call lost what is settled, passed, not below the log start, and was never polled. An acknowledgement may be newer
    than log time, and name a place where its value is not: it gets the grace for being polled elsewhere."""
    out = state.outstanding
    candidates = (out.offset >= 0) & (out.offset < state.settled) & (out.offset >= state.log_start)
    candidates &= out.since <= at - objectives.grace
    if not candidates.any() or state.log_start_at < at - objectives.grace or _somebody_unverifiable(state):
        return
    for i in np.flatnonzero(candidates).tolist():
        low, high = int(out.offset[i]), min(int(out.offset[i] + out.length[i]), state.settled)
        start, end = intervals.intersect(np.array([low]), np.array([high]), state.passed.start, state.passed.end)
        for a, b in zip(start.tolist(), end.tolist(), strict=True):
            for offset in range(a, min(b, a + report.room("lost-write") + 1)):
                report_lost(
                    int(out.writer[i]), int(out.seq[i] + offset - low), offset, state.settled, report,
                    at=advance.settled_at(offset),
                )  # fmt: skip
            report.skip("lost-write", max(0, b - a - objectives.findings_per_step - 1))
    lost = intervals.intersect(
        *intervals.merge(out.offset[candidates], (out.offset + out.length)[candidates]),
        state.passed.start, np.minimum(state.passed.end, state.settled),
    )  # fmt: skip
    _drop_offsets(state, *lost)


def needed_from(state: State, through: int) -> int:
    """The offset from which passes must be kept: what is settled, and acknowledged later than `through`, waits."""
    out = state.outstanding
    waiting = out.offset[(out.offset >= 0) & (out.offset < state.settled) & (out.since > through)]
    return int(waiting.min()) if len(waiting) else state.settled


def report_lost(writer: int, seq: int, offset: int, read: int, report: Report, *, at: int) -> None:
    """Report one lost write; `read` is how far readers had read."""
    told = transaction_evidence.of_value(report.state, writer, seq)
    report.add(
        "lost-write",
        (writer, seq),
        f"value {writer}/{seq} was acknowledged at offset {offset} and never polled; readers are past"
        f" {read - 1}{told.words}",
        at=at,
        evidence={"writer": writer, "seq": seq, "offset": offset, "read_to": read, **told.evidence},
    )


def _drop_offsets(state: State, start: Ints, end: Ints) -> None:
    """Take these offsets out of the outstanding: their verdict has been given."""
    out = state.outstanding
    hit = intervals.touched(start, end, np.maximum(out.offset, 0), np.maximum(out.offset, 0) + out.length)
    hit &= out.offset >= 0
    kept = take(out, ~hit)
    for i in np.flatnonzero(hit).tolist():
        low, high = int(out.offset[i]), int(out.offset[i] + out.length[i])
        a, b = intervals.subtract(np.array([low]), np.array([high]), start, end)
        n = len(a)
        kept = concat(
            kept,
            Outstanding(
                a, np.full(n, out.writer[i]), out.seq[i] + a - low, b - a, np.full(n, out.since[i]),
                np.full(n, out.readable[i]),
            ),
        )  # fmt: skip
    state.outstanding = kept


def _somebody_unverifiable(state: State) -> bool:
    return any(p.unverifiable and p.reads for p in state.processes.values())


def note_readable(state: State, at: Ints, stable: Ints) -> None:
    """The last stable offset was observed at these times (ascending): what it passed is readable since then."""
    out = state.outstanding
    waiting = out.readable < 0
    if not waiting.any():
        return
    if state.last_stable < 0 and not len(stable):
        out.readable = np.where(waiting, out.since, out.readable)  # nobody observes: count from the acknowledgement
        return
    if not len(stable):
        return
    index = np.searchsorted(np.maximum.accumulate(stable), out.offset + out.length, side="left")
    seen = waiting & (out.offset >= 0) & (index < len(at))
    out.readable[seen] = np.maximum(at[index[seen]], out.since[seen])


def judge_unseen_between(state: State, polled: Polls, at: Ints, objectives: Objectives, report: Report) -> None:
    """Open and close `unseen` at the ticks before the last, where a catch-up goes through many at once: live it would
    have been seen. `polled`: what is about to be folded. A value counts as polled when a reader went past it, which can
    only miss a spell, and makes none."""
    out = state.outstanding
    due = (out.readable >= 0) & (out.offset >= state.log_start) & (out.readable + objectives.delivery < at[-1])
    if len(at) < 2 or not due.any() or "unseen" in state.open_conditions or not any(True for _ in readers(state)):
        return
    order = np.argsort(polled.at, kind="stable")
    high = np.maximum.accumulate((polled.offset + polled.length)[order])
    index = np.searchsorted(high, (out.offset + out.length)[due])
    times = np.append(polled.at[order], np.iinfo(np.int64).max)
    since, until = out.readable[due] + objectives.delivery, times[index]
    late = np.searchsorted(at, since) < np.searchsorted(at, until)
    if not late.any():
        return
    start, end = intervals.merge(since[late], until[late])
    for a, b in zip(np.searchsorted(at, start).tolist(), np.searchsorted(at, end).tolist(), strict=True):
        if b >= len(at):
            return  # it is open still: the last tick says so
        held = (since[late] <= at[a]) & (until[late] > at[a])
        values = int(out.length[due][late][held].sum())
        age = round((int(at[a]) - int(since[late][held].min()) + objectives.delivery) / 1e6, 3)
        report.condition(
            "unseen", True, f"{values} acknowledged values have not been polled, the oldest for {age:.1f} s",
            at=int(at[a]), since=int(since[late][held].min()),
            evidence={"values": values, "first": _some(take(take(take(out, due), late), held)), "age_s": age},
        )  # fmt: skip
        report.condition("unseen", False, "", at=int(at[b]), evidence={"values": 0})


def judge_conditions(state: State, at: int, objectives: Objectives, report: Report) -> None:
    """Open or close `unseen` and `suspected` at log time `at`."""
    out = state.outstanding
    above: Bools = (out.offset < 0) | (out.offset >= state.log_start)
    overdue = above & (out.readable >= 0) & (out.readable + objectives.delivery <= at)
    if not any(True for _ in readers(state)):
        overdue = np.zeros(len(out), bool)
    state.unseen = int(out.length[overdue].sum())
    oldest = int(out.readable[overdue].min()) if overdue.any() else at
    report.condition(
        "unseen",
        bool(overdue.any()),
        f"{state.unseen} acknowledged values have not been polled, the oldest for {(at - oldest) / 1e6:.1f} s",
        at=at,
        since=oldest + objectives.delivery,
        evidence={"values": state.unseen, "first": _some(take(out, overdue)), "age_s": round((at - oldest) / 1e6, 3)},
    )
    past = above & (out.offset >= 0) & (out.offset + out.length <= state.reached)
    report.condition(
        "suspected",
        bool(past.any()),
        f"{int(out.length[past].sum())} acknowledged values were passed by every reader and polled by none",
        at=at,
        evidence={"values": int(out.length[past].sum()), "first": _some(take(out, past))},
    )


def _some(out: Outstanding) -> list[dict[str, int]]:
    """The first few values, as evidence."""
    order = np.argsort(out.offset, kind="stable")[:10]
    return [
        {
            "offset": int(out.offset[i]),
            "writer": int(out.writer[i]),
            "seq": int(out.seq[i]),
            "values": int(out.length[i]),
        }
        for i in order.tolist()
    ]


def age_out(state: State, at: int, objectives: Objectives, report: Report) -> None:
    """Outstanding values below the log start are gone by retention (`benign-retention`); indefinite sends that stayed
    unseen are dropped."""
    out = state.outstanding
    gone = (out.offset >= 0) & (out.offset + out.length <= state.log_start)
    if gone.any():
        state.outstanding = take(out, ~gone)
        for i in np.flatnonzero(gone).tolist():
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
                    "log_start": state.log_start,
                },
            )
    waiting = state.indefinite
    if len(waiting):
        keep = (waiting.since > at - 2 * objectives.grace) | (waiting.offset + waiting.length > state.settled)
        keep &= waiting.since > at - 30 * objectives.grace
        state.indefinite = take(waiting, keep)


def deliver(state: State, chunks: Chunks, polled: Polls) -> None:
    """Ok operations at read_uncommitted polled these: outstanding or acknowledged later, they are not lost."""
    if len(polled):
        state.reads_uncommitted = True
        chunks.add("delivered", values(polled.writer, polled.seq, polled.length))
    if state.reads_uncommitted and len(state.outstanding):
        out = state.outstanding
        drop_delivered(state, chunks.having("delivered", values(out.writer, out.seq, out.length)))


def drop_delivered(state: State, delivered: Values) -> None:
    """Take from the outstanding what was delivered at read_uncommitted."""
    out = state.outstanding
    if not len(delivered[0]) or not len(out):
        return
    parts = []
    for i in range(len(out)):
        own = delivered[0] == out.writer[i]
        low, high = out.seq[i : i + 1], out.seq[i : i + 1] + out.length[i]
        start, end = intervals.subtract(low, high, delivered[1][own], delivered[2][own])
        parts.append(_pieces(out, i, start, end))
    state.outstanding = Outstanding(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(out)))


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


def settle_finished(state: State, at: int, report: Report) -> None:
    """A finished history: lost is what lies, by its last place, at or below the highest index polled."""
    out = state.outstanding
    if not len(out):
        return
    lost = extreme_places(state.log, values(out.writer, out.seq, out.length), last=True)
    lost = take(lost, (lost.offset <= state.highest_polled) & (lost.offset >= state.log_start))
    for writer, seq, offset in zip(lost.writer.tolist(), lost.seq.tolist(), lost.offset.tolist(), strict=True):
        report_lost(writer, seq, offset, state.highest_polled + 1, report, at=at)


def judge_unseen(state: State, at: int, report: Report) -> None:
    """A finished history: unseen is all that ok operations acknowledged and no ok operation polled."""
    out = state.outstanding
    cut = np.where(out.offset < 0, 0, np.clip(state.log_start - out.offset, 0, out.length))
    above = cut < out.length
    writer, start, end = values(out.writer[above], (out.seq + cut)[above], (out.length - cut)[above])
    state.unseen = int((end - start).sum())
    if state.unseen:
        first = [
            {"writer": w, "seq": a, "values": b - a}
            for w, a, b in zip(*(c[:10].tolist() for c in (writer, start, end)), strict=True)
        ]
        report.condition(
            "unseen",
            True,
            f"{state.unseen} acknowledged values were never polled",
            at=at,
            evidence={"values": state.unseen, "first": first},
        )
