"""The classes of Kafka, and of Spark, as one file each that Java maps at its start, instead of opening, parsing and
verifying thousands.

It halves what the start of a broker costs, and spares a Spark session some seconds of processor time. Java makes such
an archive of what a process has loaded when that process ends, and takes it only where the class path is the same and
the Java is the same; otherwise it goes on as if there were none. So the archive's name holds both, and nothing depends
on its being there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from deploy.home import home
from deploy.jars import pyspark_jars, pyspark_version


def of_kafka(java: Path, version: str, jars: Iterable[Path]) -> Path:
    """Where the archive of Kafka `version` on these jars for this Java belongs; it may not exist."""
    return archive(java, f"kafka-{version}", jars)


def of_spark(java: Path) -> Path:
    """Where the archive of PySpark's own Spark for this Java belongs; it may not exist. Raises `JarsMissing`."""
    return archive(java, f"spark-{pyspark_version()}", sorted(pyspark_jars().glob("*.jar")))


def archive(java: Path, name: str, jars: Iterable[Path]) -> Path:
    """Where the archive `name` of these jars for this Java belongs."""
    program = java.resolve()
    release = program.parent.parent / "release"
    known_by = [release.read_text(errors="replace") if release.is_file() else ""]
    known_by += [f"{file} {file.stat().st_mtime_ns}" for file in (program, *jars)]
    digest = hashlib.sha256("\n".join(known_by).encode()).hexdigest()[:12]
    return home() / "classes" / f"{name}-{digest}.jsa"


def taking(file: Path) -> list[str]:
    """The Java options that take the archive; none where it does not exist."""
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto"] if file.is_file() else []


def making(file: Path) -> list[str]:
    """The Java options that make the archive when the process ends."""
    return [f"-XX:ArchiveClassesAtExit={file}"]
