"""Which of the observer's rows say that there is no such partition: somebody has deleted its topic."""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import Columns
from rules.arrays.intervals import Bools, Ints

REPLACED: Final = "topic-replaced"
"""There is another topic of this name: the committer says so, who knows both ids."""
NOT_THERE: Final = frozenset(
    {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", REPLACED}
)
"""Errors that say so: brokers', the client's, the committer's."""


def listed(columns: Columns, rows: Ints) -> Bools:
    """Which of the observer's `rows` tell where the partition's log begins or ends: it is there."""
    told: Bools = (columns.log_start[rows] >= 0) | (columns.log_end[rows] >= 0) | (columns.last_stable[rows] >= 0)
    return told


def not_there(columns: Columns, rows: Ints) -> Ints:
    """Those of the observer's `rows` that say that the partition is not there; what a group is told of it does not."""
    if not columns.tells("error"):
        return rows[:0]
    silent = rows[~listed(columns, rows) & (columns.committed[rows] < 0)]
    errors, groups = columns.table["error"], columns.table["group"]
    said = [errors[row].as_py() in NOT_THERE and groups[row].as_py() is None for row in silent.tolist()]
    absent: Ints = silent[np.array(said, dtype=bool)]
    return absent
