"""Fan-out: every event of a finding goes to every channel.

A channel that fails is counted and said once in the program's log for each delivery; it never stops the others, and
never the job. The order of the channels is the order of delivery, metrics first, because the detection latency ends
when a finding is counted there.

A *channel* is anything with a `name` and `deliver(events)`. Channels that talk to the network (Alertmanager, webhooks)
must not make the job wait: `deliver` puts the events into a bounded queue of their own, a thread of theirs sends them.
They go beside this module, one file each, and are put into the list in `monitor/wiring.py`.

After a crash the last batch runs again and its findings come a second time, with the same identities. Those already
delivered, in this life or (`known`) found in the findings table at start, are dropped here.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from alerts.event import FindingEvent

REMEMBERED: Final = 100_000
"""Identities kept to recognise a repetition: far more than one batch can hold, at about 20 MB."""

Identity = tuple[str, str, int]

_log: Final = logging.getLogger("offsetwatch.alerts")


class Channel(Protocol):
    @property
    def name(self) -> str: ...

    def deliver(self, events: Sequence[FindingEvent]) -> None: ...


class Dispatcher:
    """Delivers events to channels. `failed` is called with the name of a channel whenever its delivery raised."""

    def __init__(
        self, channels: Sequence[Channel], failed: Callable[[str], None], known: Iterable[Identity] = ()
    ) -> None:
        self._channels = list(channels)
        self._failed = failed
        self._seen: OrderedDict[Identity, None] = OrderedDict((identity, None) for identity in known)
        self._trim()

    def dispatch(self, events: Iterable[FindingEvent]) -> list[FindingEvent]:
        """Deliver what is new; returns it."""
        new = []
        for event in events:
            if event.identity not in self._seen:
                self._seen[event.identity] = None
                new.append(event)
        self._trim()
        if new:
            for channel in self._channels:
                try:
                    channel.deliver(new)
                except Exception as error:
                    # Whatever a channel does wrong is its own trouble: a webhook that answers nonsense must not
                    # silence the metrics or stop the checks.
                    self._failed(channel.name)
                    _log.error("channel %s failed for %d finding events: %s", channel.name, len(new), error)
        return new

    def _trim(self) -> None:
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
