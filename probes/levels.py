"""What probes measure of the service they get: how long its operations take, how many there were, how many failed.

An *operation* is one of `OPERATIONS`. Latencies are counted in buckets whose borders are powers of the eighth root of
two, which are those of Prometheus' native histograms of schema 3: a quantile is off by at most 9 %. The powers of two
among them, from 2 ms to 64 s, are the borders of the classic histogram, so that one set of counts gives both exactly.

Whole batches are counted at once. Each probe has `Levels` of its own, written by its thread; whoever shows them takes a
`copy`. They are bounded by operations x topics x brokers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

SCHEMA: Final = 3
"""Of a native histogram: 2**3 buckets for each doubling."""
_STEPS: Final = 2**SCHEMA
LOWEST: Final = -13
"""What takes 2**-13 s (122 us) or less took no time: the zero bucket."""
HIGHEST: Final = 7
"""What takes longer than 2**7 s (128 s) is in one last bucket."""
SIZE: Final = (HIGHEST - LOWEST) * _STEPS + 2
FIRST_INDEX: Final = LOWEST * _STEPS + 1
"""The native index of the first bucket after the zero bucket."""
CLASSIC: Final = tuple(range(-9, 7))
"""The exponents of the classic borders: 2**-9 s to 2**6 s."""

OPERATIONS: Final = (
    "produce",
    "transaction-commit",
    "end-to-end",
    "consume",
    "offset-commit",
    "metadata",
    "rebalance",
)
"""`produce`: a record, from handing it to the client until its acknowledgement. `end-to-end`: until it is polled at
read_committed; `consume`: the same of acknowledged records alone. `metadata`: a description of the topics.
`rebalance`: from giving up partitions, or asking for some, until they are assigned."""

Place = tuple[str, str]
"""Topic and broker, "" where the operation has none."""
NOWHERE: Final = ("", "")
Key = tuple[str, Place]


FEW: Final = 32
"""Latencies that are counted one by one: a column of so few costs more."""


def _bucket(seconds: float) -> int:
    if seconds <= 0.0:
        return 0
    return min(max(math.ceil(math.log2(seconds) * _STEPS) - FIRST_INDEX + 1, 0), SIZE - 1)


@dataclass(slots=True)
class Latencies:
    """Counts by bucket: the zero bucket, those from `FIRST_INDEX` on, and what took longer than all; and the sum."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(SIZE, np.int64))
    seconds: float = 0.0

    def observe(self, seconds: float | Sequence[float] | npt.NDArray[np.float64]) -> None:
        """Count one latency or many; what a clock makes negative took no time."""
        if not isinstance(seconds, np.ndarray):
            few = (seconds,) if isinstance(seconds, float | int) else seconds
            if len(few) <= FEW:
                for one in few:
                    self.counts[_bucket(one)] += 1
                    self.seconds += max(one, 0.0)
                return
        took = np.maximum(np.asarray(seconds, dtype=np.float64).reshape(-1), 0.0)
        with np.errstate(divide="ignore"):
            index = np.ceil(np.log2(took) * _STEPS) - FIRST_INDEX + 1
        self.counts += np.bincount(np.clip(index, 0, SIZE - 1).astype(np.int64), minlength=SIZE)
        self.seconds += float(took.sum())

    def copy(self) -> Latencies:
        return Latencies(self.counts.copy(), self.seconds)

    def add(self, other: Latencies) -> None:
        self.counts += other.counts
        self.seconds += other.seconds

    @property
    def classic(self) -> list[tuple[float, int]]:
        """(upper border in seconds, how many took at most that), the last border infinite."""
        upto = np.cumsum(self.counts)
        borders = [(2.0**power, int(upto[(power - LOWEST) * _STEPS])) for power in CLASSIC]
        return [*borders, (math.inf, int(upto[-1]))]

    @property
    def native(self) -> tuple[int, float, int, int, Sequence[int]]:
        """(schema, zero threshold in seconds, the zero bucket's count, index of the first other bucket, the counts of
        those from there on)."""
        return SCHEMA, 2.0**LOWEST, int(self.counts[0]), FIRST_INDEX, self.counts[1:].tolist()


@dataclass(slots=True)
class Tries:
    """How often something was tried, and how often it failed. `late`: of the failures, those that came true in the
    end."""

    total: int = 0
    failed: int = 0
    late: int = 0

    def add(self, other: Tries) -> None:
        self.total, self.failed, self.late = (
            self.total + other.total,
            self.failed + other.failed,
            self.late + other.late,
        )


ANYWHERE: Final = ("transaction-commit", "offset-commit", "metadata", "rebalance")
"""The operations that concern no single partition."""


@dataclass(slots=True)
class Levels:
    """What one probe has measured, over all its lives. `succeeded`: when an operation was last seen to succeed, in
    seconds since the epoch."""

    latencies: dict[Key, Latencies] = field(default_factory=dict)
    tries: dict[Key, Tries] = field(default_factory=dict)
    succeeded: dict[str, float] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Levels:
        """Nothing yet, and told so: what is counted as 0 before its first has an increase then."""
        keys = [(operation, NOWHERE) for operation in ANYWHERE]
        return cls({key: Latencies() for key in keys}, {key: Tries() for key in keys})

    def took(
        self, operation: str, seconds: float | Sequence[float] | npt.NDArray[np.float64], where: Place = NOWHERE
    ) -> None:
        """So long took each of the operations that succeeded."""
        self.latencies.setdefault((operation, where), Latencies()).observe(seconds)

    def tried(
        self, operation: str, total: int, failed: int, now: float, where: Place = NOWHERE, *, late: int = 0
    ) -> None:
        """So many were tried. `now`: seconds since the epoch."""
        tries = self.tries.setdefault((operation, where), Tries())
        tries.total += total
        tries.failed += failed
        tries.late += late
        if total > failed or late:
            self.succeeded[operation] = now

    def copy(self) -> Levels:
        """As it is now; may be called from any thread."""
        return Levels(
            {key: one.copy() for key, one in self.latencies.copy().items()},
            {key: Tries(one.total, one.failed, one.late) for key, one in self.tries.copy().items()},
            self.succeeded.copy(),
        )

    def add(self, other: Levels) -> None:
        """What another probe has measured as well."""
        for key, latencies in other.latencies.items():
            self.latencies.setdefault(key, Latencies()).add(latencies)
        for key, tries in other.tries.items():
            self.tries.setdefault(key, Tries()).add(tries)
        for operation, when in other.succeeded.items():
            self.succeeded[operation] = max(when, self.succeeded.get(operation, 0.0))
