"""What of a folder's journals the probe log does not have yet: its backlog, and the bound that may be set to it.

While the probe log cannot be appended to, journals are its spool. Without a bound they take what the disk has, which
others may need as well. With one, probes end in order once it is reached, before anything of theirs is open, and begin
anew when a tenth of it is free again: nothing that happened is missing from the log, and what did not is not claimed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from probes.log.commits.append_plan import Part, load
from probes.log.errors import HistoryMismatch, JournalUnwritable
from probes.log.journals.segments import life_folders, segments

LOOK_EVERY: Final = 5.0
"""Seconds. Within them a default fleet writes some 200 kB."""
AGAIN_AT: Final = 0.9
"""Which share of the bound must not be exceeded any more before probes begin anew: else they would come and go."""


def backlog(folder: Path, appended: Mapping[str, Part]) -> int:
    """The bytes of a folder's journals that were not appended: `appended` says how far each life's was."""
    total = 0
    for life in life_folders(folder):
        part = appended.get(life.name)
        if part is not None and part.until is not None:
            continue  # it is over, and all that can be read of it was appended
        found = segments(life)
        try:
            end = found[-1][0] + found[-1][1].stat().st_size if found else 0
        except FileNotFoundError:
            continue  # it was appended meanwhile, and deleted
        begin = found[0][0] if found else 0
        total += max(0, end - max(begin, part.end if part is not None else 0))
    return total


def planned(folder: Path) -> Mapping[str, Part]:
    """How far each journal was read for the append that was planned last, in the table or about to be."""
    try:
        plan = load(folder)
    except (HistoryMismatch, OSError):
        return {}  # the committer says so
    return plan.parts if plan is not None else {}


class Spool:
    """The bound of one folder's backlog, in bytes; none where `most` is None. For several threads."""

    def __init__(self, folder: Path, most: int | None) -> None:
        self._folder, self._most = folder, most
        self._lock = threading.Lock()
        self._look_at = 0.0
        self._taken: int | None = None

    def check(self) -> None:
        """Raises `JournalUnwritable` as long as the bound is reached. Looks every `LOOK_EVERY` seconds."""
        if self._most is None:
            return
        with self._lock:
            if (now := time.monotonic()) >= self._look_at:
                taken = backlog(self._folder, planned(self._folder))
                full = taken >= self._most * (1.0 if self._taken is None else AGAIN_AT)
                self._taken = taken if full else None
                self._look_at = now + LOOK_EVERY
            if self._taken is None:
                return
        raise JournalUnwritable(
            f"the journals in {self._folder} hold {self._taken / 1e9:.3g} GB that the probe log does not have, of "
            f"{self._most / 1e9:.3g} that they may (probes.journal_max_gb)"
        )
