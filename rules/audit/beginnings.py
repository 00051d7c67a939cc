"""How the newest blocks of a log begin: who reads one that is not full yet is compared with the others all the same.

Whole blocks are compared (`rules.audit.digests`), and the newest one of a slow log takes many minutes to be whole. An
audit that comes to its end would have seen that a record is gone, and nobody be told. So the digest of the first 64
offsets of the newest block is kept, of the first 128, and so on, as somebody has read them first, and of the block
before: an audit ends where the log did when it began. Where another one has read otherwise, once for each block, the
range is rechecked.

State: two digests for each `PART` offsets of a block, at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.intervals import EMPTY, Ints
from rules.audit.sums import BLOCK, folded, run_digests
from rules.kept.codec import Table, concat, take
from rules.kept.report import Report
from rules.kept.state import Polls

PART: Final = 64
"""Offsets."""
_PARTS: Final = BLOCK // PART


@dataclass(slots=True)
class Parts(Table):
    """What somebody has read first of the first `parts` parts of a block: its `digest`."""

    block: Ints = field(default_factory=lambda: EMPTY)
    parts: Ints = field(default_factory=lambda: EMPTY)
    digest: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Beginnings:
    """`known`: of the newest block that somebody reads, and of the one before it. `doubted`: the newest block that was
    rechecked for how it begins."""

    known: Parts = field(default_factory=Parts)
    doubted: int = -1


class Tail(NamedTuple):
    """What a reader has read last without a break, since `start`: in this step from `begin` to `end`, with what it
    `polled` there. The digests of the block that it is in: what is `carried` from before the step, in which that may
    have been another block, and what it is now."""

    start: int
    begin: int
    end: int
    carried: int
    digest: int
    polled: Polls


def learn(own: Beginnings, tails: Sequence[Tail], log_start: int, report: Report) -> None:
    """Learn how the newest blocks begin, and compare what each has read of the one that it is in."""
    for tail in tails:  # first, since another one may have come no further than that
        block = tail.end // BLOCK - 1
        if tail.start <= block * BLOCK and tail.begin < (block + 1) * BLOCK:
            _compare(own, block, *_beginning(tail, block))
    for tail in tails:
        block = tail.end // BLOCK
        if tail.start > block * BLOCK:
            continue
        parts, digests = _beginning(tail, block)
        doubt = _compare(own, block, parts, digests)
        if doubt and block > own.doubted and block * BLOCK >= log_start:
            own.doubted = block
            report.recheck(block * BLOCK, block * BLOCK + doubt * PART, int(digests[parts == doubt][0]))


def _beginning(tail: Tail, block: int) -> tuple[Ints, Ints]:
    """Of how many parts of the block it has come to the end in this step, and the digests of these."""
    base, runs = block * BLOCK, tail.polled
    _, part, digest = run_digests(runs.offset, runs.writer, runs.seq, runs.length, PART)
    inside = part // _PARTS == block
    sums = np.zeros(_PARTS, np.uint64)
    carried = tail.carried if tail.begin >= base else 0
    with np.errstate(over="ignore"):
        np.add.at(sums, part[inside] % _PARTS, digest[inside])
        sums = np.cumsum(sums) + np.uint64(carried % 2**64)
    parts = np.arange(max(tail.begin - base, 0) // PART + 1, min(tail.end - base, BLOCK) // PART + 1)
    return parts, folded(sums[parts - 1])


def _compare(own: Beginnings, block: int, parts: Ints, digest: Ints) -> int:
    """Of how many parts of the block another one has read otherwise, of the fewest; 0 where none has. What nobody has
    read is known now."""
    newest = max(block, int(own.known.block.max(initial=-1)))
    if block < newest - 1:
        return 0
    own.known = take(own.known, own.known.block >= newest - 1)
    here = take(own.known, own.known.block == block)
    before = np.full(_PARTS + 1, -1, np.int64)
    before[here.parts] = here.digest
    new = before[parts] < 0
    own.known = concat(own.known, Parts(np.full(int(new.sum()), block, np.int64), parts[new], digest[new]))
    other = ~new & (before[parts] != digest)
    return int(parts[other].min()) if other.any() else 0
