"""What is freed is given back, though some of what lies between is in use."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from tests.monitor.commands import PROJECT

PROGRAM = """
import time
from pathlib import Path
from monitor.process.memory import giving_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
kept = [bytes(2_000) for _ in range(100_000)]
del kept[:-1:2]; del kept[:-1:2]; del kept[:-1:2]; del kept[:-1:2]; del kept[:-1:2]; del kept[:-1:2]; del kept[:-1:2]
held = resident() - before
with giving_back({every}):
    end = time.monotonic() + 20
    while time.monotonic() < end and resident() - before > held / 3:
        time.sleep(0.05)
print(held > 100_000_000, resident() - before < held / 2, len(kept))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not with glibc")
@pytest.mark.parametrize(("every", "given"), [(0.1, True), (60.0, False)])
def test_memory_that_was_freed_is_given_back(every: float, given: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(every=every).replace("+ 20", "+ 20" if given else "+ 1")],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
        timeout=300,
    )
    assert done.stdout.split() == ["True", str(given), "782"]
