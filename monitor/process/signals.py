"""Stopping in order: the first SIGTERM or Ctrl-C asks, a second Ctrl-C insists, and no stop takes for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from monitor.process.program_log import say

STOPPED_WITHIN: Final = 28.0
"""Seconds. systemd, Kubernetes and `docker stop` kill what has not ended after 90, 30 and 10 of them by default."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop(threading.Event):
    """Set where the process is to end; `by`: the signal that asked for it, empty where it was none."""

    by = ""


def asked(stop: threading.Event) -> str:
    """Who asked for this stop, to be put behind "stopping": nobody is to wonder in the morning."""
    return f" ({stop.by})" if isinstance(stop, Stop) and stop.by else ""


@contextmanager
def stop_on_signal(within: float | None = None) -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGHUP or Ctrl-C set while the block runs. A second Ctrl-C raises KeyboardInterrupt.

    `within`: seconds after the first of them by which the block must be over; else the process ends there, with exit
    code 0 and one line, as if it had been killed, which the tables and journals survive. None waits for ever.

    For the main thread. Programs that are started inside must not share the terminal's Ctrl-C, nor a SIGTERM to the
    process group (their own session)."""
    stop = Stop()
    over = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if within is not None and not stop.is_set():
            threading.Thread(target=_end_after, args=(within, over), name="end-after", daemon=True).start()
        stop.by = stop.by or signal.Signals(number).name
        stop.set()

    before: dict[signal.Signals, Any] = {one: signal.signal(one, ask) for one in _SIGNALS}
    try:
        yield stop
    finally:
        over.set()
        for one, handler in before.items():
            signal.signal(one, handler)


def _end_after(seconds: float, over: threading.Event) -> None:
    if over.wait(seconds):
        return
    say(f"not stopped after {seconds:g} s: what still runs is given up, and the next start goes on with it")
    session = sys.modules.get("streaming_jobs.session")
    if session is not None:
        session.kill()
    for child in multiprocessing.active_children():
        child.kill()
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(0)
