"""Which offsets each group was ever asked to commit, whatever became of it; what is not known of them any more.

The newest are kept in a table, with their times: what is committed later than a read explains nothing. They are written
into bitmaps of 2^16 offsets of one group each time that there are more than `PENDING` of them, so that a commit a
second does not write a chunk a second; but for those that came after a read that is not judged yet, up to `KEPT` of
them. Bitmaps wholly below the log start are dropped; from then on nothing is said of the offsets that they held.

What a transaction that names no group had polled to may have been committed for any: it is kept under the name "".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from pyroaring import BitMap

from rules.arrays.intervals import EMPTY, Bools, Ints, among, each, indices, merge_grouped, some
from rules.kept.chunks import Chunks
from rules.kept.codec import Table, concat, take

ANY: Final = 0
"""The number of the group of no name."""
PENDING: Final = 128
KEPT: Final = 16_384
SHIFT: Final = 16


@dataclass(slots=True)
class Invoked(Table):
    """Offsets that a group (by its number) was asked to commit."""

    group: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Newly(Table):
    """The same, with when it was asked for first (log time) by the clock of `domain`."""

    group: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    since: Ints = field(default_factory=lambda: EMPTY)
    domain: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Written(Table):
    """The numbers start .. end-1 of a group's bitmaps that were written."""

    group: Ints = field(default_factory=lambda: EMPTY)
    start: Ints = field(default_factory=lambda: EMPTY)
    end: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class InvokedCommits:
    """`pending`: not in a bitmap yet, about `PENDING` beside those that were `kept` when the last were written; `full`:
    they are to be written now; `written`: which bitmaps there are, in merged ranges from the log start on; of offsets
    below `forgotten` nothing is known."""

    pending: Newly = field(default_factory=Newly)
    kept: int = 0
    full: bool = False
    written: Written = field(default_factory=Written)
    forgotten: int = 0


def chunk_name(group: str, offset: int) -> str:
    """The name of the chunk that tells of this offset."""
    return f"commits.{zlib.crc32(group.encode()):x}.{offset >> SHIFT:x}"


def is_full(own: InvokedCommits, more: int) -> bool:
    """Will so many more be written into bitmaps, with those that are pending?"""
    return len(own.pending) + more > PENDING + own.kept


def chunks_of(groups: Iterable[str], offsets: Ints) -> set[str]:
    """The chunks that tell of these offsets, of each of the groups."""
    numbers = each(offsets >> SHIFT)
    return {chunk_name(group, number << SHIFT) for group in groups for number in numbers}


def add(own: InvokedCommits, new: Newly) -> None:
    """Note these; each group's offsets once by each clock."""
    both = concat(own.pending, new)
    order = np.lexsort((both.since, both.domain, both.offset, both.group))
    both = take(both, order)
    first = np.ones(len(both), bool)
    for column in (both.group, both.offset, both.domain):
        first[1:] &= column[1:] == column[:-1]
    first[1:] = ~first[1:]
    own.pending = take(both, first)


def write(own: InvokedCommits, chunks: Chunks, names: list[str], later: Bools) -> int:
    """Write what is pending into the bitmaps, whose chunks must be declared; but for what is known to be `later` than a
    read that is not judged yet, whose time must not be lost: the newest of these. `names` of groups by number. How many
    times were lost."""
    after = indices(later)
    lost = after[own.pending.since[after].argsort(kind="stable")[: max(0, len(after) - KEPT)]]
    later[lost] = False
    pending, own.pending, own.full = take(own.pending, ~later), take(own.pending, later), False
    own.kept = len(own.pending)
    number = pending.offset >> SHIFT
    for group, n in sorted({*zip(pending.group.tolist(), number.tolist(), strict=True)}):
        name = chunk_name(names[group], n << SHIFT)
        stored = chunks.blob(name)
        bits = BitMap.deserialize(stored) if stored else BitMap()
        mine = (pending.group == group) & (number == n)
        bits.update((pending.offset[mine] & ((1 << SHIFT) - 1)).astype(np.uint32))
        bits.run_optimize()
        chunks.put(name, bits.serialize())
    more = concat(own.written, Written(pending.group, number, number + 1))
    own.written = Written(*merge_grouped(more.group, more.start, more.end))
    return len(lost)


def forget_below(own: InvokedCommits, log_start: int, chunks: Chunks, names: list[str]) -> None:
    """Drop the bitmaps that lie wholly below the log start."""
    limit = max(log_start, 0) >> SHIFT
    if not some(own.written.start < limit):
        return
    for group, start, end in zip(
        *(c.tolist() for c in (own.written.group, own.written.start, own.written.end)), strict=True
    ):
        for number in range(start, min(end, limit)):
            chunks.put(chunk_name(names[group], number << SHIFT), None)
    own.forgotten = max(own.forgotten, limit << SHIFT)
    start = np.maximum(own.written.start, limit)
    left = start < own.written.end
    own.written = Written(own.written.group[left], start[left], own.written.end[left])


def certainly_never(
    own: InvokedCommits, chunks: Chunks, group: int, offset: int, names: list[str], early: Callable[[int, int], bool]
) -> bool:
    """Is it known that the group was not asked to commit this offset before it was told? Its chunks must be declared.
    `early`: may what was invoked then, by the clock of that domain, have been before?"""
    if offset < own.forgotten:
        return False
    asked = indices(among(own.pending.group, (group, ANY)) & (own.pending.offset == offset))
    if any(early(int(own.pending.since[i]), int(own.pending.domain[i])) for i in asked.tolist()):
        return False
    for name in (names[group], names[ANY]):
        stored = chunks.blob(chunk_name(name, offset))
        if stored and (offset & ((1 << SHIFT) - 1)) in BitMap.deserialize(stored):
            return False
    return True
