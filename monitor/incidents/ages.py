"""How long ago something was, in words. It imports nothing: the probes' process needs it, and none of the checks."""

from __future__ import annotations

from datetime import timedelta


def age(span: timedelta) -> str:
    """A span in its largest unit: 14m. To the nearest second, as all who tell of one do."""
    seconds = max(round(span.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
