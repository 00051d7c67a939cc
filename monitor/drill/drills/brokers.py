"""Drills that stop, pause and restart brokers. Kafka promises that nothing is lost: conditions come, and go again."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import Producer

from monitor.drill.definition.drill import ONE, THREE, ClusterKind, Drill, found
from monitor.drill.definition.stage import Stage
from monitor.drill.errors import DrillFailed, DrillSkipped
from monitor.drill.faults import processes as faults
from monitor.drill.faults.clocks import ClockJump
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.membership import AddAndRemoveBroker
from monitor.drill.faults.network import CutFromPeers
from monitor.drill.faults.processes import KillBroker, PauseBroker
from monitor.drill.faults.recovery import await_recovered
from monitor.drill.faults.roles import BrokerOf, Controller, GroupCoordinator, LeaderOf, Role, TransactionCoordinator

WORKING = {
    "writer": {"with_five_in_flight": 1},
    "reader": {"group": 2},
    "transaction": {"count": 2, "timeouts": [10.0, 10.0]},
}


class AutoCreatedTopic(Drill):
    """The probe topic is made by the broker, for a client that asked about it, with the broker's one replica."""

    name = "auto-created-topic"
    seen_in = "Redpanda, defaults"
    must = (found("under-replicated-probe-topic"),)
    cluster = ClusterKind(brokers=3, settings=(("auto.create.topics.enable", True), ("default.replication.factor", 1)))
    changes_cluster = True

    def prepare(self, stage: Stage) -> None:
        topic = stage.records
        Producer({"bootstrap.servers": stage.direct.bootstrap, "log_level": 0}).list_topics(topic, timeout=10)
        stage.wait(lambda: topic in stage.admin.list_topics(timeout=10).topics, 10, "that the broker made the topic")

    def act(self, stage: Stage) -> None:
        replicas = stage.admin.list_topics(stage.records, timeout=10).topics[stage.records].partitions[0].replicas
        if len(replicas) != 1:
            raise DrillFailed(f"the topic was made with {len(replicas)} replicas")
        stage.act("the topic was made automatically, with one replica")


class Faulty(Drill):
    """A fault of a broker: nothing may be lost, and what opens has to close again."""

    closes = True
    cluster = THREE
    changes_cluster = True
    probes: ClassVar = WORKING
    lasts: ClassVar[float] = 12.0
    """Seconds between the fault and its end."""

    def __init__(self) -> None:
        self._fault: Fault | None = None

    def fault(self, stage: Stage) -> Fault:
        """The fault, made anew."""
        raise NotImplementedError

    def act(self, stage: Stage) -> None:
        fault = self._fault = self.fault(stage)
        if missing := fault.preconditions(stage.cluster):
            raise DrillSkipped("; ".join(missing))
        stage.act(fault.describe())
        fault.begin()
        stage.say(fault.describe())
        stage.pause(self.lasts)

    def undo(self, stage: Stage) -> None:
        if self._fault is not None:
            self._fault.end()
            stage.say(f"whole again after {await_recovered(stage.cluster):.1f} s")
            stage.work_goes_on()


class CrashOfLeader(Faulty):
    """SIGKILL of a partition's leader, which stays away for a while."""

    name = "broker-crash"
    case = "leader"
    seen_in = "Redpanda 3335, 3336"
    restart: ClassVar = False

    def role(self, stage: Stage) -> Role:
        """Whom it strikes."""
        return LeaderOf(stage.records, 0)

    def fault(self, stage: Stage) -> Fault:
        return KillBroker(self.role(stage), restart=self.restart)


class CrashOfTransactionCoordinator(CrashOfLeader):
    """SIGKILL of a transaction coordinator, which stays away for a while."""

    case = "transaction-coordinator"

    def role(self, stage: Stage) -> Role:
        return TransactionCoordinator(f"{stage.config.topics.prefix}-{stage.run}-transactions-1")


class CrashOfGroupCoordinator(CrashOfLeader):
    """SIGKILL of a group's coordinator, which stays away for a while."""

    case = "group-coordinator"

    def role(self, stage: Stage) -> Role:
        return GroupCoordinator(f"{stage.config.topics.prefix}-{stage.run}-group")


class CrashOfController(CrashOfLeader):
    """SIGKILL of the controller, which stays away for a while."""

    case = "controller"

    def role(self, stage: Stage) -> Role:
        return Controller()


class RestartOfLeader(CrashOfLeader):
    """SIGKILL of a partition's leader, which is started again at once."""

    case = "leader-restarted"
    restart = True
    lasts = 5.0


class RestartOfTransactionCoordinator(CrashOfTransactionCoordinator):
    """SIGKILL of a transaction coordinator, which is started again at once."""

    case = "transaction-coordinator-restarted"
    restart = True
    lasts = 5.0


class RestartOfGroupCoordinator(CrashOfGroupCoordinator):
    """SIGKILL of a group's coordinator, which is started again at once."""

    case = "group-coordinator-restarted"
    restart = True
    lasts = 5.0


class RestartOfController(CrashOfController):
    """SIGKILL of the controller, which is started again at once."""

    case = "controller-restarted"
    restart = True
    lasts = 5.0


class LeaderPartition(Faulty):
    """A partition's leader is cut off from its peers, and goes on answering its clients."""

    name = "leader-partition"
    case = "leader"
    seen_in = "Redpanda, Gobekli"

    def fault(self, stage: Stage) -> Fault:
        return CutFromPeers(LeaderOf(stage.records, 0))


class CoordinatorPartition(LeaderPartition):
    """A transaction coordinator is cut off from its peers, and goes on answering its clients."""

    case = "transaction-coordinator"

    def fault(self, stage: Stage) -> Fault:
        return CutFromPeers(TransactionCoordinator(f"{stage.config.topics.prefix}-{stage.run}-transactions-1"))


class ControllerPartition(LeaderPartition):
    """The controller is cut off from its peers."""

    case = "controller"

    def fault(self, stage: Stage) -> Fault:
        return CutFromPeers(Controller())


class PausedLeader(Faulty):
    """A partition's leader is frozen with SIGSTOP; when it goes on it still believes in its roles for a moment."""

    name = "pause"
    seen_in = "Redpanda, Gobekli"

    def fault(self, stage: Stage) -> Fault:
        return PauseBroker(LeaderOf(stage.records, 0))


class JumpingClock(Faulty):
    """The wall clock of a partition's leader jumps ten minutes ahead, and back."""

    name = "clock-jump"
    seen_in = "Redpanda, Gobekli"

    def fault(self, stage: Stage) -> Fault:
        return ClockJump(LeaderOf(stage.records, 0), 600)


class SingleBrokerAway(Faulty):
    """The only broker is away for a minute. All that waits for it is one outage, told while it lasts.

    Nobody transacts: what is open when a lone broker goes may hang for good (KAFKA-20734)."""

    name = "single-broker-away"
    seen_in = "this canary"
    must = (found("cluster-unreachable", times=1),)
    probes: ClassVar = {"reader": {"group": 2}}
    never = frozenset({"stuck-producer", "stuck-consumer", "stuck-close"})
    cluster = ONE
    lasts = 60.0

    def fault(self, stage: Stage) -> Fault:
        return KillBroker(BrokerOf(1))


class RollingRestart(Faulty):
    """All brokers restart in order, one after the other, the controller last."""

    name = "rolling-restart"
    seen_in = "Redpanda, Gobekli"
    lasts = 1.0

    def fault(self, stage: Stage) -> Fault:
        return faults.RollingRestart()


class MembershipChange(Faulty):
    """A fourth broker joins, takes replicas of the probe topics and leads some partitions, and leaves again."""

    name = "membership-change"
    seen_in = "Redpanda, Gobekli"

    def fault(self, stage: Stage) -> Fault:
        return AddAndRemoveBroker([stage.records, stage.transactions])
