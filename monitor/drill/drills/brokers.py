"""Drills that stop, pause and restart brokers. Kafka promises that nothing is lost: conditions come, and go again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import Producer

from monitor.drill.definition.drill import ONE, THREE, ClusterKind, Drill, found
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed, DrillSkipped
from monitor.drill.faults.clocks import ClockJump
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.membership import AddAndRemoveBroker
from monitor.drill.faults.network import CutFromPeers
from monitor.drill.faults.processes import KillBroker, PauseBroker, RollingRestart
from monitor.drill.faults.quotas import BANDWIDTH, REQUESTS, Quota
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.roles import BrokerOf, Controller, GroupCoordinator, LeaderOf, Role, TransactionCoordinator


class AutoCreatedTopic(Play):
    """A client asks for the topic before the probes have made it."""

    def prepare(self, stage: Stage) -> None:
        topic = stage.records
        Producer({"bootstrap.servers": stage.direct.bootstrap, "log_level": 0}).list_topics(topic, timeout=10)
        stage.wait(lambda: topic in stage.admin.list_topics(timeout=10).topics, 10, "that the broker made the topic")

    def act(self, stage: Stage) -> None:
        replicas = stage.admin.list_topics(stage.records, timeout=10).topics[stage.records].partitions[0].replicas
        if len(replicas) != 1:
            raise DrillFailed(f"the topic was made with {len(replicas)} replicas")
        stage.act("the topic was made automatically, with one replica")


class OneFault(Play):
    """A fault of a broker, undone after `lasts` seconds."""

    def __init__(self, fault: Callable[[Stage], Fault], lasts: float = 12.0) -> None:
        self._make, self._lasts = fault, lasts
        self._fault: Fault | None = None

    def act(self, stage: Stage) -> None:
        fault = self._fault = self._make(stage)
        if missing := fault.preconditions(stage.cluster):
            raise DrillSkipped("; ".join(missing))
        stage.act(fault.describe())
        fault.begin()
        stage.say(fault.describe())
        stage.pause(self._lasts)

    def undo(self, stage: Stage) -> None:
        if self._fault is not None:
            self._fault.end()
            stage.say(f"whole again after {await_recovered(stage.cluster):.1f} s")
            stage.work_goes_on()


def leader(stage: Stage) -> Role:
    return LeaderOf(stage.records, 0)


def transaction_coordinator(stage: Stage) -> Role:
    return TransactionCoordinator(f"{stage.config.topics.prefix}-{stage.run}-transactions-1")


def group_coordinator(stage: Stage) -> Role:
    return GroupCoordinator(f"{stage.config.topics.prefix}-{stage.run}-group")


def controller(_: Stage) -> Role:
    return Controller()


ROLES: Final = {
    "leader": ("a partition's leader", leader),
    "transaction-coordinator": ("a transaction coordinator", transaction_coordinator),
    "group-coordinator": ("a group's coordinator", group_coordinator),
    "controller": ("the controller", controller),
}

faulty = partial(
    Drill,
    seen_in="Redpanda, Gobekli",
    closes=True,
    cluster=THREE,
    changes_cluster=True,
    probes={
        "writer": {"with_five_in_flight": 1},
        "reader": {"group": 2},
        "transaction": {"count": 2, "timeouts": [10.0, 10.0]},
    },
)
"""A fault of a broker: nothing may be lost, and what opens has to close again."""


quota = partial(
    faulty,
    name="quota",
    seen_in="this canary",
    must=(found("throttled", times=1),),
    never=frozenset({"stuck-producer", "stuck-consumer", "stuck-close", "unseen"}),
    cluster=ONE,
)


def crash(case: str, *, restarted: bool = False) -> Drill:
    """SIGKILL of whoever has that role."""
    whom, role = ROLES[case]
    return faulty(
        name="broker-crash",
        case=f"{case}-restarted" if restarted else case,
        what=f"SIGKILL of {whom}, which {'is started again at once' if restarted else 'stays away for a while'}.",
        seen_in="Redpanda 3335, 3336",
        play=lambda: OneFault(
            lambda stage: KillBroker(role(stage), restart=restarted), lasts=5.0 if restarted else 12.0
        ),
    )


DRILLS: Final = (
    Drill(
        name="auto-created-topic",
        what="The probe topic is made by the broker, for a client that asked about it, with the broker's one replica.",
        seen_in="Redpanda, defaults",
        must=(found("under-replicated-probe-topic"),),
        cluster=ClusterKind(
            brokers=3, settings=(("auto.create.topics.enable", True), ("default.replication.factor", 1))
        ),
        changes_cluster=True,
        play=AutoCreatedTopic,
    ),
    *(crash(case) for case in ROLES),
    *(crash(case, restarted=True) for case in ROLES),
    faulty(
        name="leader-partition",
        case="leader",
        what="A partition's leader is cut off from its peers, and goes on answering its clients.",
        play=lambda: OneFault(lambda stage: CutFromPeers(leader(stage))),
    ),
    faulty(
        name="leader-partition",
        case="transaction-coordinator",
        what="A transaction coordinator is cut off from its peers, and goes on answering its clients.",
        play=lambda: OneFault(lambda stage: CutFromPeers(transaction_coordinator(stage))),
    ),
    faulty(
        name="leader-partition",
        case="controller",
        what="The controller is cut off from its peers.",
        play=lambda: OneFault(lambda stage: CutFromPeers(controller(stage))),
    ),
    faulty(
        name="pause",
        what="A partition's leader is frozen with SIGSTOP; when it goes on it still believes in its roles for a"
        " moment.",
        play=lambda: OneFault(lambda stage: PauseBroker(leader(stage))),
    ),
    faulty(
        name="clock-jump",
        what="The wall clock of a partition's leader jumps ten minutes ahead, and back.",
        play=lambda: OneFault(lambda stage: ClockJump(leader(stage), 600)),
    ),
    # Nobody transacts: what is open when a lone broker goes may hang for good (KAFKA-20734).
    faulty(
        name="single-broker-away",
        what="The only broker is away for a minute. All that waits for it is one outage, told while it lasts.",
        seen_in="this canary",
        must=(found("cluster-unreachable", times=1),),
        never=frozenset({"stuck-producer", "stuck-consumer", "stuck-close"}),
        cluster=ONE,
        probes={"reader": {"group": 2}},
        play=lambda: OneFault(lambda stage: KillBroker(BrokerOf(1)), lasts=60.0),
    ),
    quota(
        case="bandwidth",
        what="Clients may send and read a fraction of what they do: brokers hold back each answer for seconds. All that"
        " waits for it is one condition.",
        play=lambda: OneFault(lambda stage: Quota(BANDWIDTH, 500), lasts=40.0),
    ),
    quota(
        case="requests",
        what="Clients may ask for next to nothing: brokers hold back each answer for a second at most, one after the"
        " other. All that waits for it is one condition.",
        play=lambda: OneFault(lambda stage: Quota(REQUESTS, 0.3), lasts=40.0),
    ),
    faulty(
        name="rolling-restart",
        what="All brokers restart in order, one after the other, the controller last.",
        play=lambda: OneFault(lambda stage: RollingRestart(), lasts=1.0),
    ),
    faulty(
        name="membership-change",
        what="A fourth broker joins, takes replicas of the probe topics and leads some partitions, and leaves again.",
        play=lambda: OneFault(lambda stage: AddAndRemoveBroker([stage.records, stage.transactions])),
    ),
)
