"""A session that could not be called back is refused, instead of waiting for ever in its first batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_jobs import session
from streaming_jobs.errors import SessionError


def test_the_jvm_can_call_back_however_many_files_are_open_later(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert gateway._callback_server.server_socket.fileno() < 1024


def test_too_many_open_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_000)]
    try:
        with pytest.raises(SessionError, match="files open"):
            session._open_callbacks(spark.sparkContext._gateway)
    finally:
        for descriptor in held:
            os.close(descriptor)
