"""Records that are sent in order to be read back by the same process: which came back, how fast, and which did not.

Two promises are judged of each record, once, by the monotonic clock of one process:

- *end to end*: it is polled within the objective after it was handed to the client, whatever held it up;
- *consume*: once acknowledged, it is polled within the objective after its acknowledgement. What could not be written
  says nothing about reading.

A record that comes after all was late: it stays a failure, and counts as `late`. It is waited for ten times as long as
the objective; so what is kept is bounded by the rate of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from probes.topology import Partition

PATIENCE: Final = 10
"""Objectives for which a record is waited for."""


class Tally(Protocol):
    """Where the verdicts go."""

    def __call__(self, operation: str, total: int, failed: int, where: Partition, *, late: int = 0) -> None: ...


@dataclass(slots=True)
class _Trip:
    """One record on its way; times in nanoseconds. `overdue`, `unread`: the promises that are broken."""

    sent: int
    acknowledged: int | None = None
    overdue: bool = False
    unread: bool = False


class RoundTrips:
    """The records on their way. `objective` in seconds; `tally` is told each verdict, `took` the seconds that a record
    took that came back."""

    def __init__(self, objective: float, tally: Tally, took: Callable[[Partition, float], None]) -> None:
        self._objective, self._tally, self._took = int(objective * 1e9), tally, took
        self._trips: dict[tuple[Partition, int], _Trip] = {}

    def __len__(self) -> int:
        """How many are waited for."""
        return len(self._trips)

    def sent(self, where: Partition, seq: int, now: int) -> None:
        """It is about to be handed to the client."""
        self._trips[where, seq] = _Trip(now)

    def acknowledged(self, where: Partition, seq: int, now: int) -> None:
        if (trip := self._trips.get((where, seq))) is not None:
            trip.acknowledged = now

    def failed(self, where: Partition, seq: int) -> None:
        """It was certainly not written."""
        trip = self._trips.pop((where, seq), None)
        if trip is not None and not trip.overdue:
            self._tally("end-to-end", 1, 1, where)

    def came(self, where: Partition, seqs: Iterable[int], now: int) -> None:
        """These were polled: those that are not waited for are passed over."""
        for seq in seqs:
            trip = self._trips.pop((where, seq), None)
            if trip is None:
                continue
            self._took(where, (now - trip.sent) / 1e9)
            self._arrived("end-to-end", where, trip.overdue, now - trip.sent)
            self._arrived("consume", where, trip.unread, now - (trip.acknowledged or now))

    def _arrived(self, operation: str, where: Partition, broken: bool, waited: int) -> None:
        if broken:
            self._tally(operation, 0, 0, where, late=1)
        else:
            late = int(waited > self._objective)
            self._tally(operation, 1, late, where, late=late)

    def forget(self) -> None:
        """Of what is on its way nothing can be said any more: somebody has deleted the topic."""
        self._trips.clear()

    def judge(self, now: int) -> None:
        """Say of which records the objective is over."""
        forgotten = []
        for (where, seq), trip in self._trips.items():
            if now - trip.sent <= self._objective:
                break  # in the order in which they were sent
            if not trip.overdue:
                trip.overdue = True
                self._tally("end-to-end", 1, 1, where)
            if not trip.unread and trip.acknowledged is not None and now - trip.acknowledged > self._objective:
                trip.unread = True
                self._tally("consume", 1, 1, where)
            if now - trip.sent > PATIENCE * self._objective:
                forgotten.append((where, seq))
        for key in forgotten:
            del self._trips[key]
