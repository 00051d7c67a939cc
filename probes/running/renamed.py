"""A cluster that is called otherwise now: its probes go on with the journals that they had under the former name.

With new ones they would be another run by another clock. What the old one acknowledged would be a stranger's, and a log
that was cut meanwhile could not be told from one that was not.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from probes.kafka.errors import ProbeError
from probes.log.commits.append_plan import PLAN
from probes.log.commits.committer import LOCK
from probes.log.journals.segments import is_held, life_folders
from probes.running.known_cluster import known_id
from probes.running.probe_run import RUN_FILE

_log: Final = logging.getLogger("offsetwatch.probe")
MARK: Final = "taking-over"
"""In a folder that is being filled: which one it takes over, so that whoever is killed meanwhile goes on with it."""
KEPT: Final = frozenset({"clusters", LOCK, MARK})
"""What of a journal folder stays where it is: the folders of others, and what is no journal."""
PATIENCE: Final = 20.0
"""Seconds: what a killed fleet left there may be on its way to the probe log."""
_LOOK: Final = 0.2


def take_over(folder: Path, others: Sequence[Path], cluster: str, patience: float = PATIENCE) -> Path | None:
    """Make the journals that one of the folders `others` has of this cluster those of `folder`, if that has none yet;
    returns where they were. Of several the newest. None where there are none, or somebody is at work with them after
    `patience` seconds. Raises ProbeError where a folder cannot be used."""
    try:
        former = _begun(folder, others) or _newest(folder, others, cluster)
        if former is None:
            return None
        with _alone(former, patience) as alone:
            if not alone:
                _log.warning(
                    "this cluster was watched under another name before, and somebody is still at work with its"
                    " journals in %s: these probes begin a run of their own, and a log that is cut between the two may"
                    " not be told as one that was",
                    former,
                )
                return None
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MARK).write_text(former.name, encoding="utf-8")
            for entry in sorted(former.iterdir()):
                if entry.name not in KEPT:
                    entry.rename(folder / entry.name)
            (folder / MARK).unlink()
            return former
    except OSError as refused:
        raise ProbeError(f"the journal folder {folder} cannot be used: {refused.strerror}") from refused


def _begun(folder: Path, others: Sequence[Path]) -> Path | None:
    """The folder that was being taken over when somebody was killed."""
    if not (folder / MARK).exists():
        return None
    name = (folder / MARK).read_text(encoding="utf-8")
    return next((other for other in others if other.name == name), None)


def _newest(folder: Path, others: Sequence[Path], cluster: str) -> Path | None:
    if (folder / RUN_FILE).exists() or (folder / PLAN).exists() or any(life_folders(folder)):
        return None
    found = [other for other in others if known_id(other) == cluster and (other / RUN_FILE).exists()]
    return max(found, key=lambda other: (other / RUN_FILE).stat().st_mtime, default=None)


@contextmanager
def _alone(folder: Path, patience: float) -> Iterator[bool]:
    """Is nobody else at work in this folder, or not any more, for as long as this lasts?"""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        until, alone = time.monotonic() + patience, False
        while not alone and time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = not any(is_held(life) for life in life_folders(folder))
            except BlockingIOError:
                alone = False
            if not alone:
                time.sleep(_LOOK)
        yield alone
    finally:
        os.close(lock)
