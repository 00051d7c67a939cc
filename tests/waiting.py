"""Waiting for what comes in its own time, without taking the processor from whom it is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator

MOST = 1.0
"""Seconds between two looks, at most."""


def looks(least: float) -> Iterator[None]:
    """One look after another, for a loop that ends when it sees what it waits for: between two there are `least`
    seconds, and three times as long as the last one took. Some read a whole table."""
    while True:
        began = time.monotonic()
        yield
        time.sleep(min(max(least, 3 * (time.monotonic() - began)), MOST))
