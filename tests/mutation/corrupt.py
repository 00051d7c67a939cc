"""What a mutant does to a value: another of the same type, so that only a comparison can notice."""

from __future__ import annotations

from typing import Any

NAME = "__corrupt__"
MILLISECOND = 1000


def corrupt(value: Any, by: int = 1) -> Any:
    """Another value of the same type; numbers grow `by` that much."""
    match value:
        case bool():
            return not value
        case str():
            return f"~{value}~"
        case list() | tuple():
            several: Any = value
            return several + type(several)([several[-1] if several else 0])
        case dict():
            return dict(list(value.items())[:-1]) if value else {"corrupted": 1}
        case None:
            return 0
        case _:
            return value + by
