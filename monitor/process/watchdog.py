"""Ends a process whose interpreter stands still, so that whoever keeps it running begins another one.

A client library that waits for itself while it holds Python's global lock stops every thread (librdkafka 4884 does so,
rarely): nothing is written any more, and no signal is heard. The timer is `faulthandler`'s, a thread in C that needs no
lock: it writes where every thread stands to stderr, and ends the process with exit code 1, which journals and tables
survive like a kill.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STANDS_STILL: Final = 120.0
"""Seconds; a machine under load gives a thread its turn far sooner."""
BEAT: Final = 5.0
"""Seconds between two signs of life."""


@contextmanager
def watched(within: float = STANDS_STILL) -> Iterator[None]:
    """A thread says it while the block runs: should it not come to its turn, none does."""
    over = threading.Event()

    def keep_saying() -> None:
        while not over.wait(min(BEAT, within / 4)):
            _say(within)

    _say(within)
    thread = threading.Thread(target=keep_saying, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()


def _say(within: float) -> None:
    faulthandler.dump_traceback_later(within, exit=True, file=sys.__stderr__ or sys.stderr)
