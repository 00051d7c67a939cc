"""How the command ends: its exit code, and what is said where its outputs cannot be written."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

INTERRUPTED: Final = 130
NOBODY_READS: Final = 141
"""As of a program that SIGPIPE ended."""
_RUNNING: Final = {"pyspark", "confluent_kafka"}


def nowhere() -> TextIO:
    """Where what nobody can read is written."""
    return Path(os.devnull).open("w", encoding="utf-8")


def complain(line: str) -> None:
    """One line on stderr; where that cannot be written, the exit code says it alone."""
    with suppress(OSError):
        print(f"offsetwatch: {line}", file=sys.stderr)


def cannot_be_written(stream: TextIO) -> bool:
    """Whether what is said there gets lost, which is tried. It is given up then: the interpreter would try again."""
    try:
        print(file=stream, flush=True)
    except (OSError, ValueError):
        sys.stdout = nowhere()
        return True
    return False


def leave(code: int, arguments: Sequence[str] | None) -> None:
    """Exit. A program of its own that had to do with tables leaves without waiting for Arrow's and deltalake's threads:
    now and then they abort the process as it ends (code 134), and one of deltalake's calls that comes back while the
    interpreter goes ends it by SIGSEGV (code 139), as a table's upkeep and what the status page reads may.

    What is left to do at the exit is done only where a command ran something: one that read tables has nothing."""
    if arguments is None and "deltalake" in sys.modules:
        if _RUNNING & sys.modules.keys():
            for thread in threading.enumerate():
                if not thread.daemon and thread is not threading.current_thread():
                    thread.join()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)
