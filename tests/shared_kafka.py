"""One broker for all processes of a test session (`pytest -n`): the first of them that asks starts it, and ends it when
no other uses it any more.

A broker of its own for each took two seconds to start, and as long again until its code was compiled; and each that has
nothing to do takes more than a hundredth of a core all the while.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from deploy.broker import Broker
from deploy.local_kafka import LocalKafka

_STARTING: Final = "starting"
"""Locked by who looks whether there is one, and starts it where there is none."""
_USED: Final = "used"
"""Locked by all who use it together, and by who ends it alone."""
_WHERE: Final = "bootstrap"
"""Holds where it is, while it is there."""


class Shared(LocalKafka):
    """Where the session's broker is. Whoever asks more of a cluster starts one of its own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, brokers=1)
        self._at = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._at

    @property
    def brokers(self) -> list[Broker]:
        raise AssertionError("this broker is the session's: a test that handles brokers starts a cluster for itself")


@contextmanager
def a_broker(folder: Path) -> Iterator[str]:
    with LocalKafka(tempfile.mkdtemp(dir=folder), brokers=1) as cluster:
        yield cluster.bootstrap


@contextmanager
def shared(folder: Path, start: Callable[[Path], AbstractContextManager[str]] = a_broker) -> Iterator[str]:
    """Where the one is that all share who name this folder. Who started it waits at the end for the others."""
    where, used = folder / _WHERE, _opened(folder / _USED)
    try:
        starting = _opened(folder / _STARTING)
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(used, fcntl.LOCK_SH)
            started = None if where.exists() else start(folder)
            if started is not None:
                where.write_text(started.__enter__())
        finally:
            os.close(starting)
        try:
            yield where.read_text()
        finally:
            if started is not None:
                fcntl.flock(used, fcntl.LOCK_EX)
                where.unlink()
                started.__exit__(None, None, None)
    finally:
        os.close(used)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
