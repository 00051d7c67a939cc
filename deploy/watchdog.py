"""Ends the brokers of a program that was killed before it could end them itself.

A small process of its own, in a session of its own, so that neither a Ctrl-C nor the end of its parent's process group
reaches it. It is told over a pipe which process groups to guard. When the pipe closes, or its parent is another than
it was, it kills those groups. (The kernel's own means, PR_SET_PDEATHSIG, is bound to the thread that started the child,
so that a broker restarted from a short-lived thread would die with that thread; and it is Linux only.)

This file is also the program that is run: it imports the standard library only, to start in some 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys


class Watchdog:
    """Guards process groups for the life of this process. Not thread-safe."""

    def __init__(self) -> None:
        # -I -S: neither the user's site packages nor the environment's, which cost most of the start.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def closed(self) -> bool:
        assert self._process.stdin is not None
        return self._process.stdin.closed

    def guard(self, group: int) -> None:
        """Kill this process group if this process ends without `release`."""
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the watchdog; what is still guarded is killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        if self.closed:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it: then nothing is guarded, and nothing breaks
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks: with its number, what it is for sure. None where not known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
            return stat.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _guard(parent: int) -> None:
    guarded: dict[int, str | None] = {}
    unread = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 1.0)
        if not readable:
            continue
        read = os.read(0, 4096)
        if not read:
            break
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            group = int(line[1:])
            if line.startswith(b"+"):
                guarded[group] = _started(group)
            else:
                guarded.pop(group, None)
    for group, began in guarded.items():
        if _started(group) == began:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _guard(int(sys.argv[1]))
