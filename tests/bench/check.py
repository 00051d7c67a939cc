"""`offsetwatch check` on a large finished history, as a command: time and memory with everything that it takes.

A million transactions of four micro-operations each: two million sends, two million polled records, slices of a few
records. As JSON lines and as EDN, without the search of cycles and (JSON lines) with it. The yardstick is reading the
same file: every line parsed by orjson, or the characters of the EDN file split at blanks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson

from tests.bench.report import mib, show

TRANSACTIONS = 1_000_000
CASES = (
    # file, options, seconds and GiB asked for
    ("history.jsonl", ("--no-cycles",), 60.0, 2.0),
    ("history.edn", ("--no-cycles",), 120.0, 2.0),
    ("history.jsonl", (), 180.0, 6.0),
)


def _history(path: Path) -> None:
    if not path.exists():
        made = path.with_suffix(".part")
        form = ["--edn"] if path.suffix == ".edn" else []
        generate = [sys.executable, "-m", "tests.monitor.history_files.generate", "--transactions", str(TRANSACTIONS)]
        subprocess.run([*generate, *form, str(made)], check=True)
        made.rename(path)


def _read_plainly(path: Path) -> float:
    began = time.process_time()
    with path.open("rb") as lines:
        for line in lines:
            if path.suffix == ".edn":
                line.split()
            else:
                orjson.loads(line)
    return time.process_time() - began


def run(root: Path) -> bool:
    """True where each case stays within what was asked for."""
    good = True
    for name, options, seconds, gib in CASES:
        path = root / name
        _history(path)
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "monitor.cli", "check", *options, str(path)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        wall, cpu, peak = time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
        good &= os.waitstatus_to_exitcode(status) == 0 and cpu <= seconds and peak <= gib * 2**30
        show(
            f"offsetwatch check {' '.join((*options, name))}: {TRANSACTIONS:,} transactions of four micro-operations",
            {
                "time": f"{cpu:.1f} s of one core, {wall:.1f} s by the clock (asked: {seconds:.0f} s)",
                "peak memory": f"{mib(peak)} (asked: {gib * 1024:,.0f} MiB)",
                "beside reading the file": f"1 : {cpu / _read_plainly(path):.1f}",
                "exit code": os.waitstatus_to_exitcode(status),
            },
        )
    return good
