"""One Kafka broker: a Java process in a process group of its own, its folder, and what can be done to it.

<folder>/server.properties   written anew at each start
<folder>/data/               Kafka's log.dirs: the segments of its partitions
<folder>/logs/server.log     what it says, kept over restarts
<folder>/logs/stdout.log     what its Java says, nothing as a rule
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.data_folders import META, DataFolders
from deploy.errors import AddressInUse, KafkaFailed
from deploy.kafka_settings import Program, logging_properties, rendered
from deploy.ports import HOST
from deploy.watchdog import Watchdog

_POLL_S = 0.05
_PORT_RETRY_S = 0.5
_STANDS_S = 10.0
_SOON_S = 0.005
_STARTED = "Kafka Server started"
_FOLDERS = DataFolders()
_SILENT = logging.Logger("confluent_kafka.ready_check", logging.CRITICAL + 1)


class Broker:
    """A broker that can be started, stopped, killed and paused, again and again, on the same ports and data.

    `settings`, and `environment` (variables beside those of this process), may be changed while it is down; they are
    taken at the next start."""

    def __init__(
        self,
        node: int,
        port: int,
        folder: Path,
        *,
        program: Program,
        settings: Mapping[str, str],
        watchdog: Watchdog | None,
    ) -> None:
        self.id = node
        self.port = port
        self.folder = folder
        self.settings = dict(settings)
        self.environment: dict[str, str] = {}
        self._program = program
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None
        self._formatting: subprocess.Popen[bytes] | None = None
        self._log_began = 0
        self._changing = threading.RLock()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """Kafka's log.dirs: the folder of the partitions' segments."""
        return self.folder / "data"

    @property
    def server_log(self) -> Path:
        """What the broker says."""
        return self.folder / "logs" / "server.log"

    @property
    def pid(self) -> int | None:
        """The process number while it runs, paused or not."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def closed_its_logs(self) -> bool:
        """Whether it has written Kafka's mark of a clean shutdown, which it removes when it starts."""
        return (self.log_dir / ".kafka_cleanshutdown").is_file()

    @property
    def stdout_log(self) -> Path:
        """What its Java says: nothing as a rule."""
        return self.folder / "logs" / "stdout.log"

    def format(self, cluster_id: str, deadline: float) -> None:
        """Make an empty data folder a member of the cluster, until `deadline` of `time.monotonic`; nothing where it is
        one already. Raises `KafkaFailed`."""
        if (self.log_dir / META).is_file():
            return
        if _FOLDERS.write(self._program, self.settings, self.log_dir, cluster_id):
            return
        self._write()
        with self._stdout() as out:
            self._formatting = subprocess.Popen(
                [*self._command("kafka.tools.StorageTool"), "format", "-t", cluster_id, "-c", self._properties],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._end_format(deadline)
        _FOLDERS.keep(self._program, self.settings, self.log_dir)

    def _end_format(self, deadline: float) -> None:
        """Wait for Kafka's tool. Raises `KafkaFailed`."""
        process, self._formatting = self._formatting, None
        if process is None:
            return
        try:
            failed = process.wait(max(0.0, deadline - time.monotonic())) != 0
        except subprocess.TimeoutExpired:
            raise KafkaFailed(f"Kafka broker {self.id}: its data folder was not made in time") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if failed:
            raise KafkaFailed(
                f"Kafka broker {self.id}: its data folder could not be made: {self._last_line()}; see {self.stdout_log}"
            )

    def start(self, timeout: float = 180) -> None:
        """Start it, and return when it serves (see `await_ready`).

        Nothing where it runs already. A port that is taken at the moment is tried again until the time (seconds) is
        over. Raises `KafkaFailed`; it does not run then."""
        deadline = time.monotonic() + timeout
        taken: AddressInUse | None = None
        while True:
            self.launch()
            try:
                self.await_ready([self.id], deadline)
                return
            except AddressInUse as error:
                taken = error
            except KafkaFailed as error:
                self.kill()
                raise taken or error from None
            if time.monotonic() + _PORT_RETRY_S > deadline:
                raise taken
            time.sleep(_PORT_RETRY_S)

    def launch(self) -> None:
        """Start the process, and wait for nothing."""
        with self._changing:
            if self.running:
                return
            if self._watchdog is not None and self._watchdog.closed:
                raise KafkaFailed(f"Kafka broker {self.id} cannot be started alone: its cluster has been stopped")
            self._write()
            self._log_began = self.server_log.stat().st_size if self.server_log.is_file() else 0
            with self._stdout() as out:
                self._process = subprocess.Popen(
                    [*self._command("kafka.Kafka"), self._properties],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=os.environ | self.environment,
                    start_new_session=True,
                )
            if self._watchdog is not None:
                self._watchdog.guard(self._process.pid)

    def await_ready(self, nodes: Iterable[int], deadline: float, others: Sequence[Broker] = ()) -> None:
        """Return when the broker says that it has started, and its metadata lists `nodes` as live brokers.

        Both, because the metadata alone may still speak of the broker's life before this one, and the port is open
        before the controller lets the broker serve. `deadline` is a time of `time.monotonic`. Raises `KafkaFailed` when
        it is over, or the process or that of one of `others` has ended: as `AddressInUse` where that is the reason."""
        wanted = set(nodes)
        while not (_STARTED in self._said() and wanted <= self._live_brokers()):
            for each in (self, *others):
                if not each.running:
                    raise each._ended()
            if time.monotonic() > deadline:
                raise KafkaFailed(f"Kafka broker {self.id} was not ready in time; its log is {self.server_log}")
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """End it as a power cut of its machine would end the process, and return when it is gone."""
        self._end(signal.SIGKILL, 30)
        with contextlib.suppress(KafkaFailed):
            self._end_format(0)

    def terminate(self, timeout: float = 30) -> bool:
        """Let it hand over its partitions and close its logs; kill it after `timeout` seconds.

        Returns whether it ended by itself. Nothing, and True, where it does not run."""
        return self._end(signal.SIGTERM, timeout)

    def ask_to_end(self) -> None:
        """As `terminate`, without waiting for it."""
        with self._changing:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """Freeze the process, and return when it stands: its connections stay open, and nobody answers on them."""
        self._signal(signal.SIGSTOP)
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return
        # On a busy machine its threads go on for a moment: until the one that was told of the signal gets a turn.
        deadline = time.monotonic() + _STANDS_S
        while (pid := self.pid) is not None and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
            time.sleep(_SOON_S)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _end(self, how: signal.Signals, timeout: float) -> bool:
        with self._changing:
            process = self._process
            if process is None:
                return True
            self._signal(how)
            self._signal(signal.SIGCONT)  # a paused process would not hear of it
            try:
                process.wait(timeout)
                by_itself = True
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                process.wait()
                by_itself = False
            if self._watchdog is not None:
                self._watchdog.release(process.pid)
            return by_itself

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)

    def _command(self, main: str) -> list[str]:
        return [*self._program.command(self.server_log.parent, self.folder / "logging.properties"), main]

    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    def _write(self) -> None:
        self.server_log.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "server.properties").write_text(rendered(self.settings))
        (self.folder / "logging.properties").write_text(logging_properties(self._program.version))

    def _stdout(self) -> BinaryIO:
        return self.stdout_log.open("ab")

    def _live_brokers(self) -> set[int]:
        # A client of its own each time: one that has heard of other brokers might ask those instead.
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}, logger=_SILENT)
        try:
            return set(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return set()

    def _said(self) -> str:
        """What it has logged since it was launched."""
        try:
            with self.server_log.open("rb") as log:
                log.seek(self._log_began)
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _ended(self) -> KafkaFailed:
        """Why the process ended before its time, by its own words."""
        said = self._said()
        if re.search(r"Address already in use|BindException", said):
            return AddressInUse(f"Kafka broker {self.id}: one of its ports is taken; its log is {self.server_log}")
        errors = re.findall(r"\] (?:ERROR|FATAL) (.*)", said)
        why = errors[-1][:300] if errors else self._last_line()
        return KafkaFailed(f"Kafka broker {self.id} ended by itself: {why}; its log is {self.server_log}")

    def _last_line(self) -> str:
        """The last line of what its Java has said that is none of a stack trace's."""
        with contextlib.suppress(OSError):
            lines = self.stdout_log.read_text(errors="replace").splitlines()
            return next((line[:300] for line in reversed(lines) if re.match(r"\S", line)), "without a word")
        return "without a word"
