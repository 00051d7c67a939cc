"""Fan-out: every event of a finding goes to every channel.

A channel that fails is counted and said once in the program's log for each delivery; it never stops the others, and
never the job. The order of the channels is the order of delivery, metrics first, because the detection latency ends
when a finding is counted there.

A *channel* is anything with a `name` and `deliver(events)`. Channels that talk to the network (Alertmanager, webhooks)
must not make the job wait: `deliver` puts the events into a bounded queue of their own, a thread of theirs sends them.
They go beside this module, one file each, and are put into the list in `monitor/wiring.py`.

After a crash the last batch runs again and its findings come a second time, with the same identities. What this process
has delivered already is dropped. What an earlier process recorded (`recorded`, from the findings table) is delivered
and marked `replayed`, because that process may have ended between recording and telling: metrics do not count it again,
and channels that alert get it at least once, with the id by which a receiver knows it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from alerts.event import FindingEvent, Identity

REMEMBERED: Final = 100_000
"""Identities kept to recognise a repetition: far more than one batch can hold, at about 20 MB."""

_log: Final = logging.getLogger("offsetwatch.alerts")


class Channel(Protocol):
    @property
    def name(self) -> str: ...

    def deliver(self, events: Sequence[FindingEvent]) -> None: ...


class Dispatcher:
    """Delivers events to channels. `failed` is called with the name of a channel whenever its delivery raised."""

    def __init__(
        self, channels: Sequence[Channel], failed: Callable[[str], None], recorded: Iterable[Identity] = ()
    ) -> None:
        self._channels = list(channels)
        self._failed = failed
        self._recorded = frozenset(recorded)
        self._delivered: OrderedDict[Identity, None] = OrderedDict()

    def dispatch(self, events: Iterable[FindingEvent]) -> list[FindingEvent]:
        """Deliver what this process has not delivered yet; returns it."""
        fresh = []
        for event in events:
            if event.identity not in self._delivered:
                self._delivered[event.identity] = None
                fresh.append(replace(event, replayed=True) if event.identity in self._recorded else event)
        while len(self._delivered) > REMEMBERED:
            self._delivered.popitem(last=False)
        for channel in self._channels if fresh else ():
            try:
                channel.deliver(fresh)
            except Exception as error:
                # Whatever a channel does wrong is its own trouble: a webhook that answers nonsense must not
                # silence the metrics or stop the checks.
                self._failed(channel.name)
                _log.error("channel %s failed for %d finding events: %s", channel.name, len(fresh), error)
        return fresh
