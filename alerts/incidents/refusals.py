"""For want of which right somebody is refused now, and what else that explains.

A client that may not write, or may not so much as see a topic, does not always say so: one that cannot have a producer
id waits, and one that is told of no partition reads nothing. Beside the finding that names the right, theirs would be
further pages about it that name none. A producer id is given for the whole cluster: where one producer is refused it
(`CLUSTER_AUTHORIZATION_FAILED`, also for want of the right to write to any topic), others wait for theirs elsewhere.
And where a login is refused, all wait that have the same one: who is connected already goes on until it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from alerts.event import FindingEvent
from alerts.incidents.keys import Key, is_refused, place_of
from rules.vocabulary.conditions import EVIDENCE_LATE
from rules.vocabulary.slices import LOGIN_REFUSED

UNSEEN: Final = "unseen"
_READER: Final = "stuck-consumer"
_PRODUCER: Final = "stuck-producer"
_STUCK: Final = frozenset({_READER, _PRODUCER})
_OF_THE_CLUSTER: Final = LOGIN_REFUSED | {"CLUSTER_AUTHORIZATION_FAILED"}
_LAG: Final = timedelta(seconds=10)
"""What one right is wanted for is due at about the same time: each is asked for as often as its client works."""


class Refusals:
    """The findings that are open and tell of a right that is wanting."""

    def __init__(self) -> None:
        self._open: dict[Key, dict[str, FindingEvent]] = {}

    def note(self, refusal: FindingEvent) -> None:
        """Somebody is refused."""
        for where in _explained_in(refusal):
            self._open.setdefault(where, {})[refusal.id] = refusal

    def end(self, event: FindingEvent) -> None:
        """A finding is closed, of whatever kind."""
        for where in (_topic_of(event), _cluster_of(event)):
            known = self._open.get(where, {})
            known.pop(event.id, None)
            if not known:
                self._open.pop(where, None)

    def of(self, event: FindingEvent) -> Iterator[str]:
        """The findings that explain this one, the first first."""
        for where in (_topic_of(event), _cluster_of(event)):
            yield from (one.id for one in self._open.get(where, {}).values() if explains(one, event))


def explains(refusal: FindingEvent, event: FindingEvent) -> bool:
    """Is it for want of that right? Rights are given for a topic: who is stuck in it as long, and does not say why; or
    for the cluster. What nobody has polled waits for less, and is explained by a reader of its own partition that may
    not read."""
    if event.anomaly == UNSEEN:
        return refusal.anomaly == _READER and place_of(refusal) == place_of(event)
    if is_refused(event) or refusal.decidable - _LAG > event.decidable or refusal.cluster != event.cluster:
        return False
    error = refusal.evidence.get("error")
    if error in LOGIN_REFUSED:
        return event.anomaly in _STUCK or (event.anomaly == EVIDENCE_LATE and event.evidence.get("hold") == "operation")
    everywhere = event.anomaly == _PRODUCER and error in _OF_THE_CLUSTER
    return event.anomaly in _STUCK and (everywhere or _topic_of(refusal) == _topic_of(event))


def _explained_in(refusal: FindingEvent) -> tuple[Key, ...]:
    """Where others may wait for the same right."""
    if refusal.evidence.get("error") in _OF_THE_CLUSTER:
        return _topic_of(refusal), _cluster_of(refusal)
    return (_topic_of(refusal),)


def _topic_of(event: FindingEvent) -> Key:
    return event.cluster, event.topic_id


def _cluster_of(event: FindingEvent) -> Key:
    return (event.cluster,)
