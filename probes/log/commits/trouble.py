"""A time in which nothing can be appended to the probe log: told once, with its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from probes.log.errors import ProbeLogError

log = logging.getLogger("offsetwatch.committer")

LONG: Final = 5.0
"""Seconds for which appends fail before somebody is told: often the next try does not."""


class Trouble:
    """Of the committer of `folder`; one thread."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._since: float | None = None
        self._told = False

    def tell(self, error: ProbeLogError) -> None:
        """A try has failed."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        if not self._told and now - self._since >= LONG:
            self._told = True
            log.warning("what probes log stays in %s until it can be appended: %s", self._folder, error)

    def over(self) -> None:
        """One has not."""
        if self._told and self._since is not None:
            log.warning("what probes log is appended again, after %.0f s", self._clock() - self._since)
        self._since, self._told = None, False
