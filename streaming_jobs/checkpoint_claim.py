"""One job at a time on a checkpoint: a second one would run batches under the first, and both would fail."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streaming_jobs.errors import CheckpointTaken, TableError

_LENGTH: Final = 100


@contextmanager
def claimed(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint in this folder, which need not exist yet; the lock lies beside it and names its holder.

    Raises `CheckpointTaken` where another process holds it, `TableError` where the lock cannot be written."""
    lock = checkpoint.with_name(f"{checkpoint.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TableError(f"{lock} cannot be written: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, _, host = os.pread(descriptor, _LENGTH, 0).decode(errors="replace").strip().partition(" ")
            elsewhere = f" on {host}" if host and host != socket.gethostname() else ""
            by = f" (process {holder}{elsewhere})" if holder.isdigit() else ""
            raise CheckpointTaken(f"another monitor{by} is at work on {checkpoint}.") from None
        # Of one length, so that nothing of an earlier holder stays.
        holder = f"{os.getpid()} {socket.gethostname()}"[:_LENGTH].ljust(_LENGTH)
        try:
            os.pwrite(descriptor, holder.encode(), 0)
        except OSError as error:
            raise TableError(f"{lock} cannot be written: {error.strerror}.") from error
        yield
    finally:
        os.close(descriptor)
