"""When brokers acknowledged what the writers of this host sent: who is asked by an observer in vain may be slow alone.

An observer gives up after seconds, a writer waits for half a minute. Where answers take longer than the one waits and
less than the other, a broker that has just acknowledged records is not silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from probes.topology import Partition
from rules.vocabulary.slices import Slice

_WRITES: Final = frozenset({"send", "txn"})
"""What a client polls may have been fetched before."""


class Acknowledged:
    """Noted by the threads of all probes, and asked for by the observer's."""

    def __init__(self) -> None:
        self._newest: dict[Partition, tuple[int, int]] = {}

    def note(self, rows: Sequence[Slice]) -> None:
        """These rows were logged."""
        for row in rows:
            if row.type != "ok" or row.f not in _WRITES or not row.sent:
                continue
            if row.mono_invoked is not None and row.mono_completed is not None:
                self._newest[row.topic, row.partition] = row.mono_invoked, row.mono_completed

    def newest(self) -> dict[Partition, tuple[int, int]]:
        """By partition, when its newest write was sent and when it was acknowledged, by the monotonic clock."""
        return self._newest.copy()
