"""When rows came to the probe log last, by the clock of the machine that checks it.

A batch reads what has waited for it (`streaming_jobs.history.holding`), or what an outage has left, so its time is not
that of its rows. What a commit tells of its time is another machine's clock. So the log is looked at.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from deltalake.exceptions import DeltaError

from rules.vocabulary.table_errors import in_words
from streaming_jobs.history.log_source import added, commit_name
from streaming_jobs.history.source import NewestVersion
from streaming_jobs.location import TableLocation

log = logging.getLogger(__name__)

ASKED_AFTER: Final = 15.0
ASKED_EVERY: Final = 5.0
"""Seconds without a batch after which an object store is looked into, and between two looks: each costs. A folder is
looked at whenever one asks."""
_LOOKED_AT: Final = 20
"""Commits. Compaction and ageing make one each in ten minutes, probes one a second."""


class Arrivals:
    """When rows came last, and whether any wait. What is there at the first look came at no known time.

    From any thread."""

    def __init__(
        self,
        history: TableLocation,
        newest: NewestVersion,
        clock: Callable[[], datetime],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = history / "_delta_log"
        self._newest, self._clock, self._monotonic = newest, clock, monotonic
        self._lock = threading.Lock()
        self._due = monotonic()
        self._through: int | None = None
        self._last: datetime | None = None
        self._waiting_since: float | None = None
        self._brought: int | None = None

    def last(self) -> datetime | None:
        """When rows came last, since the first look; None where none did. Where the log cannot be looked at, it is as
        it was."""
        with self._lock:
            if self._monotonic() >= self._due:
                self._look()
            return self._last

    def taken(self) -> datetime | None:
        """The same, as a batch begins: whatever has come by now has waited for it, or comes into the next one. Of an
        object store that is when the batch begins."""
        with self._lock:
            if isinstance(self._log, Path):
                self._look()
            else:
                self._due = self._monotonic() + ASKED_AFTER
                self._through, self._last = self._newest.known, self._clock()
                self._brought = self._through
            self._waiting_since = None
            return self._last

    def brought(self) -> int | None:
        """The last commit by which rows have come, if some have since this was asked last."""
        with self._lock:
            brought, self._brought = self._brought, None
            return brought

    def rows_between(self, before: int, newest: int) -> bool:
        """Whether commits after `before`, up to `newest`, have brought rows. Raises `OSError`, and `DeltaError`."""
        return newest > before and self._brought_rows(before, newest)

    def waiting(self) -> float:
        """Seconds for which rows have waited that were not there when the last batch began."""
        since = self._waiting_since
        return 0.0 if since is None else self._monotonic() - since

    def _look(self) -> None:
        self._due = self._monotonic() + (0.0 if isinstance(self._log, Path) else ASKED_EVERY)
        try:
            newest = self._newest.version()
            if self._through is not None and newest > self._through and self._brought_rows(self._through, newest):
                self._last = self._clock()
                self._waiting_since = self._waiting_since or self._monotonic()
                self._brought = newest
            self._through = newest
        except (DeltaError, OSError) as error:
            log.warning("the probe log cannot be looked at, and is again: %s", in_words(error))

    def _brought_rows(self, before: int, newest: int) -> bool:
        return any(self._has_rows(version) for version in range(newest, max(before, newest - _LOOKED_AT), -1))

    def _has_rows(self, version: int) -> bool:
        try:
            return bool(added((self._log / commit_name(version)).read_text()))
        except FileNotFoundError:
            return False
        except ValueError:  # a table of Delta's own kind: what its commits did is left to Delta's source
            return True
