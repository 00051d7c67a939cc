"""For want of which right somebody is refused now, and what else that explains.

A client that may not write, or may not so much as see a topic, does not always say so: one that cannot have a producer
id waits, and one that is told of no partition reads nothing. Beside the finding that names the right, theirs would be
further pages about it that name none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from alerts.event import FindingEvent
from alerts.incidents.keys import Key, is_refused, place_of

UNSEEN: Final = "unseen"
_READER: Final = "stuck-consumer"
_STUCK: Final = frozenset({_READER, "stuck-producer"})
_LAG: Final = timedelta(seconds=10)
"""What one right is wanted for is due at about the same time: each is asked for as often as its client works."""


class Refusals:
    """The findings that are open and tell of a right that is wanting."""

    def __init__(self) -> None:
        self._open: dict[Key, dict[str, FindingEvent]] = {}

    def note(self, refusal: FindingEvent) -> None:
        """Somebody is refused."""
        self._open.setdefault(_topic_of(refusal), {})[refusal.id] = refusal

    def end(self, event: FindingEvent) -> None:
        """A finding is closed, of whatever kind."""
        known = self._open.get(_topic_of(event), {})
        known.pop(event.id, None)
        if not known:
            self._open.pop(_topic_of(event), None)

    def of(self, event: FindingEvent) -> Iterator[str]:
        """The findings that explain this one, the first first."""
        yield from (one.id for one in self._open.get(_topic_of(event), {}).values() if explains(one, event))


def explains(refusal: FindingEvent, event: FindingEvent) -> bool:
    """Is it for want of that right? Rights are given for a topic: who is stuck in it as long, and does not say why.
    What nobody has polled waits for less, and is explained by a reader of its own partition that may not read."""
    if event.anomaly == UNSEEN:
        return refusal.anomaly == _READER and place_of(refusal) == place_of(event)
    if event.anomaly not in _STUCK or is_refused(event) or _topic_of(refusal) != _topic_of(event):
        return False
    return refusal.decidable - _LAG <= event.decidable


def _topic_of(event: FindingEvent) -> Key:
    return event.cluster, event.topic_id
