"""The clock of a journal folder's probes: the host's, under a name that no other folder's has.

All who use one folder go on with one clock (`Clock.follow`), also where the host's was set back meanwhile; those of
another folder on the same host, who began later, have the host's. So two folders are two clocks, whatever kernel they
run on (two containers of one node, two probe runs of one machine): each has a boot of its own in the log, and what is
concluded between them rests on what the log measures of both, as between hosts.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from probes.clock import SystemClock, boot_id
from probes.log.commits.append_plan import PLAN
from probes.log.errors import JournalUnwritable

CLOCK_FILE: Final = "clock"


def folder_clock(folder: Path) -> SystemClock:
    """The clock of whoever logs in this journal folder. Raises `JournalUnwritable`."""
    kept = folder / CLOCK_FILE
    try:
        # A folder in which an earlier version has logged keeps that name: another one would be another boot to it.
        if not kept.exists() and not (folder / PLAN).exists():
            folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(secrets.token_hex(4) + "\n")
        name = kept.read_text().strip() if kept.exists() else ""
    except OSError as refused:
        raise JournalUnwritable(f"cannot use the journal folder {folder}: {refused.strerror}") from refused
    if not re.fullmatch(r"[0-9a-f]*", name):
        raise JournalUnwritable(f"{kept} does not hold a clock's name")
    return SystemClock(boot=f"{boot_id()}/{name}" if name else None)
