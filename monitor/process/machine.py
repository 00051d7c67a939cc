"""What this machine has to offer."""

from __future__ import annotations

import psutil


def available_memory() -> int:
    """Bytes that programs can still have without others being swapped out."""
    return int(psutil.virtual_memory().available)
