"""What a fault is: something that is done to brokers of a cluster of our own, and undone.

    fault = KillBroker(LeaderOf("topic", 0))
    if not (missing := fault.preconditions(cluster)):   # also aims it at this cluster
        try:
            fault.begin()
            ...
        finally:
            fault.end()

`preconditions` names what is missing, one sentence each, and changes nothing. `begin` returns when the fault is there;
its target is looked up then. `end` undoes it and returns when the brokers it touched serve again, which is before their
replicas are in sync again (`recovery.await_recovered`); it may be called at any time and any number of times, and has
to be called whenever `begin` was, however that ended. No two faults may be there at once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime

from deploy.broker import Broker
from deploy.errors import DeployError
from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.roles import Role


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by the wall clock (UTC), and by this machine's monotonic clock (seconds)."""

    wall: datetime
    monotonic: float


def now() -> Moment:
    """This moment."""
    return Moment(datetime.now(UTC), time.monotonic())


class Fault(ABC):
    """One fault, to be made once. `began`, `ended`: when it was there, None before; `node`: whom it struck."""

    def __init__(self) -> None:
        self.began: Moment | None = None
        self.ended: Moment | None = None
        self.node: int | None = None
        self._cluster: LocalKafka | None = None
        self._undone = True

    @abstractmethod
    def describe(self) -> str:
        """What it does, one line for a person; names the broker once it is known."""

    def preconditions(self, cluster: LocalKafka) -> list[str]:
        """What is missing for it on this cluster and this machine, one sentence each; none if it can begin."""
        self._cluster = cluster
        if not cluster.brokers:
            return [f"the cluster in {cluster.folder} is not started"]
        down = [f"broker {broker.id} does not run" for broker in cluster.brokers if not broker.running]
        return down or self._missing(cluster)

    def begin(self) -> None:
        """Make it happen. Raises DrillFailed where something is missing or does not follow; call `end` then too."""
        cluster = self._aimed()
        if self.began is not None:
            raise DrillFailed(f"a fault is made once: {self.describe()}")
        missing = self.preconditions(cluster)
        if missing:
            raise DrillFailed("; ".join(missing))
        self.began = now()
        self._undone = False
        try:
            self._begin(cluster)
        except DeployError as error:
            raise DrillFailed(f"{self.describe()}: {error}") from error

    def end(self) -> None:
        """Undo it. Nothing where it is not there. Raises DrillFailed where a broker does not come back."""
        if self._undone:
            return
        try:
            self._end(self._aimed())
        except DeployError as error:
            raise DrillFailed(f"{self.describe()}: {error}") from error
        self._undone = True
        self.ended = now()

    def __str__(self) -> str:
        return self.describe()

    def _aimed(self) -> LocalKafka:
        if self._cluster is None:
            raise DrillFailed(f"the preconditions were not asked for on any cluster: {self.describe()}")
        return self._cluster

    def _missing(self, cluster: LocalKafka) -> list[str]:
        """As `preconditions`; all brokers run."""
        return []

    @abstractmethod
    def _begin(self, cluster: LocalKafka) -> None: ...

    @abstractmethod
    def _end(self, cluster: LocalKafka) -> None:
        """Undo what `_begin` did, as far as it came; called again where it raised."""


class FaultOfRole(Fault):
    """A fault of whoever has the `role` when it begins."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role

    @property
    def _whom(self) -> str:
        return str(self.role) if self.node is None else f"broker {self.node}, {self.role}"

    def _find(self, cluster: LocalKafka) -> Broker:
        """Who has it now: the one that is struck."""
        self.node = self.role.find(cluster)
        return cluster.broker(self.node)
