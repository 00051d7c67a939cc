"""What the probe log holds is checked to its end, as the monitor does it on a machine that is very busy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from streaming_jobs.config import JobConfig
from streaming_jobs.errors import WorkerLate
from streaming_jobs.integrity_job import IntegrityJob, Listeners
from streaming_jobs.log_watch import Clocks
from streaming_jobs.verdicts.checks import Check

log = logging.getLogger(__name__)
TRIES: Final = 5


def check_all(
    config: JobConfig,
    spark: SparkSession,
    listeners: Listeners | None = None,
    *,
    check: Check | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Another job is begun where Spark gave up a Python worker that needed ten seconds to start."""
    for left in reversed(range(TRIES)):
        try:
            IntegrityJob(config, spark, listeners, check=check, clocks=Clocks(clock, clock)).run_available_now()
            return
        except WorkerLate as late:
            if not left:
                raise
            log.warning("%s", late)
