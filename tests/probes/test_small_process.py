"""A process of probes makes arrays and commits them without pandas, and with few of the C library's arenas."""

from __future__ import annotations

import subprocess
import sys

ARRAYS = """
import sys
import threading

from probes.running.small_process import stay_small

stay_small()
stay_small()

import pyarrow as pa

assert pa.table({"a": pa.array([{"x": 1}, None])}).to_pylist() == [{"a": {"x": 1}}, {"a": None}]
assert "pandas" not in sys.modules

ready = threading.Barrier(17)


def take() -> None:
    held = [bytes(100_000) for _ in range(10)]
    ready.wait()
    ready.wait()
    assert held


threads = [threading.Thread(target=take) for _ in range(16)]
for one in threads:
    one.start()
ready.wait()
with open("/proc/self/maps") as maps:
    starts = [int(line.partition("-")[0], 16) for line in maps if line.split()[1].startswith("rw")]
print(sum(not start % (64 << 20) for start in starts))
ready.wait()
"""


def test_no_pandas_and_few_arenas() -> None:
    ran = subprocess.run([sys.executable, "-c", ARRAYS], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) <= 3, "each arena begins at a multiple of 64 MiB"
