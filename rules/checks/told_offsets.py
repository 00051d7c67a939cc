"""`offset-regression`: offsets that the cluster tells, and that go back.

`offset-regression`: a group's committed offset was read, and a later read, invoked after that one had completed, tells
a lower one that no commit ever asked for. Commits count once they are invoked, whatever became of them, because a
delayed one may land late; so does where an indefinite transaction that names no commit had polled to. Decided once the
log is complete up to the later read, and only where no process's log is missing. An absent offset has expired and is
not lower; a 0 is `spurious-zero-offset`.

"Before" and "later" are concluded within one clock domain alone (`rules.settling.clocks.domains`).

State: the committed offsets last read of each group and domain; invoked commits as bitmaps in chunks of 2^20 offsets of
one group, dropped below the log start.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from rules.arrays.columns import COMMIT, OFFSETS, OK, TXN, Columns
from rules.arrays.intervals import Bools
from rules.kept.chunks import Chunks
from rules.kept.report import Report
from rules.kept.state import State
from rules.settling.clocks import domains

READS_KEPT: Final = 256
LAST_KEPT: Final = 4
SHIFT: Final = 20
ANY: Final = ""

READS: Final = "committed-reads"
LAST: Final = "committed"
BITMAPS: Final = "commit-chunks"


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
