"""`python -m deploy.setup`, as `make setup` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.setup import prepare


def setup(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.setup"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_it_is_silent_when_all_is_there() -> None:
    prepare()
    done = setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_java_it_says_one_line_and_ends_with_2(tmp_path: Path) -> None:
    proxy = "http://127.0.0.1:9"
    home = str(tmp_path / "home")
    done = setup(JAVA_HOME="", PATH=str(tmp_path), OFFSETWATCH_HOME=home, http_proxy=proxy, https_proxy=proxy)
    progress, failure = done.stderr.splitlines()
    assert done.returncode == 2
    assert progress.startswith("offsetwatch: fetching a Java 17 runtime into ")
    assert failure.startswith("offsetwatch: Java 17 or newer is needed and was not found in JAVA_HOME, on PATH or in ")
