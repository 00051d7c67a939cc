"""What a drill acts on: the cluster, the proxy, the probes, and what the checker has found so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from deltalake import DeltaTable, QueryBuilder

from deploy.local_kafka import LocalKafka
from monitor.drill.definition.graded import Graded
from monitor.drill.errors import DrillFailed, DrillStopped
from probes.config import ProbesConfig
from probes.kafka.client import Connection, admin_settings, open_admin

if TYPE_CHECKING:
    from probes.running.fleet import Fleet
    from probes.topology import Layout
    from probes.workloads.probe import Counters

_LOOK: Final = 0.1
T = TypeVar("T")


class LiveChecker(Protocol):
    """The checks that follow the probe log while the drill runs."""

    history: Path
    """The probe log, a Delta table."""
    found: list[Graded]

    @property
    def now(self) -> int:
        """The log time, microseconds, that all partitions have come to."""

    def start(self) -> None:
        """Begin to follow the log."""

    def stop(self) -> None:
        """Check what there is, and end."""


@dataclass(kw_only=True)
class Stage:
    """One run's surroundings. `connection` is how the probes reach the cluster (through the proxy where there are
    lies), `direct` reaches the brokers themselves. `kafka` is None where the cluster is not the drill's own."""

    folder: Path
    config: ProbesConfig
    connection: Connection
    direct: Connection
    kafka: LocalKafka | None
    lies: Sequence[Any]
    checker: LiveChecker
    say: Callable[[str], None]
    stop: threading.Event
    clock: Callable[[], float] = time.time
    fleet: Fleet | None = None
    acted: list[tuple[float, str]] = field(default_factory=list)
    """When the drill did what, seconds of the wall clock; the lies keep their own."""

    @property
    def cluster(self) -> LocalKafka:
        """The drill's own cluster. Raises DrillFailed where it is somebody else's."""
        if self.kafka is None:
            raise DrillFailed("this drill does something to brokers, and the cluster is not its own")
        return self.kafka

    @property
    def probes(self) -> Fleet:
        assert self.fleet is not None
        return self.fleet

    @property
    def layout(self) -> Layout:
        layout = self.probes.status().layout
        assert layout is not None
        return layout

    @property
    def run(self) -> str:
        """The probes' run id."""
        return self.probes.status().run

    def counters(self, name: str) -> Counters:
        """The counters of the probe of that name. Raises DrillFailed where there is none."""
        for probe in self.probes.status().probes:
            if probe.name == name:
                return probe
        raise DrillFailed(f"there is no probe {name}")

    def total(self, field: str, *kinds: str) -> int:
        """The sum of one counter over the probes of these kinds, of all if none is named."""
        return sum(getattr(p, field) for p in self.probes.status().probes if not kinds or p.kind in kinds)

    @cached_property
    def admin(self) -> AdminClient:
        """A client of the drill's own, to the brokers themselves."""
        return open_admin(admin_settings(self.direct, client="offsetwatch-drill"))

    @property
    def records(self) -> str:
        """The topic that writers write to."""
        return self.config.topics.records

    @property
    def transactions(self) -> str:
        """The topic that transactions write to."""
        return self.config.topics.transactions

    def leader(self, topic: str, partition: int) -> int:
        """The id of the partition's leader, -1 for none."""
        found = self.ask(lambda: self.admin.list_topics(topic, timeout=10), "that the cluster tells a leader")
        return int(found.topics[topic].partitions[partition].leader)

    def end(self, topic: str, partition: int) -> int:
        """The end of the partition's log."""

        def listed() -> int:
            # A client that has heard of nothing yet: one that knew a leader which is gone would go on asking it.
            admin = open_admin(admin_settings(self.direct, client="offsetwatch-drill-ends"))
            asked = {TopicPartition(topic, partition): OffsetSpec.latest()}
            (answer,) = admin.list_offsets(asked, request_timeout=5.0).values()
            return int(answer.result(6.0).offset)

        return self.ask(listed, f"that the cluster tells the end of {topic}/{partition}")

    def ask(self, question: Callable[[], T], what: str, seconds: float = 30.0) -> T:
        """The cluster's answer; while brokers are away, it is asked again. Raises DrillFailed after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            try:
                return question()
            except (KafkaException, TimeoutError) as error:
                if time.monotonic() > end:
                    raise DrillFailed(f"{what} did not happen within {seconds:.0f} s: {error}") from error
            self.pause(_LOOK)

    def logged(self, query: str) -> list[dict[str, Any]]:
        """What SQL finds in the probe log, the table `history`."""
        rows = QueryBuilder().register("history", DeltaTable(str(self.checker.history))).execute(query)
        return [row for batch in rows for row in pa.record_batch(batch).to_pylist()]

    def act(self, what: str) -> None:
        """Note that something has just been done to the cluster; time to detection counts from the first."""
        self.acted.append((self.clock(), what))
        self.say(what)

    def wait(self, until: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait until it holds. Raises DrillFailed after `seconds`, saying `what` did not happen, and DrillStopped."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise DrillFailed(f"{what} did not happen within {seconds:.0f} s")
            self.pause(_LOOK)

    def pause(self, seconds: float) -> None:
        """Let things go on. Raises DrillStopped."""
        if self.stop.wait(seconds):
            raise DrillStopped

    def work_goes_on(self, seconds: float = 60.0) -> None:
        """Wait until the probes acknowledge and poll more than they had, and checks follow: it has recovered."""
        sent, polled, now = self.total("acknowledged"), self.total("polled", "reader"), self.checker.now
        self.wait(
            lambda: (
                self.total("acknowledged") > sent and self.total("polled", "reader") > polled and self.checker.now > now
            ),
            seconds,
            "that probes write and read",
        )

    def found(self, *names: str) -> list[Graded]:
        """What the checker has found of these names so far."""
        return [one for one in list(self.checker.found) if one.name in names]

    @property
    def first_act(self) -> float | None:
        """When the drill or one of its lies first did something: seconds of the wall clock."""
        times = [at for at, _ in self.acted] + [act.at.timestamp() for lie in self.lies for act in lie.acts]
        return min(times, default=None)
