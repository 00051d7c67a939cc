"""What can go wrong with the probe log, in few words. Library and system errors are translated into these."""

from __future__ import annotations

from typing import Final

from rules.vocabulary.slices import UNWRITABLE


class ProbeLogError(Exception):
    """The probe log cannot do what was asked; `str()` is one sentence for the user."""


class JournalUnwritable(ProbeLogError):
    """The journal's disk refused a write (full, read-only, gone). Nothing of the refused call is in the journal:
    the call may be repeated. Until it succeeds nothing may be sent."""

    code: Final = UNWRITABLE


class JournalDamaged(JournalUnwritable):
    """Somebody, or the disk, has damaged the journal of a life that goes on: it has to end, and another to begin."""


class HostUnknown(ProbeLogError):
    """No such host has written to the probe log, or it is alive."""


class FolderTaken(ProbeLogError):
    """Another committer holds this journal folder."""


class HistoryUnavailable(ProbeLogError):
    """The Delta table cannot be read or written now; the committer tries again and loses nothing."""


class HistoryConflict(HistoryUnavailable):
    """Another host's append came first; trying again at once helps."""


class HistoryMismatch(ProbeLogError):
    """The Delta table is not the one that this journal folder has been writing to. Trying again does not help."""


class FolderCopied(HistoryMismatch):
    """The probe log was gone on with from where this journal folder ends, and not by it: there is a copy of it, or it
    is one itself."""
