"""A process that runs the integrity job and is killed: `python -m tests.streaming_jobs.victim ROOT`."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy import class_archive
from deploy.jars import spark_jars
from deploy.java import java
from streaming_jobs.config import JobConfig
from streaming_jobs.integrity_job import IntegrityJob, session_settings
from streaming_jobs.session import start


def config(root: Path) -> JobConfig:
    """One commit a batch, so that there are moments between batches."""
    return JobConfig.model_validate(
        {"root": root, "max_files": 2, "shuffle_partitions": 2, "upkeep": {"enabled": False}, "history_wait": 0}
    )


def main(root: Path) -> None:
    settings = config(root)
    archived = class_archive.taking(class_archive.of_spark(java()))
    spark = start(session_settings(settings, spark_jars(), driver_memory="1g", java_options=archived))
    IntegrityJob(settings, spark).run_available_now()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
