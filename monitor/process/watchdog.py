"""Ends a process whose interpreter stands still, so that whoever keeps it running begins another one.

A client library that waits for itself while it holds Python's global lock stops every thread (librdkafka 4884 does so,
rarely): nothing is written any more, and no signal is heard. So a small process beside it is told every few seconds
that it goes on. Where it is not, for long, it has `faulthandler` write where every thread stands to stderr, which needs
no lock, and kills the process, which journals and tables survive.

Time in which nobody could run is no standstill. The process beside counts its own steps, a few seconds each: where
both stood still, as in a frozen container or on a laptop that was closed, all of that is one step. Steps in which the
process was stopped (SIGSTOP, a debugger) do not count. A timer in the process itself, as `faulthandler` has one, cannot
tell these: it has run out when the process goes on, and ends it before any thread has had its turn.

This file is also the program that is run beside: it imports the standard library only, to start in some 20 ms.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

log = logging.getLogger(__name__)

STANDS_STILL: Final = 120.0
"""Seconds; a machine under load gives a thread its turn far sooner."""
BEAT: Final = 5.0
"""Seconds between two signs of life, and of a step."""
_STACKS: Final = signal.SIGUSR1
_WRITTEN: Final = 1.0
"""Seconds that the stacks of some hundred threads may take."""


@contextmanager
def watched(within: float = STANDS_STILL) -> Iterator[None]:
    """A thread says it while the block runs: should it not come to its turn, none does."""
    over = threading.Event()
    beside = _Beside(within)

    def keep_saying() -> None:
        while not over.wait(beside.beat):
            beside.say()

    faulthandler.register(_STACKS, file=sys.__stderr__ or sys.stderr, all_threads=True)
    beside.start()
    thread = threading.Thread(target=keep_saying, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        beside.end()
        faulthandler.unregister(_STACKS)


class _Beside:
    """The process beside. Who killed it gets another one at the next sign of life."""

    def __init__(self, within: float) -> None:
        self.beat = min(BEAT, within / 4)
        self._within = within
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # -I -S: neither the user's site packages nor the environment's, which cost most of the start. In a session of
        # its own: a Ctrl-C is for the process that it watches.
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(self.beat), str(self._within)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, bufsize=0
            )
        except OSError as error:
            log.warning("nobody watches whether this process stands still: %s", error.strerror)
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def say(self) -> None:
        """A sign of life."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b".")
        except BlockingIOError:  # it was stopped itself
            pass
        except BrokenPipeError:
            self.end()
            self.start()

    def end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_WRITTEN)
        except subprocess.TimeoutExpired:  # it was stopped itself
            process.kill()
            process.wait()


# The process beside


def _watch(pid: int, beat: float, within: float) -> None:
    """Until the watched process says that it is over, has gone, or stood still."""
    still = 0.0
    while os.getppid() == pid:
        told, _, _ = select.select([0], [], [], beat)
        if told and not os.read(0, 4096):
            return
        still = 0.0 if told or _stopped(pid) else still + beat
        if still >= within:
            _end(pid, within)
            return


def _stopped(pid: int) -> bool:
    """Has somebody stopped it, so that it cannot run?"""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
            return stat.read().rsplit(")", 1)[1].split()[0] in ("T", "t")
    except (OSError, IndexError):
        pass
    with suppress(OSError):  # where there is no /proc
        told = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False).stdout
        return told.strip()[:1] == b"T"
    return False


def _end(pid: int, within: float) -> None:
    said = f"process {pid} stands still, for {within:g} s, and is ended; its threads stand here:"
    with suppress(OSError):
        print(f"offsetwatch: {said}", file=sys.stderr, flush=True)
    with suppress(OSError):
        os.kill(pid, _STACKS)
        time.sleep(_WRITTEN)
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
