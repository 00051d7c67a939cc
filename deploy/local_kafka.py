"""A real Apache Kafka of one to three brokers on this machine, on free loopback ports, in a folder of its own.

Every broker is also a controller (KRaft). The folder holds all there is: `cluster.json` (identity and ports) and a
folder for each broker (see `deploy.broker`). A cluster started again in its folder goes on with its data, on the same
ports where they are still free. Brokers end when this process ends, however it ends.

    with LocalKafka(folder, brokers=3) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        kafka.broker(2).kill()
        kafka.broker(2).start()
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from deploy import class_archive
from deploy.broker import Broker
from deploy.data_folders import new_id
from deploy.errors import AddressInUse, KafkaFailed
from deploy.home import Say, to_stderr
from deploy.jars import KAFKA, kafka_jars
from deploy.java import java
from deploy.kafka_settings import QUICK_START, Link, Program, Setting, properties
from deploy.links import Forwarding, Links
from deploy.ports import free_ports, is_free
from deploy.watchdog import Watchdog

MOST_BROKERS = 3
_PORT_ATTEMPTS = 4
_POLL_S = 0.05
_LAST_WORDS_S = 0.3
_ALONE_S = 3.0


class LocalKafka:
    """A cluster. Broker ids are 1 to `brokers`.

    `overrides` are broker settings that go before those of `deploy.kafka_settings`, for every broker. With `cuttable`
    they reach each other through this process, which can cut them off (`links`). `jvm_options`, more options of their
    Java, may be changed before the start."""

    def __init__(
        self,
        folder: Path | str,
        brokers: int = 3,
        version: str = KAFKA,
        overrides: Mapping[str, Setting] | None = None,
        *,
        cuttable: bool = False,
        say: Say = to_stderr,
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise KafkaFailed(f"a local Kafka has 1 to {MOST_BROKERS} brokers, not {brokers}")
        self.folder = Path(folder).absolute()
        self.version = version
        self._count = brokers
        self._overrides = dict(overrides or {})
        self.jvm_options: Sequence[str] = QUICK_START
        self._cuttable = cuttable
        self._say = say
        self._brokers: dict[int, Broker] = {}
        self._ports: dict[int, tuple[int, int | None]] = {}
        self._peers: dict[int, Link] = {}
        self._links: Links | None = None
        self._program: Program | None = None
        self._watchdog: Watchdog | None = None
        self._lock: int | None = None

    @property
    def brokers(self) -> list[Broker]:
        """All of them, by id; empty before the first start."""
        return [self._brokers[node] for node in sorted(self._brokers)]

    def broker(self, node: int) -> Broker:
        """The broker of that id, 1 to the number of brokers. Raises `KafkaFailed` for another, or before the start."""
        if node not in self._brokers:
            raise KafkaFailed(f"there is no broker {node}: the cluster in {self.folder} has {sorted(self._brokers)}")
        return self._brokers[node]

    @property
    def links(self) -> Links | None:
        """The links between the brokers, to be cut; None where the cluster is not `cuttable`, or not started."""
        return self._links

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers: every broker, whether it runs or not."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self, timeout: float = 240) -> LocalKafka:
        """Start all brokers, and return when each of them lists all of them as live.

        Fetches Kafka on first use; `timeout` (seconds) counts from after that. Raises `KafkaFailed`, `JarsMissing`
        or `JavaMissing`; nothing runs then."""
        found, jars = java(self._say), kafka_jars(self.version, self._say)
        options = [*self.jvm_options, *class_archive.taking(class_archive.of_kafka(found, self.version, jars))]
        self._program = Program(found, self.version, jars, options)
        deadline = time.monotonic() + timeout
        self._take_folder()
        try:
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                try:
                    self._start(deadline, new_ports=attempt > 1)
                    return self
                except AddressInUse:
                    # Free when they were chosen, and taken since: the others must learn of the new ones too.
                    for broker in self.brokers:
                        broker.kill()
                    if attempt == _PORT_ATTEMPTS:
                        raise
        except BaseException:
            self._give_up()
            raise
        raise AssertionError("unreachable")

    def controller_port(self, node: int) -> int | None:
        """The port of the controller that is part of that broker; None where it has none, or is not there."""
        return self._ports.get(node, (0, None))[1]

    def add_broker(self, timeout: float = 180) -> Broker:
        """Start one broker more, which is no controller, and return when it lists all that run. It holds no partition.

        It is there until `remove_broker` or the cluster's end: a cluster started again is as large as it was made.
        Raises `KafkaFailed`; it is not there then."""
        if self._program is None or self._lock is None:
            raise KafkaFailed(f"the cluster in {self.folder} does not run, so no broker can be added to it")
        deadline = time.monotonic() + timeout
        node = max(self._brokers) + 1
        client, peers, to_peers = free_ports(3)
        self._ports[node] = (client, None)
        try:
            if self._links is not None:
                self._peers[node] = Link(peers, to_peers, None)
                self._links.forward(Forwarding(node, to_peers, peers))
            broker = self._brokers[node] = self._make(node)
            broker.format(json.loads((self.folder / "cluster.json").read_text())["cluster_id"], deadline)
            broker.start(max(0.0, deadline - time.monotonic()))
            broker.await_ready([each.id for each in self.brokers if each.running], deadline)
        except BaseException:
            self._forget(node)
            raise
        return broker

    def remove_broker(self, node: int, timeout: float = 30) -> None:
        """Stop a broker that was added, and remove its data. What only it had is lost; nothing where it is not there.

        Raises `KafkaFailed` for one of those that the cluster was made with, which are its controllers."""
        if node not in self._brokers:
            return
        if node <= self._count:
            raise KafkaFailed(f"broker {node} is a controller of the cluster in {self.folder} and cannot be removed")
        self._brokers[node].terminate(timeout)
        self._forget(node)

    def stop(self, timeout: float = 20) -> None:
        """Stop all brokers in order, kill after `timeout` seconds those that have not ended, keep data and logs.

        All are asked at once. One after the other, the last would find no quorum left to take its leave of."""
        deadline = time.monotonic() + timeout
        alone = False
        for broker in self.brokers:
            broker.ask_to_end()
        while any(broker.running and not broker.closed_its_logs for broker in self.brokers):
            if time.monotonic() > deadline:
                break
            if not alone and 2 * sum(broker.running for broker in self.brokers) <= len(self.brokers):
                # Whoever is late asks a quorum that is gone for leave, and would ask for minutes. Nothing that was
                # acknowledged is lost with it: its log is recovered at the next start.
                alone = True
                deadline = min(deadline, time.monotonic() + _ALONE_S)
            time.sleep(_POLL_S)
        else:
            # What still runs is a controller that waits for the others to elect another leader, up to 5 s. There is
            # nothing left to lose: every record of the cluster's metadata was forced to the disk when it was written.
            deadline = min(deadline, time.monotonic() + _LAST_WORDS_S)
        for broker in self.brokers:
            broker.terminate(max(0.0, deadline - time.monotonic()))
        self._give_up()

    def __enter__(self) -> LocalKafka:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _start(self, deadline: float, *, new_ports: bool) -> None:
        known = self._identity(new_ports)
        if self._watchdog is None:
            self._watchdog = Watchdog()
        self._ports = {int(node): (client, controller) for node, (client, controller) in known["ports"].items()}
        self._link()
        self._brokers = {node: self._make(node) for node in self._ports}
        for broker in self.brokers:  # one after the other: what Kafka makes for the first serves the others
            broker.format(known["cluster_id"], deadline)
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready(self._brokers, deadline, self.brokers)

    def _make(self, node: int) -> Broker:
        assert self._program is not None
        folder = self.folder / f"broker-{node}"
        settings = properties(
            node, self._ports, folder / "data", self._overrides, links=self._peers, version=self.version
        )
        client, _ = self._ports[node]
        return Broker(node, client, folder, program=self._program, settings=settings, watchdog=self._watchdog)

    def _link(self) -> None:
        """Lay the links between all nodes anew, on ports of their own."""
        self._unlink()
        if not self._cuttable:
            return
        self._links = Links(lambda: {broker.id: pid for broker in self.brokers if (pid := broker.pid) is not None})
        # Nobody is bound to the brokers' own ports yet, so they look free as well.
        brokers = {port for pair in self._ports.values() for port in pair if port is not None}
        free = iter(free_ports(3 * len(self._ports), but=brokers))
        for node, (_, controller) in self._ports.items():
            peers, to_peers, to_controller = next(free), next(free), next(free)
            assert controller is not None
            self._peers[node] = Link(peers, to_peers, to_controller)
            self._links.forward(Forwarding(node, to_peers, peers))
            self._links.forward(Forwarding(node, to_controller, controller))

    def _unlink(self) -> None:
        self._peers = {}
        if self._links is not None:
            self._links.close()
            self._links = None

    def _forget(self, node: int) -> None:
        """Take a broker that was added out of the cluster, with its data; its logs stay."""
        broker = self._brokers.pop(node, None)
        if broker is not None:
            broker.kill()
            shutil.rmtree(broker.log_dir, ignore_errors=True)
        self._ports.pop(node, None)
        self._peers.pop(node, None)
        if self._links is not None:
            self._links.forget(node)

    def _identity(self, new_ports: bool) -> dict[str, Any]:
        """The cluster's id and ports, as its folder has them or new."""
        file = self.folder / "cluster.json"
        try:
            known: dict[str, Any] = json.loads(file.read_text())
        except FileNotFoundError:
            known = {"cluster_id": new_id(), "ports": {}}
        except ValueError as error:
            raise KafkaFailed(f"{file} is no JSON ({error}): is this the folder of a local Kafka?") from error
        if known["ports"] and len(known["ports"]) != self._count:
            raise KafkaFailed(
                f"the cluster in {self.folder} was made with {len(known['ports'])} broker(s), not {self._count}: "
                "start it so, or choose another folder"
            )
        if (
            new_ports
            or not known["ports"]
            or not all(is_free(port) for pair in known["ports"].values() for port in pair)
        ):
            free = free_ports(2 * self._count)
            known["ports"] = {str(n): (free[2 * n - 2], free[2 * n - 1]) for n in range(1, self._count + 1)}
        written = file.with_suffix(".new")
        written.write_text(json.dumps({**known, "version": self.version}, indent=1))
        written.replace(file)
        return known

    def _take_folder(self) -> None:
        if self._lock is not None:
            raise KafkaFailed(f"the cluster in {self.folder} is running already")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise KafkaFailed(f"cannot write into {self.folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise KafkaFailed(f"another local Kafka is running in {self.folder}") from None
        self._lock = lock

    def _give_up(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self._unlink()
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def run_in_foreground(kafka: LocalKafka, say: Say = to_stderr) -> None:
    """Start the cluster, say where it is, and stop it in order at SIGINT or SIGTERM; a second signal kills it.

    Must be called from the main thread. Raises `KafkaFailed` when a broker ends by itself, after having stopped the
    others."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            for broker in kafka.brokers:
                broker.kill()
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with kafka:
            count = len(kafka.brokers)
            say(f"Apache Kafka {kafka.version} with {count} broker{'s' * (count > 1)} is ready: {kafka.bootstrap}")
            say(f"its data and logs are in {kafka.folder}; Ctrl-C stops it")
            while not asked.wait(0.5):
                for broker in kafka.brokers:
                    if not broker.running:
                        raise KafkaFailed(f"Kafka broker {broker.id} ended by itself; its log is {broker.server_log}")
            say("stopping")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
