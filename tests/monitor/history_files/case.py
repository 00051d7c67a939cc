"""A small history, and everything that must be found in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Found = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """`anomalies` are violations, `allowed` what the policy lets pass. `open` are names that this case leaves
    open."""

    name: str
    history: str
    anomalies: Found = field(default_factory=dict)
    allowed: Found = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    ww: bool = False


def one(key: Any, value: Any, **more: Any) -> dict[str, Any]:
    return {"key": key, "value": value, **more}


UNTIMELY = frozenset({"G1c-realtime"})
"""For histories that put the sends last, for short: what was polled before it was sent is a cycle, rightly."""
