"""Worlds that the engine does not pass yet: they must fail, and leave these lists when they do not."""

from __future__ import annotations

SEEDS_NOT_YET: frozenset[int] = frozenset({4})

CASES_NOT_YET: frozenset[tuple[str, str]] = frozenset(
    {
        ("clocks 11 s apart and a pause of 13 s", "guilty"),
        ("clocks -11 s apart and a pause of 13 s", "guilty"),
        ("deletions overtake a reader, observer 15 s ahead", "guilty"),
        ("deletions overtake a reader, observer 15 s behind", "guilty"),
        ("clocks 70 s apart and a restart", "guilty"),
        ("clocks -70 s apart and a restart", "guilty"),
    }
)
"""(situation, twin)."""
