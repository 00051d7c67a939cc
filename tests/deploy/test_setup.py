"""`python -m deploy.setup`, as `make setup` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.setup import forget_outdated, prepare


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


def test_environments_that_share_a_home_keep_their_class_archives(tmp_path: Path) -> None:
    for age, name in enumerate(("spark-1-a", "spark-1-b", "spark-1-c", "spark-1-d", "spark-1-e", "kafka-1-a")):
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (1000 + age, 1000 + age))
    forget_outdated(tmp_path, "spark-1")
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["kafka-1-a", "spark-1-c", "spark-1-d", "spark-1-e"]
