"""Lets go of the clients of lives that are over, each in a thread of its own.

A client and the callbacks that it was given hold each other. Until they are collected a consumer would go on saying to
its group that it lives, without ever taking part in a rebalance: all others would wait for it for minutes. And one that
could not be closed would go on asking for a login that is refused.

But they must not be ended by the collector itself. librdkafka's clean-up may take its time, and that of a member of a
group may never return (`probes.kafka.leaving.hear_out`). While it runs inside a collection, Python begins no other: the
clients of all lives after it would stay, with half a dozen threads each. So the clients are taken out of the probe that
held them, and who drops one waits for no other.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from probes.kafka.leaving import hear_out
from probes.workloads.probe import Probe

HELD_FOR: Final = 1.0
"""Seconds for which clients are held: longer than anybody else holds them, and all that come meanwhile go at once."""
_CLIENTS: Final = (Consumer, Producer, AdminClient)
_PARTS: Final = ("probes.workloads.", "probes.kafka.")
"""Where the classes are whose objects hold clients."""


class Graveyard:
    """`take` from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Probe] = []
        self._at_work = False

    def take(self, probe: Probe) -> None:
        """This life is over, and closed as far as it can be."""
        with self._lock:
            self._held.append(probe)
            if self._at_work:
                return
            self._at_work = True
        threading.Thread(target=self._lower, name="grave", daemon=True).start()

    def _lower(self) -> None:
        time.sleep(HELD_FOR)
        with self._lock:
            held, self._held, self._at_work = self._held, [], False
        graves = [[client] for probe in held for client in taken_from(probe)]
        held.clear()
        for grave in graves:
            threading.Thread(target=_drop, args=(grave,), name="grave", daemon=True).start()
        gc.collect()


def _drop(grave: list[Any]) -> None:
    """Drop the one client in it, which nobody else holds."""
    if isinstance(grave[0], Consumer):
        hear_out(grave[0])
    grave.clear()


def taken_from(probe: Probe) -> list[Any]:
    """The clients that a probe and its parts hold, each once; they hold them no more."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    owners: list[Any] = [probe]
    while owners:
        owner = owners.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, value in list(vars(owner).items()):
            if isinstance(value, _CLIENTS):
                found[id(value)] = value
                vars(owner)[name] = None
            else:
                parts = list(value.values()) if isinstance(value, dict) else [value]
                owners += [part for part in parts if _may_hold(part)]
    return list(found.values())


def _may_hold(part: Any) -> bool:
    return type(part).__module__.startswith(_PARTS) and hasattr(part, "__dict__")
