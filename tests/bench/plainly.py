"""The yardstick of the checks that run without Spark: reading the same rows plainly, every column and every run."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc


def seconds(rows: pa.Table) -> float:
    """Seconds to sum the numbers of all columns, and the records of all runs, of these rows."""
    began = time.perf_counter()
    for name in ("process", "op", "slice", "position_before", "position_after", "log_start", "log_end", "last_stable"):
        pc.sum(rows[name])
    for name in ("f", "type", "isolation", "mode"):
        pc.value_counts(rows[name])
    for name in ("invoked", "completed"):
        pc.min_max(rows[name])
    for name in ("sent", "polled"):
        for part in rows[name].chunks:
            runs = pc.list_flatten(part)
            for field in ("writer", "seq", "offset", "length"):
                pc.sum(runs.field(field))
    return time.perf_counter() - began
