"""Commands in processes of their own that need not import first: each is a fork of one that has imported already.

A command imports for a second and a half of processor time, and then works for a tenth of one; the tests run hundreds.
It is a process as any: its own environment, folder, streams and exit code, and the exit of an interpreter. What it does
not show is how a command starts from nothing: `tests.monitor.commands.COMMAND` does.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

IMPORTED: Final = (
    "monitor.cli",
    "monitor.config.config",
    "monitor.config.names",
    "monitor.history_files.history_file",
    "monitor.history_files.verdict_text",
    "monitor.screen",
    "rules.across.resolution",
    "rules.store",
    "rules.engine.finished",
    "alerts.silences",
    "kio.static.primitive",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "arro3.core",
    "jinja2",
    "rich.console",
    "rich.table",
)
"""What is slow to import. Without deltalake, confluent_kafka and pyspark, which a command looks for as it leaves, and
without duckdb, which is chatty where it was not used."""


class Prepared:
    """The process that forks, of this test process. It ends with it, however that ends."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.monitor.prepared", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, given: bytes | None, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command to its end; raises `subprocess.TimeoutExpired`, as subprocess.run does."""
        asked = json.dumps({"arguments": arguments, "environment": dict(environment), "cwd": str(cwd)}).encode()
        with self._lock, TemporaryFile() as out, TemporaryFile() as err:
            reading = _pipe(given) if given is not None else os.open(os.devnull, os.O_RDONLY)
            try:
                head = len(asked).to_bytes(8, "big")
                socket.send_fds(self._ours, [head], [reading, out.fileno(), err.fileno()])
            finally:
                os.close(reading)
            self._ours.sendall(asked)
            code = self._wait(arguments, timeout)
            return subprocess.CompletedProcess(list(arguments), code, _content(out), _content(err))

    def _wait(self, arguments: Sequence[str], timeout: float) -> int:
        pid = self._number()
        self._ours.settimeout(timeout)
        try:
            return self._number()
        except TimeoutError:
            self._ours.settimeout(None)
            os.kill(pid, signal.SIGKILL)
            self._number()
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        finally:
            self._ours.settimeout(None)

    def _number(self) -> int:
        told = self._ours.recv(8, socket.MSG_WAITALL)
        assert len(told) == 8, "the process that forks has ended"
        return int.from_bytes(told, "big", signed=True)

    def end(self) -> None:
        self._ours.close()
        self._process.wait()


def _pipe(given: bytes) -> int:
    """A pipe from which this can be read, once, and then its end."""
    reading, writing = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as into:
            into.write(given)

    threading.Thread(target=write, daemon=True).start()
    return reading


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def serve(connection: socket.socket) -> None:
    """Forks for each command that is asked for; returns in the fork, which is the command from then on."""
    while True:
        head, streams, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            sys.exit()
        asked = b""
        while len(asked) < int.from_bytes(head, "big"):
            asked += connection.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(json.loads(asked), streams)
            return
        for stream in streams:
            os.close(stream)
        connection.sendall(pid.to_bytes(8, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


def _become(asked: Mapping[str, Any], streams: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["cwd"])
    sys.argv[1:] = asked["arguments"]


if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    import_module("monitor.cli").main()
