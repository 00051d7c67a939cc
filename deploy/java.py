"""Which Java runs Spark, Kafka and the resolution of jars: any of version 17 or newer.

Looked for in this order: JAVA_HOME, PATH, then the runtime that was installed into `<home>/java` before. Where there
is none, a runtime is fetched into that folder with the `install-jdk` package; where that fails, `JavaMissing` says
in one line what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deploy.errors import JavaMissing
from deploy.home import Say, home, locked, to_stderr

OLDEST = 17
INSTALLED = "17"
"""Installed where there is none: the oldest that fits, which Spark and Kafka are tested with most."""

_SILENCE_S = 30
"""A download that sends nothing for this long has failed; behind a firewall it would otherwise wait for ever."""


def java(say: Say = to_stderr) -> Path:
    """The `java` program of a runtime of version 17 or newer. Raises `JavaMissing`."""
    found = find()
    return found if found is not None else _install(say)


def java_home(say: Say = to_stderr) -> Path:
    """That runtime's folder, the value for JAVA_HOME. Raises `JavaMissing`."""
    return java(say).resolve().parent.parent


def find() -> Path | None:
    """The first `java` that is new enough, or None; installs nothing."""
    return next((program for program in _candidates() if (version(program) or 0) >= OLDEST), None)


def version(program: Path) -> int | None:
    """A runtime's major version (8 for "1.8.0"), or None where `program` is no working Java."""
    if not (program.is_file() and os.access(program, os.X_OK)):
        return None
    # Starting a Java only to ask for its version takes 0.1 s, and every command would pay it.
    release = program.resolve().parent.parent / "release"
    try:
        return _major(re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE))
    except OSError:
        pass
    try:
        asked = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return _major(re.search(r'version "([^"]+)"', asked.stderr + asked.stdout))


def _major(match: re.Match[str] | None) -> int | None:
    numbers = re.match(r"(?:1\.)?(\d+)", match[1]) if match else None
    return int(numbers[1]) if numbers else None


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    yield from _programs(home() / "java")


def _programs(folder: Path) -> list[Path]:
    """The runtimes unpacked into `folder`; macOS archives hold theirs in Contents/Home."""
    return sorted([*folder.glob("*/bin/java"), *folder.glob("*/Contents/Home/bin/java")])


def _install(say: Say) -> Path:
    folder = home() / "java"
    with locked(home() / "java.lock", say, "Java"):
        found = find()  # another process may have installed it while this one waited
        if found is not None:
            return found
        say(f"fetching a Java {INSTALLED} runtime into {folder}, there is none of version {OLDEST} or newer")
        try:
            unpacked = _download(folder)
        except Exception as error:  # the package lets through whatever the network, the archive or the disk raise
            raise _missing(f"it could not be fetched: {_reason(error)}") from error
        found = find()
        if found is None:
            shutil.rmtree(unpacked, ignore_errors=True)
            raise _missing("the one that was fetched does not run here")
        return found


def _download(folder: Path) -> Path:
    import jdk  # imported here: it is wanted only on a machine without Java

    folder.mkdir(parents=True, exist_ok=True)
    silence = socket.getdefaulttimeout()
    with tempfile.TemporaryDirectory(dir=home(), prefix=".java-") as partial:
        socket.setdefaulttimeout(_SILENCE_S)
        try:
            jdk.install(INSTALLED, jre=True, path=partial)
        finally:
            socket.setdefaulttimeout(silence)
        (unpacked,) = (entry for entry in Path(partial).iterdir() if entry.is_dir())
        return unpacked.rename(folder / unpacked.name)


def _reason(error: BaseException) -> str:
    inner = error.__cause__ or error.__context__ or error
    return " ".join(str(getattr(inner, "reason", None) or inner).split())[:200] or type(inner).__name__


def _missing(why: str) -> JavaMissing:
    return JavaMissing(
        f"Java {OLDEST} or newer is needed and was not found in JAVA_HOME, on PATH or in {home() / 'java'}; {why}. "
        f"Install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) "
        "or set JAVA_HOME"
    )
