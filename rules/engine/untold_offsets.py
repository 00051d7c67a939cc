"""Where the records lie whose offsets an operation did not tell, once the whole history is known.

A file may leave offsets out, and an acknowledgement may come without. But what one operation did not say, others may
have: a value has its index at the last of its places in the log, whoever told of it.
"""

from __future__ import annotations

import numpy as np

from rules.arrays import intervals
from rules.arrays.columns import ASSIGN, CLOSE, FAIL, OK, REVOKE, SUBSCRIBE, Columns, Runs
from rules.arrays.intervals import indices
from rules.checks.records.losses import extreme_places
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
    for i in indices(unknown[of]).tolist():
        offset[i] = places.get((int(runs.writer[of[i]]), int(seq[i])), -1)
    lost = unknown[of] & ~intervals.touched(index.start, index.end, offset, offset + 1)
    offset[lost] = -1
    return Runs(runs.row[of], runs.writer[of], seq, offset, length)


def passed(columns: Columns, polled: Runs) -> Spans:
    """What readers in assign mode went over in ok operations, where some of them polled records at offsets that nobody
    told: from each record to the next of its reader, where both offsets are known. `polled`: all runs of the history at
    read_committed, located as far as they can be."""
    rows = np.lexsort((columns.slice, columns.process))
    place = np.empty(len(columns), np.int64)
    place[rows] = np.arange(len(columns))
    gave_up = columns.where(ASSIGN, SUBSCRIBE, REVOKE) & (columns.type != FAIL) & (columns.assigned == 0)
    hold = np.empty(len(columns), np.int64)
    hold[rows] = np.cumsum((gave_up | columns.where(CLOSE))[rows])
    own = polled.take((columns.type == OK)[polled.row] & ~columns.subscribed[polled.row])
    own = own.take(np.argsort(place[own.row], kind="stable"))
    end = own.offset + own.length
    told = own.offset >= 0
    before, after = slice(None, -1), slice(1, None)
    steps = (columns.process[own.row][before] == columns.process[own.row][after]) & told[before] & told[after]
    steps &= (hold[own.row][before] == hold[own.row][after]) & (end[before] < own.offset[after])
    return Spans(
        *intervals.merge(
            np.concatenate((own.offset[told], end[before][steps])),
            np.concatenate((end[told], own.offset[after][steps])),
        )
    )
