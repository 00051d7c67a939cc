"""What brokers hold back of what they answer the clients of this host, by a quota.

Each answer tells its client for how long the next one is held back. Of bandwidth that may be any time; of a quota on
requests it is a second at most, again and again. So both are told: how long it was last, and which part of the last
`WINDOW` of some client.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

WINDOW: Final = 10.0
"""Seconds."""
KEPT: Final = 256
"""Answers of one broker to one client, the newest."""
_SECOND: Final = 1_000_000_000


class Throttling(NamedTuple):
    """By one broker: for how many seconds it held the last answer back, and for which part of the last `WINDOW`
    seconds those to the client that it holds back most."""

    broker: int
    seconds: float
    share: float


class HeldBack:
    """Noted by the threads of all probes, each for its own client, and asked for by the observer's."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, float]] = {}
        self._spans: dict[tuple[int, str], deque[tuple[int, int]]] = {}

    def note(self, broker: int, client: str, seconds: float, now: int) -> bool:
        """An answer of this broker to this client said so, at this time of the monotonic clock in nanoseconds. Returns
        whether it was this broker's first."""
        first = broker not in self._last
        self._last[broker] = now, seconds
        self._spans.setdefault((broker, client), deque(maxlen=KEPT)).append((now, now + int(seconds * _SECOND)))
        return first

    def lately(self, now: int, within: float) -> list[Throttling]:
        """The brokers that hold answers back, or did `within` so many seconds."""
        return [
            Throttling(broker, seconds, self._share(broker, now))
            for broker, (at, seconds) in sorted(self._last.copy().items())
            if now <= at + (seconds + within) * _SECOND
        ]

    def _share(self, broker: int, now: int) -> float:
        spans = [list(one) for (of, _), one in list(self._spans.items()) if of == broker]
        return max((_covered(one, now - int(WINDOW * _SECOND), now) for one in spans), default=0) / (WINDOW * _SECOND)


def _covered(spans: list[tuple[int, int]], since: int, now: int) -> int:
    """How much of that time lies in any of them. They begin one after the other."""
    covered, until = 0, since
    for start, end in spans:
        start, end = max(start, until), min(end, now)
        if start < end:
            covered, until = covered + end - start, end
    return covered
