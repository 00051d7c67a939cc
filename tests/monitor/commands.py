"""The real command as a child process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "monitor.cli"]
PROJECT = Path(__file__).resolve().parent.parent.parent


def environment(changed: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any configuration of ours, and with `changed`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OFFSETWATCH_") or k == "OFFSETWATCH_HOME"}
    return kept | {"PYTHONPATH": str(PROJECT)} | dict(changed or {})


def offsetwatch(*arguments: str, cwd: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, within a minute."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(changed),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@contextmanager
def silent_address() -> Iterator[str]:
    """An address of this machine at which nobody answers: the port is taken, and not listened on, so that no broker of
    another test can turn up there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def started(*arguments: str, cwd: Path, **changed: str) -> subprocess.Popen[str]:
    """The command, running in a process group of its own; its output goes to files in `cwd`, so that nothing blocks."""
    with (cwd / "out.txt").open("w") as out, (cwd / "err.txt").open("w") as err:
        return subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, env=environment(changed), stdout=out, stderr=err, text=True,
            start_new_session=True,
        )  # fmt: skip
