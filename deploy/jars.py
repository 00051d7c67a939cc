"""The jars that Offsetwatch runs: a real Kafka's, and what Spark needs beyond PySpark's own.

They are resolved by the Ivy that ships inside PySpark, with Ivy's own default settings (a file of other settings, for
a mirror, is named by OFFSETWATCH_IVY_SETTINGS), so that no Maven and no address is needed. Each set has a folder
under `<home>/jars`, with a list of what belongs there; a folder that does not match its list, or was
resolved for another definition of the set, is resolved again.

Spark's sets leave out every module that PySpark's folder already has: a second version of Hadoop or Jackson on the
class path would be taken or not by chance, and it is 80 of the 93 MB that Delta alone would bring.

Any number of processes may ask for the same set at once: one resolves, the others wait for it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from deploy.errors import JarsMissing
from deploy.home import Say, home, locked, to_stderr
from deploy.java import java

__all__ = [
    "KAFKA",
    "KAFKA_OLD",
    "Artefact",
    "JarSet",
    "graphframes_jars",
    "home",
    "kafka_jars",
    "pyspark_jars",
    "pyspark_version",
    "resolved",
    "s3a_jars",
    "spark_jars",
]

KAFKA: Final = "4.3.1"
KAFKA_OLD: Final = "3.8.1"
"""The last line before version 2 of the transaction protocol."""

_SCALA: Final = "2.13"
_ATTEMPTS: Final = 2
"""Ivy keeps what it has fetched, so a second attempt after a dropped connection costs little."""
_ABSENT_S: Final = 24 * 3600
"""An optional set that the registry did not have is asked for again after a day."""
_IVY_LIMIT_S: Final = 1800


@dataclass(frozen=True, slots=True)
class Artefact:
    org: str
    name: str
    rev: str

    def __str__(self) -> str:
        return f"{self.org}:{self.name}:{self.rev}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """What is resolved into `<home>/jars/<folder>`: `artefacts` and all they need at run time.

    `about` is said while it is fetched. `beside_pyspark` leaves out the modules that PySpark has."""

    folder: str
    about: str
    artefacts: tuple[Artefact, ...]
    beside_pyspark: bool = False


class _NotFound(JarsMissing):
    """The registry answered, and does not have it."""


class _Interrupted(JarsMissing):
    """Some of it came, and then the connection broke."""


def kafka_jars(version: str = KAFKA, say: Say = to_stderr) -> list[Path]:
    """The class path of an Apache Kafka broker of `version`, fetched on first use. Raises `JarsMissing`."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise JarsMissing(f"{version!r} is not a version of Apache Kafka: write it like {KAFKA}")
    return resolved(say, _kafka(version))


def spark_jars(say: Say = to_stderr) -> list[Path]:
    """What Spark needs beside PySpark's own jars to read and write Delta tables. Raises `JarsMissing`."""
    spark = ".".join(installed("pyspark").split(".")[:2])
    delta = Artefact("io.delta", f"delta-spark_{spark}_{_SCALA}", installed("delta-spark"))
    about = f"Delta Lake {delta.rev} for Spark (8 jars, 13 MB)"
    return resolved(say, JarSet("spark", about, (delta,), beside_pyspark=True))


def s3a_jars(say: Say = to_stderr) -> list[Path]:
    """What Spark needs beside PySpark's own jars to write at s3a URLs, most of it the AWS SDK. Raises `JarsMissing`."""
    hadoop = next(pyspark_jars().glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    s3a = Artefact("org.apache.hadoop", "hadoop-aws", hadoop)
    return resolved(say, JarSet("spark-s3a", f"Hadoop's S3A {hadoop} (4 jars, 660 MB)", (s3a,), beside_pyspark=True))


def graphframes_jars(say: Say = to_stderr) -> list[Path]:
    """GraphFrames for Spark, or an empty list, said once, where the registry does not have it. Raises `JarsMissing`."""
    spark = installed("pyspark").split(".")[0]
    frames = Artefact("io.graphframes", f"graphframes-spark{spark}_{_SCALA}", installed("graphframes-py"))
    absent = home() / "jars" / f".graphframes-{frames.rev}.absent"
    if absent.is_file() and time.time() - absent.stat().st_mtime < _ABSENT_S:
        return []
    try:
        return resolved(say, JarSet("graphframes", f"GraphFrames {frames.rev}", (frames,), beside_pyspark=True))
    except _NotFound:
        absent.touch()
        say(f"the registry does not have {frames}: cycles are searched in memory, without GraphFrames")
        return []


def _kafka(version: str) -> JarSet:
    core = Artefact("org.apache.kafka", f"kafka_{_SCALA}", version)
    # The core's own dependencies bind SLF4J to nothing, and a broker's log is evidence.
    if int(version.split(".")[0]) >= 4:
        logging = Artefact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
    else:
        logging = Artefact("org.slf4j", "slf4j-reload4j", "1.7.36")
    return JarSet(f"kafka-{version}", f"Apache Kafka {version} (about 50 jars, 45 MB)", (core, logging))


def resolved(say: Say, wanted: JarSet) -> list[Path]:
    """The jars of a set, fetched where they are not there yet. Raises `JarsMissing`."""
    folder = home() / "jars" / wanted.folder
    module = _ivy_module(wanted)
    present = _complete(folder, module)
    if present is not None:
        return present
    with locked(home() / "jars" / f".{wanted.folder}.lock", say, wanted.about) as lock:
        present = _complete(folder, module)
        if present is not None:
            return present
        say(f"fetching {wanted.about} into {folder}")
        _resolve(wanted, module, folder, lock, say)
        present = _complete(folder, module)
    if present is None:
        raise JarsMissing(f"{folder} changed while it was being filled: try again")
    return present


def _complete(folder: Path, module: str) -> list[Path] | None:
    """The set's jars if all of them are there, whole, and as `module` asks."""
    try:
        listed = json.loads((folder / "jars.json").read_text())
        whole = listed["module"] == _digest(module) and all(
            (folder / name).stat().st_size == size for name, size in listed["jars"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return [folder / name for name in listed["jars"]] if whole else None


def _resolve(wanted: JarSet, module: str, folder: Path, lock: int, say: Say) -> None:
    work = home() / "jars" / f".{wanted.folder}.partial"
    shutil.rmtree(work / "jars", ignore_errors=True)
    work.mkdir(exist_ok=True)
    (work / "ivy.xml").write_text(module)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _run_ivy(wanted, work, lock, say)
            break
        except _Interrupted:
            if attempt == _ATTEMPTS:
                raise
    jars = sorted((work / "jars").glob("*.jar"))
    for artefact in wanted.artefacts:
        if not (work / "jars" / f"{artefact.name}-{artefact.rev}.jar").is_file():
            raise JarsMissing(f"cannot fetch {artefact}: Ivy retrieved no jar for it, see {work / 'ivy.log'}")
    listed = {"module": _digest(module), "jars": {jar.name: jar.stat().st_size for jar in jars}}
    (work / "jars" / "jars.json").write_text(json.dumps(listed, indent=1))
    if folder.exists():
        folder.rename(work / "replaced")
    (work / "jars").rename(folder)
    shutil.rmtree(work, ignore_errors=True)


def _run_ivy(wanted: JarSet, work: Path, lock: int, say: Say) -> None:

    command: list[str | Path] = [
        java(say),
        "-Xmx512m",
        # Ivy sets no limit of its own, and a connection that a firewall swallows would be waited for without end.
        "-Dsun.net.client.defaultConnectTimeout=10000",
        "-Dsun.net.client.defaultReadTimeout=60000",
        "-cp",
        # Ivy alone: with PySpark's HTTP client beside it, it would use that one, which heeds neither the limits above
        # nor Java's own proxy settings.
        ":".join(map(str, pyspark_jars().glob("ivy-*.jar"))),
        "org.apache.ivy.Main",
        *(["-settings", os.environ["OFFSETWATCH_IVY_SETTINGS"]] if os.environ.get("OFFSETWATCH_IVY_SETTINGS") else []),
        *("-ivy", work / "ivy.xml", "-cache", work / "cache", "-confs", "default"),
        *("-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"),
    ]
    log = work / "ivy.log"
    try:
        with log.open("wb") as out:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[lock],
                timeout=_IVY_LIMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise JarsMissing(f"cannot fetch {wanted.artefacts[0]}: no end after {_IVY_LIMIT_S} s, see {log}") from None
    if ended.returncode != 0:
        raise _failure(wanted, log)


def _failure(wanted: JarSet, log: Path) -> JarsMissing:
    """What Ivy's log says went wrong, in one sentence that names the artefact."""
    said = log.read_text(errors="replace")
    missing = re.search(r"::\s+([\w.\-]+)#([\w.\-]+);([\w.\-]+): (.+?)\s*$", said, re.MULTILINE)
    failed = re.search(r"\[(?:FAILED|NOT FOUND)\s*\]\s+([\w.\-]+)#([\w.\-]+);([\w.\-]+)!(\S+)", said)
    errors = re.search(r"^:::: ERRORS\s+(.+?)\s*$", said, re.MULTILINE)
    named = missing or failed
    artefact = Artefact(named[1], named[2], named[3]) if named else wanted.artefacts[0]
    for_whom = "" if artefact in wanted.artefacts else f" (needed by {wanted.artefacts[0]})"
    described = "not found" if missing or "[NOT FOUND" in said else "the download failed"
    why = errors[1][:300] if errors else described
    # Ivy says "not found" too of what it could not ask for, but then it has errors to tell.
    kind = _NotFound if why == "not found" else _Interrupted if "[SUCCESSFUL" in said else JarsMissing
    return kind(f"cannot fetch {artefact}{for_whom}: {why}; the log is {log}")


def _ivy_module(wanted: JarSet) -> str:
    """The ivy.xml that asks for the set. The same set beside the same PySpark gives the same text."""
    lines = [
        '<ivy-module version="2.0">',
        f'  <info organisation="offsetwatch" module={quoteattr(wanted.folder)}/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    for a in wanted.artefacts:
        place = f"org={quoteattr(a.org)} name={quoteattr(a.name)} rev={quoteattr(a.rev)}"
        lines.append(f'    <dependency {place} conf="default->default(runtime)"/>')
    if wanted.beside_pyspark:
        lines += [f"    <exclude module={quoteattr(module)}/>" for module in _pyspark_modules()]
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])


def pyspark_version() -> str:
    """The version of the Python package, which is its Spark's."""
    return installed("pyspark")


def pyspark_jars() -> Path:
    """The folder of the jars that PySpark brings. Raises `JarsMissing`."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JarsMissing("the Python package pyspark is not installed: run make setup")
    return Path(spec.submodule_search_locations[0]) / "jars"


def _pyspark_modules() -> list[str]:
    """The modules in PySpark's folder: "jackson-core" for jackson-core-2.21.2.jar."""
    return sorted({re.sub(r"-\d.*", "", jar.stem) for jar in pyspark_jars().glob("*.jar")})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
