"""One Spark session for all of these tests: starting one costs seconds, and a process can hold no second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_jobs.config import JobConfig
from streaming_jobs.session import SessionSettings, start

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from deploy import class_archive
    from deploy.jars import spark_jars
    from deploy.java import java

    root = tmp_path_factory.mktemp("spark") / "it's, of ours ä"  # a folder may have any name
    # Spark's Python workers import the tests' own checks, from wherever the session's folder is.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    session = start(
        SessionSettings(
            jars=spark_jars(),
            logs=root / "logs",
            scratch=root / "scratch",
            driver_memory="1g",
            java_options=class_archive.taking(class_archive.of_spark(java())),
        )
    )
    yield session
    session.stop()


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    return JobConfig.model_validate({"root": tmp_path / "data", "history_wait": 0, "upkeep": {"enabled": False}})
