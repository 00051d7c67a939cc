"""What the rows of a partition tell at first, then whenever it changed, and once a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from probes.topology import Partition

AGAIN: Final = 60_000_000_000
"""Nanoseconds after which it is told again although it is the same."""


class Telling:
    """What was told of each partition, and when."""

    def __init__(self) -> None:
        self._told: dict[Partition, tuple[int, Mapping[str, str]]] = {}

    def due(self, where: Partition, present: Mapping[str, str], now: int) -> Mapping[str, str]:
        """What the partition's next row is to tell: `present`, or nothing where its rows said so. `now`: monotonic
        nanoseconds."""
        at, before = self._told.get(where, (0, {}))
        if present == before and (not present or now - at < AGAIN):
            return {}
        self._told[where] = (now, present)
        return present
