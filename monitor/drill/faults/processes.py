"""Faults of a broker's process: it is killed, it freezes, all of them restart one after the other."""

from __future__ import annotations

import threading
from typing import Final

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import Fault, FaultOfRole
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.roles import Controller, Role

_IN_SYNC_WITHIN_S: Final = 60.0


class KillBroker(FaultOfRole):
    """SIGKILL, as a power cut of its machine would end the process, only that what it wrote is not lost with it.

    With `restart` it is started again at once, and is back (after its session at the controller is over, some 6 s) when
    `begin` returns; without, it stays away until `end`."""

    def __init__(self, role: Role, *, restart: bool = False) -> None:
        super().__init__(role)
        self.restart = restart

    def describe(self) -> str:
        return f"kill {self._whom}{', and start it again' if self.restart else ''}"

    def _begin(self, cluster: LocalKafka) -> None:
        broker = self._find(cluster)
        broker.kill()
        if self.restart:
            broker.start()

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None:
            cluster.broker(self.node).start()


class PauseBroker(FaultOfRole):
    """SIGSTOP until `end`, then SIGCONT: its connections stay open and nobody answers on them; when it goes on it
    believes for a moment that it still has the roles which others were given meanwhile."""

    def describe(self) -> str:
        return f"pause {self._whom}"

    def _begin(self, cluster: LocalKafka) -> None:
        self._find(cluster).pause()

    def _end(self, cluster: LocalKafka) -> None:
        if self.node is not None:
            cluster.broker(self.node).resume()
            cluster.broker(self.node).start()  # nothing, unless it ended of its long sleep


class RollingRestart(Fault):
    """Every broker is stopped in order and started again, one at a time, the controller last; the next one only when
    all is in sync again. `begin` returns when all are done, or where `end` is called after the one at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.restarted: list[int] = []
        self._enough = threading.Event()

    def describe(self) -> str:
        done = f" ({', '.join(map(str, self.restarted))} done)" if self.restarted else ""
        return f"restart all brokers, one after the other{done}"

    def end(self) -> None:
        self._enough.set()
        super().end()

    def _begin(self, cluster: LocalKafka) -> None:
        controller = Controller().find(cluster)
        for broker in sorted(cluster.brokers, key=lambda each: (each.id == controller, each.id)):
            if self._enough.is_set():
                return
            self.node = broker.id
            if not broker.terminate():
                raise DrillFailed(f"broker {broker.id} did not end when it was asked to")
            broker.start()
            self.restarted.append(broker.id)
            await_recovered(cluster, _IN_SYNC_WITHIN_S)
        self.node = None

    def _end(self, cluster: LocalKafka) -> None:
        for broker in cluster.brokers:
            broker.start()
