"""Where the records lie whose offsets an operation did not tell, once the whole history is known.

A file may leave offsets out, and an acknowledgement may come without. But what one operation did not say, others may
have: a value has its index at the last of its places in the log, whoever told of it.
"""

from __future__ import annotations

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import Runs
from rules.checks.losses import extreme_places
from rules.kept.chunks import values
from rules.kept.state import Places, Spans


def located(runs: Runs, log: Places, index: Spans) -> Runs:
    """The runs, in their order, with those of unknown offset cut into records that lie where the log has them last;
    still -1 where it has them nowhere, or at an offset that has no index."""
    unknown = runs.offset < 0
    if not unknown.any() or not len(log):
        return runs
    pieces = np.where(unknown, runs.length, 1)
    of = np.repeat(np.arange(len(runs)), pieces)
    step = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    seq, length = runs.seq[of] + step, np.where(unknown[of], 1, runs.length[of])
    offset = runs.offset[of].copy()
    missing = runs.take(unknown)
    known = extreme_places(log, values(missing.writer, missing.seq, missing.length), last=True)
    places = dict(zip(zip(known.writer.tolist(), known.seq.tolist(), strict=True), known.offset.tolist(), strict=True))
    for i in np.flatnonzero(unknown[of]).tolist():
        offset[i] = places.get((int(runs.writer[of[i]]), int(seq[i])), -1)
    lost = unknown[of] & ~intervals.touched(index.start, index.end, offset, offset + 1)
    offset[lost] = -1
    return Runs(runs.row[of], runs.writer[of], seq, offset, length)
