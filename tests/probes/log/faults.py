"""Deaths and refusals at every step: each change that the probe log makes to a disk or to the table is a step."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pyarrow.parquet

import probes.log.commits.history

Mode = Literal["killed before", "killed after", "refused before", "refused after"]
MODES: tuple[Mode, ...] = ("killed before", "killed after", "refused before", "refused after")

_STEPS: tuple[tuple[Any, str], ...] = (
    (os, "pwrite"),
    (os, "write"),
    (os, "fsync"),
    (os, "fdatasync"),
    (os, "ftruncate"),
    (Path, "touch"),
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (shutil, "rmtree"),
    (pyarrow.parquet, "write_table"),
    (probes.log.commits.history, "_commit"),
)


class Killed(BaseException):
    """What `kill -9` is to the code that runs."""


class Countdown:
    """`hit`: the step was reached. `name` is what it was."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.name = ""

    @property
    def hit(self) -> bool:
        return self.left < 0


@contextmanager
def fault(step: int, mode: Mode) -> Iterator[Countdown]:
    """Make the `step`-th step from here die or be refused, before or after it is done; all others succeed."""
    countdown = Countdown(step)

    def failing(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            countdown.left -= 1
            reached = countdown.left == -1
            if reached:
                countdown.name = name
            if reached and mode.endswith("before"):
                raise_(mode)
            result = real(*args, **kwargs)
            if reached:
                raise_(mode)
            return result

        return call

    patches = [patch.object(owner, name, failing(name, getattr(owner, name))) for owner, name in _STEPS]
    for one in patches:
        one.start()
    try:
        yield countdown
    finally:
        for one in patches:
            one.stop()


def raise_(mode: Mode) -> None:
    if mode.startswith("killed"):
        raise Killed
    raise OSError(errno.ENOSPC, "No space left on device")
