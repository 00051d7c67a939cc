"""What may be absent, where a test knows that it is there."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from streaming_jobs.location import TableLocation

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value; the test fails where there is none."""
    assert value is not None
    return value


def a_folder(location: TableLocation) -> Path:
    """The tables are in a folder, as they are unless an object store is configured."""
    assert isinstance(location, Path)
    return location
