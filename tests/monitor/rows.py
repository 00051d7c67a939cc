"""Findings tables for the tests of the application, written through the job's own table code."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from rules.vocabulary.finding import Event, Finding, to_table
from rules.vocabulary.policy import severity
from rules.vocabulary.times import EPOCH, micros
from streaming_jobs.tables.delta_tables import open_tables
from streaming_jobs.tables.schemas import FINDINGS

NOON = EPOCH + timedelta(days=20_000, hours=12)


def finding(
    anomaly: str, subject: tuple[int | str, ...] = (1,), event: Event = "raised", *, at: float = 0.0, **more: Any
) -> Finding:
    """A finding of partition 3 of topic t, `at` seconds after noon."""
    spoken = micros(NOON + timedelta(seconds=at))
    given: dict[str, Any] = {
        "cluster": "c",
        "topic_id": "t-id",
        "topic": "t",
        "partition": 3,
        "message": f"a {anomaly} happened",
        "evidence": {"writer": 7, "seq": 1, "offsets": [4, 9]},
        "at": spoken,
        "decidable": spoken,
    }
    return Finding(anomaly=anomaly, subject=subject, event=event, **(given | more))


def events(*found: Finding) -> pa.Table:
    """The findings as rows of the table, each judged by the policy and recorded half a second after it was decided."""
    judged = to_table([(one, severity(one.anomaly, one.context)) for one in found])
    batch = pa.nulls(len(found), pa.int64())
    recorded = pa.array(
        [row["at"] + timedelta(seconds=0.5) for row in judged.to_pylist()], FINDINGS.field("recorded").type
    )
    columns = {"batch": batch, "recorded": recorded}
    return pa.table([columns[name] if name in columns else judged[name] for name in FINDINGS.names], schema=FINDINGS)


def record(data: Path, *found: Finding) -> None:
    """Write the findings into the tables of a data folder."""
    open_tables(data / "tables")["findings"].write(events(*found), mode="append")
