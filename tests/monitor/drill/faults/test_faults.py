"""Each fault on three real brokers, by its effect, while a producer and a consumer go on. One cluster for all tests.

Every test leaves the cluster whole. The last one holds the traffic to account: what was acknowledged was read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.metadata.v9.response import MetadataResponse

from deploy.local_kafka import LocalKafka
from deploy.ports import HOST
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.clocks import ClockJump, libfaketime
from monitor.drill.faults.disks import FailingDisk, SlowDisk
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.membership import AddAndRemoveBroker
from monitor.drill.faults.network import CutFromPeers
from monitor.drill.faults.processes import KillBroker, PauseBroker, RollingRestart
from monitor.drill.faults.recovery import await_recovered, lacks
from monitor.drill.faults.replicas import Placement, admin, view
from monitor.drill.faults.requests import ask, until
from monitor.drill.faults.roles import (
    AnyBroker,
    BrokerOf,
    Controller,
    GroupCoordinator,
    LeaderOf,
    TransactionCoordinator,
)
from tests.monitor.drill.faults.traffic import QUIET, Traffic

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(sys.platform != "linux", reason="links between brokers and their disks are Linux only"),
]

TOPIC = "written"
STAMPED = "stamped"


@pytest.fixture(scope="module")
def cluster(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("faults"), brokers=3, cuttable=True) as made:
        new = [
            NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"}),
            NewTopic(STAMPED, 3, 3, config={"message.timestamp.type": "LogAppendTime"}),
        ]
        create(made, *new)
        yield made


def create(cluster: LocalKafka, *topics: NewTopic) -> None:
    client = admin(cluster.bootstrap)
    for future in client.create_topics(list(topics), operation_timeout=60).values():
        future.result(60)


@pytest.fixture(scope="module")
def traffic(cluster: LocalKafka) -> Iterator[Traffic]:
    made = Traffic(cluster.bootstrap, TOPIC, 3).start()
    yield made
    made.stop()


@pytest.fixture
def made(cluster: LocalKafka, traffic: Traffic) -> Iterator[Callable[[Fault], Fault]]:
    """Begins a fault, which is ended after the test however that ends, and waits until the cluster is whole."""
    faults: list[Fault] = []

    def begin(fault: Fault) -> Fault:
        assert fault.preconditions(cluster) == []
        faults.append(fault)
        fault.begin()
        return fault

    assert traffic.goes_on(), traffic.told()
    yield begin
    for fault in faults:
        fault.end()
        fault.end()
        assert fault.began is not None
        assert fault.ended is not None
        assert fault.began.monotonic < fault.ended.monotonic
    await_recovered(cluster, 300)


def eventually(holds: Callable[[], bool], seconds: float = 180) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if holds():
            return True
        time.sleep(0.1)
    return False


def other_than(cluster: LocalKafka, node: int) -> str:
    return ",".join(broker.bootstrap for broker in cluster.brokers if broker.id != node)


def leads_nothing(cluster: LocalKafka, node: int) -> bool:
    """By what the others tell; a partition that it alone has does not count."""
    return all(
        place.leader not in (node, None)
        for place in view(other_than(cluster, node)).placements
        if len(place.replicas) > 1
    )


def java_hash(text: str) -> int:
    """String.hashCode."""
    value = 0
    for unit in text.encode("ascii"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def coordinates(cluster: LocalKafka, topic: str, key: str) -> int | None:
    def placed() -> tuple[Placement, ...] | None:
        return view(cluster.bootstrap, topic).placements or None  # not every broker may have heard of a new topic

    places = until(placed, 60, topic)
    return places[abs(java_hash(key)) % len(places)].leader


@pytest.mark.drills
def test_coordinators_lead_the_partitions_that_the_hash_names(cluster: LocalKafka, traffic: Traffic) -> None:
    for key in ("probe-0", "probe-1", "a-much-longer-identifier-whose-hash-overflows"):
        places = ((TransactionCoordinator(key), "__transaction_state"), (GroupCoordinator(key), "__consumer_offsets"))
        for role, topic in places:  # a leader may just be moving back to where it belongs
            assert eventually(lambda r=role, t=topic, k=key: r.find(cluster) == coordinates(cluster, t, k))  # type: ignore[misc]
    client = admin(cluster.bootstrap)  # a client that nobody holds ends with its request

    def coordinator() -> int:
        """As the group's description tells; -1 while its partition is on the way from one broker to another."""
        try:
            told = client.describe_consumer_groups(["traffic"])["traffic"].result()
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.NOT_COORDINATOR, error
            return -1
        return int(told.coordinator.id)

    assert eventually(lambda: GroupCoordinator("traffic").find(cluster) == coordinator())


def test_any_broker_is_a_seeds_choice(cluster: LocalKafka) -> None:
    chosen = [AnyBroker(seed).find(cluster) for seed in range(20)]
    assert chosen == [AnyBroker(seed).find(cluster) for seed in range(20)]
    assert set(chosen) == {1, 2, 3}


def test_a_killed_leader_loses_its_partitions_and_comes_back(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    leader = LeaderOf(TOPIC, 0).find(cluster)
    fault = made(KillBroker(LeaderOf(TOPIC, 0)))
    assert fault.node == leader
    assert not cluster.broker(leader).running
    assert KillBroker(Controller()).preconditions(cluster) == [f"broker {leader} does not run"]
    assert eventually(lambda: leads_nothing(cluster, leader))
    assert traffic.goes_on(), traffic.told()
    assert f"broker {leader} does not run" in lacks(cluster)
    assert fault.describe() == f"kill broker {leader}, the leader of {TOPIC}/0"
    fault.end()
    assert cluster.broker(leader).running


@pytest.mark.drills
def test_a_killed_controller_that_is_started_again_is_not_the_controller(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    controller = Controller().find(cluster)
    pid = cluster.broker(controller).pid
    made(KillBroker(Controller(), restart=True))
    assert cluster.broker(controller).pid not in (pid, None)
    assert Controller().find(cluster) != controller
    assert traffic.goes_on(), traffic.told()


@pytest.mark.drills
def test_a_paused_broker_loses_its_roles_and_answers_again(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    fault = made(PauseBroker(GroupCoordinator("traffic")))
    assert fault.node is not None
    paused = cluster.broker(fault.node)
    with pytest.raises(KafkaException):
        admin(paused.bootstrap).list_topics(timeout=1)
    assert eventually(lambda: leads_nothing(cluster, paused.id))
    assert traffic.goes_on(), traffic.told()
    assert traffic.group_goes_on(), traffic.told()
    fault.end()
    await_recovered(cluster, 300)
    assert paused.id in admin(paused.bootstrap).list_topics(timeout=60).brokers


@pytest.mark.drills
def test_a_broker_cut_from_its_peers_loses_its_roles_and_still_answers_clients(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    fault = made(CutFromPeers(Controller()))
    cut = fault.node
    assert cut is not None
    assert eventually(lambda: leads_nothing(cluster, cut))
    assert Controller().find(cluster) != cut
    # It is there, it answers its clients, and nobody has told it what the others decided.
    pid = cluster.broker(cut).pid
    request = MetadataRequest(
        topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    answered = ask(HOST, cluster.broker(cut).port, request, MetadataResponse)
    assert any(part.leader_id == cut for topic in answered.topics for part in topic.partitions)
    assert traffic.goes_on(), traffic.told()
    fault.end()
    await_recovered(cluster, 300)
    assert cluster.broker(cut).pid == pid, "it never ended"


@pytest.mark.drills
def test_a_rolling_restart_restarts_every_broker_the_controller_last(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    controller = Controller().find(cluster)
    pids = {broker.pid for broker in cluster.brokers}
    fault = RollingRestart()
    made(fault)
    assert pids.isdisjoint({broker.pid for broker in cluster.brokers})
    assert fault.restarted[-1] == controller
    assert sorted(fault.restarted) == [1, 2, 3]
    assert traffic.goes_on(), traffic.told()


@pytest.mark.drills
def test_a_broker_joins_with_replicas_and_leaves_without_a_trace(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    fault = made(AddAndRemoveBroker([TOPIC]))
    assert fault.node == 4
    places = view(cluster.bootstrap, TOPIC).placements
    assert all(4 in place.in_sync and len(place.in_sync) == 3 for place in places)
    assert [place.leader == 4 for place in places] == [True, False, True]
    assert traffic.goes_on(), traffic.told()
    fault.end()
    after = view(cluster.bootstrap)
    assert after.nodes == {1, 2, 3}
    assert all(4 not in place.replicas for place in after.placements)
    assert {len(place.replicas) for place in after.placements if place.topic == TOPIC} == {3}
    assert not (cluster.folder / "broker-4" / "data").exists()
    assert traffic.goes_on(), traffic.told()


@pytest.mark.drills
def test_a_broker_whose_disk_fails_ends_and_comes_back_with_its_data(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    fault = made(FailingDisk(LeaderOf(TOPIC, 1)))
    assert fault.node is not None
    assert not cluster.broker(fault.node).running
    assert eventually(lambda: leads_nothing(cluster, fault.node or 0))
    assert traffic.goes_on(), traffic.told()
    fault.end()
    await_recovered(cluster, 300)


@pytest.mark.drills
def test_a_slow_disk_delays_what_is_forced_to_it(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault]
) -> None:
    fault = SlowDisk(Controller(), rate=4_096)
    if missing := fault.preconditions(cluster):
        pytest.skip(missing[0])

    def seconds_for_a_topic(name: str) -> float:
        began = time.monotonic()
        try:
            create(cluster, NewTopic(name, 3, 3))
        except KafkaException as error:  # so slow that the client asked twice, or gave up
            slow = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
            if error.args[0].code() not in slow:
                raise
        return time.monotonic() - began

    def at_best(name: str) -> float:
        """The best of three: the machine has other things to do as well."""
        return min(seconds_for_a_topic(f"{name}-{number}") for number in range(3))

    fast = at_best("fast")
    made(fault)
    slow = seconds_for_a_topic("slow")
    assert slow > fast + 0.5
    fault.end()
    assert at_best("fast-again") < slow
    assert traffic.goes_on(), traffic.told()


def test_what_is_missing_is_said_and_nothing_is_done(cluster: LocalKafka) -> None:
    impossible = AddAndRemoveBroker(["absent"])
    assert impossible.preconditions(cluster) == ["there is no topic absent to give replicas of"]
    with pytest.raises(DrillFailed, match="there is no topic absent"):
        impossible.begin()
    assert impossible.began is None
    with pytest.raises(DrillFailed, match="the preconditions were not asked for on any cluster: kill any broker"):
        KillBroker(AnyBroker(1)).begin()
    KillBroker(AnyBroker(1)).end()
    await_recovered(cluster, 300)


@pytest.mark.drills
@pytest.mark.skipif(libfaketime() is None, reason="libfaketime is not installed")
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_jump_of_the_clock_shows_in_the_leaders_time_stamps(
    cluster: LocalKafka, traffic: Traffic, made: Callable[[Fault], Fault], seconds: int
) -> None:
    fault = made(ClockJump(LeaderOf(STAMPED, 0), seconds))
    assert abs(_stamp(cluster) - time.time() - seconds) < 60
    assert traffic.goes_on(), traffic.told()
    fault.end()
    assert abs(_stamp(cluster) - time.time()) < 60


def test_in_the_end_everything_that_was_acknowledged_was_read(cluster: LocalKafka, traffic: Traffic) -> None:
    await_recovered(cluster, 300)
    assert traffic.goes_on(), traffic.told()
    assert traffic.group_goes_on(), traffic.told()
    traffic.stop()
    assert len(traffic.acknowledged) > 100
    assert [number for number in traffic.acknowledged if not traffic.read[number]] == []
    assert [number for number in traffic.acknowledged if not traffic.read_by_group[number]] == []


def _stamp(cluster: LocalKafka) -> float:
    """The time, in seconds, that the leader gives to a record written now."""
    stamps: list[float] = []
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(
        STAMPED, b"now", partition=0, on_delivery=lambda error, message: stamps.append(message.timestamp()[1] / 1000)
    )
    assert producer.flush(60) == 0
    return stamps[0]


def test_a_broker_by_its_number_is_found(cluster: LocalKafka) -> None:
    assert BrokerOf(2).find(cluster) == 2
