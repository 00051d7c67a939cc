"""The digest of what stands in a block of a log: a sum, in any order, of what its records weigh.

A run's digest needs no record: at each offset a fixed odd number (from a table of 1,024) times a hash of the run's
label (writer, offset - seq), so that a run's sum is a difference of prefix sums. A single exchanged, missing or added
record always changes the sum; the 32 bits that are kept miss an arbitrary change once in four thousand million.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rules.arrays.intervals import Ints

BLOCK: Final = 1024
"""Offsets."""

Words = NDArray[np.uint64]


def _weights() -> tuple[Words, Words]:
    """A fixed odd number for each offset of a block, and their prefix sums."""
    odd = _mixed(np.arange(1, BLOCK + 1, dtype=np.uint64)) | np.uint64(1)
    return odd, np.concatenate((np.zeros(1, np.uint64), np.cumsum(odd, dtype=np.uint64)))


def _mixed(x: Words) -> Words:
    """splitmix64: every bit of the result depends on every bit of `x`."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


_, _PREFIX = _weights()


def run_digests(offset: Ints, writer: Ints, seq: Ints, length: Ints, width: int = BLOCK) -> tuple[Ints, Ints, Words]:
    """(run, block, digest) of the runs cut at the blocks' bounds; `run` is the index of the run. `width`: of a block,
    or of one of its equal parts that are to stand for blocks."""
    first, last = offset // width, (offset + length - 1) // width
    pieces = last - first + 1
    run = np.repeat(np.arange(len(offset)), pieces)
    block = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    base = block * width
    begin = base // BLOCK * BLOCK
    low = np.maximum(offset[run], base) - begin
    high = np.minimum((offset + length)[run], base + width) - begin
    with np.errstate(over="ignore"):
        label = _mixed(_mixed(writer.astype(np.uint64)) ^ (offset - seq).astype(np.uint64))[run]
        return run, block, (_PREFIX[high] - _PREFIX[low]) * label


def folded(whole: Words) -> Ints:
    """The 32 bits of digests that are kept."""
    return np.asarray(((whole ^ (whole >> np.uint64(32))) & np.uint64(0xFFFFFFFF)).astype(np.int64))
