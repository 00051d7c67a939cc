"""Real brokers: started, stopped, killed, paused, orphaned."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy import class_archive, local_kafka
from deploy.broker import Broker
from deploy.errors import AddressInUse, KafkaFailed
from deploy.home import home
from deploy.jars import KAFKA_OLD, kafka_jars
from deploy.java import java
from deploy.local_kafka import LocalKafka
from deploy.ports import HOST, free_ports
from deploy.setup import prepare

pytestmark = pytest.mark.kafka

QUIET = {"log_level": 0}


def make_topic(kafka: LocalKafka, name: str, **config: str) -> None:
    brokers = len(kafka.bootstrap.split(","))
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2, brokers, config=config)])[name].result(120)


def write(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    failed: list[KafkaError] = []
    producer = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.extend([error] if error else [])
        )
    assert producer.flush(120) == 0
    assert failed == []


def read(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    """The first `count` records of partition 0, or fewer where 180 s do not bring as many."""
    consumer = Consumer({**QUIET, "bootstrap.servers": kafka.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 180
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value() for record in consumer.consume(count, 0.2) if record.error() is None]
    consumer.close()
    return values


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def pid_of(broker: Broker) -> int:
    assert broker.pid is not None
    return broker.pid


@pytest.fixture(scope="module")
def own(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker that the tests of this module may kill; each leaves it running."""
    prepare()
    with LocalKafka(tmp_path_factory.mktemp("own"), brokers=1, overrides={"num.partitions": 7}) as cluster:
        yield cluster


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_a_broker_maps_the_class_archive(own: LocalKafka) -> None:
    file = class_archive.of_kafka(java(), own.version, kafka_jars(own.version))
    assert str(file.resolve()) in Path(f"/proc/{own.broker(1).pid}/maps").read_text()


def test_a_class_archive_is_bound_to_the_java_and_the_jars(tmp_path: Path) -> None:
    jar = tmp_path / "one.jar"
    jar.touch()
    file = class_archive.archive(java(), "kafka-4.3.1", [jar])
    assert file == class_archive.archive(java(), "kafka-4.3.1", [jar])
    assert class_archive.taking(file) == []
    os.utime(jar, (1, 1))
    assert file != class_archive.archive(java(), "kafka-4.3.1", [jar])
    assert file != class_archive.archive(jar, "kafka-4.3.1", [])


def test_a_record_comes_back(kafka: LocalKafka) -> None:
    make_topic(kafka, "comes-back")
    write(kafka, "comes-back", [b"one", b"two"])
    assert read(kafka, "comes-back", 2) == [b"one", b"two"]


def test_a_killed_broker_comes_back_with_its_data_on_its_port(own: LocalKafka) -> None:
    make_topic(own, "killed")
    write(own, "killed", [b"before"])
    broker, bootstrap, killed = own.broker(1), own.bootstrap, pid_of(own.broker(1))
    broker.kill()
    assert gone(killed)
    assert (broker.pid, broker.running, broker.closed_its_logs) == (None, False, False)
    # From a thread that ends at once: the broker must not end with it.
    restart = threading.Thread(target=broker.start)
    restart.start()
    restart.join()
    assert pid_of(broker) != killed
    assert own.bootstrap == bootstrap
    write(own, "killed", [b"after"])
    assert read(own, "killed", 2) == [b"before", b"after"]
    assert (broker.log_dir / "killed-0").is_dir()


def test_a_terminated_broker_closes_its_logs(own: LocalKafka) -> None:
    broker = own.broker(1)
    assert broker.terminate(120)
    assert broker.closed_its_logs
    assert broker.terminate(), "nothing to do"
    broker.settings["num.partitions"] = "5"  # taken at the next start
    broker.start()
    assert not broker.closed_its_logs
    assert "num.partitions=5\n" in (broker.folder / "server.properties").read_text()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are seen in /proc")
def test_a_broker_that_was_paused_stands_with_all_its_threads(own: LocalKafka) -> None:
    tasks = Path(f"/proc/{pid_of(own.broker(1))}/task")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        for _ in range(30):
            own.broker(1).pause()
            states = {one.read_text().rpartition(")")[2].split()[0] for one in tasks.glob("*/stat")}
            assert states == {"T"}
            own.broker(1).resume()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_paused_broker_is_silent_until_it_is_resumed(own: LocalKafka) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": own.bootstrap})
    own.broker(1).pause()
    assert own.broker(1).running
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    own.broker(1).resume()
    assert set(admin.list_topics(timeout=60).brokers) == {1}


def test_topics_are_not_made_by_mistake(own: LocalKafka) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": own.bootstrap})
    assert admin.list_topics("mistyped", timeout=60).topics["mistyped"].error is not None
    assert "mistyped" not in admin.list_topics(timeout=60).topics


def test_a_taken_port_is_named_and_waited_for(own: LocalKafka) -> None:
    broker = own.broker(1)
    broker.terminate()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, broker.port))
        taken.listen()
        broker.launch()
        with pytest.raises(AddressInUse, match="Kafka broker 1: one of its ports is taken; its log is "):
            broker.await_ready([1], time.monotonic() + 180)
        release = threading.Timer(1, taken.close)
        release.start()
        broker.start()
        release.join()
    assert broker.running


def test_a_stopped_cluster_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with LocalKafka(tmp_path, brokers=1) as first:
        make_topic(first, "stays")
        write(first, "stays", [b"kept"])
        bootstrap, pid = first.bootstrap, pid_of(first.broker(1))
        children = {child.pid for child in psutil.Process().children() if str(tmp_path) in " ".join(child.cmdline())}
        assert children == {pid}
        with pytest.raises(KafkaFailed, match=f"^another local Kafka is running in {tmp_path}$"):
            LocalKafka(tmp_path, brokers=1).start()
        first.stop(120)
    assert gone(pid)
    assert first.broker(1).closed_its_logs
    assert b"Kafka Server started" in first.broker(1).server_log.read_bytes()
    first.stop()  # nothing, a second time
    with pytest.raises(KafkaFailed, match="cannot be started alone: its cluster has been stopped"):
        first.broker(1).start()
    with pytest.raises(KafkaFailed, match=r"was made with 1 broker\(s\), not 3"):
        LocalKafka(tmp_path, brokers=3).start()
    with LocalKafka(tmp_path, brokers=1) as second:
        assert second.bootstrap == bootstrap
        assert read(second, "stays", 1) == [b"kept"]


def test_ports_that_were_taken_since_they_were_chosen_are_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        offered = iter([[taken.getsockname()[1], *free_ports(1)], free_ports(2)])
        monkeypatch.setattr(local_kafka, "free_ports", lambda count: next(offered))
        with LocalKafka(tmp_path, brokers=1) as kafka:
            assert kafka.broker(1).port != taken.getsockname()[1]
    assert list(offered) == []


def test_also_those_of_a_broker_that_is_not_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        offered = iter([[*free_ports(2), taken.getsockname()[1], *free_ports(1)], free_ports(4)])
        monkeypatch.setattr(local_kafka, "free_ports", lambda count: next(offered))
        with LocalKafka(tmp_path, brokers=2) as kafka:
            assert {broker.running for broker in kafka.brokers} == {True}
    assert list(offered) == []


def test_links_are_not_laid_on_the_brokers_own_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a dice that throws the brokers' ports again for the links.
    thrown = iter([own := free_ports(4), [*own, *free_ports(20)]])
    monkeypatch.setattr(
        local_kafka, "free_ports", lambda count, but=(): [port for port in next(thrown) if port not in but][:count]
    )
    with LocalKafka(tmp_path, brokers=2, cuttable=True) as kafka:
        assert {broker.running for broker in kafka.brokers} == {True}


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    kafka = LocalKafka(tmp_path, brokers=1, overrides={"log.retention.check.interval.ms": "soon"})
    with pytest.raises(KafkaFailed, match=r"^Kafka broker 1: its data folder could not be made: .*soon.*stdout\.log$"):
        kafka.start()
    kafka = LocalKafka(tmp_path, brokers=1, overrides={"inter.broker.listener.name": "ABSENT"})
    with pytest.raises(KafkaFailed, match=r"^Kafka broker 1"):
        kafka.start()
    assert not any(broker.running for broker in kafka.brokers)


@pytest.mark.parametrize("brokers", [0, 4, -1])
def test_how_many_brokers_there_can_be(tmp_path: Path, brokers: int) -> None:
    with pytest.raises(KafkaFailed, match=f"1 to 3 brokers, not {brokers}"):
        LocalKafka(tmp_path, brokers=brokers)


def test_folders_that_are_not_a_clusters(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaFailed, match=r"cannot write into .*file"):
        LocalKafka(tmp_path / "file", brokers=1).start()
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(KafkaFailed, match=r"cluster\.json .*is this the folder of a local Kafka"):
        LocalKafka(tmp_path, brokers=1).start()
    with pytest.raises(KafkaFailed, match="there is no broker 1"):
        LocalKafka(tmp_path, brokers=1).broker(1)


PARENT = """
import sys, threading
from deploy.local_kafka import LocalKafka, run_in_foreground
kafka = LocalKafka(sys.argv[1], brokers=1)
def say(line):
    print(line, kafka.broker(1).pid, kafka._watchdog.pid, flush=True)
run_in_foreground(kafka, say)
"""


@contextlib.contextmanager
def foreground(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, int, str]]:
    """A program that runs one broker: its process, the broker's and the watchdog's pids, and its first line."""
    program = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert program.stdout is not None
        line, broker, watchdog = program.stdout.readline().strip().rsplit(" ", 2)
        yield program, int(broker), int(watchdog), line
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def test_a_broker_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with foreground(tmp_path) as (program, broker, watchdog, _):
        assert not gone(broker)
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        assert eventually(lambda: gone(broker) and gone(watchdog))


def test_ctrl_c_stops_in_order(tmp_path: Path) -> None:
    with foreground(tmp_path) as (program, broker, watchdog, line):
        assert line.startswith("Apache Kafka 4.3.1 with 1 broker is ready: 127.0.0.1:")
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to the whole group
        assert program.wait(120) == 0
        assert gone(broker)
        assert gone(watchdog)
        assert (tmp_path / "broker-1" / "data" / ".kafka_cleanshutdown").is_file()


def test_three_brokers_replicate(kafka3: LocalKafka) -> None:
    assert sorted(kafka3.bootstrap.split(",")) == sorted(broker.bootstrap for broker in kafka3.brokers)
    assert [broker.id for broker in kafka3.brokers] == [1, 2, 3]
    make_topic(kafka3, "replicated", **{"min.insync.replicas": "2"})
    write(kafka3, "replicated", [b"x"] * 100)
    assert read(kafka3, "replicated", 100) == [b"x"] * 100
    metadata = AdminClient({**QUIET, "bootstrap.servers": kafka3.broker(3).bootstrap}).list_topics(timeout=60)
    assert set(metadata.brokers) == {1, 2, 3}
    assert all(set(p.replicas) == {1, 2, 3} for p in metadata.topics["replicated"].partitions.values())


def test_each_data_folder_has_names_of_its_own_and_kafka_s_tool_has_made_one_at_most(kafka3: LocalKafka) -> None:
    made = [(broker.log_dir / "meta.properties").read_text().splitlines() for broker in kafka3.brokers]
    told = [dict(line.split("=", 1) for line in lines if not line.startswith("#")) for lines in made]
    assert [one["node.id"] for one in told] == ["1", "2", "3"]
    assert len({one["cluster.id"] for one in told}) == 1
    assert len({one["directory.id"] for one in told}) == 3
    assert sum("Formatting" in broker.stdout_log.read_text() for broker in kafka3.brokers) <= 1


def test_three_brokers_take_transactions(kafka3: LocalKafka) -> None:
    make_topic(kafka3, "transacted")
    settings = {"transactional.id": "three-brokers", "transaction.timeout.ms": 60_000}
    producer = Producer({**QUIET, "bootstrap.servers": kafka3.bootstrap, **settings})
    producer.init_transactions(60)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transacted", value, partition=0)
        end(60)
    assert read(kafka3, "transacted", 1) == [b"committed"]


def test_the_older_kafka_runs_too(tmp_path: Path) -> None:
    if not (home() / "jars" / f"kafka-{KAFKA_OLD}").is_dir():
        pytest.skip(f"Apache Kafka {KAFKA_OLD} has not been fetched on this machine")
    with LocalKafka(tmp_path, brokers=1, version=KAFKA_OLD) as kafka:
        make_topic(kafka, "older")
        write(kafka, "older", [b"x"])
        assert read(kafka, "older", 1) == [b"x"]
        assert b"Kafka version: 3.8.1" in kafka.broker(1).server_log.read_bytes()
