"""How many files a process may have open: as many as the machine lets it, and enough.

Probes of the default fleet have 362 open against one broker, Spark's JVM 332, each more with each broker and partition.
Where a shell gives 256, as macOS's does, it nearly always lets a process ask for more.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from monitor.errors import UserError

ASKED_FOR: Final = 65_536
NEEDED: Final = 512
"""Of the default fleet, with room for two more brokers."""


def allowed() -> int:
    """How many this process may have open, after it has asked for as many as it may; its children inherit that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ASKED_FOR if hard == resource.RLIM_INFINITY else min(hard, ASKED_FOR)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # a system may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ASKED_FOR if soft == resource.RLIM_INFINITY else soft


def require_enough() -> None:
    """Ask for as many as are needed. Raises UserError where there cannot be so many."""
    if (most := allowed()) < NEEDED:
        raise UserError(f"{most} files may be open here, and {NEEDED} are needed at least: raise the limit (ulimit -n)")
