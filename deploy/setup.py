"""What `make setup` does once the packages are installed: finds Java, and fetches what everybody needs.

That is the default Kafka and what Spark needs; older brokers and the optional sets are fetched on first use. Silent,
and done in well under a second, where all of it is there. Exit code 2 with one line where something is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy import class_archive
from deploy.errors import DeployError, KafkaFailed
from deploy.home import home, locked, to_stderr
from deploy.jars import KAFKA, kafka_jars, spark_jars
from deploy.java import java, java_home
from deploy.kafka_settings import QUICK_START
from deploy.local_kafka import LocalKafka

_SESSION_LIMIT_S: Final = 300
ARCHIVES_KEPT: Final = 4


def prepare() -> None:
    """Java, the default Kafka's jars and Spark's, and the class archives of both. Raises `DeployError`."""
    java()
    # Each spends its time waiting for the registry, one small file after the other.
    with ThreadPoolExecutor() as pool:
        for fetched in [pool.submit(kafka_jars), pool.submit(spark_jars)]:
            fetched.result()
        for made in [pool.submit(archive_kafka), pool.submit(archive_spark)]:
            made.result()


def archive_kafka(version: str = KAFKA) -> None:
    """Make the class archive of Kafka `version`, where there is none, from the life of a broker."""

    def live(folder: str, made: Path) -> None:
        kafka = LocalKafka(folder, brokers=1, version=version)
        kafka.jvm_options = [*QUICK_START, *class_archive.making(made)]
        with suppress(KafkaFailed), kafka:
            kafka.broker(1).terminate(60)

    _archived(class_archive.of_kafka(java(), version, kafka_jars(version)), "Kafka", live)


def archive_spark() -> None:
    """Make the class archive of Spark, where there is none, from the life of a session (`spark_classes`)."""

    def live(folder: str, made: Path) -> None:
        # As the jobs' sessions have them (`streaming_jobs.spark_conf`).
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss16m", *class_archive.making(made)]
        here = {"JAVA_HOME": str(java_home()), "SPARK_SUBMIT_OPTS": " ".join(options), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (Path(folder) / "log").open("wb") as said, suppress(subprocess.SubprocessError):
            subprocess.run(
                [sys.executable, "-m", "deploy.spark_classes", folder],
                env={**os.environ, **here, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdout=said,
                stderr=said,
                check=True,
                timeout=_SESSION_LIMIT_S,
            )

    _archived(class_archive.of_spark(java()), "Spark", live)


def _archived(file: Path, of_what: str, live: Callable[[str, Path], None]) -> None:
    """Have the archive `file` made by `live`, which is given a folder and where Java is to write."""
    if file.is_file():
        return
    name = file.stem.rpartition("-")[0]  # without what it is bound to
    with locked(home() / f"{name}.lock", to_stderr, of_what):
        if file.is_file():
            return
        to_stderr(f"making the starts of {of_what} faster (once, up to a minute)")
        file.parent.mkdir(exist_ok=True)
        forget_outdated(file.parent, name)
        made = file.with_suffix(".partial")
        made.unlink(missing_ok=True)  # of one that was killed
        with TemporaryDirectory(dir=file.parent) as folder:
            live(folder, made)
        if made.is_file():
            made.rename(file)
        else:
            to_stderr(f"that did not succeed: {of_what} will start more slowly")


def forget_outdated(folder: Path, name: str) -> None:
    """Delete all but the newest of the class archives of this name. Several are in use where environments share a home,
    as each has its own jars."""
    made = sorted(folder.glob(f"{name}-*.jsa"), key=lambda file: file.stat().st_mtime)
    for outdated in made[: 1 - ARCHIVES_KEPT]:
        outdated.unlink(missing_ok=True)


def main() -> int:
    try:
        prepare()
    except DeployError as error:
        print(f"offsetwatch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
