"""What can go wrong in a streaming job, as the user sees it. Spark's, py4j's and Delta's own exceptions end here.

Every error's text is one sentence that names what to look at. `translated` makes one from a failed query.
"""

from __future__ import annotations

import re
from typing import Final


class JobError(Exception):
    """The base of this package's errors; its text is a sentence for the user."""


class SessionError(JobError):
    """Spark could not be started."""


class TableError(JobError):
    """A Delta table could not be read, written or created."""


class HistoryMissing(TableError):
    """The probe log's table `history` does not exist yet: no committer has ever written to it."""


class CheckpointTaken(JobError):
    """Another process runs the job over the same checkpoint."""


class LeaseLost(JobError):
    """Another monitor may be at work on the same tables by now, so nothing is written any more."""


class StateUnusable(JobError):
    """The job cannot go on with its state, which must be rebuilt from the probe log."""

    why: str
    """As a phrase, of the state."""


class StateFormat(StateUnusable):
    """It was written by another version of the checks."""

    why = "it was written by another version of the checks"


class CheckpointDamaged(StateUnusable):
    """A file of the checkpoint is gone."""

    why = "a file of its checkpoint is gone"


class EvidenceGap(StateUnusable):
    """The stream asked for log entries or files that retention has already removed."""

    why = "the probe log no longer keeps what it wants next"


class JobFailed(JobError):
    """The query ended by an error of its own."""


class NotShared(JobError):
    """A worker of Spark's, on another machine, does not see the data folder."""


class FileUnreadable(JobFailed):
    """A data file of the probe log is there, and cannot be read."""


class WorkerLate(JobFailed):
    """A Python worker was not up within the ten seconds that Spark gives it: the machine is busy."""


GONE: Final = "the probe log no longer has its"
"""How our own source's error begins where retention has taken the commit, or the file, that comes next."""

UNREADABLE: Final = "the probe log cannot be read in its"
"""The same of a file that is there."""

_GAP: Final = (
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_STREAMING_TRAILING_COMMIT_MISSING",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_VERSION_NOT_CONTINUOUS",
    "DELTA_STREAM_CHECKPOINT",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DeltaStreamDataLossException",
    "failOnDataLoss",
    "DELTA_FILE_NOT_FOUND",
    "FileNotFoundException",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    GONE,
)


def last_line(text: str) -> str:
    """The line of an exception's text that says most: a Python worker's own error, the innermost cause of a Java one,
    or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [
        line for line in lines if line.startswith(("Caused by: ", ": ")) and ("Exception" in line or "Error" in line)
    ]
    if causes:
        named = re.sub(r"^(Caused by)?: ", "", causes[-1])
        return re.sub(r"^([\w.$]+(Exception|Error): )+(?=\S)", "", named)[:400].rstrip(".")
    for line in reversed(lines):
        if re.match(r"^[A-Za-z_][\w.]*(Error|Exception|Format|Interrupt|Exit)\b", line):
            return line[:400].rstrip(".")
    return lines[0][:400] if lines else "no message"


def said(error: BaseException) -> str:
    """An exception's text; py4j asks the JVM for it, which may have gone."""
    try:
        return str(error)
    except Exception:
        return "Spark's Java process has gone"


def translated(error: BaseException, *, checkpoint: str) -> JobError:
    """Our error for the exception that ended a query."""
    if isinstance(error, JobError):
        return error
    text = f"{type(error).__name__}: {said(error)}"
    if "UnknownFormat" in text:
        return StateFormat(
            f"The state in {checkpoint} was written by another version of the checks, "
            f"and must be rebuilt from the probe log ({last_line(text)})."
        )
    if NotShared.__name__ in text:
        return JobFailed(f"The data folder must be one that all of Spark's machines see: {last_line(text)}.")
    if UNREADABLE in text:
        return FileUnreadable(f"The integrity job ended: {last_line(text)}.")
    if re.search(rf"File \S*{re.escape(checkpoint)}/\S+ does not exist", text):
        return CheckpointDamaged(
            f"A file of the checkpoint in {checkpoint} is gone, and its state must be rebuilt from the probe log "
            f"({last_line(text)})."
        )
    if any(sign in text for sign in _GAP):
        return EvidenceGap(
            "The job has fallen behind what the probe log keeps, and cannot go on without a rebuild "
            f"({last_line(text)})."
        )
    if "Python worker failed to connect back" in text:
        return WorkerLate("A Python worker of Spark's took longer than ten seconds to start: the machine is very busy.")
    return JobFailed(f"The integrity job ended: {last_line(text)}.")
