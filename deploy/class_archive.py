"""Kafka's classes as one file that Java maps at its start, instead of opening, parsing and verifying some 6,000.

It halves what the start of a broker costs. Java makes such an archive of what a process has loaded when that process
ends, and takes it only where the class path is the same and the Java is the same; otherwise it goes on as if there were
none. So the archive's name holds both, and nothing depends on its being there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from deploy.home import home


def archive(java: Path, version: str, jars: Sequence[Path]) -> Path:
    """Where the archive of Kafka `version` on these jars for this Java belongs; it may not exist."""
    program = java.resolve()
    release = program.parent.parent / "release"
    known_by = [release.read_text(errors="replace") if release.is_file() else ""]
    known_by += [f"{file} {file.stat().st_mtime_ns}" for file in (program, *jars)]
    digest = hashlib.sha256("\n".join(known_by).encode()).hexdigest()[:12]
    return home() / "classes" / f"kafka-{version}-{digest}.jsa"


def taking(file: Path) -> list[str]:
    """The Java options that take the archive; none where it does not exist."""
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto"] if file.is_file() else []


def making(file: Path) -> list[str]:
    """The Java options that make the archive when the process ends."""
    return [f"-XX:ArchiveClassesAtExit={file}"]
