"""What may be absent, where a test knows that it is there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value; the test fails where there is none."""
    assert value is not None
    return value
