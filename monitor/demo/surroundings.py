"""Where a demonstration takes place: its folder, how many brokers this machine bears, its configuration."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from monitor.config.config import Config, from_environment
from monitor.process.machine import available_memory

ROOT: Final = Path(".offsetwatch")
THREE_BROKERS_NEED: Final = 6 * 2**30
"""Bytes of available memory: three brokers of some 400 MiB each, Spark's JVM and its workers, and room for others."""

CORES_FOR_ALL: Final = 4
"""Processors that three brokers, all default probes and Spark can share, and findings still come within seconds."""
_FEWER_PROBES: Final = {
    "TRANSFORM__COUNT": "0",
    "REGISTERS__COUNT": "0",
    "READER__PER_BROKER": "false",
    "READER__RESTLESS": "0",
}


def affordable_brokers() -> int:
    """Three brokers, or one where memory is short."""
    return 3 if available_memory() >= THREE_BROKERS_NEED else 1


def remove_earlier(root: Path) -> None:
    """Remove the folders of earlier demonstrations, except those that still run."""
    for folder in root.glob("demo-*"):
        with suppress(OSError):
            lock = os.open(folder / "kafka" / ".lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def configuration(data: Path, bootstrap: str, brokers: int) -> Config:
    """The defaults and the environment's overrides, on the demonstration's own cluster and folder; it asks for no more
    replicas than there are `brokers`, and for fewer probes where these leave little of the machine."""
    given = {name: value for name, value in os.environ.items() if name.startswith("OFFSETWATCH_")}
    given |= {
        "OFFSETWATCH_DATA": str(data),
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": bootstrap,
        "OFFSETWATCH_ALERTS__LOG": str(data / "logs" / "findings.jsonl"),
    }
    few = {"REPLICATION": brokers, "MIN_IN_SYNC": max(1, brokers - 1)}
    chosen = {f"OFFSETWATCH_PROBES__TOPICS__{name}": str(number) for name, number in few.items()}
    if brokers > 1 and (os.cpu_count() or 1) < CORES_FOR_ALL:
        chosen |= {f"OFFSETWATCH_PROBES__{name}": value for name, value in _FEWER_PROBES.items()}
    return from_environment({"OFFSETWATCH_ALERTS__METRICS_PORT": "0"} | chosen | given)


def command() -> str:
    """How this program can be called again: by its name where the shell finds it, else as it was called now."""
    if shutil.which("offsetwatch"):
        return "offsetwatch"
    return "python -m monitor.cli" if sys.argv[0].endswith(".py") else sys.argv[0]
