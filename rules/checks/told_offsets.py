"""`offset-regression` and `log-truncation`: offsets that the cluster tells, and that go back.

`offset-regression`: a group's committed offset was read, and a later read, invoked after that one had completed, tells
a lower one that no commit ever asked for. Commits count once they are invoked, whatever became of them, because a
delayed one may land late; so does where an indefinite transaction that names no commit had polled to. Decided once the
log is complete up to the later read, and only where no process's log is missing. An absent offset has expired and is
not lower; a 0 is `spurious-zero-offset`.

`log-truncation`: the log's end, as its leader lists it for read_uncommitted, is at or below an offset that was
acknowledged or polled before the listing was invoked, and a write that was invoked after it was acknowledged between
the two. Without that write nothing is proven: a leader that has been deposed, and cut off so that it does not know it
yet, lists the end that it last knew. A listing above all that was known ends the waiting for such a write. An end of 0
that the next listing does not bear out is no truncation, but a `spurious-zero-offset`.

"Before" and "later" are concluded within one clock domain alone (`rules.settling.clocks.domains`). What was known
when is kept in steps of `STEP`: of what completed within one of them, none counts before its end.

State: the committed offsets last read of each group and domain; the known offsets, and those written, in steps since
the last listing that was judged, at most `STEPS_KEPT`, and at most `CUTS_KEPT` listings that wait for a write; invoked
commits as bitmaps in chunks of 2^20 offsets of one group, dropped below the log start.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from rules.arrays import intervals
from rules.arrays.columns import COMMIT, FAIL, OFFSETS, OK, TXN, Columns, Runs
from rules.arrays.intervals import Bools, Ints, distinct
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import State
from rules.settling.clocks import domains
from rules.settling.frontier import FOREVER

STEP: Final = 50_000
"""Microseconds; in nanoseconds a thousand times as many."""
STEPS_KEPT: Final = 4096
CUTS_KEPT: Final = 64
READS_KEPT: Final = 256
LAST_KEPT: Final = 4
SHIFT: Final = 20
ANY: Final = ""

READS: Final = "committed-reads"
LAST: Final = "committed"
TOPS: Final = "known-ends"
WRITTEN: Final = "written"
CUTS: Final = "listed-short"
ENDS: Final = "listed-ends"
ZERO: Final = "listed-zero"
BITMAPS: Final = "commit-chunks"


# Committed offsets


def _chunk_name(group: str, offset: int) -> str:
    return f"commits.{zlib.crc32(group.encode()):x}.{offset >> SHIFT:x}"


def _invoked(columns: Columns) -> list[tuple[str, Any]]:
    """(group, offsets) of the commits that the rows invoked; those of no named group may be of any."""
    asked = columns.where(COMMIT, TXN) & (columns.committed >= 0)
    implied = columns.where(TXN) & (columns.type != OK) & (columns.committed < 0) & (columns.position_after >= 0)
    found: list[tuple[str, Any]] = []
    if asked.any():
        groups = pc.fill_null(columns.table["group"].combine_chunks(), ANY)
        encoded = pc.dictionary_encode(groups)
        index = np.asarray(encoded.indices.to_numpy(), np.int64)
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            own = asked & (index == number)
            if own.any():
                found.append((name, np.unique(columns.committed[own])))
    if implied.any():
        found.append((ANY, np.unique(columns.position_after[implied])))
    return found


def _reads(columns: Columns, among: Bools) -> list[int]:
    rows = np.flatnonzero(among & columns.where(OFFSETS) & (columns.type == OK) & (columns.committed > 0))
    return [int(row) for row in rows]


def chunks_needed(state: State, columns: Columns) -> set[str]:
    """The chunks of invoked commits that these rows, and the reads that wait, will want."""
    names: set[str] = set()
    for group, offsets in _invoked(columns):
        names |= {_chunk_name(group, int(n) << SHIFT) for n in np.unique(offsets >> SHIFT).tolist()}
    read = [(columns.table["group"][row].as_py() or ANY, int(columns.committed[row])) for row in
            _reads(columns, np.ones(len(columns), bool))]  # fmt: skip
    waiting = [(entry[4], entry[5]) for entry in state.notes.get(READS, [])]
    for group, offset in read + waiting:
        names |= {_chunk_name(group, offset), _chunk_name(ANY, offset)}
    return names


def note_committed(state: State, chunks: Chunks, columns: Columns, fresh: Bools) -> None:
    """Take in the new rows' commits and reads of committed offsets."""
    if not (columns.committed >= 0).any() and not (columns.position_after >= 0).any():
        return
    for group, offsets in _invoked(columns):
        for number in np.unique(offsets >> SHIFT).tolist():
            name = _chunk_name(group, number << SHIFT)
            stored = chunks.blob(name)
            bits = BitMap.deserialize(stored) if stored else BitMap()
            size = len(bits)
            bits.update((offsets[offsets >> SHIFT == number] & ((1 << SHIFT) - 1)).astype(np.uint32))
            if len(bits) > size:
                chunks.put(name, bits.serialize())
            if [number, name] not in state.notes.setdefault(BITMAPS, []):
                state.notes[BITMAPS].append([number, name])
    rows = _reads(columns, fresh)
    if not rows:
        return
    names, domain, invoked, completed = domains(columns)
    waiting = state.notes.setdefault(READS, [])
    for row in rows:
        group = columns.table["group"][row].as_py()
        if group:
            waiting.append(
                [int(columns.completed[row]), names[int(domain[row])], int(invoked[row]), int(completed[row]), group,
                 int(columns.committed[row]), int(columns.process[row])]
            )  # fmt: skip
    waiting.sort()
    del waiting[:-READS_KEPT]


def judge_committed(state: State, chunks: Chunks, end: int, report: Report) -> None:
    """Decide the reads up to log time `end`, in the order of their times."""
    waiting = state.notes.get(READS)
    if waiting:
        last = {(entry[0], entry[1]): entry[2] for entry in state.notes.get(LAST, [])}
        complete = not bool(state.holes)
        for at, boot, invoked, completed, group, offset, process in waiting:
            if at > end:
                continue
            known = last.setdefault((boot, group), [])
            before = max((one for one in known if one[0] <= invoked), default=None)
            lower = before is not None and offset < before[1]
            if before is not None and lower and complete and at >= state.begins:
                _judge_lower(chunks, group, before[1], offset, at, process, report)
            known.append([completed, offset])
            known.sort()
            del known[:-LAST_KEPT]
        state.notes[LAST] = [[boot, group, known] for (boot, group), known in last.items()]
        state.notes[READS] = [entry for entry in waiting if entry[0] > end]
    for entry in list(state.notes.get(BITMAPS, [])):
        if (entry[0] + 1) << SHIFT <= state.log_start:
            chunks.put(entry[1], None)
            state.notes[BITMAPS].remove(entry)


def _judge_lower(chunks: Chunks, group: str, before: int, offset: int, at: int, process: int, report: Report) -> None:
    if not _was_invoked(chunks, group, offset):
        report.add(
            "offset-regression",
            (group, before, offset),
            f"group {group} had committed {before}, then {offset}, which nobody asked for",
            at=at,
            evidence={"group": group, "before": before, "after": offset, "read_by": process},
        )


def _was_invoked(chunks: Chunks, group: str, offset: int) -> bool:
    for name in (_chunk_name(group, offset), _chunk_name(ANY, offset)):
        stored = chunks.blob(name)
        if stored and (offset & ((1 << SHIFT) - 1)) in BitMap.deserialize(stored):
            return True
    return False


# The log's end


def _step(boot: str) -> int:
    return STEP * 1000 if boot else STEP


def note_ends(state: State, columns: Columns, fresh: Bools, acknowledged: Runs, polled: Runs) -> None:
    """Take in what the new rows knew and listed. `acknowledged`, `polled`: the new runs with known offsets."""
    listed = np.flatnonzero(fresh & columns.where(OFFSETS) & (columns.log_end >= 0) & (columns.type != FAIL))
    if not len(listed) and not len(acknowledged) and not len(polled):
        return
    names, domain, invoked, completed = domains(columns)
    # Without idempotence a write may be acknowledged by its leader alone, and lost with it as promised.
    # Of a process whose first row is not here it is not known yet what it is.
    writer = columns.process[acknowledged.row]
    begun = [n for n in distinct(writer).tolist() if n in state.processes and state.processes[n].next]
    acknowledged = acknowledged.take(np.isin(writer, begun) & ~np.isin(writer, state.not_idempotent_processes))
    row = np.concatenate((acknowledged.row, polled.row))
    top = np.concatenate((acknowledged.offset + acknowledged.length, polled.offset + polled.length)) - 1
    tops = state.notes.setdefault(TOPS, [])
    for number, name in enumerate(names):
        own = (domain[row] == number) & (completed[row] >= 0) if len(names) > 1 else completed[row] >= 0
        if own.any():
            _raise_tops(tops, name, completed[row[own]] // _step(name), top[own])
        own = (domain[acknowledged.row] == number) & (invoked[acknowledged.row] >= 0)
        if own.any():
            sent = acknowledged.take(own)
            _note_written(state, name, invoked[sent.row] // _step(name), sent.offset, sent.offset + sent.length)
    waiting = state.notes.setdefault(ENDS, [])
    for at in listed.tolist():
        if invoked[at] >= 0:
            waiting.append(
                [int(columns.completed[at]), names[int(domain[at])], int(invoked[at]), int(columns.log_end[at])]
            )
    waiting.sort()
    del waiting[:-STEPS_KEPT]


def _raise_tops(tops: list[Any], name: str, steps: Any, top: Any) -> None:
    """Merge new known offsets into the [domain, step, highest offset] of `tops`."""
    low = int(steps.min())
    if int(steps.max()) - low < 1 << 20:
        highest = np.full(int(steps.max()) - low + 1, -1, np.int64)
        np.maximum.at(highest, steps - low, top)
    else:  # a clock that jumped
        low, highest = int(steps.max()), np.array([int(top.max())])
    known = {entry[1]: entry for entry in tops if entry[0] == name}
    covered = max((entry[2] for entry in tops if entry[0] == name and entry[1] < low), default=-1)
    for step in np.flatnonzero(highest >= 0).tolist():
        value, entry = int(highest[step]), known.get(step + low)
        if value <= covered:
            continue
        covered = value
        if entry is None:
            tops.append([name, step + low, value])
        else:
            entry[2] = max(entry[2], value)
    if len(tops) > STEPS_KEPT:
        tops.sort(key=lambda entry: (entry[0], entry[1]))
        _collapse(tops, name, tops[len(tops) // 2][1])


def _collapse(tops: list[Any], name: str, until: int) -> None:
    """Make one of all the steps of a domain before `until`, known at the last of them."""
    old = [entry for entry in tops if entry[0] == name and entry[1] < until]
    if len(old) > 1:
        merged = [name, max(entry[1] for entry in old), max(entry[2] for entry in old)]
        tops[:] = [entry for entry in tops if entry[0] != name or entry[1] >= until] + [merged]


def _note_written(state: State, name: str, steps: Ints, start: Ints, end: Ints) -> None:
    """Keep which offsets [start, end) were given to writes invoked in these steps, as [domain, step, start, end]."""
    written = state.notes.setdefault(WRITTEN, [])
    merged = intervals.merge_grouped(steps, start, end)
    written += [[name, *entry] for entry in zip(*(column.tolist() for column in merged), strict=True)]
    if len(written) > STEPS_KEPT:
        written.sort(key=lambda entry: entry[1])
        del written[:-STEPS_KEPT]


def judge_ends(state: State, end: int, report: Report) -> None:
    """Decide the listings up to log time `end`, in the order of their times."""
    waiting = state.notes.get(ENDS)
    if not waiting:
        return
    tops: list[Any] = state.notes.get(TOPS, [])
    cuts: list[Any] = state.notes.get(CUTS, [])
    zero = state.notes.get(ZERO)
    judged: dict[str, int] = {}
    for at, boot, invoked, listed in waiting:
        if at > end:
            continue
        step = invoked // _step(boot)
        judged[boot] = max(judged.get(boot, step), step)
        known = max((entry[2] for entry in tops if entry[0] == boot and entry[1] < step), default=-1)
        cuts = _written_over(state, cuts, boot, step, report)
        if listed > known:
            cuts = [cut for cut in cuts if cut[1] != boot]
        if zero is not None:
            if listed > known:
                _report_zero(zero[:2], report)
            else:
                cuts.append([zero[0], *zero[2:], 0, zero[1]])
            zero = None
        if listed == 0 and known > 0:
            zero = [at, known, boot, step]
        elif listed <= known:
            cuts.append([at, boot, step, listed, known])
    if end == FOREVER:
        for boot in {cut[1] for cut in cuts}:
            _written_over(state, cuts, boot, FOREVER, report)
    for boot, step in judged.items():
        _collapse(tops, boot, step)
        first = min((cut[2] for cut in cuts if cut[1] == boot), default=step)
        state.notes[WRITTEN] = [w for w in state.notes.get(WRITTEN, []) if w[0] != boot or w[1] >= first]
    state.notes[CUTS] = cuts[-CUTS_KEPT:]
    state.notes[ENDS] = [entry for entry in waiting if entry[0] > end]
    if zero is not None:
        state.notes[ZERO] = zero
    else:
        state.notes.pop(ZERO, None)


def _written_over(state: State, cuts: list[Any], boot: str, until: int, report: Report) -> list[Any]:
    """Report the listings short of what was known that a write bears out, of those invoked before step `until`; the
    others."""
    if not cuts:
        return cuts
    writes = [write[1:] for write in state.notes.get(WRITTEN, []) if write[0] == boot and write[1] < until]
    left = []
    for cut in cuts:
        at, of, step, listed, known = cut
        inside = [max(low, listed) for since, low, high in writes if since > step and low <= known and high > listed]
        written = min(inside, default=None)
        if of != boot or written is None:
            left.append(cut)
        elif report.once(f"truncation:{known}"):
            report.add(
                "log-truncation",
                (known,),
                f"the log ends at {listed}, and offset {known} was acknowledged or polled before; then offset {written}"
                " was given to another write",
                at=at,
                evidence={"log_end": listed, "known": known, "written_again": written},
            )
    return left


def _report_zero(zero: list[int], report: Report) -> None:
    at, known = zero
    report.add(
        "spurious-zero-offset",
        ("listed", at),
        f"the log's end was listed as 0 when offset {known} was known before",
        at=at,
        evidence={"known": known},
    )
