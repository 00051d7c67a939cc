"""Before probes send anything, their committer says to the probe log that it goes on with the journal folder.

Two copies of one folder that begin together see nothing of each other in the topics yet. Where both append to one probe
log, the one whose claim stands there first goes on, and the other one is refused. A folder that is not where it was at
work last (another machine, another path) lets the others claim it first, for as long as an append takes. Where the
probe log does not answer in time its probes begin all the same; the claim is made once it does.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from probes.log.commits.committer import Committer
from probes.log.errors import HistoryMismatch, HistoryUnavailable, ProbeLogError

log = logging.getLogger("offsetwatch.fleet")

HOME: Final = "home"
"""The file of a journal folder that says where it was at work last."""
MACHINE: Final = Path("/etc/machine-id")
WITHIN: Final = 5.0
"""Seconds for a claim."""
GIVES_WAY: Final = 1.0
"""Seconds that a folder waits which is not at home."""
ATTEMPTS: Final = 2
"""Of two whose transactions meet, a broker has answered one with UNKNOWN, once in some hundred times."""


class Claiming:
    """The claim of one committer, in a thread: nobody else may use the committer before `wait` has returned."""

    def __init__(self, committer: Committer, stopping: Callable[[float], object]) -> None:
        """`stopping` waits for so many seconds, or less."""
        self._committer, self._stopping = committer, stopping
        self._refused: HistoryMismatch | None = None
        self._thread = threading.Thread(target=self._claim, name="claim", daemon=True)

    def make(self) -> None:
        """Make it, and wait for it, not for long. Raises `HistoryMismatch`: `FolderCopied` where another one has."""
        folder = self._committer.folder
        if is_away(folder):
            self._stopping(GIVES_WAY)
        self._thread.start()
        self._thread.join(WITHIN)
        if self._thread.is_alive():
            log.warning("whether a copy of %s is at work is not known yet: the probe log does not answer", folder)
        elif self._refused is not None:
            raise self._refused

    def wait(self) -> None:
        """Until it is made, or cannot be."""
        self._thread.join()

    def _claim(self) -> None:
        try:
            self._claimed()
        except HistoryMismatch as refused:  # where nobody waits any more, the first append meets it again
            self._refused = refused
        except ProbeLogError as error:
            log.warning("whether a copy of %s is at work is not known: %s", self._committer.folder, error)
        except Exception:  # the committer begins again from what is on disk
            log.exception("the claim of %s failed", self._committer.folder)

    def _claimed(self) -> None:
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(HistoryUnavailable):
                self._committer.claim()
                return
        self._committer.claim()


def is_away(folder: Path) -> bool:
    """Was the folder at work last on another machine, or at another path?"""
    try:
        return (folder / HOME).read_text() != _here(folder)
    except OSError:
        return False


def settle(folder: Path) -> None:
    """It is at work here from now on."""
    with contextlib.suppress(OSError):  # whoever logs there says so
        if not (folder / HOME).exists() or is_away(folder):
            (folder / HOME).write_text(_here(folder))


def _here(folder: Path) -> str:
    try:
        machine = MACHINE.read_text().strip()
    except OSError:  # in many containers
        machine = ""
    return f"{machine}\n{platform.node()}\n{folder.resolve()}\n"
