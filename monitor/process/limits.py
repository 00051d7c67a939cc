"""How many files a process may have open, and how many addresses it may take: enough, or a line that says so.

Probes of the default fleet have 362 files open against one broker, Spark's JVM 332, each more with each broker and
partition. Where a shell gives 256, as macOS's does, it nearly always lets a process ask for more.

Addresses (`ulimit -v`) are no memory: every thread takes some megabytes of them. Where they run out, librdkafka ends
its process by an assertion.
"""

from __future__ import annotations

import math
import resource
from contextlib import suppress
from typing import Final

from monitor.errors import UserError

ASKED_FOR: Final = 65_536
NEEDED: Final = 512
"""Of the default fleet, with room for two more brokers."""
ADDRESSES: Final = 3_000_000_000
"""Bytes. Probes of a small fleet have taken 2.9 GB; it is nothing that they use."""


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
    """Ask for as much as is needed. Raises UserError where there cannot be so much."""
    if (most := allowed()) < NEEDED:
        raise UserError(f"{most} files may be open here, and {NEEDED} are needed at least: raise the limit (ulimit -n)")
    if (bytes_ := addresses()) < ADDRESSES:
        told = f"{bytes_ / 1e9:.1f} GB of addresses may be taken here, and {ADDRESSES / 1e9:.0f} are needed at least"
        raise UserError(f"{told}: raise the limit (ulimit -v)")


def addresses() -> float:
    """How many bytes of addresses this process may take."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if soft == resource.RLIM_INFINITY else soft
