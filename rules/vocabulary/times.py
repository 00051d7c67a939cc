"""Times of the log as they are kept: microseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: datetime) -> int:
    """Microseconds since the epoch, exactly (floats would round)."""
    return (time - EPOCH) // timedelta(microseconds=1)


def from_micros(us: int) -> datetime:
    """The UTC time `us` microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=us)


def rfc3339(time: datetime, timespec: str = "auto") -> str:
    """The time in UTC as programs are told it: 2026-11-22T03:12:07Z."""
    return time.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
