"""What Spark says of each batch it finished, in our terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming_jobs.history.source import versions_behind


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One finished batch. Seconds of machine time; `lag_versions` counts commits of the probe log that were not read
    to their end when the progress was looked at."""

    batch: int
    duration: float
    input_rows: int
    input_rows_per_second: float
    lag_versions: int
    phases: Mapping[str, float]
    """Seconds by Spark's own names: addBatch (the checks and our tables), latestOffset, walCommit, and so on."""


def _rate(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value == value and abs(value) != float("inf") else 0.0


def from_spark(progress: Mapping[str, Any], latest_version: int, rows: int | None = None) -> BatchProgress:
    """From the JSON object of a `StreamingQueryProgress`. `rows`: how many rows of the probe log the batch had, which
    Spark does not know where they come as bundles."""
    counted = int(progress.get("numInputRows") or 0)
    each = 1.0 if rows is None or not counted else rows / counted
    sources = progress.get("sources") or [{}]
    phases = {name: ms / 1000 for name, ms in (progress.get("durationMs") or {}).items()}
    return BatchProgress(
        batch=int(progress["batchId"]),
        duration=phases.get("triggerExecution", _rate(progress.get("batchDuration")) / 1000),
        input_rows=counted if rows is None else rows,
        input_rows_per_second=_rate(progress.get("inputRowsPerSecond")) * each,
        lag_versions=versions_behind(latest_version, sources[0].get("endOffset")),
        phases=phases,
    )
