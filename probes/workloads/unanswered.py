"""Which brokers an observer asks in vain, and how long it waits for each of them.

A leader that has not answered all is given twice the time with the next question, up to `PATIENT`: one that is slow
would else answer each too late, with more and more of them in its queue, and be called silent while it serves
everybody. Who was asked in vain is silent unless it has answered anything that was sent later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from probes.topology import Partition

PATIENT: Final = 8.0
"""Seconds that a question takes at most whose leader has not answered the last ones. The check of `cluster-unreachable`
must hear every 15 s that nothing came back."""


class Unanswered:
    """Of one observer's life. Times are nanoseconds of the monotonic clock, `request_timeout` is in seconds."""

    def __init__(self, request_timeout: float) -> None:
        self._request_timeout = request_timeout
        self._asked: dict[Partition, int | None] = {}
        """What the last question about it had no answer to: whom it asked, as far as that is known."""
        self._since: dict[Partition, int] = {}
        """Since when that has been so: the first of those questions."""
        self._patience: dict[int | None, float] = {}
        """Seconds that the next question to a leader may take, where that is not `request_timeout`."""
        self._answered: dict[int, int] = {}
        """By broker, when the newest question that it answered was asked."""

    def patience(self, leader: int | None) -> float:
        """How many seconds the next question to it may take."""
        return self._patience.get(leader, self._request_timeout)

    def took(self, leader: int | None, seconds: float, within: float) -> None:
        """A question that might take `within` seconds took so many."""
        if seconds >= within:
            self._patience[leader] = max(min(2 * within, PATIENT), self._request_timeout)
        elif seconds <= self._request_timeout:
            self._patience.pop(leader, None)

    def in_vain(self, where: Partition, broker: int | None, invoked: int) -> None:
        """A question of then about the partition had no answer; this broker was asked."""
        self._asked[where] = broker
        self._since.setdefault(where, invoked)

    def answered(self, where: Partition, broker: int | None, invoked: int) -> None:
        """A question of then about the partition was answered by this broker, where it is known."""
        self.refused(where)
        if broker is not None:
            self._answered[broker] = invoked

    def refused(self, where: Partition) -> None:
        """We may not ask about the partition: so nobody does in vain."""
        self._asked.pop(where, None)
        self._since.pop(where, None)

    def asked(self, where: Partition) -> int | None:
        """Who was asked about the partition in vain with the last question; None for nobody, or nobody knows whom."""
        return self._asked.get(where)

    def silent(self, acknowledged: Mapping[int, int]) -> set[int]:
        """The brokers that were asked in vain, and have answered nothing since: no later question, and none of what
        others sent. `acknowledged`: by broker, when the newest of that was sent that it has acknowledged."""
        return {
            broker
            for where, broker in self._asked.items()
            if broker is not None
            and max(self._answered.get(broker, -1), acknowledged.get(broker, -1)) < self._since[where]
        }
