"""Compacts the probe log where no monitor does: an append costs 15 ms with 100 live files, and 82 ms with 700.

The monitor's upkeep compacts at some hundreds of small files, so where there is one this finds nothing to do. The
stream over the table does not notice: no row is added or removed. Files that are no longer needed are deleted a day
later.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from probes.log.commits import data_files
from rules.vocabulary.encodings import compacted
from rules.vocabulary.file_sizes import targets
from rules.vocabulary.table_errors import in_words

log = logging.getLogger("offsetwatch.committer")

EVERY: Final = 600.0
"""Seconds between two looks."""
UNTENDED: Final = 2_000
"""Live files that a table has where nobody compacts it."""
KEPT_HOURS: Final = 24


def tend(uri: str, most: int = UNTENDED) -> int:
    """Compact the table where it has `most` live files or more; returns how many were replaced. Raises what deltalake
    does."""
    try:
        table = DeltaTable(uri)
    except TableNotFoundError:
        return 0
    if table.get_add_actions().num_rows < most:
        return 0
    replaced = 0
    for filters, size in targets(table):
        made = table.optimize.compact(filters, target_size=size, max_concurrent_tasks=1, writer_properties=compacted())
        if made["numFilesRemoved"] and "://" not in uri:
            data_files.sync_commit(Path(uri), table.version(), files=True)  # before what it replaces is deleted
        replaced += made["numFilesRemoved"]
    # Full: what was removed some hours ago the log's checkpoints leave out, and it would stay for ever.
    table.vacuum(retention_hours=KEPT_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
    return replaced


def keep_compact(uri: str, stop: threading.Event, *, every: float = EVERY, most: int = UNTENDED) -> None:
    """Look after the table until `stop`. What fails, as because another host did it at the same time, is left for the
    next look."""
    while not stop.wait(every):
        try:
            replaced = tend(uri, most)
        except Exception as error:  # deltalake raises bare ones for storage
            log.info("the probe log was not compacted: %s", in_words(error))
        else:
            if replaced:
                log.info("%d files of the probe log were compacted", replaced)
