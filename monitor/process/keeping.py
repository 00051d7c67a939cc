"""What receivers were told, where several monitors take turns: it is kept beside the tables, and one of them tells.
Silences are kept there too.

A monitor that was frozen, or cut off from the store, does not know yet that another one has taken over. What it would
tell is out of date, and the other tells it: so it tells nothing while its lease is doubtful. Where that lasts, and
nobody is known to have taken the lease, it tells that it checks nothing; nothing else that it knows can be true then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from alerts.incidents.incident import Incident
from alerts.receivers.memory import Kept, OnDisk
from alerts.silences import Silences
from monitor.incidents.kept_silences import silences_beside
from streaming_jobs.checks_stalled import NAME as CHECKS_STALLED
from streaming_jobs.location import TableUrl
from streaming_jobs.tables.lease import Lease

ALONE: Final = 60.0
"""Seconds of asking for the lease in vain, after which another monitor would have been at work for long, had it reached
the store."""


@dataclass(frozen=True, slots=True)
class InTheStore:
    """Beside the tables; `folder`: this machine's copies, read where the store has nothing yet, or does not answer."""

    tables: TableUrl
    folder: Path
    lease: Lease

    def silences(self) -> Silences:
        return silences_beside(self.tables, self.folder)

    def kept(self, receiver: str) -> Kept:
        return _Both(self.tables / "told" / f"{receiver}.json", OnDisk(self.folder / f"{receiver}.json"), self.lease)

    def ours(self, incidents: Sequence[Incident]) -> Sequence[Incident] | None:
        """The incidents that are to be told by this process now, None where it must be silent."""
        if self.lease.lost is not None:
            return None
        if not self.lease.doubtful_for:
            return incidents
        if self.lease.asked_in_vain_for < ALONE:  # one that was frozen has not asked yet
            return None
        return [one for one in incidents if one.anomaly == CHECKS_STALLED]


@dataclass(frozen=True, slots=True)
class _Both:
    """A text in the store, and its copy on this disk."""

    url: TableUrl
    here: OnDisk
    lease: Lease

    def read(self) -> str:
        try:
            return self.url.read_text(patient=True)
        except FileNotFoundError:
            text = self.here.read()  # of a version that kept it nowhere else
            self.url.write_text(text)
            return text
        except OSError:
            return self.here.read()

    def write(self, text: str) -> None:
        """Raises OSError where the store does not have it."""
        try:
            self.here.write(text)
        finally:
            if self.lease.lost is not None or self.lease.doubtful_for:
                raise OSError("another monitor may know better")
            self.url.write_text(text, patient=False)
