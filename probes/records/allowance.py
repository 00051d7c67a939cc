"""How many irregular records a probe lists: all of a few, some of a flood.

A stray producer or a second canary may write a million records a minute into a probe topic. Each reader polls them
all, and listing them one by one costs a thousand times more than our own runs: journals, the probe log and the checks
would be late, in effect for ever. So a process lists `A_SECOND` of them, and up to `AT_ONCE` after a quiet time. Of
more in one poll it lists, in the order of the poll,

- one wherever the poll goes from our records to others, and its last record: they tell where the poll began and ended,
  and that a step between two of our runs went over something else;
- those first that bear the id of a run of ours: what was relocated, or what was changed on its way;
- then others, as they came.

All of them are counted (`Counters.irregular`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from probes.records.tag import HEAD_BYTES, MAGIC, Numbers

A_SECOND: Final = 100.0
AT_ONCE: Final = 1_000
LEAST: Final = 2
"""Records of each partition in each poll, whatever was listed before."""


class Allowance:
    """What one process may list now. `monotonic_ns` is its clock."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._now = monotonic_ns
        self._left, self._at = float(AT_ONCE), monotonic_ns()

    def share(self, partitions: int) -> int:
        """For each of so many partitions of one poll."""
        now = self._now()
        self._left = min(AT_ONCE, self._left + (now - self._at) / 1e9 * A_SECOND)
        self._at = now
        return max(LEAST, int(self._left) // max(1, partitions))

    def spend(self, listed: int) -> None:
        self._left = max(0.0, self._left - listed)


def chosen(values: Sequence[bytes | None], odd: Numbers, runs: Iterable[str], room: int) -> Numbers:
    """Which of the irregular records at the places `odd` of a poll are listed: `room` of them, and the edges."""
    if len(odd) <= room:
        return odd
    edge = np.diff(odd, prepend=-2) != 1
    edge[-1] |= odd[-1] == len(values) - 1
    ours = np.zeros(len(odd), bool)
    marks = tuple(run.encode() for run in runs)
    likely = [i for i, place in enumerate(odd.tolist()) if (values[place] or b"").startswith(MAGIC)]
    ours[[i for i in likely if (values[odd[i]] or b"")[HEAD_BYTES:].startswith(marks)]] = True
    order = np.concatenate((np.flatnonzero(ours), np.flatnonzero(~ours)))[:room]
    listed = edge.copy()
    listed[order] = True
    some: Numbers = odd[listed]
    return some
