"""Journals that no committer looks after any more: those of a cluster that was renamed, or is no longer watched.

What stands in them happened, and the checks wait for it. It is appended once; then the processes whose journals these
are have ended, and nobody waits for them.
"""

from __future__ import annotations

from pathlib import Path

from probes.clock import Clock
from probes.log.commits.committer import committer
from probes.log.commits.destination import Destination
from probes.log.commits.folder_clock import folder_clock
from probes.log.errors import FolderTaken
from probes.log.journals.segments import OVER, is_held, life_folders


def append_left_behind(folder: Path, history: str | Path | Destination, clock: Clock | None = None) -> int:
    """Append what is left in this journal folder; returns the rows, 0 where nothing is left or somebody is at work on
    it. `clock`: the folder's own where none is given. Raises the probe log's errors."""
    left = [life for life in life_folders(folder) if not (life / OVER).exists()]
    if not left or any(is_held(life) for life in left):
        return 0
    try:
        with committer(folder, history, clock or folder_clock(folder)) as one:
            one.drain()
            return one.status().rows
    except FolderTaken:
        return 0
