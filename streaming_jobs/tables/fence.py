"""What keeps a monitor that has lost its lease from writing: whoever opens one of the tables in this process writes
under the fence of the place where they are, without being told of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from streaming_jobs.location import TableLocation


class Fence(Protocol):
    """A lease that is held. `term` is that of one holder, and greater than those before."""

    term: int

    def require(self) -> None:
        """Raises `LeaseLost` where it is held no more."""


APP: Final = "offsetwatch:term"
"""The name under which the term stands in each write, as a transaction of Delta's. Two commits with the same name that
do not know of each other are a conflict, so that the later one is refused."""

_FENCES: Final[dict[TableLocation, Fence]] = {}


@contextmanager
def fenced(root: TableLocation, fence: Fence) -> Iterator[None]:
    """From here on, tables below `root` are written under the fence."""
    _FENCES[root] = fence
    try:
        yield
    finally:
        del _FENCES[root]


def fence_of(root: TableLocation) -> Fence | None:
    """The fence of the tables below `root`, if this process has one."""
    return _FENCES.get(root)
