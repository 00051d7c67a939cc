"""Errors of Spark and Java in one line for the user."""

from __future__ import annotations

import pytest

from streaming_jobs.errors import CheckpointDamaged, EvidenceGap, JobError, JobFailed, last_line, said, translated

ABORTED = """An error occurred while calling o343.getResult.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJob(DAGScheduler.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ABORTED, "No space left on device"),
        (ABORTED.splitlines()[0], "An error occurred while calling o343.getResult."),
        ("PythonException:\n Traceback (most recent call last):\n  File x\nValueError: a rule", "ValueError: a rule"),
        ("", "no message"),
    ],
)
def test_the_line_that_says_most(text: str, expected: str) -> None:
    assert last_line(text) == expected


def test_an_error_whose_text_nobody_can_tell_any_more() -> None:
    class OfTheDead(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert said(OfTheDead()) == "Spark's Java process has gone"
    failed = translated(OfTheDead(), checkpoint="c")
    assert isinstance(failed, JobFailed)
    assert str(failed) == "The integrity job ended: OfTheDead: Spark's Java process has gone."


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("/data/checkpoints/integrity/state/0/1/.104.changelog.x.tmp", CheckpointDamaged),
        ("/data/history/a", EvidenceGap),
    ],
)
def test_a_file_that_is_gone_is_one_of_the_checkpoint_or_of_the_log(gone: str, expected: type[JobError]) -> None:
    spark = RuntimeError(f"Job aborted\nCaused by: java.io.FileNotFoundException: File file:{gone} does not exist\n")
    told = translated(spark, checkpoint="/data/checkpoints/integrity")
    assert type(told) is expected
    assert f"(File file:{gone} does not exist)" in str(told)
