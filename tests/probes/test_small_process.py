"""A process of probes makes arrays and commits them without pandas, with few of the C library's arenas, and without the
threads of the allocator that deltalake has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probes.running.small_process import ENVIRONMENT, small_from_the_start

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


TABLES = """
import sys
from pathlib import Path

from probes.running.small_process import stay_small

if sys.argv[2] == "small":
    stay_small()

import pyarrow as pa
from deltalake import write_deltalake

write_deltalake(sys.argv[1], pa.table({"a": [1]}))
write_deltalake(sys.argv[1], pa.table({"a": [2]}), mode="append")
threads = [one.read_text() for one in Path("/proc/self/task").glob("*/comm")]
print(sum(one.startswith("jemalloc") for one in threads))
"""


def allocators_threads(table: Path, how: str) -> int:
    """Of a process that writes a table."""
    ran = subprocess.run(
        [sys.executable, "-c", TABLES, str(table), how],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if name not in ENVIRONMENT},
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted by /proc")
def test_deltas_allocator_has_no_threads(tmp_path: Path) -> None:
    assert allocators_threads(tmp_path / "as-it-comes", "large") > 1
    assert allocators_threads(tmp_path / "small", "small") <= 1, "one is Arrow's"


def test_who_is_spawned_is_small_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """What deltalake goes by is read when it is loaded, and a spawned process loads what it is to do first."""
    one, other = ENVIRONMENT
    monkeypatch.setenv(one, "the site's own")
    monkeypatch.delenv(other, raising=False)
    with small_from_the_start():
        assert (os.environ[one], os.environ[other]) == ("the site's own", ENVIRONMENT[other])
    assert os.environ[one] == "the site's own"
    assert other not in os.environ
