"""The real command as a child process."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.monitor.prepared import Prepared

COMMAND = [sys.executable, "-m", "monitor.cli"]
PROJECT = Path(__file__).resolve().parent.parent.parent


def environment(changed: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any configuration of ours, and with `changed`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OFFSETWATCH_") or k == "OFFSETWATCH_HOME"}
    return kept | {"PYTHONPATH": str(PROJECT)} | dict(changed or {})


@cache
def _prepared() -> Prepared:
    made = Prepared(environment(), PROJECT)
    atexit.register(made.end)
    return made


def offsetwatch(*arguments: str, cwd: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, within minutes."""
    done = offsetwatch_given(None, *arguments, cwd=cwd, **changed)
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def offsetwatch_given(
    given: bytes | None, *arguments: str, cwd: Path, **changed: str
) -> subprocess.CompletedProcess[bytes]:
    """The same, with this at its standard input, and what it said as bytes."""
    return _prepared().run(arguments, environment(changed), cwd, given, timeout=300)


@contextmanager
def silent_address() -> Iterator[str]:
    """An address of this machine at which nobody answers: the port is taken, and not listened on, so that no broker of
    another test can turn up there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def started(*arguments: str, cwd: Path, command: Sequence[str] = COMMAND, **changed: str) -> subprocess.Popen[str]:
    """The command, running in a process group of its own; its output goes to files in `cwd`, so that nothing blocks."""
    with (cwd / "out.txt").open("w") as out, (cwd / "err.txt").open("w") as err:
        return subprocess.Popen(
            [*command, *arguments],
            cwd=cwd,
            env=environment(changed),
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
