"""Worlds that the engine does not pass yet: they must fail, and leave these lists when they do not."""

from __future__ import annotations

SEEDS_NOT_YET: frozenset[int] = frozenset()

CASES_NOT_YET: frozenset[tuple[str, str]] = frozenset()
"""(situation, twin)."""
