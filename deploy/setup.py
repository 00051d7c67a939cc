"""What `make setup` does once the packages are installed: finds Java, and fetches what everybody needs.

That is the default Kafka and what Spark needs; older brokers and the optional sets are fetched on first use. Silent,
and done in well under a second, where all of it is there. Exit code 2 with one line where something is missing.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from tempfile import TemporaryDirectory

from deploy import class_archive
from deploy.errors import DeployError, KafkaFailed
from deploy.home import home, locked, to_stderr
from deploy.jars import KAFKA, kafka_jars, spark_jars
from deploy.java import java
from deploy.kafka_settings import QUICK_START
from deploy.local_kafka import LocalKafka


def prepare() -> None:
    """Java, the default Kafka's jars and Spark's. Raises `DeployError`."""
    java()
    # Each spends its time waiting for the registry, one small file after the other.
    with ThreadPoolExecutor() as pool:
        for fetched in [pool.submit(kafka_jars), pool.submit(spark_jars)]:
            fetched.result()
    archive_classes()


def archive_classes(version: str = KAFKA) -> None:
    """Make the class archive of Kafka `version`, where there is none, from the life of a broker."""
    file = class_archive.archive(java(), version, kafka_jars(version))
    if file.is_file():
        return
    with locked(home() / "classes.lock", to_stderr, "Kafka's classes"):
        if file.is_file():
            return
        to_stderr(f"making the starts of Apache Kafka {version} faster (once, 50 MB)")
        file.parent.mkdir(exist_ok=True)
        for outdated in file.parent.glob(f"kafka-{version}-*.jsa"):
            outdated.unlink()
        made = file.with_suffix(".partial")
        with TemporaryDirectory(dir=file.parent) as folder, suppress(KafkaFailed):
            kafka = LocalKafka(folder, brokers=1, version=version)
            kafka.jvm_options = [*QUICK_START, *class_archive.making(made)]
            with kafka:
                kafka.broker(1).terminate(60)
        if made.is_file():
            made.rename(file)
        else:
            to_stderr("that did not succeed: brokers will start a second later")


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
