"""The probe log's commits are kept while a long rebuild reads.

The stream goes on with the commit after the version that was rebuilt, and commits are kept for two hours: a rebuild
that takes longer would end with a stream that cannot begin, and begin anew, for ever. The table's own property says how
long, and whoever appends deletes what is older. A rebuild of many rows sets it to a week, and beside it what it was;
upkeep sets it back once the stream has caught up. Where none is ever finished the log stays long, and appends slow.
"""

from __future__ import annotations

from typing import Final

from deltalake import DeltaTable

from streaming_jobs.location import TableLocation, readers

MANY: Final = 5_000_000
"""Rows from which on a rebuild takes minutes: some two million a minute and core, measured."""
WEEK: Final = "interval 7 days"
RETENTION: Final = "delta.logRetentionDuration"
BEFORE: Final = "offsetwatch.logRetentionDuration"
"""Our own property: what `RETENTION` was; empty where nothing was changed."""


def keep(history: TableLocation) -> None:
    """Keep the log's commits for a week. Raises Delta's errors."""
    table = DeltaTable(str(history), storage_options=readers(history))
    told = table.metadata().configuration
    if told.get(RETENTION, WEEK) != WEEK and not told.get(BEFORE):
        _set(table, {RETENTION: WEEK, BEFORE: told[RETENTION]})


def is_kept(table: DeltaTable) -> bool:
    """Whether a rebuild has the log's commits kept."""
    return bool(table.metadata().configuration.get(BEFORE))


def let_go(table: DeltaTable) -> str:
    """Keep them for as long as before; returns that. Raises Delta's errors."""
    before: str = table.metadata().configuration[BEFORE]
    _set(table, {RETENTION: before, BEFORE: ""})
    return before


def _set(table: DeltaTable, properties: dict[str, str]) -> None:
    table.alter.set_table_properties(properties, raise_if_not_exists=False)
