"""How many irregular records a probe lists: all of a few, some of a flood.

A stray producer or a second canary may write a million records a minute into a probe topic. Each reader polls them
all, and listing them one by one costs a thousand times more than our own runs: journals, the probe log and the checks
would be late, in effect for ever. So a process lists `A_SECOND` of them, and up to `AT_ONCE` after a quiet time. Of
more in one poll it lists, in the order of the poll,

- one wherever the poll goes from our records to others, and its last record: they tell where the poll began and ended,
  and that a step between two of our runs went over something else;
- the first of each run, of `RUNS_TOLD` of them: one of those may be of this log, which the reader does not know where
  the folder of its journals was lost or put back, and then nothing follows from what it went over;
- those first that bear the id of a run of ours: what was relocated, or what was changed on its way;
- then what is no whole tag: among the records of a run that the reader does not know, as of one before its folder was
  put back, it is what is wrong;
- then others, as they came.

All of them are counted (`Counters.irregular`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from probes.records.tag import HEAD_BYTES, MAGIC, RUN_LENGTH, Numbers, intact

A_SECOND: Final = 100.0
AT_ONCE: Final = 1_000
LEAST: Final = 2
"""Records of each partition in each poll, whatever was listed before."""
RUNS_TOLD: Final = 64
"""Of each partition in each poll; of more the newest."""


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
    likely = {i: value for i, place in enumerate(odd.tolist()) if (value := values[place] or b"").startswith(MAGIC)}
    ours[[i for i, value in likely.items() if value[HEAD_BYTES:].startswith(marks)]] = True
    broken = np.ones(len(odd), bool)
    broken[[i for i, value in likely.items() if intact(value)]] = False
    order = np.concatenate((np.flatnonzero(ours), np.flatnonzero(broken & ~ours), np.flatnonzero(~broken & ~ours)))
    listed = edge.copy()
    listed[list(_first_of_runs(likely))[-RUNS_TOLD:]] = True
    listed[order[:room]] = True
    some: Numbers = odd[listed]
    return some


def _first_of_runs(values: Mapping[int, bytes]) -> Iterable[int]:
    """The place of the first of these that bears each run's id."""
    first: dict[bytes, int] = {}
    for place, value in values.items():
        if len(value) > HEAD_BYTES:
            first.setdefault(value[HEAD_BYTES : HEAD_BYTES + value[RUN_LENGTH]], place)
    return first.values()
