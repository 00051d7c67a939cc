"""Leader epochs: as of which of them stood what an operation polled, as its row tells (`LeaderEpoch`).

They are told as evidence, and nothing is judged by them: `docs/limits.md` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa


def epoch_of(rows: pa.Table, row: int, offset: int) -> int | None:
    """That of the record which this row's operation polled at an offset, None where no broker told it."""
    return epoch_at(rows["epochs"][row].as_py() or (), offset)


def epoch_at(epochs: Iterable[Mapping[str, Any]], offset: int) -> int | None:
    """The same by what the row tells."""
    found = None
    for one in epochs:
        if one["offset"] is None or one["offset"] <= offset:
            found = int(one["epoch"])
    return found


def epochs_around(rows: pa.Table, row: int, offset: int) -> list[int]:
    """Those of the records next below and next above an offset, of what this row's operation polled."""
    runs = [(one["offset"], one["offset"] + one["length"]) for one in rows["polled"][row].as_py() or ()]
    below = max((min(end, offset) - 1 for start, end in runs if start < offset), default=None)
    above = min((max(start, offset + 1) for start, end in runs if end > offset + 1), default=None)
    told = [epoch_of(rows, row, at) for at in (below, above) if at is not None]
    return [epoch for epoch in told if epoch is not None]
