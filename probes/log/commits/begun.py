"""Which lives were there when a committer began: what began since is this host's own, whoever else has a copy.

A start that could not append anything may be killed. So what was there then is kept, as long as the plan on disk is
the one that it found, or its claim upon that.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import orjson

from probes.log.commits.append_plan import load
from probes.log.errors import HistoryMismatch
from probes.log.journals.segments import life_folders

FILE: Final = "begun"


def lives_before(folder: Path) -> set[str]:
    """The names of the lives that were there when the committer began that is at work now, or the last one before it
    that has come no further. To be called once by each that begins. Raises OSError."""
    there = {life.name for life in life_folders(folder)}
    try:
        plan = load(folder)
    except HistoryMismatch:  # the first turn says so
        return there
    if plan is None:
        return there
    kept = folder / FILE
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        found, names = orjson.loads(kept.read_bytes())
        if found == plan.recorded or (plan.claim and found == plan.after):
            return set(names)
    kept.write_bytes(orjson.dumps([plan.recorded, sorted(there)]))
    return there
