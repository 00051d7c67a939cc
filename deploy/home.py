"""Where Offsetwatch keeps what it fetches: jars and, where none was found, a Java runtime.

The folder may be shared by many processes and checkouts. What is in it is only ever completed by a rename, under a lock
that the programs working for us inherit, so that it outlives a parent that is killed.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.errors import DeployError

Say = Callable[[str], None]
"""Told one line of progress, for a person, when something takes long enough to be noticed."""


def to_stderr(line: str) -> None:
    print(f"offsetwatch: {line}", file=sys.stderr, flush=True)


def home() -> Path:
    """The folder, absolute; it may not exist yet.

    The environment's OFFSETWATCH_HOME, else `.offsetwatch` beside pyproject.toml when this is a checkout, else
    `~/.offsetwatch`."""
    named = os.environ.get("OFFSETWATCH_HOME")
    if named:
        return Path(named).expanduser().absolute()
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".offsetwatch"
    return Path.home() / ".offsetwatch"


@contextmanager
def locked(path: Path, say: Say, what: str) -> Iterator[int]:
    """Hold the lock file `path`, made with its folders where missing; `say` that `what` is awaited if it is held.

    Gives the lock's file descriptor, for programs that must keep it held when this process is killed.
    Raises `DeployError` where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DeployError(
            f"cannot write {path} ({error.strerror}): set OFFSETWATCH_HOME to a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is fetching {what}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
