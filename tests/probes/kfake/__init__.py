"""franz-go's kfake, an implementation of Kafka that shares no line with it, built and served where Go is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent


def built(folder: Path) -> Path:
    """The program. Skips where there is no Go, or where nobody has its modules."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    had = subprocess.run([go, "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False)
    if had.returncode:
        pytest.skip(f"the modules of kfake cannot be had: {had.stderr.strip()[-200:]}")
    program = folder / "kfake"
    made = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(program), "."], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return program


@contextmanager
def served(program: Path) -> Iterator[str]:
    """The address at which a new cluster of one broker is served meanwhile."""
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None and running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.stdin.close()
            assert running.wait(60) == 0
