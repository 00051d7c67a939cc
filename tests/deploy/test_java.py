"""Which Java is taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import jdk
import pytest

from deploy import java
from deploy.errors import JavaMissing

BANNER = "#!/bin/sh\necho 'openjdk version \"{}\" 2025-04-15' >&2\n"


def runtime(folder: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java runtime's; its `java` says its version, as the file `release` does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(BANNER.format(version))
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="Example"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without Java, without a way out to the network, and with a home of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("OFFSETWATCH_HOME", str(tmp_path / "home"))
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    # What urllib knows of proxies it would keep for all tests that follow.
    monkeypatch.setattr(urllib.request, "_opener", None)
    return tmp_path


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25), ("11.0.2", 11)]
)
def test_versions(tmp_path: Path, version: str, major: int, release: bool) -> None:
    assert java.version(runtime(tmp_path / "jre", version, release=release)) == major


def test_what_is_no_java(tmp_path: Path) -> None:
    assert java.version(tmp_path / "absent") is None
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert java.version(broken) is None, "not executable"
    broken.chmod(0o755)
    assert java.version(broken) is None


def test_the_first_that_is_new_enough_is_taken(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert java.find() is None
    own = runtime(nowhere / "home" / "java" / "jdk-17.0.1-jre", "17.0.1")
    assert java.find() == own
    on_path = runtime(nowhere, "21.0.2")
    assert java.find() == on_path
    named = runtime(nowhere / "named", "17.0.3")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "named"))
    assert java.find() == named
    assert java.java_home() == nowhere / "named"
    monkeypatch.setenv("JAVA_HOME", str(runtime(nowhere / "old", "11.0.2").parent.parent))
    assert java.find() == on_path


def test_the_real_one_runs() -> None:
    said = subprocess.run([java.java(), "-version"], capture_output=True, text=True, check=True)
    assert f'version "{java.version(java.java())}.' in said.stderr


def test_without_java_and_network_one_line_says_what_to_install(nowhere: Path) -> None:
    said: list[str] = []
    with pytest.raises(JavaMissing) as missing:
        java.java(said.append)
    assert said == [
        f"fetching a Java 17 runtime into {nowhere / 'home/java'}, there is none of version 17 or newer",
    ]
    line = str(missing.value)
    assert line.startswith("Java 17 or newer is needed and was not found in JAVA_HOME, on PATH or in ")
    assert "it could not be fetched: " in line  # in which words depends on the network that is not there
    assert "openjdk-17-jre-headless" in line
    assert "\n" not in line
    assert [entry.name for entry in (nowhere / "home").iterdir() if entry.name.startswith(".java-")] == []


def test_a_fetched_runtime_is_kept(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def install(version: str, *, jre: bool, path: str) -> None:
        fetched.append((version, jre))
        runtime(Path(path) / "jdk-17.0.9+9-jre", "17.0.9")

    monkeypatch.setattr(jdk, "install", install)
    kept = nowhere / "home" / "java" / "jdk-17.0.9+9-jre" / "bin" / "java"
    assert java.java(print) == kept
    assert java.java(print) == kept
    assert fetched == [("17", True)]


def test_a_fetched_runtime_that_does_not_run_is_not_kept(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jdk, "install", lambda version, *, jre, path: (Path(path) / "jdk-17").mkdir())
    with pytest.raises(JavaMissing, match="the one that was fetched does not run here"):
        java.java(print)
    assert list((nowhere / "home" / "java").iterdir()) == []
