"""A session that could not be called back is refused, instead of waiting for ever in its first batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_jobs import session
from streaming_jobs.errors import SessionError


def test_the_jvm_can_call_back_however_many_files_are_open_later(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert gateway._callback_server.server_socket.fileno() < 1024


def test_what_the_state_server_says_of_absent_keys_is_left_out(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger(session.STATE_SERVER)
    assert jvm.java.lang.Class.forName(session.STATE_SERVER).getName() == session.STATE_SERVER, "Spark has moved it"
    logger.warn("Map state chunks doesn't contain key [186b5cfa0bff263d.0].")
    logger.warn("Value state partition doesn't contain a value.")
    logger.warn("another trouble of the state server")
    configured = jvm.java.lang.System.getProperty("log4j2.configurationFile")
    said = Path(configured.removeprefix("file:")).with_name("spark.log").read_text()
    assert "another trouble of the state server" in said
    assert "doesn't contain" not in said


def test_too_many_open_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_000)]
    try:
        with pytest.raises(SessionError, match="files open"):
            session._open_callbacks(spark.sparkContext._gateway)
    finally:
        for descriptor in held:
            os.close(descriptor)
