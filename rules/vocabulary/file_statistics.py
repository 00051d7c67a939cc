"""What a Delta table's log says of a data file, for those who write data files themselves: probes and the job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_MILLISECOND: Final = timedelta(milliseconds=1)


def statistics(rows: pa.Table, columns: Iterable[str]) -> dict[str, Any]:
    """The statistics of a file with these rows, of these columns. Bounds of times are whole milliseconds around them:
    Delta's log keeps no finer ones."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        bounds = pc.min_max(rows[name]).as_py()
        if bounds["min"] is not None:
            least[name], most[name] = _bound(bounds["min"], up=False), _bound(bounds["max"], up=True)
        nulls[name] = rows[name].null_count
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _bound(value: Any, *, up: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    rest = timedelta(microseconds=value.microsecond % 1000)
    whole = value - rest + (_MILLISECOND if up and rest else timedelta(0))
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03d}Z"
