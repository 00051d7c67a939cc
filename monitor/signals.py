"""Stopping in order: the first SIGTERM or Ctrl-C asks, a second Ctrl-C insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGHUP or Ctrl-C set while the block runs. A second Ctrl-C raises KeyboardInterrupt.

    For the main thread. Programs that are started inside must not share the terminal's Ctrl-C (their own session)."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before: dict[signal.Signals, Any] = {one: signal.signal(one, ask) for one in _SIGNALS}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
